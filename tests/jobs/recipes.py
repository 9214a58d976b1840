"""Pipeline files for the tests of this folder: generated graphs that build and train in a second or two."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from assets.pipeline.file import Pipeline, load_pipeline
from trainers.config import TrainTable

TINY = """
name = "{name}"
seed = 0

[graph]
source = "sbm"
nodes = 300
edges = 2000
features = 8
classes = 3

[sampling]
fanouts = [4, 4]
batch_size = 64

[[train]]
name = "sage"
hidden = 8
epochs = 2

[[train]]
name = "gcn"
model = "gcn"
hidden = 8
epochs = 2
"""

WATCHED = """
[graph]
source = "sbm"
nodes = 290
edges = 2000
features = 8
classes = 3
[hotness]
policy = "{policy}"
[schedule]
cron = "* * * * *"
refresh = true
"""


def write_watched(folder: Path, policy: str = "degree") -> None:
    """Writes the recipe `watched`, which a schedule and a sensor ask for every minute."""
    (folder / "watched.toml").write_text(WATCHED.format(policy=policy))


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
