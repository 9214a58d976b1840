"""Candidates of links: a file of one's own, those of OGB's datasets, and mistakes in them, each told with its row."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.graph.read import Graph
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.storage.names.version import version_of
from graphmill.kernels.errors import InputError
from tests.assets.graph.shops import links
from tests.assets.sources.own_data import Built, build, write_gz

pytestmark = pytest.mark.usefixtures("quick_readers")

TRAIN = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
VALID, TEST = [("a", "c")], [("e", "b"), ("b", "d")]
ROWS: list[tuple[str, str, list[str], list[str]]] = [
    ("b", "e", ["e", "a", "d"], ["b", "c"]),  # the data have e -> b
    ("b", "d", ["a", "d"], ["b", "c", "a"]),
]


def built(folder: Path, rows: Any = ROWS, *, split: str = "given", **keys: Any) -> Built:
    """A graph of five nodes with names, whose links to test have candidates."""
    parts = {"train": TRAIN, "valid": VALID, "test": TEST}
    edges = [(*pair, part) for part, pairs in parts.items() for pair in pairs]
    pl.DataFrame(edges, schema=["src", "dst", "part"], orient="row").write_parquet(folder / "edges.parquet")
    columns = ["source", "target", "target_candidates", "source_candidates"]
    frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows, schema=columns, orient="row")
    frame.write_parquet(folder / "candidates.parquet")
    table = {"candidates": folder / "candidates.parquet", "split": split, **keys}
    marked = {"split_column": "part"} if split == "given" else {}
    return build(folder / "home", "edges", edges=folder / "edges.parquet", id_type="text", **marked, **links(**table))


def candidates(found: Built, names: bool = True) -> dict[tuple[Any, Any], dict[str, list[Any]]]:
    """Link -> side -> its candidates, by names of the raw data."""
    graph: Graph = found.opened
    assert graph.links is not None and graph.links.candidates is not None
    given, original = graph.links.candidates, pl.read_parquet(found.graph.path / "nodes.parquet")["original_id"]
    name = original.to_list() if names else list(range(len(original)))
    return {
        (name[source], name[target]): {
            side: [name[end] for end in given.ends[side][starts[link] : starts[link + 1]]]
            for side, starts in given.starts.items()
        }
        for link, (source, target) in enumerate(zip(graph.links.source, graph.links.target, strict=True))
    }


def test_a_file_of_candidates_is_stored_by_link_in_its_direction(tmp_path: Path) -> None:
    found = built(tmp_path)
    by_link = candidates(found)
    pair = by_link.get(("e", "b")) or {"target": by_link["b", "e"]["source"], "source": by_link["b", "e"]["target"]}
    assert {side: sorted(ends) for side, ends in pair.items()} == {"target": ["c"], "source": ["a", "d"]}
    assert {side: sorted(ends) for side, ends in by_link["b", "d"].items()} == {"target": ["a"], "source": ["a", "c"]}
    assert all(
        not ends
        for link, each in by_link.items()
        if link not in (("e", "b"), ("b", "e"), ("b", "d"))
        for ends in each.values()
    )
    assert found.numbers["num_given_candidates"] == 6


def test_candidates_change_the_version_and_their_absence_does_not(tmp_path: Path) -> None:
    one = built(tmp_path)
    other = built(tmp_path, [*ROWS[:1], ("b", "d", ["a", "d"], ["b", "c", "e"])])
    assert one.graph.version != other.graph.version and one.features.version == other.features.version
    drawn, without = built(tmp_path, candidates=None, uniform_candidates=9), built(tmp_path, candidates=None)
    assert len({each.graph.version for each in (one, other, drawn, without)}) == 4
    # What is sampled from the graph stays.
    assert len({each.graph.aspects["sampling"] for each in (one, other, drawn, without)}) == 1
    plain, drawn = links(split="given")["links"], links(split="given", uniform_candidates=5)["links"]
    assert version_of("graph", 3, plain, {}, {}) != version_of("graph", 3, drawn, {}, {})
    assert version_of("graph", 3, plain, {}, {}) == version_of(
        "graph",
        3,
        {
            "kind": "links",
            "relations": [],
            "split": "given",
            "train_ratio": 0.85,
            "valid_ratio": 0.05,
            "message_edges": "train",
        },
        {},
        {},
    )


MISTAKES: list[tuple[Any, dict[str, Any], str]] = [
    ([("b", "e", ["a"], ["b"]), ROWS[1]], {}, r"row 1: b -> e: target_candidates do not have the target itself"),
    ([ROWS[0], ("b", "d", ["a", "d"], ["c"])], {}, r"row 2: b -> d: source_candidates do not have the source itself"),
    ([ROWS[0], ("b", "d", ["a", "d", "zoe"], ["b"])], {}, r"row 2: b -> d: target_candidates has zoe, which is no node"),
    ([ROWS[0], ("b", "zoe", ["a"], ["b"])], {}, r"row 2: b -> zoe: the target is no node"),
    ([ROWS[0], ("b", "d", [], ["b"])], {}, r"row 2: b -> d: target_candidates is empty"),
    ([*ROWS, ("a", "b", ["b", "c"], ["a"])], {}, r"row 3: a -> b is not a link to validate or to test"),
    ([*ROWS, ("d", "b", ["b"], ["d"])], {}, r"row 3: d -> b has candidates twice"),
    (ROWS[:1], {}, r"1 of 2 test links have no candidates"),
    (pl.DataFrame({"source": ["b"], "target": ["e"]}), {}, "lacks target_candidates and source_candidates"),
    (pl.DataFrame({"source": ["b"], "target": ["e"], "target_candidates": ["e"]}), {}, "column target_candidates holds no lists"),
    (ROWS, {"source_candidates": True}, "source_candidates = true beside a file of candidates"),
    (ROWS, {"source_candidates": True, "candidates": None}, "source_candidates = true, but source = 'edges' has no candidates"),
    (ROWS, {"source_candidates": True, "candidates": None, "split": "random"}, "is not that of the source"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "keys", "said"), MISTAKES, ids=[each[2][:60] for each in MISTAKES])
def test_a_mistake_in_candidates_is_told_once_with_its_row(
    tmp_path: Path, rows: Any, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        built(tmp_path, rows, **keys)
    assert str(caught.value).count("\n") < 2 or "2 mistakes" in str(caught.value)


COLUMNS = ["source", "target", "target_candidates", "source_candidates"]
OTHER_VALUES: dict[str, list[Any]] = {
    "numbers": [4, 1], "fractions": [0.5, 1.0], "dates": [date(2020, 1, 1)] * 2, "nothing": [None, None], "truth": [True, False],
    "lists": [["e"], ["d"]], "structs": [{"id": "e"}, {"id": "d"}], "strange": ["x\n|y", "\u202ez"],
}  # fmt: skip


@pytest.mark.parametrize("values", OTHER_VALUES)
@pytest.mark.parametrize("column", COLUMNS)
def test_other_values_in_a_column_of_candidates_are_told(tmp_path: Path, column: str, values: str) -> None:
    """One message, on lines of its own, with the column or the row."""
    frame, given = pl.DataFrame(ROWS, schema=COLUMNS, orient="row"), OTHER_VALUES[values]
    given = [[each] for each in given] if column in COLUMNS[2:] else given
    with pytest.raises(InputError, match=rf"column {column} |row [12]: ") as caught:
        built(tmp_path, frame.with_columns(pl.Series(column, given)))
    assert str(caught.value).count("\n") == 1


@pytest.mark.parametrize("column", COLUMNS[:2])
def test_a_file_of_candidates_without_a_column_or_rows_is_told(tmp_path: Path, column: str) -> None:
    frame = pl.DataFrame(ROWS, schema=COLUMNS, orient="row")
    with pytest.raises(InputError, match=rf"candidates.parquet: lacks {column}"):
        built(tmp_path, frame.drop(column))
    with pytest.raises(InputError, match="has no rows"):
        built(tmp_path, frame.head(0))
    with pytest.raises(InputError, match=r"row 1: .* have nothing but the \w+ itself; 2 such rows"):
        alone = frame.with_columns(
            target_candidates=pl.concat_list("target"), source_candidates=pl.concat_list("source")
        )
        built(tmp_path, alone)


def test_lists_of_one_length_are_lists_and_a_name_is_no_pattern(tmp_path: Path) -> None:
    frame = pl.DataFrame(ROWS, schema=COLUMNS, orient="row").drop("source_candidates")
    frame = frame.with_columns(pl.Series("target_candidates", [["e", "a"], ["d", "a"]]).cast(pl.Array(pl.String, 2)))
    frame.write_parquet(tmp_path / "c[1].parquet")
    assert built(tmp_path, candidates=tmp_path / "c[1].parquet").numbers["num_given_candidates"] == 2


def test_candidates_of_relations_are_of_the_node_types(tmp_path: Path) -> None:
    """Ids of two types may be equal."""
    nodes = {name: NodeTable(num_nodes=count) for name, count in (("user", 4), ("item", 5))}
    parts = ["train", "train", "train", "valid", "test"]
    for name, ends in {"buys": ([0, 1, 2, 3, 0], [0, 1, 2, 3, 4]), "sees": ([0, 1, 2, 2, 3], [1, 2, 3, 4, 0])}.items():
        frame = pl.DataFrame({"src": ends[0], "dst": ends[1], "part": parts})
        frame.write_parquet(tmp_path / f"{name}.parquet")
    edges = {
        name: RelationTable(
            path=tmp_path / f"{name}.parquet", source_type="user", target_type="item", split_column="part"
        )
        for name in ("buys", "sees")
    }

    def asked(rows: list[tuple[int, int, str, list[int]]]) -> Built:
        columns = ["source", "target", "relation", "target_candidates"]
        pl.DataFrame(rows, schema=columns, orient="row").write_parquet(tmp_path / "c.parquet")
        table = links(split="given", candidates=tmp_path / "c.parquet")
        return build(tmp_path / "home", "tables", nodes=nodes, edges=edges, **table)

    found = candidates(asked([(0, 4, "buys", [4, 0, 2]), (3, 0, "sees", [0, 1])]), names=False)
    assert found[0, 8] == {"target": [4, 6]} and found[3, 4] == {"target": [5]}
    with pytest.raises(InputError, match=r"row 2: relation names the relation .seen.*did you mean sees"):
        asked([(0, 4, "buys", [4, 0]), (3, 0, "seen", [0, 1])])
    with pytest.raises(InputError, match=r"row 1: 0 -> 4: target_candidates has 5, which is no node"):
        asked([(0, 4, "buys", [4, 5]), (3, 0, "sees", [0, 1])])


def ogb_folder(top: Path, test: dict[str, Any], valid: dict[str, Any]) -> dict[str, Any]:
    """A folder of OGB with four edges to train on among six nodes."""
    write_gz(top / "raw" / "edge.csv.gz", [[0, 1], [1, 2], [2, 3], [3, 4]])
    write_gz(top / "raw" / "num-edge-list.csv.gz", [[4]])
    write_gz(top / "raw" / "num-node-list.csv.gz", [[6]])
    (top / "split" / "time").mkdir(parents=True, exist_ok=True)
    for name, values in {"valid": valid, "test": test}.items():
        arrays = {key: np.array(value) for key, value in values.items()}
        torch.save(arrays, top / "split" / "time" / f"{name}.pt")
    return {"path": top, "undirected": False, **links(split="given", source_candidates=True)}


def test_targets_of_ogb_are_candidates_of_their_link(tmp_path: Path) -> None:
    valid = {"source_node": [0], "target_node": [3], "target_node_neg": [[1, 2, 5]]}
    test = {"source_node": [2, 0, 1], "target_node": [5, 1, 4], "target_node_neg": [[0, 1, 3], [3, 4, 5], [0, 0, 5]]}
    found = build(tmp_path / "home", "ogb", **ogb_folder(tmp_path / "o", test, valid))
    by_link = candidates(found, names=False)
    # The link 0 -> 1 is an edge to train on, and is left out with its candidates.
    wanted = {(0, 3): [1, 2, 5], (2, 5): [0, 1, 3], (1, 4): [0, 0, 5]}
    assert {link: each["target"] for link, each in by_link.items() if each["target"]} == wanted


def test_pairs_of_ogb_are_shared_by_the_links_of_a_part(tmp_path: Path) -> None:
    valid = {"edge": [[0, 3]], "edge_neg": [[0, 5], [1, 5]]}
    test = {"edge": [[2, 5], [1, 4]], "edge_neg": [[4, 0], [5, 0], [5, 1]]}
    graph = build(tmp_path / "home", "ogb", **ogb_folder(tmp_path / "o", test, valid)).opened
    assert graph.links is not None and graph.links.candidates is not None
    given = graph.links.candidates
    assert given.pairs is not None and given.part is not None and not given.ends
    assert given.pairs.tolist() == [[0, 5], [1, 5], [4, 0], [5, 0], [5, 1]] and given.part.tolist() == [1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "has no candidates: none of edge_neg, target_node_neg, tail_neg, head_neg"),
        ({"edge_neg": [[0, 1], [1, 6]]}, r"row 1 of 'edge_neg' has the node 6, and there are 6"),
        ({"target_node_neg": [[0], [-1]]}, r"row 1 of 'target_node_neg' has the node -1, and there are 6"),
        ({"target_node_neg": [[0]]}, "'target_node_neg' has 1 rows, fewer than there are links"),
        ({"edge_neg": [[0.5, 1.0]]}, r"'edge_neg' is float64\[1, 2\], not integers \[n, 2\]"),
    ],
)
def test_candidates_of_ogb_that_do_not_fit_are_told(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    valid = {"edge": [[0, 3]], "edge_neg": [[0, 5]]}
    with pytest.raises(InputError, match=said):
        build(tmp_path / "home", "ogb", **ogb_folder(tmp_path / "o", {"edge": [[2, 5], [1, 4]], **more}, valid))


def test_heads_and_tails_of_ogb_are_those_of_their_types(tmp_path: Path) -> None:
    top = tmp_path / "o"
    write_gz(top / "raw" / "triplet-type-list.csv.gz", [["drug", "heals", "disease"], ["drug", "like", "drug"]])
    (top / "raw" / "num-node-dict.csv.gz").parent.mkdir(parents=True, exist_ok=True)
    write_gz(top / "raw" / "num-node-dict.csv.gz", [["disease", "drug"], [3, 4]])
    for number, (kind, edges) in enumerate(
        {"drug___heals___disease": [[0, 0], [1, 1]], "drug___like___drug": [[0, 1]]}.items()
    ):
        folder = top / "raw" / "relations" / kind
        write_gz(folder / "edge.csv.gz", edges)
        write_gz(folder / "num-edge-list.csv.gz", [[len(edges)]])
        write_gz(folder / "edge_reltype.csv.gz", [[number]] * len(edges))
    valid = {"head": [3], "relation": [0], "tail": [2], "head_neg": [[0, 1]], "tail_neg": [[0, 1]]}
    test = {
        "head": [2, 1],
        "relation": [1, 0],
        "tail": [3, 2],
        "head_neg": [[0, 1], [2, 3]],
        "tail_neg": [[0, 1], [0, 0]],
    }
    (top / "split" / "random").mkdir(parents=True)
    for name, values in {"valid": valid, "test": test}.items():
        torch.save({key: np.array(value) for key, value in values.items()}, top / "split" / "random" / f"{name}.pt")
    asked = {"undirected": False, **links(split="given", source_candidates=True)}
    by_link = candidates(build(tmp_path / "home", "ogb", path=top, **asked), names=False)
    # Diseases are 0 to 2, drugs 3 to 6.
    assert by_link[6, 2] == {"source": [3, 4], "target": [0, 1]}
    assert by_link[5, 6] == {"source": [3, 4], "target": [3, 4]}
    assert by_link[4, 2] == {"source": [5, 6], "target": [0, 0]}
