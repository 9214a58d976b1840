"""The sound rest of a pipeline file with mistakes: what it says of the data can be looked through before its mistakes are corrected."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from graphmill.assets.pipeline.file import Pipeline, checked_content
from graphmill.assets.pipeline.schema import FileMistakes, Problem
from graphmill.assets.pipeline.toml_text import KeyPath
from graphmill.assets.pipeline.train_schema import TrainSchema

ROUNDS = 8
"""Most times that keys are left out: without a table, others lack it."""

LISTED = (("train", 1), ("samples", 1))
"""Lists of tables, each with the place of the number in a path: a mistake in one of their tables is not about the others."""


def sound_rest(mistakes: FileMistakes, train_schema: type[TrainSchema]) -> Pipeline | None:
    """Returns the pipeline of a file without the keys and tables that are wrong; None if too little is left.

    A misspelt key counts as the one that was probably meant. In place of a wrong encoder stands "auto", which reads every column.
    """
    content, problems = tomllib.loads(mistakes.text), mistakes.problems
    for _ in range(ROUNDS):
        if not _leave_out(content, problems):
            return None
        pipeline, problems = checked_content(mistakes.path, mistakes.text, content, train_schema, files=True)
        if pipeline is not None and not problems:
            return pipeline
    return None


def _leave_out(content: dict[str, Any], problems: Sequence[Problem]) -> bool:
    """Removes what the problems are about, later elements of lists first; returns whether anything was there.

    A table of [graph], or a [[train]] table, that lacks a key is removed itself.
    """
    meant = {_key_of(each.path): each.meant for each in problems}
    paths = sorted(meant, key=_order, reverse=True)
    found = any([_remove(content, path, meant[path]) for path in paths])
    return found or any([_remove(content, path[:-1], "") for path in paths if len(path) > 2])


def _key_of(path: KeyPath) -> KeyPath:
    """Returns the path of the key whose value has an element; of a [[train]] or [[samples]] table its own."""
    apart = (place for place, part in enumerate(path) if isinstance(part, int) and (path[0], place) not in LISTED)
    return path[: next(apart, len(path))]


def _order(path: KeyPath) -> list[tuple[int, str]]:
    return [(part, "") if isinstance(part, int) else (0, part) for part in path]


def _remove(content: Any, path: KeyPath, meant: str) -> bool:
    for part in path[:-1]:
        content = content[part] if _has(content, part) else {}
    if not path or not _has(content, path[-1]):
        return False
    value = content.pop(path[-1])
    if meant:
        content[meant] = value
    elif "encode" in path[-2:] and value != "auto":
        content[path[-1]] = "auto"
    return True


def _has(content: Any, part: str | int) -> bool:
    return isinstance(content, list) or (isinstance(content, dict) and part in content)
