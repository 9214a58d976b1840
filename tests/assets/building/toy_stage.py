"""A small stage for tests of the store: arrays of several shapes, a text file, one number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphmill.assets.building.stage import Check, Stage, Summary


@dataclass(frozen=True, kw_only=True)
class Semantic:
    rows: int = 5
    passes: bool = True
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Execution:
    threads: int = 1


class ToyStage(Stage):
    name = "toy"
    code_version = 1
    Semantic = Semantic
    Execution = Execution
    checks = ("rows are even",)

    def __init__(self):
        self.num_builds = 0

    def raw(self, semantic):
        return {"source": "ab" * 32} if semantic.path else {}

    def build(self, building):
        semantic, writer = building.semantic, building.writer
        self.num_builds += 1
        features = writer.create("features", (semantic.rows, 3), np.float32)
        features[...] = np.arange(semantic.rows * 3).reshape(-1, 3)
        writer.save("nothing", np.zeros((0, 4), np.int64))
        writer.path("figures/note.txt").write_text("a note\n")
        check = Check(name="rows are even", passed=semantic.passes, detail=f"{semantic.rows} rows")
        return Summary(numbers={"num_rows": np.int64(semantic.rows)}, checks=[check])
