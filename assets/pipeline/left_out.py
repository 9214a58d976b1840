"""What a pipeline file may leave out: tables that a technique has defaults for, and fan-outs of every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmill.assets.pipeline.train_schema import TrainSchema


def completed(raw: Mapping[str, Any], schema: type[TrainSchema] | None) -> dict[str, Any]:
    """Returns the content of a pipeline file with the tables and lists that it leaves out.

    Args:
        raw: the content.
        schema: the dataclass of a train table, which knows the default depth and the tables; None leaves all tables out.
    """
    schema = schema or TrainSchema
    found = _spread_fanouts(raw, schema.layers)
    entries = found.get("train")
    for entry in entries if isinstance(entries, list) else ():
        for name, table in schema.default_tables(entry).items() if isinstance(entry, Mapping) else ():
            found.setdefault(name, dict(table))
    return found


def _spread_fanouts(raw: Mapping[str, Any], default_layers: int) -> dict[str, Any]:
    """Returns the content of a pipeline file in which every `fanouts` is a list, one entry per layer.

    A number in `[sampling]`, or a table of relations, holds for models of every depth: each `[[train]]` table without fan-outs gets its own
    list, and `[sampling]` that of the deepest one. Values of other types stay, for the checks.

    Args:
        raw: the content.
        default_layers: number of layers of a table that does not say it.
    """
    found, entries = dict(raw), raw.get("train")
    trains = [dict(entry) for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    depths = [_depth(entry, default_layers) for entry in trains]
    sampling = raw.get("sampling")
    if isinstance(sampling, Mapping) and _is_entry(number := sampling.get("fanouts")):
        found["sampling"] = {**sampling, "fanouts": [number] * max(depths, default=default_layers)}
        for entry in trains:
            entry.setdefault("fanouts", number)
    for entry, depth in zip(trains, depths, strict=True):
        if _is_entry(number := entry.get("fanouts")):
            entry["fanouts"] = [number] * depth
    if isinstance(entries, list) and len(trains) == len(entries):
        found["train"] = trains
    return found


def _depth(entry: Mapping[str, Any], default: int) -> int:
    layers = entry.get("layers", default)
    # More than any model has are refused by their own check.
    return layers if _is_number(layers) and 0 < layers <= 1000 else default


def _is_entry(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
