"""The tables of `[graph]` with `source = "tables"`: all mistakes at once, each with its line and its full key."""

from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.sources.tables.source import TypedTablesConfig
from graphmill.kernels.errors import InputError

FILE = """\
[graph]
source = "tables"

[graph.nodes.user]
path = "users.parquet"
features = ["a", "b"]
label_column = "label"

[graph.nodes.item]
num_nodes = 5

[graph.edges.buys]
path = ["b1.csv", "b2.csv"]
source_type = "user"
target_type = "item"
source_column = "user_id"
"""


def load(folder: Path, text: str, *settings: str) -> Pipeline:
    (folder / "shop.toml").write_text(text)
    return load_pipeline(folder / "shop.toml", settings=settings)


def lines(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(folder, text)
    return [each.partition("shop.toml:")[2] for each in caught.value.problem.splitlines()[1:]]


def test_tables_become_configurations_in_their_order(tmp_path: Path) -> None:
    graph = load(tmp_path, FILE).graph
    buys = RelationTable(
        path=(tmp_path / "b1.csv", tmp_path / "b2.csv"), source_type="user", target_type="item", source_column="user_id"
    )
    user = NodeTable(path=tmp_path / "users.parquet", features=("a", "b"), label_column="label")
    nodes = {"user": user, "item": NodeTable(num_nodes=5)}
    assert graph == TypedTablesConfig(nodes=nodes, edges={"buys": buys})
    assert isinstance(graph, TypedTablesConfig) and graph.order == (("user", "item"), ("buys",))
    assert graph.attributes == ("edge_types",) and not graph.weighted and not graph.brings_split()


def test_keys_inside_the_tables_can_be_set(tmp_path: Path) -> None:
    settings = ("graph.edges.buys.weight_column=amount", "graph.nodes.item.num_nodes=7", "graph.nodes.city.num_nodes=2")
    graph = load(tmp_path, FILE, *settings).graph
    assert isinstance(graph, TypedTablesConfig) and graph.weighted and graph.edges["buys"].weight_column == "amount"
    assert graph.nodes["item"].num_nodes == 7 and graph.order[0] == ("user", "item", "city")


def test_all_mistakes_are_told_with_their_lines(tmp_path: Path) -> None:
    text = FILE.replace('"user"\n', '"usr"\n').replace('"item"\n', '"shop"\n').replace("= 5", '= 5\nlabel_column = "y"')
    text = text.replace("features", "feature").replace('"user_id"', "3")
    assert lines(tmp_path, text) == [
        "6: [graph.nodes.user] has no key feature (did you mean features?)",
        "11: [graph.nodes.item]: label_column = 'y' needs a table: give `path`, or leave it out",
        "11: graph.nodes.item.label_column: the node type user has labels already, and classes would mix: keep those of one type",
        '15: graph.edges.buys.source_type = "usr" is not a node type (did you mean user?); the node types are: user, item',
        '16: graph.edges.buys.target_type = "shop" is not a node type; the node types are: user, item',
        "17: graph.edges.buys.source_column = 3 is not a text in quotes",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("num_nodes = 5", "", "9: [graph.nodes.item]: has no nodes: give `path`"),
        ("num_nodes = 5", "num_nodes = 0", "10: [graph.nodes.item]: num_nodes = 0 is below 1"),
        ("num_nodes = 5", 'num_nodes = 5\npath = "i.csv"', "10: [graph.nodes.item]: num_nodes = 5 beside path"),
        (
            "num_nodes = 5",
            'num_nodes = 5\nid_type = "text"',
            "11: [graph.nodes.item]: id_type = 'text' with num_nodes = 5",
        ),
        ("nodes.item", 'nodes."an item"', "4: graph.nodes.an item: a name has letters"),
        ('source_type = "user"\n', "", "12: [graph.edges.buys] lacks the key source_type (a text in quotes)"),
        ("source_column", "delimiter", "16: [graph.edges.buys]: delimiter = 'user_id' is not a separator"),
        ('["a", "b"]', '["a", 3]', "6: graph.nodes.user.features = "),
        ('source = "tables"', 'source = "tables"\nnode = 3', "3: [graph] has no key node"),
    ],
)
def test_each_mistake_has_its_sentence(tmp_path: Path, old: str, new: str, said: str) -> None:
    found = lines(tmp_path, FILE.replace(old, new))
    assert any(each.startswith(said) for each in found), found


def test_tables_that_are_missing_say_how_they_are_written(tmp_path: Path) -> None:
    assert lines(tmp_path, '[graph]\nsource = "tables"\nnodes = "users.parquet"\n') == [
        "1: [graph] lacks the key edges (a table for each name, [graph.edges.NAME])",
        '3: nodes = "users.parquet" is not a table for each name, [graph.nodes.NAME]',
    ]
    assert lines(tmp_path, '[graph]\nsource = "tables"\nnodes = {}\nedges = {}\n') == [
        "3: nodes names no table: write [graph.nodes.NAME]",
        "4: edges names no table: write [graph.edges.NAME]",
    ]
