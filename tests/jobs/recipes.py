"""Pipeline files for the tests of this folder: generated graphs that build and train in a second or two."""

from __future__ import annotations

from pathlib import Path

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


def write_tiny(folder: Path, name: str = "tiny", **changes: str) -> Path:
    """Writes the tiny recipe, with each text `key = old` replaced by `key = new` as `changes` say: nodes="300 -> 400"."""
    text = TINY.format(name=name)
    for key, change in changes.items():
        old, new = change.split(" -> ")
        assert f"{key} = {old}\n" in text, (key, old)
        text = text.replace(f"{key} = {old}\n", f"{key} = {new}\n")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def load_tiny(folder: Path, name: str = "tiny", **changes: str) -> Pipeline:
    return load_pipeline(write_tiny(folder, name, **changes), TrainTable)
