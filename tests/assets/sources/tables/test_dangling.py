"""Edges with an end that is missing or that no row has: refused, or left out and counted. What is built is the graph without them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from graphmill.assets.sources.registry import config_class
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.jobs.command import graphmill
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import COMPARED, Built, build_config
from tests.recipes import recipe

NODES, EDGES = 40, 300
IDS = {
    "whole numbers from 0": pl.Series(range(NODES)),
    "whole numbers": pl.Series(range(NODES)) * 7 + 3,
    "texts": pl.Series([f"u{number}" for number in range(NODES)]),
}


def drawn(ids: pl.Series, lost: float = 0.2) -> tuple[pl.DataFrame, np.ndarray]:
    """Returns a table of edges, in which some ends are missing and some have no row, and the rows whose ends are nodes."""
    rng = np.random.default_rng(4)
    ends, whole = {}, np.ones(EDGES, bool)
    for name in ("src", "dst"):
        draws, kind = rng.integers(0, NODES, EDGES), rng.random(EDGES)
        nobody = "nobody" if ids.dtype == pl.String else 10**6
        values = ids.gather(draws)
        ends[name] = pl.select(
            pl.when(pl.Series(kind < lost / 2))
            .then(None)
            .when(pl.Series(kind < lost))
            .then(pl.lit(nobody))
            .otherwise(values)
        ).to_series()
        whole &= kind >= lost
    return pl.DataFrame({**ends, "w": rng.random(EDGES).astype(np.float32)}), whole


def config(source: str, path: Path, form: str, ids: str, **keys: Any) -> Any:
    """Returns the keys of one table of edges, or of two relations of which the first one has them."""
    nodes, edges = path / f"nodes.{form}", path / f"edges.{form}"
    shared = {"edge_ids": True, "undirected": False}
    if source == "edges":
        keys["id_type"] = "text" if ids == "texts" else "integer"  # the first edge may have no ends
        return config_class(source)(edges=edges, nodes=nodes, weight_column="w", **shared, **keys)
    ends = {"source_type": "user", "target_type": "user"}
    likes = RelationTable(path=edges, weight_column="w", **ends, **keys)
    knows = RelationTable(path=path / f"sound.{form}", **ends)
    return config_class(source)(nodes={"user": NodeTable(path=nodes)}, edges={"likes": likes, "knows": knows}, **shared)


def write(path: Path, form: str, frames: Mapping[str, pl.DataFrame]) -> None:
    for name, frame in frames.items():
        frame.write_parquet(path / f"{name}.parquet") if form == "parquet" else frame.write_csv(path / f"{name}.csv")


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("source", ["edges", "tables"])
def test_the_graph_is_that_of_the_other_edges(tmp_path: Path, source: str, ids: str, form: str) -> None:
    frame, whole = drawn(IDS[ids])
    sound = drawn(IDS[ids], lost=0.0)[0].drop("w")
    clean = tmp_path / "clean"
    clean.mkdir()
    for path, edges in ((tmp_path, frame), (clean, frame.filter(pl.Series(whole)))):
        write(path, form, {"nodes": pl.DataFrame({"id": IDS[ids]}), "edges": edges, "sound": sound})
    with pytest.raises(InputError, match=r"is empty|name a node that is not"):
        build_config(tmp_path / "home", config(source, tmp_path, form, ids))
    found = build_config(tmp_path / "home", config(source, tmp_path, form, ids, dangling="drop"))
    wanted = build_config(tmp_path / "home", config(source, clean, form, ids))
    for name in (*COMPARED, "weights"):
        assert np.array_equal(found.graph.array(name), wanted.graph.array(name)), name
    rows = np.concatenate([np.flatnonzero(whole), EDGES + np.arange(EDGES)])  # edge ids count the rows of the tables
    assert np.array_equal(found.graph.array("edge_ids"), rows[wanted.graph.array("edge_ids")])
    assert found.numbers["num_dropped_edges"] == EDGES - whole.sum() and "num_dropped_edges" not in wanted.numbers
    assert said(found) == [f"{EDGES - whole.sum()} of {EDGES} edges have an end without a node"]


def said(built: Built) -> list[str]:
    """Returns what the checks say of edges that are left out."""
    details = [check["detail"] for check in built.graph.summary["checks"] if not check["passed"]]
    return [each.partition(": ")[2].partition(", and")[0] for each in details if 'dangling = "drop"' in each]


def test_it_is_said_before_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame, whole = drawn(IDS["texts"])
    labels = pl.Series(["a", "b"] * (NODES // 2))
    write(
        tmp_path, "csv", {"nodes": pl.DataFrame({"id": IDS["texts"], "x": range(NODES), "y": labels}), "edges": frame}
    )
    graph = {"source": "edges", "edges": "edges.csv", "nodes": "nodes.csv", "features": "x", "label_column": "y"}
    graph |= {"labels": "names", "dangling": "drop"}
    (tmp_path / "mine.toml").write_text(
        recipe({"name": "sage", "epochs": 1}, graph=graph, sampling={"fanouts": [4, 4]})
    )
    count = EDGES - whole.sum()
    for command, text in (
        ("inspect", f"note: edges: {count} of {EDGES} edges have an end without a node, and are left out"),
        ("validate", f"{count} edges with an end without a node will be left out"),
        ("build", f"{count} edges with an end without a node were left out"),
    ):
        done = CliRunner().invoke(graphmill, [command, "mine.toml"], catch_exceptions=False)
        assert done.exit_code == 0 and text in done.output, done.output


def test_without_node_tables_every_id_is_a_node(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='dangling = "drop" needs nodes'):
        config_class("edges")(edges=tmp_path / "edges.csv", dangling="drop")
    assert config_class("edges")(edges=tmp_path / "edges.csv", num_nodes=9, dangling="drop").dangling == "drop"
