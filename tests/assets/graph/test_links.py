"""Links of a graph: no edge that is held out, nor its reverse, is in the stored topology, whatever source the edges come from."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.graph.links import HELD_OUT
from graphmill.assets.graph.read import Graph
from graphmill.assets.sources.generated import generators
from graphmill.kernels.errors import InputError
from tests.assets.graph.shops import FORMS, Shop, links, shop_graph
from tests.assets.sources.own_data import Built, build, write_gz

pytestmark = pytest.mark.usefixtures("quick_readers")

Edge = tuple[int, int, int]
"""Source, relation, target."""


def stored(graph: Graph) -> set[Edge]:
    """The edges of the topology."""
    topology = graph.topology
    target = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    kinds = np.zeros(len(target), int) if topology.edge_types is None else topology.edge_types
    return {*zip(topology.indices.tolist(), kinds.tolist(), target.tolist(), strict=True)}


def link_edges(graph: Graph, *parts: int) -> list[Edge]:
    """The links of some parts."""
    found = graph.links
    assert found is not None
    kinds = np.zeros(len(found.split), int) if found.relation is None else found.relation
    columns = zip(found.source.tolist(), kinds.tolist(), found.target.tolist(), found.split.tolist(), strict=True)
    return [(source, kind, target) for source, kind, target, part in columns if part in parts]


def reverses(graph: Graph, edges: list[Edge]) -> set[Edge]:
    """The reverses of edges, of relations that have one."""
    assert graph.links is not None
    back = graph.links.reverse_of
    return {(target, back[kind], source) for source, kind, target in edges if back[kind] >= 0}


def require_split(built: Built, whole: Built, message_edges: str = "train") -> Graph:
    """Requires the stored topology to be the whole one without the held-out links and their reverses, and each link to be stored once."""
    graph, every = built.opened, link_edges(built.opened, 0, 1, 2)
    assert graph.task == "links" and graph.links is not None and len(graph.train_ids) == 0
    held_out = link_edges(graph, *((1, 2) if message_edges == "train" else (2,)))
    gone = {*held_out} | reverses(graph, held_out)
    assert stored(graph) == stored(whole.opened) - gone and not stored(graph) & gone
    assert len({*every}) == len(every) and not reverses(graph, every) & {*every}
    assert {*every} <= stored(whole.opened)
    numbers = built.graph.summary["numbers"]
    assert numbers["num_links"] == len(every)
    assert [each["passed"] for each in built.graph.summary["checks"] if each["name"] == HELD_OUT] == [True]
    return graph


def edge_file(folder: Path, rng: np.random.Generator, num_nodes: int, num_edges: int) -> Path:
    """A drawn edge table with relations, splits and times; some edges repeat, some are there in both directions."""
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    twice = rng.integers(0, num_edges, num_edges // 4)
    src, dst = np.concatenate([src, dst[twice]]), np.concatenate([dst, src[twice]])
    kinds = np.array(["likes", "knows"])[rng.integers(0, 2, len(src))]
    path = folder / "edges.parquet"
    pl.DataFrame({"src": src, "dst": dst, "kind": kinds, "time": rng.integers(0, 9, len(src))}).write_parquet(path)
    return path


@pytest.mark.parametrize("message_edges", ["train", "train+valid"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"undirected": False},
        {"type_column": "kind"},
        {"type_column": "kind", "reverse_types": "own"},
        {"type_column": "kind", "undirected": False, "duplicates": "keep"},
    ],
)
def test_no_held_out_edge_is_in_the_topology(tmp_path: Path, keys: Any, seed: int, message_edges: Any) -> None:
    rng = np.random.default_rng(seed)
    path = edge_file(tmp_path, rng, num_nodes := int(rng.integers(3, 20)), int(rng.integers(4, 60)))
    whole = build(tmp_path / "home", "edges", edges=path, num_nodes=num_nodes, **keys)
    asked = links(message_edges=message_edges, train_ratio=0.6, valid_ratio=0.2)
    built = build(tmp_path / "home", "edges", edges=path, num_nodes=num_nodes, seed=seed, **keys, **asked)
    require_split(built, whole, message_edges)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("split", ["random", "time", "given"])
@pytest.mark.parametrize("how", [{}, {"undirected": False}, {"reverse_types": "own"}], ids=["same", "directed", "own"])
def test_splits_by_time_and_given_ones_of_every_form(tmp_path: Path, form: str, split: str, how: Any) -> None:
    how = {} if form == "npz" and "reverse_types" in how else how
    if form.startswith("ogb") and split == "time":
        return  # its folders have no times that all datasets share
    for seed in range(2):
        shop, folder = Shop(seed), tmp_path / str(seed)
        folder.mkdir()
        key = {"random": None, "time": "time_column", "given": "split_column"}[split]
        before = folder / "whole"
        before.mkdir()
        drawn = {}
        if form.startswith("ogb"):  # whose nodes have no split, and all of whose edges are in a part
            shop.words[shop.words == ""], drawn = "train", {"split": "random"}
        whole = build(folder / "home", **shop_graph(before, shop, form, None), **how, **drawn)
        asked = links(split=split, relations=() if "tables" not in form else ("buys",))
        built: Built = build(folder / "home", **shop_graph(folder, shop, form, key), **how, **asked)
        graph = require_split(built, whole)
        assert graph.links is not None
        assert not graph.relations or {graph.relations[number] for number in graph.links.predicted} == {
            "user/buys/item"
        }
        if split == "given":
            require_parts(built, shop, tables="tables" in form)
        if split == "time":
            require_times(built, shop, tables="tables" in form)


def shop_links(built: Built, shop: Shop, *, tables: bool) -> list[tuple[int, int, int]]:
    """User, item and part of each link, by the numbers of the shop."""
    graph, found = built.opened, []
    assert graph.links is not None
    names = pl.read_parquet(built.graph.path / "nodes.parquet")["original_id"].cast(pl.String)
    number = names.str.strip_prefix("n").cast(pl.Int64).to_list()
    if len(graph.node_types) == 2 and max(number) >= max(shop.num_users, shop.num_items):  # no ids of their own
        names = [built.numbers["node_types"].index(name) for name in ("user", "item")]
        firsts = built.graph.array("node_type_ptr").tolist()
        number = [each - firsts[1] if each >= firsts[1] else each for each in number]
        assert names in ([0, 1], [1, 0])
    for (source, _, target), part in zip(link_edges(graph, 0, 1, 2), graph.links.split.tolist(), strict=True):
        user, item = (number[source], number[target]) if tables else sorted((number[source], number[target]))
        found.append((user, item if tables else item - shop.num_users, part))
    return found


def require_parts(built: Built, shop: Shop, *, tables: bool) -> None:
    parts = {"train": 0, "valid": 1, "test": 2}
    names = shop.words[shop.bought[0] * 31 + shop.bought[1]] if tables else shop.part(*shop.homogeneous())
    given = zip(shop.bought[0].tolist(), shop.bought[1].tolist(), names.tolist(), strict=True)
    assert {*shop_links(built, shop, tables=tables)} == {
        (user, item, parts[name]) for user, item, name in given if name
    }


def require_times(built: Built, shop: Shop, *, tables: bool) -> None:
    first: dict[tuple[int, int], int] = {}
    for user, item, time in zip(*(each.tolist() for each in (*shop.bought, shop.time)), strict=True):
        first[user, item] = min(time, first.get((user, item), time))
    of_part = [
        [first[user, item] for user, item, part in shop_links(built, shop, tables=tables) if part == each]
        for each in range(3)
    ]
    assert sum(map(len, of_part)) == len(first)
    earlier = [times for times in of_part if times]
    assert all(max(one) <= min(two) for one, two in itertools.pairwise(earlier))


@pytest.mark.parametrize("end", [".csv", ".parquet", ".txt"])
def test_files_of_each_part_are_triples_of_a_knowledge_graph(tmp_path: Path, end: str) -> None:
    rng = np.random.default_rng(3)
    rows = sorted({*zip(*rng.integers(0, 9, (2, 60)).tolist(), rng.integers(0, 2, 60).tolist(), strict=True)})
    named = [
        (f"e{source}", f"r{kind}", f"e{target}", min(source, target) % 3 + max(source, target) % 3)
        for source, target, kind in rows
        if source != target
    ]
    parts = [[row[:3] for row in named if row[3] in wanted] for wanted in ((0, 1), (2,), (3, 4))]
    paths = []
    for name, part in zip(("train", "valid", "test"), parts, strict=True):
        frame = pl.DataFrame(part, schema=["src", "dst", "c2"], orient="row")
        paths.append(tmp_path / f"{name}{end}")
        if end == ".parquet":
            frame.write_parquet(paths[-1])
        else:
            frame.write_csv(paths[-1], include_header=end == ".csv", separator="\t" if end == ".txt" else ",")
    columns: dict[str, Any] = {"target_column": "c2", "type_column": "dst"} | (
        {"header": False} if end == ".txt" else {}
    )
    whole = build(tmp_path / "home", "edges", edges=(*paths,), **columns)
    files = {"edges": paths[0], "valid_edges": paths[1], "test_edges": paths[2]}
    built = build(tmp_path / "home", "edges", **files, **columns, **links(split="given"))
    graph = require_split(built, whole)
    names = pl.read_parquet(built.graph.path / "nodes.parquet")["original_id"].to_list()
    for part, triples in enumerate(parts):
        found = [(names[one], graph.relations[kind], names[two]) for one, kind, two in link_edges(graph, part)]
        ends = {(kind.split("/")[-1], *sorted((one, two))) for one, kind, two in found}
        assert ends == {(kind, *sorted((one, two))) for one, kind, two in triples}
    swapped = build(
        tmp_path / "home",
        "edges",
        **files | {"edges": paths[2], "test_edges": paths[0]},
        **columns,
        **links(split="given"),
    )
    assert swapped.graph.version != built.graph.version and len(link_edges(swapped.opened, 2)) == len(
        link_edges(graph, 0)
    )


@pytest.mark.parametrize("crosses", [True, False])
def test_edges_of_both_directions_may_be_in_two_parts_of_a_given_split(tmp_path: Path, crosses: bool) -> None:
    """So has Nations: half of the triples of a relation that goes both ways train, and their reverses test."""
    pairs = [(one, two) for one in range(6) for two in range(one)]
    back = [(two, one) for one, two in pairs]
    parts = (
        (pairs, back[:2], back[2:])
        if crosses
        else (pairs[:9] + back[:9], pairs[9:12] + back[9:12], pairs[12:] + back[12:])
    )
    for name, part in zip(("train", "valid", "test"), parts, strict=True):
        pl.DataFrame(part, schema=["src", "dst"], orient="row").write_parquet(tmp_path / f"{name}.parquet")
    files = {
        "edges": tmp_path / "train.parquet",
        "valid_edges": tmp_path / "valid.parquet",
        "test_edges": tmp_path / "test.parquet",
    }
    built = build(tmp_path / "home", "edges", **files, undirected=False, **links(split="given")).opened
    assert built.links is not None and built.links.reverse_of == ((-1,) if crosses else (0,))
    counts = np.bincount(built.links.split, minlength=3).tolist()
    assert counts == ([15, 2, 13] if crosses else [9, 3, 3])
    assert built.topology.num_edges == (15 if crosses else 18)


def test_a_relation_beside_its_reverse_is_not_reversed_again(tmp_path: Path) -> None:
    """PyG's `ToUndirected` makes a relation of reverse edges."""
    shop = Shop(1)
    ends = np.stack(shop.bought)
    both = {("user", "buys", "item"): ends, ("item", "rev_buys", "user"): ends[::-1].copy()}
    data: dict[Any, Any] = {kind: {"edge_index": torch.tensor(each)} for kind, each in both.items()}
    torch.save(data | {"user": {"num_nodes": shop.num_users}, "item": {"num_nodes": shop.num_items}}, tmp_path / "g.pt")
    with pytest.raises(InputError, match="'item/rev_buys/user' is the reverse of 'user/buys/item'"):
        build(tmp_path / "home", "pyg", path=tmp_path / "g.pt", **links())
    whole = build(tmp_path / "home", "pyg", path=tmp_path / "g.pt", undirected=False)
    graph = require_split(build(tmp_path / "home", "pyg", path=tmp_path / "g.pt", undirected=False, **links()), whole)
    assert graph.links is not None and graph.links.reverse_of == (1, 0) and graph.links.predicted == (0,)


def test_a_symmetric_relation_of_a_directed_graph_is_its_own_reverse(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 12, (2, 40))
    np.savez(
        tmp_path / "g.npz", edge_index=np.concatenate([ends, ends[::-1]], axis=1), num_nodes=12, y=np.full(12, 0.5)
    )
    graph = build(tmp_path / "home", "npz", path=tmp_path / "g.npz", undirected=False, **links()).opened
    assert graph.links is not None and graph.links.reverse_of == (0,)
    assert not {(two, 0, one) for one, _, two in link_edges(graph, 1, 2)} & stored(graph)


def test_links_of_spooled_edges_are_those_of_edges_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"nodes": 60, "edges": 400, "p_in": 0.6, "classes": 4}
    held = require_split(build(tmp_path / "a", "sbm", **keys, **links()), build(tmp_path / "a", "sbm", **keys))
    monkeypatch.setattr(generators, "HELD_EDGES", 10)
    spooled = require_split(build(tmp_path / "b", "sbm", **keys, **links()), build(tmp_path / "b", "sbm", **keys))
    assert link_edges(held, 0) == link_edges(spooled, 0) and link_edges(held, 2) == link_edges(spooled, 2)
    assert len(held.class_names) == 0 and (held.labels == -1).all()


@pytest.mark.parametrize("undirected", [True, False])
def test_links_of_ogb_that_are_edges_to_train_on_are_left_out(tmp_path: Path, undirected: bool) -> None:
    top = tmp_path / "ogbl"
    write_gz(top / "raw" / "edge.csv.gz", [[0, 1], [1, 2], [2, 3]])
    write_gz(top / "raw" / "num-edge-list.csv.gz", [[3]])
    write_gz(top / "raw" / "num-node-list.csv.gz", [[5]])
    (top / "split" / "time").mkdir(parents=True)
    torch.save({"edge": np.array([[0, 1], [1, 4]])}, top / "split" / "time" / "valid.pt")
    torch.save({"source_node": np.array([3, 0]), "target_node": np.array([2, 3])}, top / "split" / "time" / "test.pt")
    built = build(tmp_path / "home", "ogb", path=top, undirected=undirected, **links(split="given"))
    assert link_edges(built.opened, 1) == [(1, 0, 4)]
    assert link_edges(built.opened, 2) == [(0, 0, 3), *([] if undirected else [(3, 0, 2)])]
    said = " ".join(check["detail"] for check in built.graph.summary["checks"])
    assert "valid.pt: 1 links are edges to train on as well" in said
