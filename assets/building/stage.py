"""The interfaces of stages: the stage itself, what its build is given, the summary of its artifact, and the listener to its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from graphmill.assets.building.page import Page
from graphmill.assets.costs.needs import Need, Sizes, Speed
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Check:
    """One statement about an artifact that was tested while it was built."""

    # The tested statement in a few words: "rows are sorted".
    name: str
    # Whether the statement holds.
    passed: bool
    # A sentence with the numbers behind it: the finding, its place, and the bound.
    detail: str = ""
    # Label with its unit -> number: the measured value, and its bound.
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    # Whether a failure forbids to publish the artifact.
    blocking: bool = True


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The facts of an artifact about itself; they are content, so they hold no times, hosts or paths."""

    # Name -> int, finite float, text, or a list or dict of these.
    numbers: Mapping[str, Any] = field(default_factory=dict)
    # Results of the tests.
    checks: tuple[Check, ...] | list[Check] = ()
    # Title -> file name of a PNG in the artifact.
    figures: Mapping[str, str] = field(default_factory=dict)
    # Phrases about contents of the source that are not read. They depend on other tables of the pipeline, so run.json has them.
    unread: Sequence[str] = ()
    # Names of files that follow from the other ones, such as their sums. An artifact without them is the same.
    derived: Sequence[str] = field(default=(), metadata={"hashed": "unless default"})


class ChecksFailedError(InputError):
    """Blocking checks of an artifact failed, so it was not published; `checks` has all of them, passed ones too."""

    def __init__(self, problem: str, remedy: str, checks: tuple[Check, ...], version: str = ""):
        super().__init__(problem, remedy)
        self.checks, self.version = checks, version


class Progress:
    """Listens to a long operation; subclasses override the events that they do not ignore."""

    def start(self, label: str, total: int | None, unit: str) -> None:
        """A phase begins: its label, its number of units (None if unknown), and the unit."""

    def advance(self, n: int) -> None:
        """n more units are done."""

    def done(self) -> None:
        """The phase is over."""

    def tell(self, line: str) -> None:
        """Gets a line to print."""

    def note(self, text: str) -> None:
        """Gets a few words to show until the next ones come, as a bar does."""


class Silent(Progress):
    """The `Progress` that ignores everything."""


SemanticT = TypeVar("SemanticT")
ExecutionT = TypeVar("ExecutionT")


@dataclass(frozen=True, kw_only=True)
class Building(Generic[SemanticT, ExecutionT]):
    """An artifact, or a part of one, while its stage builds it.

    Attributes:
        inputs: role -> artifact, of the inputs and of artifacts that are only read; for the artifact of a fan-out stage name -> part, too.
    """

    inputs: Mapping[str, Artifact]
    semantic: SemanticT
    execution: ExecutionT
    writer: Writer
    progress: Progress
    part: str = ""


class Stage:
    """A stage, as `materialize` runs it and a pipeline file configures it.

    A stage is a folder of `assets/` and one line in assets/pipeline/catalogue.py. The pipeline half (`table` to `problems`) is for stages
    that a table of a pipeline file asks for; the model stage and stages of tests lack it.

    Attributes:
        name: the stage's folder in the store, and its asset in the UI.
        page: page of its artifacts in the UI; None for a stage of a test.
        external_page: page of the content that it reads from outside the store; None if it reads none.
        code_version: number that is raised by hand when the same config would build other bytes.
        Semantic, Execution: the dataclasses of its two configs.
        says: name of a check -> sentence about its test.
        checks: names of the checks of every artifact, those of `says` unless it names others; the UI lists them before they have run.
        warnings: names of the checks that do not block when they fail.
        aspects: names of parts of its artifact that other stages may read apart from the rest. An aspect has a version of its own, so its
            readers stay valid while only the rest changes.
        reads_stages: names of the stages that it reads whatever its config is.
        reads_aspects: role -> aspect, for inputs of which only an aspect is read; its version enters the stage's instead of the whole's.
        table: name of its table in the pipeline file; "" if it has none.
        config_of: (value of the table, seed of the pipeline) -> Semantic config; without it the table is the config.
        needs: table that the stage's own table needs -> the rest of the sentence "[...] needs a table [...]".
        by_sample_set: whether its artifact depends on the batches, so that a file with several sample sets has one for each.
        of_one_feature_table: whether its artifact is about the rows of one feature table, which all trainings that read it must choose.
        speed: how fast it works on the machine of the docs, until this home has built it once; None for a stage of moments.
        need: (Semantic config, Execution config, what is known of sizes) -> memory, disk and work of a build; None without a formula. It is
            called before anything is opened: by `graphmill inspect` with bounds, by `materialize` with what the inputs' artifacts say.
    """

    name: str
    page: Page | None = None
    external_page: Page | None = None
    code_version: int
    Semantic: type
    Execution: type
    checks: tuple[str, ...] = ()
    says: Mapping[str, str] = MappingProxyType({})
    warnings: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()
    reads_stages: tuple[str, ...] = ()
    reads_aspects: Mapping[str, str] = MappingProxyType({})
    table: str = ""
    Table: type | None = None
    config_of: Callable[[Any, int], Any] = staticmethod(lambda table, seed: table)
    needs: Mapping[str, str] = MappingProxyType({})
    by_sample_set: bool = False
    of_one_feature_table: bool = False
    speed: Speed | None = None
    need: Callable[[Any, Any, Sizes], Need | None] = staticmethod(lambda semantic, execution, sizes: None)

    def __init_subclass__(cls) -> None:
        """Gives a stage the checks that it describes."""
        if "says" in vars(cls) and "checks" not in vars(cls):
            cls.checks = tuple(cls.says)

    def inputs(self, semantic: Any) -> Mapping[str, str]:
        """Returns role -> stage name of the inputs, which may depend on the config: `reads_stages`, each under its own name."""
        return {name: name for name in self.reads_stages}

    def chosen(self, semantic: Any) -> str:
        """Returns the version of the stored artifact that a config names; "" for what is built, whose version follows from its recipe.

        Raises:
            InputError: the store has no such artifact.
        """
        return ""

    def fixed(self, semantic: Any) -> bool:
        """Returns whether a config names one stored artifact for ever, whatever else its asset has built since."""
        return False

    def siblings(self, semantic: Any) -> tuple[str, ...]:
        """Returns the versions of all artifacts of the asset that a chosen artifact belongs to; none for what is built."""
        return ()

    def input_table(self, semantic: Any) -> str | None:
        """Returns the name of the feature table of the input `features`, "" for the main one; None for the one that stages share."""
        return None

    def aspect(self, name: str, semantic: Any, raw: Mapping[str, str]) -> tuple[Any, Mapping[str, str]]:
        """Returns the config and raw digests that an aspect depends on."""
        raise NotImplementedError

    def raw(self, semantic: Any) -> Mapping[str, str]:
        """Returns name -> SHA-256 of the external content that is read; every `Path` in the config must be covered.

        Raises:
            InputError: the content is missing or unreadable.
        """
        return {}

    def external(self, semantic: Any) -> str:
        """Returns the name of the asset that stands for the external content that is read, "" if there is none."""
        return ""

    def after(self, semantic: Any) -> tuple[str, ...]:
        """Returns the keys of the assets of the user's own Dagster project that come first; () if there are none."""
        return ()

    def loaded(self, semantic: Any) -> Mapping[str, Path]:
        """Returns key -> file that keeps the table, of the assets of the user's own project whose tables are read."""
        return {}

    def columns_from(self, semantic: Any) -> Mapping[str, str]:
        """Returns column of the table that an artifact is (`Page.columns`) -> column of the external content that decides it."""
        return {}

    def expected_checks(self, semantic: Any) -> tuple[str, ...]:
        """Returns the names of the checks of an artifact of this config."""
        return self.checks

    def sentence(self, semantic: Any) -> str:
        """Returns a sentence about artifacts of this config for the description of their asset, "" if the page says enough."""
        return ""

    def build(self, building: Building[Any, Any]) -> Summary:
        """Fills the writer and returns the summary; does not publish."""
        raise NotImplementedError

    def certain_need(self, semantic: Any, execution: Any) -> Need | None:
        """Returns the need of a build as far as it is certain before any content is read; None without such a number."""
        return None

    def at(self, home: Path | None) -> Stage:
        """Returns the stage that uses the measured numbers of a home; most stages measure nothing."""
        return self

    def parse(self, raw: Mapping[str, Any], tables: Any, seed: int) -> tuple[Any, list[Any]]:
        """Returns (the checked value of the stage's table, []), or (None, all mistakes in it).

        Args:
            raw: the whole file, which has the table.
        """
        return tables.parse(self.Table, raw[self.table], (self.table,))

    def wanted(self, pipeline: Any) -> Any:
        """Returns the Semantic config that a pipeline asks for, None if it does not ask for this stage: that of the stage's table."""
        table = pipeline.table(self.table) if self.table else None
        return None if table is None else self.config_of(table, pipeline.seed)

    def configs(self, pipeline: Any) -> Mapping[str, Any]:
        """Returns step name -> Semantic config of all artifacts of this stage that a pipeline asks for. Most stages have one step, of
        their own name.
        """
        config = self.wanted(pipeline)
        return {} if config is None else {self.name: config}

    def problems(self, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields conflicts of the stage's table, which is sound by itself, with other tables: (key or "", sentence).

        Args:
            tables: name -> checked value of each table that the file has; None for one with mistakes.
        """
        yield from ()


class OnePass(Stage):
    """A stage that shares its external content with other stages: one pass over it builds the missing artifacts of all."""

    def opened(
        self, asked: Sequence[tuple[Stage, Any]], execution: Any, folder: Path, progress: Progress
    ) -> AbstractContextManager[Any]:
        """Opens the external content.

        Args:
            asked: stage and Semantic config of every artifact that is built from it, including this stage's.
            folder: scratch folder, which exists until the last artifact is built.
        """
        raise NotImplementedError

    def build_from(self, opened: Any, building: Building[Any, Any]) -> Summary:
        """Fills the writer from the value that `opened` yields and returns the summary."""
        raise NotImplementedError

    def build(self, building: Building[Any, Any]) -> Summary:
        """Makes the pass for this artifact alone."""
        asked, folder = [(self, building.semantic)], building.writer.scratch()
        with self.opened(asked, building.execution, folder, building.progress) as opened:
            return self.build_from(opened, building)


class FanOut(Stage):
    """A stage whose bulk is built as parts, each an artifact of its own; see assets/building/parts.py.

    Attributes:
        work_unit: unit that `work` counts and that the build of a part reports as progress.
    """

    work_unit: str

    def parts(self, inputs: Mapping[str, Artifact], semantic: Any) -> Sequence[str]:
        """Returns the names of the parts, in order; () builds everything in the parent. They do not depend on the Execution config."""
        raise NotImplementedError

    def work(self, inputs: Mapping[str, Artifact], semantic: Any, part: str) -> int:
        """Returns the number of units of progress that the build of a part will report."""
        raise NotImplementedError

    def parts_read(self, inputs: Mapping[str, Artifact], semantic: Any, part: str) -> Mapping[str, Sequence[str]]:
        """Returns role of an input -> names of those of its parts that the build of a part reads, for inputs of which it does not read all.

        A part is built where these were built, if other machines build parts (assets/cluster/driver.py).
        """
        return {}

    def build_part(self, building: Building[Any, Any]) -> Summary:
        """Fills the writer with a part and returns its summary. `build` gets the finished parts among its inputs, by name."""
        raise NotImplementedError

    def together(self, inputs: Mapping[str, Artifact], semantic: Any) -> int:
        """Returns the largest number of parts that `build_parts` builds by one pass, in this process; 0 if each is built by itself."""
        return 0

    def build_parts(self, buildings: Sequence[Building[Any, Any]]) -> Iterable[Summary]:
        """Fills the writers of parts, which are equal but for part and writer; yields their summaries in their order.

        A part is published when its summary comes.
        """
        raise NotImplementedError


class TogetherFanOut(FanOut):
    """A fan-out stage whose missing parts are always built by one pass over their input, in one process."""

    def together(self, inputs: Mapping[str, Artifact], semantic: Any) -> int:
        """Returns the largest number of parts of one pass: all."""
        return sys.maxsize

    def build_part(self, building: Building[Any, Any]) -> Summary:
        """Makes the pass for this part alone."""
        (summary,) = self.build_parts([building])
        return summary
