"""What a stage is, what it says about what it built, and who listens while it builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from assets.storage.artifact import Artifact
from assets.storage.writer import Writer
from kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Check:
    """One statement about an artifact that was tested while it was built."""

    # What was tested, in a few words: "rows are sorted".
    name: str
    # Whether it holds.
    passed: bool
    # The numbers behind it: what was found, where.
    detail: str = ""
    # Whether nothing may be published when it fails.
    blocking: bool = True


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What an artifact says about itself; it is content, so it holds no times, hosts or paths."""

    # Name -> int, finite float, text, or a list or dict of these.
    numbers: Mapping[str, Any] = field(default_factory=dict)
    # What was tested.
    checks: tuple[Check, ...] | list[Check] = ()
    # Title -> file name of a PNG in the artifact.
    figures: Mapping[str, str] = field(default_factory=dict)


class ChecksFailedError(InputError):
    """Blocking checks of an artifact failed, so it was not published; `checks` has all of them, passed ones too."""

    def __init__(self, problem: str, remedy: str, checks: tuple[Check, ...]):
        super().__init__(problem, remedy)
        self.checks = checks


class Progress(Protocol):
    """Listens to a long operation."""

    def start(self, label: str, total: int | None, unit: str) -> None:
        """A phase begins: what, how many units (None when unknown), of what."""
        ...

    def advance(self, n: int) -> None:
        """n more units are done."""
        ...

    def done(self) -> None:
        """The phase is over."""
        ...


class Silent:
    """The `Progress` that says nothing."""

    def start(self, label: str, total: int | None, unit: str) -> None:
        """Ignores the beginning."""

    def advance(self, n: int) -> None:
        """Ignores the step."""

    def done(self) -> None:
        """Ignores the end."""


class Stage(Protocol):
    """What `materialize` needs to know about a stage; a plain object or a module-level instance.

    A stage may also fan out into parts that are artifacts of their own: `assets.building.build.FanOut` says what it adds.

    Attributes:
        name: the stage's folder in the store.
        code_version: raised by hand when the same config would build other bytes.
        Semantic, Execution: the dataclasses of its two configs.
    """

    name: str
    code_version: int
    Semantic: type
    Execution: type

    def inputs(self, semantic: Any) -> Mapping[str, str]:
        """Returns role -> stage name of the inputs; may depend on the config."""
        ...

    def raw(self, semantic: Any) -> Mapping[str, str]:
        """Returns name -> SHA-256 of the external content that is read; every `Path` in the config must be covered."""
        ...

    def build(
        self, inputs: Mapping[str, Artifact], semantic: Any, execution: Any, writer: Writer, progress: Progress
    ) -> Summary:
        """Fills the writer and returns the summary; does not publish."""
        ...
