"""Pipeline files: one TOML file is a whole reproducible recipe, and all mistakes in it are reported at once.

    name = "cora"                      seed = 0
    description, owners, tags          for its readers, see assets/pipeline/notes.py
    [graph]                            source and its own keys, see assets/sources/
    [task]                             what a model learns of a node, see assets/sources/task_table.py
    [features]                         see assets/features/config.py
    [sampling]                         see assets/sampling/config.py
    [hotness]                          see assets/hotness/__init__.py
    [memory]                           see assets/budgets/__init__.py
    [samples]                          see assets/samples/__init__.py
    [cache_plan]                       see assets/cache_plan/__init__.py
    [packed]                           see assets/packed_chunks/__init__.py
    [[train]]                          one table for each model; the schema comes from the trainers
    [score]                            a trained model that predicts the graph, see assets/score.py
    [schedule]                         when it runs by itself, see assets/pipeline/schedule.py
    [run]                              on which machines, see assets/pipeline/schedule.py

`name` is the file's name without `.toml` when it is left out.
"""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from graphmill.assets.features.config import MAIN, of_edges, step_name
from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.notes import Notes, parse_notes
from graphmill.assets.pipeline.rules import Head, key_owners, parse_tables, table_conflicts, unknown_sections
from graphmill.assets.pipeline.schedule import RunTable, ScheduleTable, parse_run, parse_schedule
from graphmill.assets.pipeline.schema import FileMistakes, MissingDataError, Problem, Tables
from graphmill.assets.pipeline.toml_text import KeyPath, key_lines, toml_text
from graphmill.assets.pipeline.train_schema import FileTables, TrainSchema, completed, parse_train
from graphmill.assets.samples.sets import set_names, step_of_set, tables_of_set
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.score import ScoreTable, parse_score
from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.sources.unread import EDGE_TABLE
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.system.filesystem import read_whole_file
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError, did_you_mean

FOLDER_VARIABLE = environment.PIPELINES
SHIPPED = ROOT / "jobs" / "pipelines"


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A checked recipe.

    Attributes:
        name, seed: its name, and the seed of every random decision.
        notes: its texts for readers, which enter no version.
        schedule: times at which it runs by itself, None for never; it enters no version.
        run: machines on which it runs, None for this one; they enter no version.
        score: the trained model that predicts its graph, None for none.
        tables: name -> checked value of each table that the file has.
        train: one object of the train schema for each `[[train]]` table; empty if the file was read without a schema.
        settings: options of the command line that set keys in its text, "" if there are none.
        sample_set: name of the sample set whose trainings and tables these are, "" for those of none; None for the whole file.
    """

    name: str
    seed: int
    path: Path
    text: str
    tables: Mapping[str, Any]
    train: tuple[Any, ...]
    settings: str = ""
    notes: Notes = field(default_factory=Notes)
    schedule: ScheduleTable | None = None
    run: RunTable | None = None
    score: ScoreTable | None = None
    sample_set: str | None = None

    def __repr__(self) -> str:
        """Returns a line; `text` has the whole."""
        trained = ", ".join(table.name for table in self.train) or "nothing"
        return f"Pipeline({self.name}: {', '.join(self.tables)}; trains {trained}; {self.path})"

    @property
    def graph(self) -> GraphConfig:
        """The Semantic config of the graph stage."""
        return self.tables["graph"]

    @property
    def on(self) -> str:
        """Address of the cluster that `[run]` names, "" for this machine alone."""
        return "" if self.run is None else self.run.on

    @cached_property
    def by_split(self) -> tuple[Pipeline, ...]:
        """The recipes with one split each if `[graph]` lists several, else this one alone.

        Each has the versions of the same file with this split in place of the list.
        """
        configs = self.graph.by_split()
        return (self,) if len(configs) == 1 else tuple(self._with_split(config) for config in configs)

    def _with_split(self, config: GraphConfig) -> Pipeline:
        from graphmill.assets.pipeline.settings import with_settings

        setting = f"graph.split={json.dumps(getattr(config, 'split', None))}"
        settings = f"{self.settings} --set {shlex.quote(setting)}".strip()
        text = with_settings(self.text, [setting])
        return replace(self, text=text, settings=settings, tables={**self.tables, "graph": config})

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of `[graph]`; only "" if the file names none."""
        chosen = [getattr(config, "split", None) for config in self.graph.by_split()]
        return tuple("" if each is None else str(each) for each in chosen)

    def require_one_split(self) -> None:
        """Refuses a list of splits, for operations on one graph."""
        if len(self.by_split) > 1:
            problem = f"{self.path} lists the splits {', '.join(self.splits)}, and this is about the graph of one"
            raise InputError(problem, f"choose one: {self.by_split[0].settings}")

    @property
    def by_sample_set(self) -> tuple[Pipeline, ...]:
        """The recipe as trainings of no sample set have it, then as those of each set; this one alone if the file names no sets."""
        names = set_names(self.tables)
        return tuple(self.of_set(name) for name in ("", *names)) if names and self.sample_set is None else (self,)

    def of_set(self, name: str) -> Pipeline:
        """Returns the recipe as the trainings of a sample set have it, "" for those of none."""
        return replace(self, tables=tables_of_set(self.tables, name), sample_set=name)

    def sampling_of(self, table: TrainSchema) -> SamplingConfig | None:
        """Returns the `[sampling]` table with the keys of a training's sample set, None if the file lacks it."""
        return self.of_set(table.sample_set).sampling

    @property
    def _readers(self) -> tuple[Any, ...]:
        """The trainings of the sample set; all of them if this is the whole file."""
        return tuple(each for each in self.train if self.sample_set in (None, each.sample_set))

    @property
    def sampling(self) -> SamplingConfig | None:
        """The `[sampling]` table, None if the file lacks it."""
        return self.table("sampling")

    def table(self, name: str) -> Any:
        """Returns the value of a table with the keys that the trainings ask for, None if the file lacks it."""
        value, asked = self.tables.get(name), self.asked(name)
        return replace(value, **asked) if value is not None and asked else value

    def asked(self, name: str) -> dict[str, Any]:
        """Returns key -> value that techniques of the trainings need in a table, which override the file."""
        return {key: value for table in self._readers for key, value in table.asks.get(name, {}).items()}

    def step_of(self, stage: str, table: str | None = None) -> str:
        """Returns the name of the step that a stage or a training of this sample set reads under the name of a stage.

        Args:
            stage: name of the stage. Each has one step, except features, which has one for each feature table, and those that depend on the
                batches, which have one for each sample set.
            table: name of the feature table, "" for the main one, that of rows of edges for what is made of these; None for the one that
                stages and trainings share.
        """
        if stage == MAIN:
            return step_name(self.shared_features if table is None else table)
        own = next((each for each in stages() if each.name == stage.partition(".")[0]), None)
        name = of_edges(stage) if own and own.of_one_feature_table and table == EDGE_TABLE else stage
        return step_of_set(name, self.sample_set or "") if self.sample_set and own and own.by_sample_set else name

    @property
    def shared_features(self) -> str:
        """Name of the feature table of budgets, plans and packs, "" for the main one: the table of the trainings that read them."""
        chosen = [each.feature_table for each in self.train]
        tables = self.tables.get(MAIN)
        if not chosen:
            return next(iter(tables.named)) if tables and tables.named and not tables.alone else ""
        about_one = [stage.name for stage in stages() if stage.of_one_feature_table]
        readers = [each.feature_table for each in self.train if {*each.inputs, *each.reads} & set(about_one)]
        return (readers or chosen)[0]

    def is_read(self, stage: str) -> bool:
        """Tells whether a training reads artifacts of a stage."""
        return any(stage in (*table.inputs, *table.reads) for table in self._readers)

    def decides(self, stage: str) -> bool:
        """Tells whether the weights of a training depend on artifacts of a stage."""
        return any(stage in table.inputs for table in self._readers)

    def require(self, problems: Sequence[tuple[KeyPath, str]]) -> None:
        """Refuses the file for mistakes that were found after it was read.

        Raises:
            InputError: there is one; it has all of them, with their lines.
        """
        if problems:
            tables = Tables(lines=key_lines(self.text))
            found = [tables.problem(path, text) for path, text in problems]
            raise FileMistakes(self.path, self.text, found, self.reference)

    @property
    def reference(self) -> str:
        """Its name on a command line: the file's name if it can be found by that, else its path; with the keys that were set."""
        # A name is that of a file below one of two folders; listing both is needless for any other file.
        near = any(self.path.is_relative_to(folder.absolute()) for folder in (SHIPPED, pipelines_folder()))
        files = pipeline_files() if near else {}
        named = next((name for name, path in files.items() if path == self.path), self.path)
        return f"{named} {self.settings}".rstrip()


def load_pipeline(
    path_or_name: str | os.PathLike[str],
    train_schema: type[TrainSchema] | None = None,
    *,
    files: bool = False,
    settings: Sequence[str] = (),
) -> Pipeline:
    """Reads and checks a pipeline file.

    Args:
        path_or_name: a path to a TOML file, or the name of one that `pipeline_files` finds.
        train_schema: the dataclass of a `[[train]]` table; None leaves the trainings out.
        files: whether a missing file that it names is a mistake, too.
        settings: KEY=VALUE each, keys that are set in its text; see `with_settings`.

    Raises:
        InputError: the file does not exist, or all mistakes in it, each with its line.
    """
    path, data = read_pipeline_file(path_or_name)
    called = os.fspath(path_or_name)
    if not settings:
        return parse_pipeline(path, data, train_schema, called, files=files)
    return _parse_with(settings, path, data, train_schema, called, files=files)


def read_pipeline_file(path_or_name: str | os.PathLike[str]) -> tuple[Path, bytes]:
    """Returns the path and content of a pipeline file, named as for `load_pipeline`.

    Raises:
        InputError: the file does not exist or cannot be read.
    """
    path = find_pipeline(path_or_name)
    try:
        return path, read_whole_file(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "correct the path or its permissions") from error


def _parse_with(settings: Sequence[str], path: Path, data: bytes, *rest: Any, files: bool) -> Pipeline:
    """Returns the pipeline of a file with keys set; the lines of mistakes are those of the edited text."""
    from graphmill.assets.pipeline.settings import with_settings

    text = with_settings(toml_text(path, data), settings)
    given = " ".join(f"--set {shlex.quote(setting)}" for setting in settings)
    try:
        return replace(parse_pipeline(path, text.encode(), *rest, files=files), settings=given)
    except InputError as error:
        raise InputError(f"with {given}, {error.problem}", error.remedy) from error


def parse_pipeline(
    path: Path,
    data: bytes,
    train_schema: type[TrainSchema] | None = None,
    called: str | None = None,
    *,
    files: bool = False,
    variables: Path | None = None,
) -> Pipeline:
    """Checks the content of a pipeline file without reading the file, so a launched recipe does not change.

    Args:
        path: path of the file; relative paths in the content start in its folder.
        variables: path that stands for every environment variable in it, where its raw data are not read; None reads the environment.

    Raises:
        InputError: all mistakes in it, each with its line; a `MissingDataError` if only the variable with the path of its data is not set.
    """
    text = toml_text(path, data)
    pipeline, problems = checked_content(
        path, text, tomllib.loads(text), train_schema, files=files, variables=variables
    )
    if pipeline is None or problems:
        unset = {problem.unset for problem in problems}
        if "" not in unset:
            names = " and ".join(sorted(unset))
            raise MissingDataError(
                f"{path} needs data: {names} is not set",
                f"export {names}=FOLDER, the folder of the files that it names, or write the paths out",
            )
        raise FileMistakes(path, text, problems, called)
    return pipeline


def checked_content(
    path: Path,
    text: str,
    content: Mapping[str, Any],
    train_schema: type[TrainSchema] | None,
    *,
    files: bool = False,
    variables: Path | None = None,
) -> tuple[Pipeline | None, list[Problem]]:
    """Returns the pipeline, None if its tables have mistakes, and the problems; `content` is what `text` says, or a part of it."""
    raw = completed(content, train_schema)
    owners = key_owners(raw, train_schema)
    tables = Tables(lines=key_lines(text), folder=path.parent, files=files, variables=variables, owners=owners)
    values, problems = _parse(raw, tables, path.stem, train_schema)
    pipeline = None if problems else Pipeline(path=path, text=text, **values)
    if pipeline is not None and train_schema is not None:
        problems = [tables.problem(path, text) for path, text in train_schema.pipeline_problems(pipeline)]
    return pipeline, problems


def pipelines_folder() -> Path:
    """Returns the folder of a user's named pipelines, `$GRAPHMILL_PIPELINES` or `pipelines`, which need not exist.

    Raises:
        InputError: it is a file.
    """
    folder = Path(environment.read(FOLDER_VARIABLE) or "pipelines")
    if folder.is_file() and environment.read(FOLDER_VARIABLE):  # /dev/null is a way to say that there is none
        problem = f"{FOLDER_VARIABLE} = {str(folder)!r} is not a folder"
        raise InputError(problem, "name the folder of your pipeline files, or unset it")
    return folder


def pipeline_files(*, shipped: bool = True) -> dict[str, Path]:
    """Returns name -> file of all pipelines that can be named: `$GRAPHMILL_PIPELINES` (default `./pipelines` when it
    exists) first, then the shipped ones unless `shipped` is false. A file in a folder below has the folder's name before its own."""
    folders = [*([SHIPPED] if shipped else []), pipelines_folder()]
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path.absolute()
        for folder in folders
        for path in sorted(folder.glob("**/*.toml"))
    }


def find_pipeline(path_or_name: str | os.PathLike[str]) -> Path:
    """Returns the absolute path of a pipeline file; raises InputError if the file does not exist; the text lists the names that exist."""
    given, files = os.fspath(path_or_name), pipeline_files()
    if given in files:
        return files[given]
    if Path(given).is_file():
        return Path(given).absolute()
    hint = did_you_mean(Path(given).stem, files)
    own = pipelines_folder()
    place = f"{SHIPPED} and {own}{'' if own.is_dir() else ', which does not exist'} (${FOLDER_VARIABLE})"
    problem = f"no pipeline {given}{hint}: no such file, and no such name in {place}"
    raise InputError(problem, f"the names are: {', '.join(sorted(files)) or 'none'}; or give the path of a TOML file")


def _parse(
    raw: Mapping[str, Any], tables: Tables, stem: str, train_schema: type[TrainSchema] | None
) -> tuple[dict[str, Any], list[Problem]]:
    head_raw = {"name": stem} | {key: raw[key] for key in ("name", "seed") if key in raw}
    head, problems = tables.parse(Head, head_raw, ())
    problems += unknown_sections(raw, tables)
    values: dict[str, Any] = {"name": head.name, "seed": head.seed} if head else {}
    for name, (value, found) in {
        "notes": parse_notes(raw, tables),
        "schedule": parse_schedule(raw, tables),
        "run": parse_run(raw, tables),
        "score": parse_score(raw, tables),
        "tables": parse_tables(raw, tables, head.seed if head else 0),
        "train": parse_train(raw.get("train", []), tables, train_schema),
    }.items():
        values[name] = value
        problems += found
    problems += table_conflicts(raw, values["tables"], tables)
    if train_schema is not None and values["train"]:
        file = FileTables(raw["train"], values["train"], values["tables"], values.get("seed"), tables.lines)
        problems += [tables.problem(path, text) for path, text in train_schema.file_problems(file)]
    return values, problems


def is_pipeline(name: str) -> bool:
    """Tells whether a name or path leads to a pipeline file."""
    try:
        find_pipeline(name)
    except InputError:
        return False
    return True
