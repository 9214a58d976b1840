"""Graphs in a table for each node type and relation: ids, labels, features and edges arrive where they belong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.sources.tables.source import TypedTablesConfig
from graphmill.kernels.errors import InputError, each_mistake
from tests.assets.sources.own_data import Built, build_config, staging
from tests.assets.sources.tables.tables import frames, shop, write


def edges_of(built: Built) -> list[tuple[int, int, float, int, int]]:
    """(source, target, weight, type, edge id) of all edges, ascending."""
    graph = built.opened.topology
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    attributes = [np.asarray(each) for each in (graph.weights, graph.edge_types, graph.edge_ids)]
    return sorted(zip(graph.indices.tolist(), targets.tolist(), *(each.tolist() for each in attributes), strict=True))


# users: ann 0, bob 1, cat 2, dan 3, eve 4; items: 10 5, 20 6, 30 7, 70 8; cities 9 to 11
EDGES = [
    (0, 5, 1.0, 0, 0), (0, 8, 2.0, 0, 1), (1, 6, 3.0, 0, 2), (2, 5, 5.0, 0, 4), (3, 11, 1.0, 1, 5), (4, 7, 4.0, 0, 3),
    (4, 9, 1.0, 1, 6),
]  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_types_become_ranges_and_relations_edge_types(tmp_path: Path, form: str) -> None:
    write(tmp_path, form)
    built = build_config(tmp_path / "home", shop(tmp_path, form, edge_ids=True))
    graph, numbers = built.opened, built.numbers
    assert numbers["node_types"] == ["user", "item", "city"]
    assert numbers["edge_types"] == ["user/buys/item", "user/lives/city"]
    assert built.graph.array("node_type_ptr").tolist() == [0, 5, 9, 12]
    assert edges_of(built) == EDGES
    assert list(graph.class_names) == ["blue", "red"]
    assert graph.labels.tolist() == [1, 0, -1, 0, 1] + [-1] * 7
    assert [part.tolist() for part in (graph.train_ids, graph.valid_ids, graph.test_ids)] == [[3, 4], [1], [0]]
    rows = np.array([[2, 20], [1, 10], [4, 40], [3, 30], [0, 0], [3, 4], [5, 6], [1, 2], [7, 8]], np.float32)
    np.testing.assert_array_equal(built.features.array("rows"), rows)
    assert built.features.array("row_of").tolist() == [*range(9), -1, -1, -1]
    nodes = pl.read_parquet(built.graph.path / "nodes.parquet")
    assert nodes["original_id"].to_list() == ["ann", "bob", "cat", "dan", "eve", "10", "20", "30", "70", "0", "1", "2"]
    assert nodes["class"].to_list()[:3] == ["red", "blue", None] and built.verify() == []


def test_integer_ids_of_all_types_stay_integers(tmp_path: Path) -> None:
    write(tmp_path, changed={"buys": pl.DataFrame({"src": [0, 2], "dst": [30, 70]})})
    user = NodeTable(num_nodes=3)
    item = NodeTable(path=tmp_path / "items.parquet", name_column="id")
    buys = RelationTable(path=tmp_path / "buys.parquet", source_type="user", target_type="item")
    config = TypedTablesConfig(
        nodes={"item": item, "user": user}, edges={"buys": buys}, undirected=False, edge_ids=True
    )
    built = build_config(tmp_path / "home", config)
    nodes = pl.read_parquet(built.graph.path / "nodes.parquet")
    assert nodes["original_id"].to_list() == [10, 20, 30, 70, 0, 1, 2]
    assert nodes["name"].to_list() == ["10", "20", "30", "70", None, None, None]
    graph = built.opened.topology
    assert graph.weights is None and graph.indices.tolist() == [4, 6] and graph.indptr[[3, 4]].tolist() == [1, 2]
    assert built.features.array("rows").shape == (7, 1), "a graph without features has a column of ones"


def test_one_type_and_one_relation_are_a_plain_graph(tmp_path: Path) -> None:
    pl.DataFrame({"src": [0, 1], "dst": [1, 2]}).write_parquet(tmp_path / "e.parquet")
    follows = RelationTable(path=tmp_path / "e.parquet", source_type="user", target_type="user")
    config = TypedTablesConfig(nodes={"user": NodeTable(num_nodes=3)}, edges={"follows": follows})
    built = build_config(tmp_path / "home", config)
    assert built.opened.topology.edge_types is None and "node_types" not in built.numbers
    assert config.attributes == ()


def test_reverse_relations_and_a_relation_without_rows(tmp_path: Path) -> None:
    write(tmp_path, changed={"lives": frames()["lives"].clear()})
    built = build_config(tmp_path / "home", shop(tmp_path, undirected=True, reverse_types="own"))
    assert built.numbers["edge_types"][2:] == ["reverse of user/buys/item", "reverse of user/lives/city"]
    assert built.opened.topology.num_edges == 10
    write(tmp_path, changed={"lives": frames()["lives"].clear(), "buys": frames()["buys"].clear()})
    with pytest.raises(InputError, match=r"buys\.parquet.*the edge tables have no rows"):
        build_config(tmp_path / "home", shop(tmp_path))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_two_types_of_text_ids_share_no_names(tmp_path: Path, form: str) -> None:
    ids = pl.DataFrame({"id": ["b", "a", "c"]})
    ids[:2].write_csv(tmp_path / "y.csv")
    write_table = pl.DataFrame.write_parquet if form == "parquet" else pl.DataFrame.write_csv
    write_table(ids, tmp_path / f"x.{form}")
    write_table(pl.DataFrame({"src": ["c", "a"], "dst": ["a", "b"]}), tmp_path / f"e.{form}")
    relation = RelationTable(path=tmp_path / f"e.{form}", source_type="x", target_type="y")
    nodes = {"x": NodeTable(path=tmp_path / f"x.{form}"), "y": NodeTable(path=tmp_path / "y.csv")}
    config = TypedTablesConfig(nodes=nodes, edges={"e": relation}, undirected=False)
    graph = build_config(tmp_path / "home", config).opened.topology
    assert graph.indptr.tolist() == [0, 0, 0, 0, 1, 2] and graph.indices.tolist() == [2, 0]
    write_table(pl.DataFrame({"src": ["c", "a"], "dst": ["a", "c"]}), tmp_path / f"e.{form}")
    (problem,) = problems_of(tmp_path, config)
    assert problem.startswith("1 of 2 edges name a node that is not in the tables of nodes.y: ") and problem.endswith(
        "a -> c"
    )


def test_several_files_have_one_numbering(tmp_path: Path) -> None:
    write(tmp_path)
    given = frames()
    for number in range(2):
        given["users"][number * 3 : number * 3 + 3].write_parquet(tmp_path / f"user-{number}.parquet")
        given["buys"][number * 3 : number * 3 + 3].write_parquet(tmp_path / f"buy-{number}.parquet")
    whole = shop(tmp_path, edge_ids=True)
    nodes = {**whole.nodes, "user": replace(whole.nodes["user"], path=tmp_path / "user-*.parquet")}
    edges = {
        **whole.edges,
        "buys": replace(whole.edges["buys"], path=(tmp_path / "buy-0.parquet", tmp_path / "buy-1.parquet")),
    }
    assert edges_of(build_config(tmp_path / "home", replace(whole, nodes=nodes, edges=edges))) == EDGES


def test_a_file_of_rows_stands_in_the_order_of_its_node_table(tmp_path: Path) -> None:
    write(tmp_path)
    np.save(tmp_path / "rows.npy", np.arange(5, dtype=np.float32)[:, None])
    table = TableConfig(file=tmp_path / "rows.npy", node_type="user")
    built = build_config(tmp_path / "home", shop(tmp_path), table=table)
    assert built.features.array("rows")[:, 0].tolist() == [2, 1, 4, 3, 0]
    with pytest.raises(InputError, match="has one feature table"):
        shop(tmp_path).for_table(TableConfig(columns="a"))


def problems_of(tmp_path: Path, config: TypedTablesConfig) -> list[str]:
    with pytest.raises(InputError) as caught:
        build_config(tmp_path / "home", config)
    assert staging(tmp_path) == [] and all(each.remedy for each in each_mistake(caught.value)), str(caught.value)
    return [each.problem for each in each_mistake(caught.value)]


def test_all_missing_columns_are_told_at_once(tmp_path: Path) -> None:
    users, buys = frames()["users"].rename({"a": "age", "part": "splits"}), frames()["buys"].rename({"what": "item"})
    write(tmp_path, changed={"users": users, "buys": buys})
    problems = problems_of(tmp_path, shop(tmp_path))
    wanted = ("no column 'part'", "no column 'a'", "no column 'what'")
    assert len(problems) == 3 and all(any(each in problem for problem in problems) for each in wanted), problems


def test_wrong_values_of_all_tables_are_told_at_once(tmp_path: Path) -> None:
    users = frames()["users"].with_columns(part=pl.lit("dev"), a=pl.lit(None, pl.Float32))
    buys = frames()["buys"].with_columns(amount=pl.lit(float("nan")))
    lives = pl.DataFrame({"who": ["dan", "zoe"], "city": [2, 3]})
    write(tmp_path, changed={"users": users, "buys": buys, "lives": lives})
    problems = problems_of(tmp_path, shop(tmp_path))
    lost = "1 of 2 edges name a node that is not in the tables of nodes.user or 0 to 2, the nodes of type 'city'"
    wanted = ("'dev'", "column 'a' is empty", "'amount' is nan", f"{lost}: {tmp_path}/lives.parquet: row 1: zoe -> 3")
    assert len(problems) == 4 and all(any(each in problem for problem in problems) for each in wanted), problems


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([30, 10, None, 70], "items.parquet: row 2: column 'id' is empty"),
        ([30, 10, 30, 70], "1 node ids occur twice: '30' in {}/items.parquet: row 0 and {}/items.parquet: row 2"),
        (["30", "10", "20", "70"], "column 'what' is BIGINT, but the ids of the node type 'item' are VARCHAR"),
    ],
)
def test_wrong_ids_name_their_rows(tmp_path: Path, ids: list, said: str) -> None:
    write(tmp_path, changed={"items": frames()["items"].with_columns(id=pl.Series(ids))})
    assert [said.format(tmp_path, tmp_path) in each for each in problems_of(tmp_path, shop(tmp_path))] == [True]


def test_edges_of_integers_name_lost_nodes(tmp_path: Path) -> None:
    write(tmp_path, changed={"lives": pl.DataFrame({"who": [0, 30, 31], "city": [2, 0, 1]})})
    item = NodeTable(path=tmp_path / "items.parquet")
    lives = RelationTable(
        path=tmp_path / "lives.parquet",
        source_type="item",
        target_type="city",
        source_column="who",
        target_column="city",
    )
    nodes = {"item": item, "city": NodeTable(num_nodes=3)}
    (problem,) = problems_of(tmp_path, TypedTablesConfig(nodes=nodes, edges={"lives": lives}))
    assert problem.startswith("2 of 3 edges name a node that is not in the tables of nodes.item: ")
    assert "lives.parquet: row 0: 0 -> 2" in problem and "row 2: 31 -> 1" in problem


def test_labels_of_numbers_and_a_drawn_split(tmp_path: Path) -> None:
    users = frames()["users"].with_columns(team=pl.Series([2, 0, 1, 0, None]))
    write(tmp_path, changed={"users": users})
    given = shop(tmp_path)
    user = replace(given.nodes["user"], labels="numbers", split_column=None)
    graph = build_config(tmp_path / "home", replace(given, nodes={**given.nodes, "user": user})).opened
    assert graph.labels.tolist()[:5] == [1, 0, -1, 0, 2] and list(graph.class_names) == ["0", "1", "2"]
    assert sorted(np.concatenate([graph.train_ids, graph.valid_ids, graph.test_ids]).tolist()) == [0, 1, 3, 4]


def test_node_types_may_have_features_of_several_widths(tmp_path: Path) -> None:
    write(tmp_path)
    given = shop(tmp_path)
    user = replace(given.nodes["user"], features="a")
    built = build_config(tmp_path / "home", replace(given, nodes={**given.nodes, "user": user}))
    rows = np.array([[2, 0], [1, 0], [4, 0], [3, 0], [0, 0], [3, 4], [5, 6], [1, 2], [7, 8]], np.float32)
    np.testing.assert_array_equal(built.features.array("rows"), rows)
    assert built.features.summary["numbers"]["type_columns"] == [1, 2, 0]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_values_of_a_column_are_relations(tmp_path: Path, form: str) -> None:
    how = ["web", "shop/1", "web", "shop/1", "app"]
    write(tmp_path, form, {"buys": frames()["buys"].with_columns(how=pl.Series(how))})
    config = shop(tmp_path, form, edge_ids=True)
    buys = replace(config.edges["buys"], type_column="how")
    built = build_config(tmp_path / "home", replace(config, edges={"lives": config.edges["lives"], "buys": buys}))
    relations = ["user/lives/city", *(f"user/buys.{name}/item" for name in ("app", "shop.1", "web"))]
    assert built.numbers["edge_types"] == relations
    # Edge ids are rows of buys behind the 2 of lives; users: ann 0, bob 1, cat 2, dan 3, eve 4.
    expected = [(0, 5, 1.0, 3, 2), (0, 8, 2.0, 2, 3), (1, 6, 3.0, 3, 4), (2, 5, 5.0, 1, 6), (4, 7, 4.0, 2, 5)]
    assert edges_of(built) == sorted([*expected, (3, 11, 1.0, 0, 0), (4, 9, 1.0, 0, 1)])


def test_mistakes_of_a_column_of_relations_are_told(tmp_path: Path) -> None:
    for how, said in (
        (["a/b", "a.b", "c", "c", "c"], "relations 'a.b' and 'a/b' of column 'how' have one name"),
        (["a", None, "c", "c", "c"], "column 'how' is empty"),
    ):
        write(tmp_path, changed={"buys": frames()["buys"].with_columns(how=pl.Series(how))})
        config = shop(tmp_path)
        edges = {**config.edges, "buys": replace(config.edges["buys"], type_column="how")}
        with pytest.raises(InputError, match=said):
            build_config(tmp_path / "home", replace(config, edges=edges))
    missing = {**config.edges, "buys": replace(config.edges["buys"], type_column="when")}
    with pytest.raises(InputError, match="has no column 'when'"):
        build_config(tmp_path / "home", replace(config, edges=missing))
