"""Times of edges and seeds: rows in the order of time, the same from every source, and mistakes told once with their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.graph.times import EARLY
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Topology
from tests.assets.sources.own_data import build

pytestmark = pytest.mark.usefixtures("quick_readers")
FORMS = ("npz", "pyg", "edges", "edges.csv", "tables")
ARRAYS = ("indptr", "indices", "edge_times", "node_times", "labels", "train_ids", "test_ids")


class Events:
    """A drawn multigraph of events; some edges repeat at one time, some at another."""

    def __init__(self, seed: int = 0, num_nodes: int = 20, num_edges: int = 120):
        rng = np.random.default_rng(seed)
        self.num_nodes = num_nodes
        ends, time = rng.integers(0, num_nodes, (2, num_edges)), rng.integers(0, 40, num_edges)
        twice = rng.integers(0, num_edges, num_edges // 3)
        self.ends = np.concatenate([ends, ends[:, twice]], axis=1)
        self.time = np.concatenate([time, np.where(twice % 2, time[twice], rng.integers(0, 40, len(twice)))]).astype(
            float
        )
        self.part = np.arange(num_nodes) % 4  # 3 = in no part
        self.node_time = np.where(self.part == 3, np.nan, rng.integers(1, 40, num_nodes))
        self.label = np.where(self.part == 3, -1, rng.integers(0, 3, num_nodes))
        self.x = rng.standard_normal((num_nodes, 2)).astype(np.float32)

    def write(self, form: str, folder: Path) -> dict[str, Any]:
        """Writes the graph; returns the source and its keys."""
        masks = {
            name: torch.from_numpy(self.part == n) for n, name in enumerate(("train_mask", "val_mask", "test_mask"))
        }
        if form == "npz":
            split = {name: np.flatnonzero(self.part == n) for n, name in enumerate(("train", "val", "test"))}
            arrays = {"edge_time": self.time, "node_time": self.node_time, "x": self.x, "y": self.label}
            np.savez(folder / "g.npz", edge_index=self.ends, **arrays, **split)
            return {"source": "npz", "path": folder / "g.npz"}
        if form == "pyg":
            data = {"edge_index": torch.from_numpy(self.ends), "time": torch.from_numpy(self.time), **masks}
            data |= {"x": torch.from_numpy(self.x), "y": torch.from_numpy(self.label)}
            torch.save(data | {"seed_time": torch.from_numpy(self.node_time)}, folder / "g.pt")
            return {"source": "pyg", "path": folder / "g.pt", "time": "time", "node_time": "seed_time"}
        ending = "csv" if form.endswith("csv") else "parquet"
        edges, nodes = folder / f"edges.{ending}", folder / f"nodes.{ending}"
        parts = [("train", "valid", "test", None)[part] for part in self.part]
        timed = [None if np.isnan(each) else each for each in self.node_time]
        rows = {"id": np.arange(self.num_nodes), "y": self.label, "part": parts, "seen": timed, "f": self.x[:, 0]}
        for path, frame in ((edges, {"src": self.ends[0], "dst": self.ends[1], "when": self.time}), (nodes, rows)):
            table = pl.DataFrame(frame)
            (table.write_csv if ending == "csv" else table.write_parquet)(path)
        of_nodes = {"label_column": "y", "split_column": "part", "features": "f"}
        if form != "tables":
            keys = {"edges": edges, "nodes": nodes, "time_column": "when", "node_time_column": "seen"}
            return {"source": "edges", **keys, **of_nodes}
        return {
            "source": "tables",
            "nodes": {"n": NodeTable(path=nodes, time_column="seen", **of_nodes)},
            "edges": {"e": RelationTable(path=edges, source_type="n", target_type="n", time_column="when")},
        }


def rows_of(topology: Topology) -> list[tuple[int, float, int]]:
    """The edges of a topology, in its order: target, time, source."""
    target = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    assert topology.edge_times is not None
    return [*zip(target.tolist(), topology.edge_times.tolist(), topology.indices.tolist(), strict=True)]


def built(folder: Path, keys: dict[str, Any], **more: Any) -> Any:
    given = dict(keys)
    return build(folder / "home", given.pop("source"), times=True, **given, **more)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("duplicates", ["merge", "keep"])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_the_edges_in_the_order_of_time(tmp_path: Path, seed: int, duplicates: str, undirected: bool) -> None:
    events = Events(seed)
    graph = built(tmp_path, events.write("npz", tmp_path), undirected=undirected, duplicates=duplicates).opened
    edges = [(d, t, s) for s, d, t in zip(*events.ends.tolist(), events.time.tolist(), strict=True) if s != d]
    edges += [(s, t, d) for d, t, s in edges] if undirected else []
    assert rows_of(graph.topology) == sorted({*edges} if duplicates == "merge" else edges)
    np.testing.assert_array_equal(graph.node_times, events.node_time)


@pytest.mark.parametrize("form", FORMS)
def test_every_source_gives_the_same_graph(tmp_path: Path, form: str) -> None:
    events = Events(5)
    (tmp_path / "npz").mkdir()
    plain = built(tmp_path / "npz", events.write("npz", tmp_path / "npz")).opened
    graph = built(tmp_path, events.write(form, tmp_path)).opened
    for name in ARRAYS:
        mine, wanted = (getattr(each, name, None) for each in (graph, plain))
        mine = getattr(graph.topology, name) if mine is None else mine
        wanted = getattr(plain.topology, name) if wanted is None else wanted
        np.testing.assert_array_equal(mine, wanted)


def test_relations_are_in_the_order_of_time_each(tmp_path: Path) -> None:
    events, keys = Events(7), {}
    keys = events.write("tables", tmp_path)
    other = Events(8).write("tables", tmp_path) | {}
    pl.DataFrame({"src": [1, 2, 3], "dst": [0, 0, 0], "when": [9.0, 1.0, 5.0]}).write_parquet(tmp_path / "more.parquet")
    more = RelationTable(path=tmp_path / "more.parquet", source_type="n", target_type="n", time_column="when")
    graph = built(tmp_path, other | {"edges": {**keys["edges"], "more": more}}, undirected=False).opened
    types, times = graph.topology.edge_types, graph.topology.edge_times
    for v in range(graph.topology.num_nodes):
        row = slice(*graph.topology.indptr[v : v + 2])
        assert sorted(zip(types[row], times[row], strict=True)) == [*zip(types[row], times[row], strict=True)]
    row = slice(*graph.topology.indptr[:2])
    assert times[row][types[row] == 1].tolist() == [1, 5, 9]


def test_dates_are_microseconds_whatever_writes_them(tmp_path: Path) -> None:
    events = Events(2)
    events.time, events.node_time = events.time * 3600, np.where(np.isnan(events.node_time), 1, events.node_time) * 3600
    plain = built(tmp_path, events.write("npz", tmp_path)).opened
    arrays = dict(np.load(tmp_path / "g.npz"))
    arrays["edge_time"] = arrays["edge_time"].astype("M8[s]").astype("M8[ns]")
    arrays["node_time"] = arrays["node_time"].astype("M8[s]")
    np.savez(tmp_path / "dated.npz", **arrays)
    dated = built(tmp_path, {"source": "npz", "path": tmp_path / "dated.npz"}).opened
    keys = events.write("edges", tmp_path)
    for path, name in ((keys["edges"], "when"), (keys["nodes"], "seen")):
        frame = pl.read_parquet(path)
        frame.with_columns((pl.col(name).cast(pl.Int64) * 1000).cast(pl.Datetime("ms"))).write_parquet(path)
    tables = built(tmp_path, keys).opened
    for graph in (dated, tables):
        np.testing.assert_array_equal(graph.topology.edge_times, plain.topology.edge_times * 1e6)
        np.testing.assert_array_equal(graph.node_times, plain.node_times * 1e6)
        np.testing.assert_array_equal(graph.topology.indices, plain.topology.indices)


def test_a_seed_before_every_edge_is_said(tmp_path: Path) -> None:
    events = Events(3)
    events.node_time[:2] = -5.0
    artifact = built(tmp_path, events.write("npz", tmp_path)).graph
    (check,) = [each for each in artifact.summary["checks"] if each["name"] == EARLY]
    assert not check["passed"] and check["detail"].startswith("2 of 15 seeds are not later than the earliest edge")


def damaged(what: str, events: Events) -> None:
    """Damages the times."""
    if what == "edge":
        events.time[7] = np.nan
    elif what == "infinite":
        events.time[7] = np.inf
    elif what == "seed":
        events.node_time[2] = np.nan
    elif what == "seconds and milliseconds":
        events.time, events.node_time = 1.7e9 + events.time, 1000 * (1.7e9 + events.node_time)
    elif what == "milliseconds and seconds":
        events.time, events.node_time = 1000 * (1.7e9 + events.time), 1.7e9 + events.node_time
    else:
        events.time += 1.7e9
        events.node_time += 1.7e9
        events.time[::3] *= 1000


@pytest.mark.parametrize("form", ["npz", "edges.csv", "tables", "pyg"])
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("edge", "edge 7 is nan|'when' (is empty|holds '?nan)|neither a number nor a time"),
        ("infinite", "edge 7 is inf|'when' holds '?inf|neither a number nor a time"),
        ("seed", "node 2 is a seed and has no time; 1 of 15 seeds have none"),
        ("seconds and milliseconds", "times are of two units: those of .* edges and 0 seeds are below"),
        ("milliseconds and seconds", "times are of two units: those of 0 edges and 15 seeds are below"),
        ("some edges", "times are of two units"),
    ],
)
def test_bad_times_are_told_once(tmp_path: Path, form: str, what: str, said: str) -> None:
    events = Events(4)
    damaged(what, events)
    with pytest.raises(InputError, match=said) as caught:
        built(tmp_path, events.write(form, tmp_path))
    assert "mistakes" not in str(caught.value)


def test_one_wrong_date_is_not_a_unit(tmp_path: Path) -> None:
    events = Events(4, num_edges=900)
    events.time, events.node_time = 1.7e9 + events.time, 1.7e9 + events.node_time
    events.time[3] = 86_400.0
    assert built(tmp_path, events.write("npz", tmp_path)).opened.topology.edge_times.min() == 86_400


@pytest.mark.parametrize(
    ("form", "change", "said"),
    [
        ("edges", {"time_column": None}, "gives the edges no times"),
        ("edges", {"node_time_column": None}, "gives the nodes no times"),
        ("edges", {"time_column": "wen"}, "has no column 'wen'"),
        ("edges", {"node_time_column": "saw"}, "has no column 'saw'"),
        ("pyg", {"time": None}, "gives the edges no times"),
        ("pyg", {"node_time": None}, "gives the nodes no times"),
        ("pyg", {"time": "tim"}, "no edges have 'tim'"),
        ("pyg", {"node_time": "seedtime"}, "no node type has 'seedtime'"),
    ],
)
def test_missing_times_are_told(tmp_path: Path, form: str, change: dict[str, Any], said: str) -> None:
    keys = Events().write(form, tmp_path) | change
    with pytest.raises(InputError, match=said):
        built(tmp_path, keys)


def test_each_relation_needs_times(tmp_path: Path) -> None:
    keys = Events().write("tables", tmp_path)
    other = RelationTable(path=tmp_path / "edges.parquet", source_type="n", target_type="n")
    with pytest.raises(InputError, match=r"graph\.edges\.other has no time_column"):
        built(tmp_path, keys | {"edges": {**keys["edges"], "other": other}})


@pytest.mark.parametrize("name", ["edge_time", "node_time"])
def test_an_archive_without_times_is_told(tmp_path: Path, name: str) -> None:
    keys = Events().write("npz", tmp_path)
    arrays = dict(np.load(tmp_path / "g.npz"))
    del arrays[name]
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(InputError, match=rf"\[sampling\] before = 'seed' needs an array {name}"):
        built(tmp_path, keys)


@pytest.mark.parametrize(
    ("form", "kept", "said"),
    [
        ("edges", "node_time_column", "node_time_column = 'seen' has no effect"),
        ("pyg", "node_time", "node_time = 'seed_time' has no effect"),
        ("tables", "", "nodes.n.time_column = 'seen' has no effect"),
    ],
)
def test_times_of_nodes_that_nothing_reads_are_told(tmp_path: Path, form: str, kept: str, said: str) -> None:
    keys = Events().write(form, tmp_path)
    if form == "tables":
        keys["edges"] = {"e": RelationTable(path=tmp_path / "edges.parquet", source_type="n", target_type="n")}
    keys = {key: value for key, value in keys.items() if "time" not in key or key == kept}
    with pytest.raises(InputError, match=said):
        build(tmp_path / "home", keys.pop("source"), **keys)
