"""Mistakes in links: each is told once, with its row or its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from graphmill.assets.graph.links import ODD
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.kernels.errors import InputError
from tests.assets.graph.shops import links, write
from tests.assets.sources.own_data import build

pytestmark = pytest.mark.usefixtures("quick_readers")


def small(folder: Path, rows: list[tuple[Any, ...]], **keys: Any) -> dict[str, Any]:
    """The keys of an edge table with source, target, part and time."""
    names = ["src", "dst", "part", "when"]
    path = write(pl.DataFrame(rows, schema=names, orient="row", strict=False), folder / "edges.csv")
    return {"edges": path, "num_nodes": 4, **keys}


GOOD: list[tuple[Any, ...]] = [(0, 1, "train", 5), (1, 2, "valid", 6), (2, 3, "test", 7)]


@pytest.mark.parametrize(
    ("rows", "keys", "task", "said"),
    [
        ([*GOOD, (0, 9, "train", 8)], {}, {"split": "given"}, r"row 3 \(line 5\): 0 -> 9"),
        ([*GOOD, (0, 1, "test", 8)], {}, {"split": "given"}, r"\(line 5\): the edge 0 -> 1 is in test, and .*\(line 2\) has it"),
        ([*GOOD, (1, 0, "test", 8)], {}, {"split": "given"}, r"\(line 5\): the edge 1 -> 0 is in test, and .* has it or its reverse"),
        ([*GOOD, (3, 0, "tested", 8)], {}, {"split": "given"}, r"\(line 5\): column 'part' holds 'tested', not a part of a split"),
        ([*GOOD[1:], (3, 0, "test", 8)], {}, {"split": "given"}, "no link is for training"),
        ([(0, 1, "", 1)], {}, {"split": "given"}, "no edge is in a part"),
        ([*GOOD, (3, 0, "test", None)], {}, {"split": "time"}, r"\(line 5\): column 'when' is empty"),
        ([*GOOD, (3, 0, "test", "soon")], {}, {"split": "time"}, r"\(line 5\): column 'when' holds 'soon', neither a number nor a time"),
        (GOOD, {}, {"relations": ("knows",)}, "relations names the relation 'knows', which the graph does not have"),
        (GOOD, {"type_column": "part"}, {"relations": ("tets",)}, "did you mean test"),
        ([(0, 0, "train", 1), (1, 2, "", 1)], {}, {"split": "given"}, "no edge is in a part"),
    ],
)  # fmt: skip
def test_bad_input_is_told_once_with_its_row(tmp_path: Path, rows: Any, keys: Any, task: Any, said: str) -> None:
    marked = {"given": {"split_column": "part"}, "time": {"time_column": "when"}}.get(task.get("split", ""), {})
    with pytest.raises(InputError, match=said) as caught:
        build(tmp_path / "home", "edges", **small(tmp_path, rows, **keys, **marked), **links(**task))
    assert "\n  1" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "task", "said"),
    [
        ({"split_column": "part"}, None, "split_column = 'part' needs node tables"),
        ({"time_column": "when"}, None, "time_column = 'when' has no effect"),
        ({"time_column": "when"}, {}, "time_column = 'when' has no effect"),
        ({}, {"split": "time"}, "gives the edges no times"),
        ({}, {"split": "given"}, "gives the edges no split"),
        ({"split_column": "part", "test_edges": "x.csv"}, {"split": "given"}, "split_column beside files of each part"),
        ({}, {"train_ratio": 0.0}, "do not split the links"),
        ({}, {"train_ratio": 0.9, "valid_ratio": 0.2}, "do not split the links"),
    ],
)
def test_keys_without_effect_are_refused(tmp_path: Path, keys: Any, task: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        build(tmp_path / "home", "edges", **small(tmp_path, GOOD, **keys), **({} if task is None else links(**task)))


@pytest.mark.parametrize("source", ["edges", "tables"])
def test_missing_columns_are_told_beside_other_mistakes(tmp_path: Path, source: str) -> None:
    path = write(pl.DataFrame({"src": [0, 1], "dst": [1, 7], "when": [1, 2]}), tmp_path / "edges.csv")
    keys: dict[str, Any] = {"edges": path, "num_nodes": 4, "time_column": "wen"}
    if source == "tables":
        relation = RelationTable(path=path, source_type="node", target_type="node", time_column="wen")
        keys = {"nodes": {"node": NodeTable(num_nodes=4)}, "edges": {"knows": relation}}
    with pytest.raises(InputError, match="has no column 'wen'") as caught:
        build(tmp_path / "home", source, **keys, **links(split="time"))
    assert "2 mistakes" in str(caught.value) and "1 -> 7" in str(caught.value)


def test_odd_links_are_told(tmp_path: Path) -> None:
    built = build(tmp_path / "home", "edges", **small(tmp_path, GOOD, split_column="part"), **links(split="given"))
    (odd,) = (check for check in built.graph.summary["checks"] if check["name"] == ODD)
    assert not odd["passed"] and "1 link in train: a score of so few says little" in odd["detail"]
    assert "1 of 1 test links have an end without any edge that is left" in odd["detail"]
