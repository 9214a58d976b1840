"""Tables as Spark, Dask and Hive write them: folders of part files, markers beside them, columns in the names of folders."""

from pathlib import Path

import numpy as np
import polars
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.assets.sources.edges.source import EdgesConfig
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.part_files import MANAGED, expand, folder_columns
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.sources.tables.source import TypedTablesConfig
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config


def edges_of(folder: Path, edges, **keys):
    config = EdgesConfig(edges=edges, undirected=False, duplicates="keep", self_loops="keep", **keys)
    return build_config(folder / "home", config, threads=1)


def count(made) -> int:
    return open_graph(made.inputs["graph"]).topology.num_edges


def spark(folder: Path, ending: str, *, header: bool = True, parts: int = 3) -> Path:
    """Writes two edges per part, with all that Spark leaves beside them."""
    folder.mkdir(parents=True)
    for part in range(parts):
        frame = polars.DataFrame({"src": [10 * part, 10 * part + 1], "dst": [10 * part + 1, 10 * part + 2]})
        path = folder / f"part-{part:05d}-6f1c-c000.{ending}"
        frame.write_parquet(path) if ending.endswith("parquet") else frame.write_csv(path, include_header=header)
        (folder / f".{path.name}.crc").write_bytes(b"crc")
    (folder / "_SUCCESS").touch()
    (folder / "_committed_123").write_text("{}")
    (folder / "_metadata").write_bytes(b"x")
    return folder


@pytest.mark.parametrize("ending", ["snappy.parquet", "csv"])
@pytest.mark.parametrize("name", ["edges.parquet", "edges", "edges [1]"])
@pytest.mark.parametrize("below", ["", "*", "part-*", "**"])
def test_a_folder_is_its_part_files(tmp_path: Path, ending: str, name: str, below: str) -> None:
    folder = spark(tmp_path / name, ending)
    assert count(edges_of(tmp_path, folder / below)) == 6


def test_parts_without_names_and_empty_parts(tmp_path: Path) -> None:
    folder = spark(tmp_path / "edges.csv", "csv", header=False)
    (folder / "part-00009-6f1c-c000.csv").touch()
    assert count(edges_of(tmp_path, folder)) == 6
    (folder / "_SUCCESS").unlink()
    with pytest.raises(InputError, match=r"part-00009.*the file is empty"):
        edges_of(tmp_path / "b", folder)


def test_parts_without_an_ending_take_that_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").mkdir()
    for part in range(2):
        (tmp_path / "edges.csv" / f"part-{part:05d}").write_text(f"{part},{part + 5}\n")
    assert count(edges_of(tmp_path, tmp_path / "edges.csv")) == 2


def test_a_folder_that_is_not_a_finished_table_is_refused(tmp_path: Path) -> None:
    folder = spark(tmp_path / "edges", "parquet")
    (folder / "_temporary").mkdir()
    with pytest.raises(InputError, match="has not finished"):
        edges_of(tmp_path, folder)


MARKS = {
    "Delta": "_delta_log/0.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/v2.metadata.json",
    "Lance": "_versions/1.manifest",
    "Paimon": "snapshot/LATEST",
}
"""Format of a table that keeps old rows -> a file of it."""


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize("below", ["", "data", "data/day=1", "data/day=1/part-00000-6f1c-c000.parquet", "**/*.parquet"])
def test_old_rows_of_managed_tables_are_not_read(tmp_path: Path, name: str, below: str) -> None:
    assert [each.split()[1] for each in MANAGED] == list(MARKS)
    spark(tmp_path / "edges" / "data" / "day=1", "parquet")
    assert expand([tmp_path / "edges" / below], "edges")
    (tmp_path / "edges" / MARKS[name]).parent.mkdir()
    (tmp_path / "edges" / MARKS[name]).touch()
    with pytest.raises(InputError, match=f"edges is an? {name} table") as caught:
        expand([tmp_path / "edges" / below], "edges")
    assert f'spark.read.format("{name.lower()}")' in caught.value.remedy


def test_managed_tables_are_refused_wherever_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n")
    folder = spark(tmp_path / "t", "parquet")
    (folder / "_delta_log").mkdir()
    edges = {"edges": tmp_path / "e.csv"}
    relation = {"source_type": "a", "target_type": "a"}
    nodes = {"a": NodeTable(path=tmp_path / "n.csv")}
    (tmp_path / "n.csv").write_text("id\n0\n1\n")
    for config, table in (
        (EdgesConfig(edges=folder), None),
        (EdgesConfig(nodes=folder, **edges), None),
        (EdgesConfig(feature_entries=folder, **edges), None),
        (EdgesConfig(**edges), TableConfig(file=folder)),
        (EdgesConfig(**edges), TableConfig(file=next(folder.glob("*.parquet")))),
        (TypedTablesConfig(nodes={"a": NodeTable(path=folder)}, edges={"r": RelationTable(path=tmp_path / "e.csv", **relation)}), None),
        (TypedTablesConfig(nodes=nodes, edges={"r": RelationTable(path=folder, **relation)}), None),
    ):  # fmt: skip
        with pytest.raises(InputError, match="is a Delta table"):
            build_config(tmp_path / "home", config, table=table)


@pytest.mark.parametrize("names", ["part.{}.parquet", "{}.parquet", "day={}/part-0.parquet", "x{}/part.1.parquet"])
def test_parts_stand_in_the_order_of_the_numbers_in_their_names(tmp_path: Path, names: str) -> None:
    """The array of features has one row for each row of the node tables, in their order."""
    for part in range(12):
        ids = np.random.default_rng(part).permutation(3) + 3 * part
        path = tmp_path / "nodes" / names.format(part)
        path.parent.mkdir(parents=True, exist_ok=True)
        polars.DataFrame({"id": ids, "row": ids * 1.0}).write_parquet(path)
    polars.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3]}).write_parquet(tmp_path / "e.parquet")
    rows = [np.random.default_rng(part).permutation(3) + 3 * part for part in range(12)]
    np.save(tmp_path / "f.npy", np.concatenate(rows).astype(np.float32)[:, None])
    for pattern in ("nodes", "nodes/**/*.parquet"):
        config = EdgesConfig(edges=tmp_path / "e.parquet", nodes=tmp_path / pattern, features="row")
        made = build_config(tmp_path / "home", config, table=TableConfig(file=tmp_path / "f.npy"))
        assert np.load(made.features.path / "rows.npy")[:, 0].tolist() == list(range(36))
        lines = "\n".join(config.survey().lines())
        assert (
            f"read in this order: {names.format(0)}, {names.format(1)}, {names.format(2)}, ..., {names.format(11)}"
            in lines
        )


def test_what_is_no_table_in_a_folder_is_named(tmp_path: Path) -> None:
    folder = spark(tmp_path / "edges", "csv")
    (folder / "README.md").write_text("about")
    with pytest.raises(InputError, match=r"README\.md: the name ends with none of") as caught:
        edges_of(tmp_path, folder)
    assert "edges/*.csv" in caught.value.remedy
    assert count(edges_of(tmp_path, folder / "*.csv")) == 6
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="is a folder without part files"):
        edges_of(tmp_path, tmp_path / "empty")


def test_markers_are_read_if_they_are_asked_for(tmp_path: Path) -> None:
    spark(tmp_path / "e", "csv")
    (tmp_path / "e" / "_old-0.csv").write_text("src,dst\n1,2\n")
    assert [path.name for path in expand([tmp_path / "e" / "_old-*.csv"], "edges")] == ["_old-0.csv"]
    assert len(expand([tmp_path / "e" / "*.csv"], "edges")) == 3


def hive(folder: Path, ending: str) -> Path:
    """Writes relation=.../year=... with one edge per file."""
    for number, (relation, year) in enumerate([("cites", 2019), ("likes", 2020), ("a%2Fb", 2020), ("cites", 2021)]):
        path = folder / f"relation={relation}" / f"year={year}" / f"part-0.{ending}"
        path.parent.mkdir(parents=True)
        frame = polars.DataFrame({"src": [number], "dst": [number + 1]})
        frame.write_parquet(path) if ending == "parquet" else frame.write_csv(path)
    (folder / "_SUCCESS").touch()
    return folder


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_columns_in_the_names_of_folders_are_read(tmp_path: Path, ending: str) -> None:
    folder = hive(tmp_path / "edges", ending)
    made = edges_of(tmp_path, folder, type_column="relation", weight_column="year")
    topology = open_graph(made.inputs["graph"]).topology
    assert made.numbers["edge_types"] == ["a/b", "cites", "likes"]
    found = zip(np.asarray(topology.indices).tolist(), np.asarray(topology.weights).tolist(), strict=True)
    assert dict(found) == {0: 2019.0, 1: 2020.0, 2: 2020.0, 3: 2021.0}
    assert count(edges_of(tmp_path / "b", folder / "**" / f"*.{ending}", type_column="year")) == 4


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_names_of_folders_enter_the_version(tmp_path: Path, ending: str) -> None:
    folder = hive(tmp_path / "edges", ending)
    config = EdgesConfig(edges=folder, type_column="relation")
    before, unnamed = config.raw(None), EdgesConfig(edges=folder).raw(None)
    (folder / "relation=likes").rename(folder / "relation=links")
    assert config.raw(None) != before
    assert EdgesConfig(edges=folder).raw(None) == unnamed


def test_node_tables_by_split_and_class(tmp_path: Path) -> None:
    for node, (split, label) in enumerate(
        [("train", 1), ("train", 0), ("valid", 1), ("test", "__HIVE_DEFAULT_PARTITION__")]
    ):
        path = tmp_path / "nodes" / f"part={split}" / f"y={label}" / f"{node}.parquet"
        path.parent.mkdir(parents=True)
        polars.DataFrame({"id": [node], "f0": [0.5]}).write_parquet(path)
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n1,2\n2,3\n")
    keys = {"label_column": "y", "split_column": "part", "features": "*0"}
    with pytest.raises(InputError, match="1 nodes have no label: 3"):
        edges_of(tmp_path, tmp_path / "e.csv", nodes=tmp_path / "nodes", **keys)
    moved = tmp_path / "nodes" / "part=none" / "y=__HIVE_DEFAULT_PARTITION__"
    moved.parent.mkdir()
    (tmp_path / "nodes" / "part=test" / "y=__HIVE_DEFAULT_PARTITION__").rename(moved)
    made = edges_of(tmp_path, tmp_path / "e.csv", nodes=tmp_path / "nodes", **keys)
    graph = open_graph(made.inputs["graph"])
    assert graph.labels.tolist() == [1, 0, 1, -1]
    assert graph.train_ids.tolist() == [0, 1] and graph.valid_ids.tolist() == [2]
    assert made.table.width == 1


def test_a_column_that_some_folders_lack_is_told(tmp_path: Path) -> None:
    folder = hive(tmp_path / "edges", "csv")
    (folder / "more").mkdir()
    (folder / "more" / "p.csv").write_text("src,dst\n7,8\n")
    with pytest.raises(InputError, match="the names of some folders have 'relation', but not those above all files"):
        edges_of(tmp_path, folder, type_column="relation")


def test_the_files_own_column_counts(tmp_path: Path) -> None:
    path = tmp_path / "w=9" / "e.csv"
    path.parent.mkdir()
    path.write_text("src,dst,w\n0,1,0.5\n")
    made = edges_of(tmp_path, path, weight_column="w")
    assert np.asarray(open_graph(made.inputs["graph"]).topology.weights).tolist() == [0.5]


def test_inspect_names_columns_of_folders(tmp_path: Path) -> None:
    lines = "\n".join(EdgesConfig(edges=hive(tmp_path / "edges", "parquet")).survey().lines())
    assert "columns in the names of folders: relation, year" in lines


def test_values_of_folders() -> None:
    path = Path("/x/a=1/b=%3A%20/c=__HIVE_DEFAULT_PARTITION__/d=e=f/=g/p.csv")
    assert folder_columns(path) == {"a": "1", "b": ": ", "c": None, "d": "e=f"}


def test_a_pattern_takes_folders_beside_files_as_the_folder_does(tmp_path: Path) -> None:
    for place in ("a.csv", "_b.csv", "more/c.csv", "_old/d.csv"):
        (tmp_path / "data" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / place).write_text("src,dst\n1,2\n")

    def names(pattern: str) -> list[str]:
        return sorted(path.relative_to(tmp_path / "data").as_posix() for path in expand([tmp_path / pattern], "edges"))

    assert names("data/*.csv") == ["a.csv"] and names("data/_*.csv") == ["_b.csv"]
    assert names("data/*") == names("data") == names("data/**") == ["a.csv", "more/c.csv"]
    assert names("data/**/*.csv") == ["a.csv", "more/c.csv"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["0.5", "1.5"], "DOUBLE"),
        (["0", "-3"], "BIGINT"),
        (["007", "8"], "VARCHAR"),
        (["1e3", "-0.25"], "DOUBLE"),
        (["__HIVE_DEFAULT_PARTITION__"] * 2, "VARCHAR"),
    ],
)
def test_the_type_of_a_column_in_folder_names(tmp_path: Path, values: list[str], kind: str) -> None:
    paths = [tmp_path / f"{number}" / f"w={value}" / "p.parquet" for number, value in enumerate(values)]
    for path in paths:
        path.parent.mkdir(parents=True)
        polars.DataFrame({"src": [1], "dst": [2]}).write_parquet(path)
    with Duck(None, 64 << 20, 1) as duck:
        assert TableFiles(duck, paths, "edges", TextForm()).folder_types == {"w": kind}


@pytest.mark.parametrize(
    ("name", "said"),
    [("folder", "a link to a folder, which is not followed"), ("nowhere.csv", "a link to nothing that is there")],
)
def test_links_below_a_folder_that_lead_to_no_file_are_refused(tmp_path, name, said):
    table = tmp_path / "edges"
    table.mkdir()
    (tmp_path / "folder").mkdir()
    (table / "part-0.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "real.csv").write_text("src,dst\n1,2\n")
    (table / "part-1.csv").symlink_to(tmp_path / "real.csv")
    assert [path.name for path in expand([table], "edges")] == ["part-0.csv", "part-1.csv"]
    (table / "part-2.csv").symlink_to(tmp_path / name)
    with pytest.raises(InputError, match=said):
        expand([table], "edges")


@pytest.mark.parametrize("ending", [".gz", ".zst", ".xz"])
def test_a_file_that_is_there_packed_and_unpacked_is_refused(tmp_path, ending):
    for name in ("part-0.csv", f"part-1.csv{ending}", f"part-0.csv{ending}"):
        (tmp_path / name).write_bytes(b"src,dst\n0,1\n")
    with pytest.raises(InputError, match=rf"part-0\.csv and part-0\.csv\{ending} look like one file"):
        expand([tmp_path], "edges")


def test_a_parquet_file_with_a_column_twice_is_refused(tmp_path):
    polars.DataFrame({"src": [0, 1], "dst": [1, 2], "sr2": [5, 6]}).write_parquet(tmp_path / "edges.parquet")
    content = (tmp_path / "edges.parquet").read_bytes()
    (tmp_path / "edges.parquet").write_bytes(content.replace(b"sr2", b"src"))
    with Duck(None, 256 << 20, 1) as duck, pytest.raises(InputError, match="has the column 'src' twice"):
        TableFiles(duck, [tmp_path / "edges.parquet"], "edges")


@pytest.mark.parametrize("key", ["edges", "nodes", "edges.cites"])
def test_an_empty_list_names_no_file(key: str) -> None:
    with Duck(None, 64 << 20, 1) as duck, pytest.raises(InputError, match=f"{key} names no file"):
        TableFiles(duck, [], key)
