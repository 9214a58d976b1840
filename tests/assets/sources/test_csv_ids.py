"""Ids of CSV files: blanks around them do not count, and what would make two nodes of one is refused with its row."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.assets.sources.edges.source import EdgesConfig
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config


def built(folder: Path, text: str, nodes: str | None = None, **keys: str):
    (folder / "edges.csv").write_text(text)
    if nodes is not None:
        (folder / "nodes.csv").write_text(nodes)
        keys["nodes"] = folder / "nodes.csv"  # pyright: ignore[reportArgumentType]
    return build_config(folder / "home", EdgesConfig(edges=folder / "edges.csv", undirected=False, **keys), threads=1)  # pyright: ignore[reportArgumentType]


def edges_of(made) -> list[tuple[int, int]]:
    topology = open_graph(made.inputs["graph"]).topology
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    return sorted(zip(np.asarray(topology.indices).tolist(), targets.tolist(), strict=True))


@pytest.mark.parametrize("form", ["{},{}", "{}, {}", " {} ,\t{} "])
@pytest.mark.parametrize("names", [("0", "1", "2"), ("a", "b", "c")])
def test_blanks_make_no_nodes(tmp_path: Path, form: str, names: tuple[str, ...]) -> None:
    pairs = [(0, 1), (1, 2), (2, 0)]
    lines = [form.format(names[a], names[b]) for a, b in pairs]
    made = built(tmp_path, "\n".join(["src,dst", *lines]) + "\n")
    assert edges_of(made) == sorted(pairs)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("1,2", "01,2"), "row 1 .line 3.: column 'src' holds '01'"),
        (("01,2", "1,2"), "row 0 .line 2.: column 'src' holds '01'"),
        (("+1,2", "1,2"), r"row 0 .line 2.: column 'src' holds '\+1'"),
        (('"1,000",2', "1,2"), "row 0 .line 2.: column 'src' holds '1,000'"),
        (("1.0,2.0", "2.0,3.0"), "row 0 .line 2.: column 'src' holds '1.0'"),
        (("a,b", "b,7"), "row 1 .line 3.: column 'dst' holds '7'"),
        (("1,2", "2,b"), "row 1 .line 3.: column 'dst' holds 'b'"),
    ],
)
def test_numbers_beside_text_are_refused_with_the_row(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    text = "\n".join(["src,dst", *lines]) + "\n"
    with pytest.raises(InputError, match=said) as caught:
        built(tmp_path, text)
    assert 'id_type = "text"' in caught.value.remedy
    assert len(edges_of(built(tmp_path, text, id_type="text"))) == 2


def test_ids_of_node_tables_are_looked_at_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nodes.csv: row 1 .line 3.: column 'id' holds '7'"):
        built(tmp_path, "src,dst\na,b\n", "id\na\n7\nb\n")
    made = built(tmp_path, "src,dst\na, b\n", "id\n a\nb \n")
    assert edges_of(made) == [(0, 1)]
