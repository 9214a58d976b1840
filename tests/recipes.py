"""Pipeline files for tests: tiny ones that build and train in a second or two, written from the tables that a test is about.

`recipe` returns the text of any; `write_tiny` and `load_tiny` write and read the same one in small variations. A test whose subject is
the text itself, its lines or its mistakes, writes it out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tomlkit

from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.trainers.recipe.config import TrainTable

SBM: dict[str, Any] = {"source": "sbm", "nodes": 300, "edges": 2000, "features": 8, "classes": 3}
"""A generated graph."""

PACKED: dict[str, dict[str, Any]] = {
    "hotness": {"policy": "presample", "rounds": 1},
    "samples": {},
    "memory": {"device": "10%", "host": "20%", "disk": "9x"},
    "cache_plan": {},
    "packed": {},
}
"""The tables of every stage between sampling and training from disk; `[sampling]` needs reuse = 1 or more."""


def recipe(*trains: Mapping[str, Any], **tables: Any) -> str:
    """Returns the text of a pipeline file.

    Args:
        trains: `[[train]]` tables, in order; a value that is a mapping is a sub-table.
        tables: every other table and key, in order.
    """
    return tomlkit.dumps(tables | ({"train": list(trains)} if trains else {}))


def sbm(**keys: Any) -> dict[str, Any]:
    """Returns the table of the generated graph, with other keys."""
    return SBM | keys


TINY = recipe(
    {"name": "sage", "hidden": 8, "epochs": 2},
    {"name": "gcn", "model": "gcn", "hidden": 8, "epochs": 2},
    name="{name}",
    seed=0,
    graph=SBM,
    sampling={"fanouts": [4, 4], "batch_size": 64},
)
"""The recipe of `write_tiny`, with a place for its name."""


def write_watched(folder: Path, policy: str = "degree") -> None:
    """Writes the recipe `watched`, which a schedule and a sensor ask for every minute."""
    schedule = {"cron": "* * * * *", "refresh": True}
    text = recipe(graph=sbm(nodes=290), hotness={"policy": policy}, schedule=schedule)
    (folder / "watched.toml").write_text(text)


def write_tiny(
    folder: Path, name: str = "tiny", tables: Collection[str] = ("sage", "gcn"), more: str = "", **changes: str
) -> Path:
    """Writes the tiny recipe, with each text `key = old` replaced by `key = new` as `changes` say: nodes="300 -> 400".

    Args:
        folder, name: where and under which name.
        tables: the train tables that it keeps.
        more: text that follows.
        changes: key -> "old -> new".
    """
    head, *trains = TINY.format(name=name).split("\n[[train]]\n")
    kept = [train for train in trains if any(f'name = "{table}"' in train for table in tables)]
    text = "\n[[train]]\n".join([head, *kept]) + more
    for key, change in changes.items():
        old, new = change.split(" -> ")
        assert f"{key} = {old}\n" in text, (key, old)
        text = text.replace(f"{key} = {old}\n", f"{key} = {new}\n")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def load_tiny(folder: Path, name: str = "tiny", **changes: Any) -> Pipeline:
    """Writes the tiny recipe and reads it; the arguments are those of `write_tiny`."""
    return load_pipeline(write_tiny(folder, name, **changes), TrainTable)
