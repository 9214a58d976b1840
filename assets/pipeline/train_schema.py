"""The `[[train]]` tables of a pipeline file: what a file asks of their schema, which comes from the trainers, and what it may leave out."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from graphmill.assets.pipeline.schema import Problem, Tables
from graphmill.assets.pipeline.toml_text import KeyPath


class FileTables(NamedTuple):
    """A pipeline file whose tables were checked each by itself.

    Attributes:
        entries: its `[[train]]` tables as they are written.
        train: the checked ones, None for each with mistakes.
        tables: name -> checked value of every other table, None for one with mistakes.
        seed: seed of the pipeline, None if it is wrong.
    """

    entries: list[Mapping[str, Any]]
    train: tuple[Any, ...]
    tables: Mapping[str, Any]
    seed: int | None
    lines: Mapping[KeyPath, int]


class TrainSchema:
    """Base of the dataclass of a `[[train]]` table, with what a file asks of it.

    Attributes:
        layers: depth of a model whose table does not say it.
        feature_table: name of the feature table that is trained on, "" for the main one.
        sample_set: name of the `[[samples]]` table whose batches it reads, "" for none.
        inputs: stages besides the graph and its features whose versions enter the model's.
        reads: other stages that the training reads, which change none of its weights.
        asks: table -> key -> value that the training needs there, regardless of the file.
    """

    layers: int = 2
    feature_table: str = ""
    sample_set: str = ""
    inputs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    asks: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    @classmethod
    def sub_table(cls, entry: Mapping[str, Any]) -> tuple[str, type] | None:
        """Returns name and dataclass of the sub-table that a table may have, None without one; the table may have mistakes."""
        return None

    @classmethod
    def default_tables(cls, entry: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """Returns name -> keys of the tables that a file has for a training if it lacks them; the table may have mistakes."""
        return {}

    @classmethod
    def default_keys(cls, kind: Any) -> Mapping[str, Any]:
        """Returns the keys that a table has if it leaves them out, for the kind of `[task]`, which may be a mistake."""
        return {}

    @staticmethod
    def file_problems(file: FileTables) -> Iterator[tuple[KeyPath, str]]:
        """Yields the keys of `[[train]]` tables that contradict other tables, and what has no effect on any; each with its problem."""
        yield from ()

    @staticmethod
    def pipeline_problems(pipeline: Any) -> Iterator[tuple[KeyPath, str]]:
        """Yields the conflicts between the trainings of a file (assets/pipeline/file.py) that has no other mistakes."""
        yield from ()


def parse_train(
    entries: Any, tables: Tables, schema: type[TrainSchema] | None
) -> tuple[tuple[Any, ...], list[Problem]]:
    """Returns the checked train tables, None for each with mistakes, and the problems; no trainings without a schema."""
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return (), [tables.problem(("train",), "train is a list of tables: write [[train]] with two brackets")]
    found = [] if schema is None else [_parse_entry(entry, tables, schema, n) for n, entry in enumerate(entries)]
    return tuple(value for value, _ in found), [problem for _, problems in found for problem in problems]


def _parse_entry(
    entry: Mapping[str, Any], tables: Tables, schema: type[TrainSchema], index: int
) -> tuple[Any, list[Problem]]:
    """Returns a train table, with the settings of its technique if it has their sub-table."""
    named, where = schema.sub_table(entry), ("train", index)
    if named is None or named[0] not in entry:
        return tables.parse(schema, entry, where)
    name, settings_class = named
    settings, problems = tables.parse(settings_class, entry[name], (*where, name))
    rest = {key: value for key, value in entry.items() if key != name}
    value, found = tables.parse(schema, rest, where, {"settings": settings})
    return (None if problems else value), problems + found


def completed(raw: Mapping[str, Any], schema: type[TrainSchema] | None) -> dict[str, Any]:
    """Returns the content of a pipeline file with the tables and lists that it leaves out.

    Args:
        schema: the dataclass of a train table, which knows the default depth and the tables; None leaves all tables out.
    """
    schema = schema or TrainSchema
    found = _spread_fanouts(raw, schema.layers)
    entries = found.get("train")
    task = found.get("task")
    keys = schema.default_keys(task.get("kind")) if isinstance(task, Mapping) else {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            entry |= {key: value for key, value in keys.items() if key not in entry}
        for name, table in schema.default_tables(entry).items() if isinstance(entry, Mapping) else ():
            found.setdefault(name, dict(table))
    return found


def _spread_fanouts(raw: Mapping[str, Any], default_layers: int) -> dict[str, Any]:
    """Returns the content of a pipeline file in which every `fanouts` is a list, one entry per layer.

    A number in `[sampling]`, or a table of relations, holds for models of every depth: each `[[train]]` table without fan-outs gets its own
    list, and `[sampling]` that of the deepest one. A `[[samples]]` table has one for its own trainings. Values of other types stay, for
    the checks.

    Args:
        default_layers: number of layers of a table that does not say it.
    """
    found, entries = dict(raw), raw.get("train")
    trains = [dict(entry) for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    depths = [_depth(entry, default_layers) for entry in trains]
    sampling, listed = raw.get("sampling"), raw.get("samples")
    number = sampling.get("fanouts") if isinstance(sampling, Mapping) else None
    sets = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    if sets and isinstance(listed, list) and len(sets) == len(listed):
        found["samples"] = [_spread_set(each, number, trains, depths, default_layers) for each in sets]
    if isinstance(sampling, Mapping) and _is_entry(number):
        found["sampling"] = {**sampling, "fanouts": [number] * max(depths, default=default_layers)}
        for entry in trains:
            if not any(entry.get("samples") == each.get("name") for each in sets):
                entry.setdefault("fanouts", number)
    for entry, depth in zip(trains, depths, strict=True):
        if _is_entry(number := entry.get("fanouts")):
            entry["fanouts"] = [number] * depth
    if isinstance(entries, list) and len(trains) == len(entries):
        found["train"] = trains
    return found


def _spread_set(
    table: Mapping[str, Any], number: Any, trains: list[dict[str, Any]], depths: list[int], default: int
) -> dict[str, Any]:
    """Returns a `[[samples]]` table whose `fanouts` is a list; `number` is that of `[sampling]`, for one without fan-outs."""
    own = table.get("fanouts", number)
    of_set = [depth for entry, depth in zip(trains, depths, strict=True) if entry.get("samples") == table.get("name")]
    return {**table, "fanouts": [own] * max(of_set, default=default)} if _is_entry(own) else dict(table)


def _depth(entry: Mapping[str, Any], default: int) -> int:
    layers = entry.get("layers", default)
    # More than any model has are refused by their own check.
    return layers if _is_number(layers) and 0 < layers <= 1000 else default


def _is_entry(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
