"""Adjacency lists, matrices, lists with counts and other formats are told by their shape; the remedy makes a list of the same edges."""

import gzip
import random
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.kernels.errors import InputError
from tests.assets.sources.readers.shapes import SHAPES, edges_of_table


def read(*paths: Path, header: bool | None = None) -> list[tuple[str, str]]:
    """The ends of all rows, as text."""
    with Duck(None, 1 << 30, 1) as duck:
        table = TableFiles(duck, paths, "edges", TextForm(header=header, names=("src", "dst")))
        ends = [f"SELECT trim(src), trim(dst) FROM {table.source(number)}" for number in range(len(table.paths))]
        return [row for sql in ends for row in duck.rows(sql)]


def followed(error: InputError, folder: Path) -> Path:
    """Runs the command of a remedy; returns the file that it writes."""
    command = error.remedy.partition(": ")[2].partition("; or set header")[0].partition(", and ")[0]
    command = command.replace("python -c", f"{sys.executable} -c")
    done = subprocess.run(["bash", "-c", command], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, (command, done.stderr)
    (made,) = [path for path in folder.iterdir() if path.name in ("edges.txt", "edges.csv")]
    return made


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
def test_a_shape_is_named_and_its_remedy_makes_edges(tmp_path: Path, shape, seed: int) -> None:
    drawn = shape(random.Random(seed))
    path = tmp_path / drawn.name
    path.write_text(drawn.text)
    with pytest.raises(InputError, match=drawn.said) as caught:
        read(path)
    if seed < 3:
        rows = read(followed(caught.value, tmp_path))
        assert {tuple(str(int(float(end))) for end in row) for row in rows} == drawn.edges, drawn.text


@pytest.mark.parametrize("seed", range(40))
def test_ordinary_edges_are_no_shape(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for number in range(3):
        name, text, rows = edges_of_table(draw)
        path = tmp_path / f"{number}{name}"
        path.write_text(text)
        assert len(read(path)) == rows, text


def test_header_decides(tmp_path: Path) -> None:
    text = "5 5\n1 2\n2 3\n3 4\n4 5\n5 1\n"
    (tmp_path / "g.txt").write_text(text)
    with pytest.raises(InputError, match=r"set header = false in \[graph\] if each line of g\.txt is an edge"):
        read(tmp_path / "g.txt")
    assert len(read(tmp_path / "g.txt", header=False)) == 6


@pytest.mark.parametrize("first", [0, 1])
def test_counts_stand_in_one_part_or_in_each(tmp_path: Path, first: int) -> None:
    rows = "1 2\n2 3\n3 4\n4 5\n5 1\n"
    parts = [tmp_path / "p1.txt", tmp_path / "p2.txt.gz"]

    def write(*texts: str) -> None:
        parts[0].write_text(texts[0])
        parts[1].write_bytes(gzip.compress(texts[1].encode()))

    write(rows, rows)
    assert len(read(*parts)) == 10
    for texts in ((f"5 10\n{rows}", rows), (f"5 5\n{rows}", f"5 5\n{rows}"), (rows, f"5 5\n{rows}")):
        write(*texts)
        with pytest.raises(InputError, match="counts of nodes and edges"):
            read(*parts)
    (tmp_path / "ring.txt").write_text(f"{first} 5\n{rows}")  # the largest id, and not a count
    assert len(read(tmp_path / "ring.txt")) == 6


def test_a_node_and_as_many_neighbours_in_each_line(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("".join(f"{n} {(n + 1) % 9} {(n + 2) % 9} {(n + 5) % 9}\n" for n in range(9)))
    with pytest.raises(InputError, match="each line has a node and 3 neighbours") as caught:
        read(tmp_path / "g.txt")
    assert len(read(followed(caught.value, tmp_path))) == 27


FORMATS = {
    "JSON": '[{"src": 1, "dst": 2},\n {"src": 2, "dst": 3}]\n',
    "lines of JSON": '{"src": 1, "dst": 2}\n{"src": 2, "dst": 3}\n',
    "a graph of JSON": '{"directed": false, "nodes": [{"id": 1}, {"id": 2}], "links": [{"source": 1, "target": 2}]}\n',
    "a matrix of Matrix Market": "%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 1\n",
    "a dense matrix of Matrix Market": "%%MatrixMarket matrix array real general\n2 2\n0\n1\n1\n0\n",
    "GraphML": '<?xml version="1.0"?>\n<graphml></graphml>\n',
    "GEXF": "<gexf>\n</gexf>\n",
    "GML": "graph [\n  node [ id 1 ]\n]\n",
    "a graph of Graphviz": "digraph g {\n  1 -> 2;\n}\n",
    "a network of Pajek": '*Vertices 2\n1 "a"\n2 "b"\n*Edges\n1 2\n',
    "a graph of DIMACS": "c a comment\np edge 3 2\ne 1 2\ne 2 3\n",
    "lists or tuples of Python": "(1, 2)\n(2, 3)\n",
    "a web page": "<!DOCTYPE html>\n<html><body>404</body></html>\n",
    "a pointer of Git LFS": "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n",
}


@pytest.mark.parametrize("what", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_other_formats_are_told_by_their_first_lines(tmp_path: Path, what: str, packed: bool) -> None:
    path = tmp_path / ("g.csv.gz" if packed else "g.txt")
    content = FORMATS[what].encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(InputError, match=f"looks like {what}") as caught:
        read(path)
    assert ("unpack it" in caught.value.remedy) == packed


def test_adjacency_lists_of_names_and_of_weights(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("anna bob carl\nbob anna carl dan\ncarl anna\ndan bob\n")
    with pytest.raises(InputError, match="looks like an adjacency list") as caught:
        read(tmp_path / "g.txt")
    assert len(read(followed(caught.value, tmp_path), header=False)) == 7
    (tmp_path / "w.txt").write_text("0 1:0.5 2:1\n1 0:0.5\n2 0:1\n")
    with pytest.raises(InputError, match="adjacency list with weights") as caught:
        read(tmp_path / "w.txt")
    assert len(read(followed(caught.value, tmp_path))) == 4
