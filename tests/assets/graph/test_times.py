"""Times of edges and seeds: rows in the order of time, the same from every source, and mistakes told once with their place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.graph.times import EARLY
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.sources.task_table import TaskTable
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Topology
from tests.assets.sources.own_data import build, build_config
from tests.recipes import recipe

pytestmark = pytest.mark.usefixtures("quick_readers")
OF_SEEDS = ("time_column", "split_column", "label_column")
"""Keys of a node type that links do not read."""
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


def linked(folder: Path, keys: dict[str, Any], **task: Any) -> Any:
    """The built graph of links with times."""
    table = TaskTable(kind="links", **task)
    return built(folder, of_links(keys), task="links", links=table)


def of_links(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys of a graph without what they say of nodes."""
    left = {key: value for key, value in keys.items() if key not in ("node_time", "node_time_column", *OF_SEEDS[1:])}
    if isinstance(left.get("nodes"), dict):
        left["nodes"] = {name: replace(table, **dict.fromkeys(OF_SEEDS)) for name, table in left["nodes"].items()}
    return left


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("form", ["npz", "pyg", "edges", "tables"])
def test_a_link_has_the_first_time_of_its_edges_and_none_of_them_is_in_its_past(
    tmp_path: Path, form: str, undirected: bool
) -> None:
    events = Events(5, num_nodes=12)
    found = linked(tmp_path, events.write(form, tmp_path) | {"undirected": undirected}, split="time").opened
    links, topology = found.links, found.topology
    first: dict[tuple[int, int], float] = {}
    for u, v, time in zip(*events.ends.tolist(), events.time.tolist(), strict=True):
        for pair in {(u, v), (v, u)} if undirected else {(u, v)}:
            first[pair] = min(first.get(pair, np.inf), time)
    ends = [*zip(links.source.tolist(), links.target.tolist(), strict=True)]
    assert links.times.tolist() == [first[pair] for pair in ends]
    assert len({*ends, *((v, u) for u, v in ends)} if undirected else {*ends}) == len(
        {p for p in first if p[0] != p[1]}
    )
    newest = max(links.times[links.split == 0])
    assert (links.times[links.split == 2] >= newest).all()
    target = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    for u, v, time in zip(topology.indices.tolist(), target.tolist(), topology.edge_times.tolist(), strict=True):
        assert time >= first[u, v]


@pytest.mark.parametrize("gap", [1, 2.5, 4])
def test_a_gap_leaves_time_between_the_parts_of_links_and_its_edges_are_gone(tmp_path: Path, gap: float) -> None:
    events = Events(6, num_nodes=30, num_edges=300)
    keys = events.write("npz", tmp_path)
    ratios = {"train_ratio": 0.4, "valid_ratio": 0.4}
    whole, left = (linked(tmp_path, keys, split="time", **ratios, **more) for more in ({}, {"gap": gap}))
    links, kept = whole.opened.links, left.opened.links
    parts = [kept.times[kept.split == part] for part in range(3)]
    assert all(len(each) for each in parts)
    assert parts[0].max() <= min(parts[1].min(), parts[2].min()) - gap and parts[1].max() <= parts[2].min() - gap
    known = dict(zip(zip(kept.source.tolist(), kept.target.tolist(), strict=True), kept.split.tolist(), strict=True))
    for u, v, part, time in zip(
        *(each.tolist() for each in (links.source, links.target, links.split, links.times)), strict=True
    ):
        later = links.times[links.split > part]
        gone = part < 2 and time > later.min() - gap
        assert known.get((u, v)) == (None if gone else part)
        row = left.opened.topology.indices[slice(*left.opened.topology.indptr[v : v + 2])]
        assert (u in row.tolist()) == (part == 0 and not gone)
    assert left.graph.summary["numbers"]["num_gap_links"] == len(links.split) - len(kept.split)


@pytest.mark.parametrize("gap", [None, 4])
def test_nodes_are_cut_by_time(tmp_path: Path, gap: int | None) -> None:
    events = Events(7, num_nodes=60)
    events.part[:] = np.arange(60) % 3
    events.node_time = np.random.default_rng(1).permutation(60).astype(float)
    events.label = np.where(np.arange(60) % 5, np.arange(60) % 3, -1)
    events.node_time[3] = np.nan
    more: dict[str, Any] = {} if gap is None else {"gap": gap}
    graph = {
        "source": "npz",
        "path": str(events.write("npz", tmp_path)["path"]),
        "train_ratio": 0.5,
        "valid_ratio": 0.25,
    }
    text = recipe(
        {"name": "x"}, graph=graph, task={"split": "time", **more}, sampling={"fanouts": [2], "before": "seed"}
    )
    pipeline = parse_pipeline(tmp_path / "mine.toml", text.encode())
    found = build_config(tmp_path / "home", pipeline.graph, threads=1).opened
    order = np.argsort(events.node_time)
    order = order[(events.label[order] >= 0) & ~np.isnan(events.node_time[order])]
    count = len(order)
    expected = np.split(order, [round(count * 0.5), round(count * 0.75)])
    for own, ids in enumerate((found.train_ids, found.valid_ids, found.test_ids)):
        wanted = expected[own]
        if gap is not None and own < 2:
            first = events.node_time[expected[own + 1]].min()
            wanted = wanted[events.node_time[wanted] <= first - gap]
        assert sorted(wanted) == ids.tolist() and len(ids)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"gap": 3}, "gap = 3.0 is for split = 'time': set it, or leave gap out"),
        ({"split": "time", "gap": 0}, "gap = 0.0 has no time in it"),
        ({"split": "time", "gap": "7 days"}, 'gap = "7 days" is not a length: write a number and one of'),
        (
            {"split": "time", "gap": "7d"},
            'gap = "7d" is a length of dates, and the times of the .* are numbers from',
        ),
        (
            {"split": "time", "gap": 10_000},
            "gap = 10000.0 leaves no node for training|no link is for training|no edge",
        ),
        ({"split": "given"}, "split is a key of links|asks for times of edges, and \\[task\\] split = 'given'"),
    ],
)
@pytest.mark.parametrize("kind", ["classes", "links"])
def test_wrong_splits_by_time_are_told(tmp_path: Path, kind: str, task: Any, said: str) -> None:
    graph = {"source": "npz", "path": str(Events(8).write("npz", tmp_path)["path"])}
    sampling = {"fanouts": [2], "before": "seed"}
    text = recipe({"name": "x"}, graph=graph, task={"kind": kind, **task}, sampling=sampling)
    with pytest.raises(InputError, match=said):
        build_config(tmp_path / "home", parse_pipeline(tmp_path / "mine.toml", text.encode()).graph, threads=1)


def test_a_split_of_nodes_by_time_needs_times_of_seeds_and_no_encoders(tmp_path: Path) -> None:
    graph: dict[str, Any] = {"source": "npz", "path": str(Events(8).write("npz", tmp_path)["path"])}
    text = recipe({"name": "x"}, graph=graph, task={"split": "time"}, sampling={"fanouts": [2]})
    with pytest.raises(InputError, match="split = 'time' of nodes reads the times of seeds"):
        parse_pipeline(tmp_path / "mine.toml", text.encode())
    keys = {key: value for key, value in Events(8).write("edges", tmp_path).items() if key != "features"}
    graph = {key: str(value) for key, value in keys.items()}
    tables: Any = {"features": {"encode": {"f": "standard"}}, "task": {"split": "time"}}
    text = recipe({"name": "x"}, graph=graph, sampling={"fanouts": [2], "before": "seed"}, **tables)
    with pytest.raises(InputError, match="split_column has no effect"):
        parse_pipeline(tmp_path / "mine.toml", text.encode())
    text = text.replace('split_column = "part"\n', "")
    with pytest.raises(InputError, match="encode is fitted on the training nodes of a drawn or given split"):
        parse_pipeline(tmp_path / "mine.toml", text.encode())
