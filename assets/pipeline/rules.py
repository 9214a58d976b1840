"""What the tables of a pipeline file say, each by its own schema, and what they say to one another.

A table's schema stands beside the stage that it configures. Nothing here stops at the first mistake: every function returns the
problems that it found, with their lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from assets.budgets.config import MemoryConfig
from assets.pipeline.schema import Problem, Tables
from assets.pipeline.toml_lines import KeyPath
from assets.sampling.config import SamplingConfig
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.cache_plan.config import CachePlanTable
    from assets.hotness.config import HotnessTable
    from assets.packed_chunks.config import PackedConfig
    from assets.samples.config import SamplesTable


def parse_tables(
    raw: Mapping[str, Any], tables: Tables, seed: int, train_schema: type | None
) -> tuple[dict[str, Any], list[Problem]]:
    """Returns section -> its checked value, None for one that the file does not have, and the problems.

    Args:
        raw: the file's content.
        tables: knows its lines.
        seed: the pipeline's, the default of the graph's.
        train_schema: the dataclass of a train table; None leaves them unchecked.
    """
    values: dict[str, Any] = {}
    values["graph"], problems = _parse_graph(raw, tables, seed)
    for name, schema in (("sampling", SamplingConfig), ("memory", MemoryConfig)):
        values[name], found = tables.parse(schema, raw[name], (name,)) if name in raw else (None, [])
        problems += found
    for name, parse in (
        ("hotness", _parse_hotness),
        ("samples", lambda raw, tables: _parse_samples(raw, tables, values["sampling"])),
        ("cache_plan", _parse_cache_plan),
        ("packed", _parse_packed),
        ("train", lambda raw, tables: _parse_train(raw.get("train", []), tables, train_schema)),
    ):
        values[name], found = parse(raw, tables)
        problems += found
    return values, problems


def _parse_graph(raw: Mapping[str, Any], tables: Tables, seed: int) -> tuple[Any, list[Problem]]:
    from assets.sources.registry import SOURCES, config_class

    graph, choices = raw.get("graph"), ", ".join(SOURCES)
    if not isinstance(graph, Mapping):
        return None, [tables.problem(("graph",), f"the file lacks the table [graph] with source = one of {choices}")]
    if "source" not in graph:
        return None, [tables.problem(("graph",), f"[graph] lacks the key source, one of {choices}")]
    try:
        schema = config_class(graph["source"])
    except InputError as error:
        return None, [tables.problem(("graph", "source"), f"{error.problem}; {error.remedy}")]
    return tables.parse(schema, graph, ("graph",), {"seed": seed})


def _parse_hotness(raw: Mapping[str, Any], tables: Tables) -> tuple[HotnessTable | None, list[Problem]]:
    from assets.hotness.config import HotnessTable

    if "hotness" not in raw:
        return None, []
    table, problems = tables.parse(HotnessTable, raw["hotness"], ("hotness",))
    if table is not None and table.presamples and "sampling" not in raw:
        text = f'policy = "{table.policy}" samples batches: it needs a table [sampling] with fanouts and batch_size'
        problems = [tables.problem(("hotness",), text)]
    return table, problems


def _parse_samples(
    raw: Mapping[str, Any], tables: Tables, sampling: SamplingConfig | None
) -> tuple[SamplesTable | None, list[Problem]]:
    from assets.samples.config import SamplesTable

    if "samples" not in raw:
        return None, []
    table, problems = tables.parse(SamplesTable, raw["samples"], ("samples",))
    if "sampling" not in raw:
        problems.append(tables.problem(("samples",), "[samples] needs a table [sampling] with fanouts and batch_size"))
    elif table is not None and sampling is not None and (text := table.problem(sampling)):
        problems.append(tables.problem(("samples", "epochs") if table.epochs else ("samples",), text))
    return table, problems


def _parse_cache_plan(raw: Mapping[str, Any], tables: Tables) -> tuple[CachePlanTable | None, list[Problem]]:
    from assets.cache_plan.config import CachePlanTable

    if "cache_plan" not in raw:
        return None, []
    table, problems = tables.parse(CachePlanTable, raw["cache_plan"], ("cache_plan",))
    for needed, why in (("samples", "to lay out the rows of stored batches"), ("memory", "with the budgets")):
        if needed not in raw:
            problems.append(tables.problem(("cache_plan",), f"[cache_plan] needs a table [{needed}] {why}"))
    return table, problems


def _parse_packed(raw: Mapping[str, Any], tables: Tables) -> tuple[PackedConfig | None, list[Problem]]:
    from assets.packed_chunks.config import PackedConfig

    if "packed" not in raw:
        return None, []
    table, problems = tables.parse(PackedConfig, raw["packed"], ("packed",))
    if "cache_plan" not in raw:
        problems.append(tables.problem(("packed",), "[packed] needs a table [cache_plan], which says what is packed"))
    return table, problems


def _parse_train(entries: Any, tables: Tables, schema: type | None) -> tuple[tuple[Any, ...], list[Problem]]:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return (), [tables.problem(("train",), "train is a list of tables: write [[train]] with two brackets")]
    parsed, problems = [], []
    for index, entry in enumerate(entries):
        value, found = (dict(entry), []) if schema is None else _parse_entry(entry, tables, schema, ("train", index))
        parsed.append(value)
        problems += found
    return tuple(parsed), problems


def _parse_entry(entry: Mapping[str, Any], tables: Tables, schema: type, where: KeyPath) -> tuple[Any, list[Problem]]:
    """Returns a train table, with the settings of its technique where it has a sub-table of them."""
    named = schema.sub_table(entry) if hasattr(schema, "sub_table") else None
    if named is None or named[0] not in entry:
        return tables.parse(schema, entry, where)
    name, settings_class = named
    settings, problems = tables.parse(settings_class, entry[name], (*where, name))
    rest = {key: value for key, value in entry.items() if key != name}
    value, found = tables.parse(schema, rest, where, {"settings": settings})
    return (None if problems else value), problems + found


def impossible(raw: Mapping[str, Any], values: Mapping[str, Any], tables: Tables) -> list[Problem]:
    """Returns what no single table can see: repeated names, a missing [sampling], a depth that differs from the
    sampler's.
    """
    entries = raw.get("train", [])
    if not isinstance(entries, list) or not entries:
        return []
    problems, first_of, sampling = [], {}, values["sampling"]
    needing = [value for value in values["train"] if "sampling" in _needs(value)]
    if "sampling" not in raw and needing:
        problems.append(tables.problem(("train",), "[[train]] needs a table [sampling] with fanouts and batch_size"))
    for index, (entry, value) in enumerate(zip(entries, values["train"], strict=False)):
        where, name = ("train", index), entry.get("name")
        if name is not None and first_of.setdefault(str(name), index) != index:
            line = tables.problem(("train", first_of[str(name)], "name"), "").line
            problems.append(
                tables.problem((*where, "name"), f'name = "{name}" is taken by the [[train]] of line {line}')
            )
        layers = getattr(value, "layers", entry.get("layers"))
        if sampling is not None and type(layers) is int and layers != len(sampling.fanouts):
            text = (
                f"layers = {layers}, but [sampling] has {len(sampling.fanouts)} fanouts: one is needed for each layer"
            )
            problems.append(tables.problem((*where, "layers"), text))
        if hasattr(value, "technique"):
            problems += [tables.problem((*where, key), text) for key, text in _lacking(raw, value, values)]
    return problems


def _lacking(raw: Mapping[str, Any], table: Any, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the key of a train table that asks for what the file does not have, and what that is."""
    named = f'trainer = "{table.trainer}"'
    missing = [f"[{name}]" for name in table.technique.needs if name not in raw and name != "sampling"]
    if missing:
        yield "trainer", f"{named} needs {' and '.join(missing)}"
    elif table.stored and (text := _unstored(raw, table, values)):
        yield ("trainer", named + text) if table.technique.stored else ("samples", f'samples = "stored"{text}')


def _needs(table: Any) -> tuple[str, ...]:
    """Returns the tables that a train table needs; one that was not checked by a schema is taken to sample."""
    return table.technique.needs if hasattr(table, "technique") else ("sampling",)


def _unstored(raw: Mapping[str, Any], table: Any, values: Mapping[str, Any]) -> str:
    """Returns how the sentence goes on that says why a train table cannot take stored samples, "" where it can."""
    samples, sampling, seed = values["samples"], values["sampling"], values.get("seed")
    if "samples" not in raw:
        return " needs a table [samples]"
    if table.seeds and set(table.seeds) != {seed}:
        return f", but samples are drawn by the pipeline's seed = {seed}, not by seeds = {list(table.seeds)}"
    if samples and sampling and not sampling.reuse and table.epochs > samples.epochs > 0:
        have = f"[samples] has epochs = {samples.epochs}"
        return f" with epochs = {table.epochs}, but {have} and [sampling] has no reuse"
    return ""
