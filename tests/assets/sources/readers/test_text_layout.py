"""Text that other programs write: lists without names, comments, separators, and first lines that could be two things."""

from pathlib import Path

import numpy as np
import polars
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.assets.sources.edges.source import EdgesConfig
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config


def built(path: Path, text: str | bytes, **keys):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    config = EdgesConfig(edges=path, undirected=False, duplicates="keep", self_loops="keep", **keys)
    return build_config(path.parent / "home", config, threads=1)


def pairs(made) -> list[tuple[str, str]]:
    """The edges by the ids of the file, as text."""
    graph = open_graph(made.inputs["graph"])
    topology = graph.topology
    nodes = polars.read_parquet(made.graph.path / "nodes.parquet")
    names = nodes["original_id"].cast(polars.String).to_list()
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr)).tolist()
    return sorted((names[a], names[b]) for a, b in zip(np.asarray(topology.indices).tolist(), targets, strict=True))


WANTED = [("17", "4"), ("4", "17"), ("4", "902")]
LISTS = {
    "SNAP, tabs": ("web.txt", "# Directed graph\n# FromNodeId\tToNodeId\n4\t17\n17\t4\n4\t902\n"),
    "SNAP, its ends of lines": ("web.txt", "# Directed graph\r\n# From\tTo\r\n4\t17\r\n17\t4\r\n4\t902\r\n"),
    "SNAP as .tsv": ("web.tsv", "# Directed graph\n#\n4\t17\n17\t4\n4\t902\n"),
    "KONECT": ("out.web", "% asym unweighted\n% 3 3 3\n4 17 \n17 4 \n4 902 \n"),
    "KONECT with times": ("out.web", "% asym posweighted\n4 17 1 1082040961\n17 4 1 1082155839\n4 902 1 1082414391\n"),
    "Network Repository": ("soc.edges", "%\n4,17\n17,4\n4,902\n"),
    "networkx": ("g.edgelist", "4 17 {}\n17 4 {}\n4 902 {}\n"),
    "networkx with data": ("g.edgelist", "4 17 {'weight': 2}\n17 4 {'weight': 1}\n4 902 {'weight': 7}\n"),
    "igraph NCOL": ("g.ncol", "4 17\n17 4\n4 902"),
    "runs of blanks": ("g.txt", "  4   17\n17\t4\n\n4  902  \n"),
    "comments in between": ("g.tsv", "# one\n4\t17\n# two\t2\n17\t4\n  # three\n\n4\t902\n# end\n"),
    "Spark without names": ("part-00000.csv", "4,17\n17,4\n4,902\n"),
    "with a byte order mark": ("g.txt", b"\xef\xbb\xbf4 17\n17 4\n4 902\n"),
    "text and relations": ("g.csv", "4,17,cites\n17,4,cites\n4,902,likes\n"),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_keep_every_edge(tmp_path: Path, name: str) -> None:
    file, text = LISTS[name]
    assert pairs(built(tmp_path / file, text)) == WANTED


SEPARATED = {
    ";": "src;dst;note\n4;17;a, b\n17;4;\n4;902;c\n",
    "|": "src|dst\n4|17\n17|4\n4|902\n",
    "tab in .txt": "src\tdst\n4\t17\n17\t4\n4\t902\n",
    "blanks": "src dst\n4 17\n17  4\n4 902\n",
    "comma": 'src,dst,"a;b;c;d"\n4,17,1\n17,4,2\n4,902,3\n',
    "comments, names and quotes": '# exported by a program\nsrc,dst,title\n4,17,"a, b"\n17,4,"c"\n4,902,"d ""e"""\n',
    "row numbers of pandas": ",src,dst\n0,4,17\n1,17,4\n2,4,902\n",
}


@pytest.mark.parametrize("name", SEPARATED)
def test_separators_are_found_in_the_first_line(tmp_path: Path, name: str) -> None:
    ending = "txt" if name in ("tab in .txt", "blanks") else "csv"
    assert pairs(built(tmp_path / f"e.{ending}", SEPARATED[name])) == WANTED


def test_weights_and_relations_of_a_list_have_names_by_their_place(tmp_path: Path) -> None:
    made = built(tmp_path / "g.edges", "% sym\n4 17 0.5 cites\n17 4 2.5 likes\n", weight_column="c2", type_column="c3")
    topology = open_graph(made.inputs["graph"]).topology
    assert sorted(np.asarray(topology.weights).tolist()) == [0.5, 2.5]
    assert made.numbers["edge_types"] == ["cites", "likes"]


def test_node_tables_without_names(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("4,0,0.5\n17,1,1.5\n902,1,2.5\n")
    made = built(tmp_path / "e.txt", LISTS["SNAP, tabs"][1], nodes=tmp_path / "n.csv", label_column="c1", features="c2")
    assert open_graph(made.inputs["graph"]).labels.tolist() == [0, 1, 1]
    assert made.table.width == 1


NAMED = "anna boris\nboris clara\nanna clara\n"


def test_a_first_row_of_text_is_never_lost_by_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no column 'src'; it has anna, boris") as caught:
        built(tmp_path / "a" / "e.txt", NAMED)
    assert "header = false" in str(caught.value)
    with pytest.raises(InputError, match=r"a node is called (anna|boris), too") as caught:
        built(tmp_path / "b" / "e.txt", NAMED, source_column="anna", target_column="boris")
    assert "header = false" in caught.value.remedy
    for number, header in enumerate((False, ("nodes",))):
        made = built(tmp_path / str(number) / "e.txt", NAMED, header=header)
        assert pairs(made) == [("anna", "boris"), ("anna", "clara"), ("boris", "clara")]
    made = built(tmp_path / "c" / "e.txt", NAMED, header=True, source_column="anna", target_column="boris")
    assert pairs(made) == [("anna", "clara"), ("boris", "clara")]


def test_a_first_row_of_numbers_is_no_header_unless_it_is_said(tmp_path: Path) -> None:
    text = "7,31\n8,7\n31,8\n"
    with pytest.raises(InputError, match="has no column '7'; it has src, dst; its first line, 7, 31, begins") as caught:
        built(tmp_path / "a" / "e.csv", text, source_column="7", target_column="31")
    assert "header = true" in str(caught.value)
    assert len(pairs(built(tmp_path / "b" / "e.csv", text))) == 3
    made = built(tmp_path / "c" / "e.csv", text, header=True, source_column="7", target_column="31")
    assert pairs(made) == [("31", "8"), ("8", "7")]


@pytest.mark.parametrize("line", ["0,1", "0,1,2", "0,1,w"])
def test_names_as_pandas_counts_them_are_asked_about(tmp_path: Path, line: str) -> None:
    rest = line.count(",") * ",9"
    text = f"{line}\n5{rest}\n9{rest}\n"
    with pytest.raises(InputError, match="could be names of columns, as pandas counts them, or a row"):
        built(tmp_path / "a" / "e.csv", text)
    assert len(pairs(built(tmp_path / "b" / "e.csv", text, header=False))) == 3
    made = built(tmp_path / "c" / "e.csv", text, header=True, source_column="0", target_column="1")
    assert len(pairs(made)) == 2
    assert len(pairs(built(tmp_path / "d" / "e.txt", text.replace(",", " ")))) == 3


def test_lines_that_begin_like_comments_can_be_rows(tmp_path: Path) -> None:
    text = "#cats,#dogs\n#dogs,#tea\n"
    made = built(tmp_path / "e.csv", text, header=False, comment="")
    assert pairs(made) == [("#cats", "#dogs"), ("#dogs", "#tea")]
    with pytest.raises(InputError, match="has only comments") as caught:
        built(tmp_path / "f.csv", text, header=False)
    assert 'comment = ""' in caught.value.remedy
    made = built(tmp_path / "g" / "e.csv", "// one\n// two\nsrc,dst\n3,4\n", comment="//")
    assert pairs(made) == [("3", "4")]
    with pytest.raises(InputError, match="comment = ' #'"):
        EdgesConfig(edges=Path("e.csv"), comment=" #")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2\n3 4 5\n", "a row has 3 fields, not 2: 3 4 5"),
        ("# c\n1\t2\n3\n", "a row has 1 fields, not 2: 3"),
        ('# c\n1\t2\n"3"\t4\n', "a row has quotes"),
        ("1 2\nx 4\n", r"row 1 .line 2.: column 'src' holds 'x'"),
        ("# c\n\n1 2\n# d\n\n3 y\n", r"row 1 .line 6.: column 'dst' holds 'y'"),
        ("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n", "looks like a matrix of Matrix Market"),
    ],
)
def test_lists_are_read_strictly(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        built(tmp_path / "e.txt", text)


def test_a_decimal_comma_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'w' holds '0,25'") as caught:
        built(tmp_path / "e.csv", "src;dst;w\n1;2;0,25\n", weight_column="w")
    assert "decimal point" in caught.value.remedy


def test_new_keys_change_no_version_at_their_default(tmp_path: Path) -> None:
    config, default = EdgesConfig(edges=tmp_path), EdgesConfig(edges=tmp_path, header=None, comment=None)
    from graphmill.assets.sources.interface import TableConfig
    from graphmill.assets.storage.names.version import canonical

    assert canonical(config) == canonical(default)
    assert not {"header", "comment"} & {*canonical(config), *config.feature_keys(TableConfig())}
    assert "header" in canonical(EdgesConfig(edges=tmp_path, header=True))


def test_inspect_says_how_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("# a\n# b\n4\t17\n17\t4\n")
    lines = "\n".join(EdgesConfig(edges=tmp_path / "e.txt").survey().lines())
    assert "no line of names, fields separated by tabs; 2 lines above it are not read" in lines


@pytest.mark.parametrize("size", [2_100_000, 9_000_000])
@pytest.mark.parametrize("row", [0, 3])
def test_long_fields_are_read(tmp_path: Path, size: int, row: int) -> None:
    lines = [f'{number},{number + 1},"{"y" * size if number == row else "short"}"' for number in range(5)]
    assert len(pairs(built(tmp_path / "e.csv", "\n".join(["src,dst,text", *lines]) + "\n"))) == 5


@pytest.mark.parametrize("row", [0, 3])
def test_a_line_that_is_too_long_is_told(tmp_path: Path, row: int) -> None:
    lines = [f"{number},{number + 1},{'y' * (17 << 20) if number == row else ''}" for number in range(5)]
    with pytest.raises(InputError, match="longer than 16,777,216 bytes") as caught:
        built(tmp_path / "e.csv", "\n".join(["src,dst,text", *lines]) + "\n")
    assert "Parquet" in caught.value.remedy


def test_layouts_of_the_files_of_a_table_may_differ(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("src,dst\n1,2\n")
    (tmp_path / "b.csv").write_text("src;dst\n3;4\n")
    with Duck(None, 256 << 20, 1) as duck:
        table = TableFiles(duck, [tmp_path / "*.csv"], "edges", TextForm())
        assert [layout.delimiter for layout in table.layouts] == [",", ";"]
        assert table.count() == 2


def test_names_in_some_files_alone_are_refused_unless_they_are_those_of_the_places(tmp_path: Path) -> None:
    """`split` leaves the names in the first piece; the columns of the others would be taken by their places."""
    (tmp_path / "b.csv").write_text("3,4\n")
    for names in ("dst,src", "weight,src,dst"):
        with pytest.raises(InputError, match=rf"b\.csv: begins with a row, but .*a\.csv with the names {names[:3]}"):
            (tmp_path / "a.csv").write_text(f"{names}\n{'1,2,5'[: len(names) // 4 * 2 + 1]}\n")
            build_config(tmp_path / "home", EdgesConfig(edges=[tmp_path / "a.csv", tmp_path / "b.csv"]), threads=1)
    (tmp_path / "a.csv").write_text("src,dst\n1,2\n")
    config = EdgesConfig(
        edges=[tmp_path / "a.csv", tmp_path / "b.csv"], undirected=False, duplicates="keep", self_loops="keep"
    )
    assert pairs(build_config(tmp_path / "home", config, threads=1)) == [("1", "2"), ("3", "4")]
