"""Which tables of a pipeline file have a key: for the message about a key that stands in another table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.run_table import RUN, RunTable
from graphmill.assets.pipeline.schedule import SCHEDULE, ScheduleTable
from graphmill.assets.sampling.config import SamplingConfig


def key_owners(raw: Mapping[str, Any], train_schema: type | None) -> dict[str, tuple[str, ...]]:
    """Returns key -> headers of the tables that have it, of all tables but [graph], whose keys depend on its source.

    Args:
        raw: the content of the file, whose trainings have sub-tables.
        train_schema: the dataclass of a `[[train]]` table; None leaves those keys out.
    """
    found: dict[str, list[str]] = {}
    for header, kind in _schemas(raw, train_schema):
        for each in fields(kind) if is_dataclass(kind) else ():
            if each.init and each.metadata.get("key", True) and header not in found.setdefault(each.name, []):
                found[each.name].append(header)
    return {key: tuple(headers) for key, headers in found.items()}


def _schemas(raw: Mapping[str, Any], train_schema: type | None) -> Iterator[tuple[str, Any]]:
    yield "[sampling]", SamplingConfig
    yield f"[{SCHEDULE}]", ScheduleTable
    yield f"[{RUN}]", RunTable
    for stage in stages():
        if stage.table:
            yield f"[{stage.table}]", getattr(stage, "Table", None)
    if train_schema is None:
        return
    yield "[[train]]", train_schema
    entries = raw.get("train")
    for entry in entries if isinstance(entries, list) else ():
        named = (
            train_schema.sub_table(entry) if isinstance(entry, Mapping) and hasattr(train_schema, "sub_table") else None
        )  # pyright: ignore
        if named is not None:
            yield f"[train.{named[0]}]", named[1]
