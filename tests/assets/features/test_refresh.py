"""What a refreshed source rebuilds: the graph, its features, or neither."""

import numpy as np
import polars as pl
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize, materialize_together
from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.readers.column_digests import column_digests
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import Drawn, build, edge_frame, node_frame, write_csv, write_ogb_text

pytestmark = pytest.mark.usefixtures("quick_readers")

KEYS = {"label_column": "y", "split_column": "part", "features": "f*"}


@pytest.fixture
def tables(tmp_path):
    graph = Drawn()
    edge_frame(graph).with_columns(w=pl.lit(1.0)).write_parquet(tmp_path / "edges.parquet")
    node_frame(graph).with_columns(note=pl.Series(["a"] * 59 + ["b"])).write_parquet(tmp_path / "nodes.parquet")
    return tmp_path, KEYS | {"edges": tmp_path / "edges.parquet", "nodes": tmp_path / "nodes.parquet"}


def rewrite(path, **columns):
    frame = pl.read_parquet(path)
    frame.with_columns(**columns).write_parquet(path)


def first(name, value):
    """The column with another value in its first row."""
    return pl.when(pl.int_range(pl.len()) == 0).then(value).otherwise(name)


CHANGES = {
    "nothing": ("nodes", {}, (True, True)),
    "a feature value": ("nodes", {"f1": first("f1", 9.0)}, (True, False)),
    "a label": ("nodes", {"y": first("y", 2)}, (False, True)),
    "a split": ("nodes", {"part": first("part", pl.lit("test"))}, (False, True)),
    "an id": ("nodes", {"id": pl.col("id").reverse()}, (False, False)),
    "an edge": ("edges", {"dst": first("dst", 5)}, (False, True)),
    "a column that nothing reads": ("nodes", {"note": pl.lit("b")}, (True, True)),
    "weights that nothing reads": ("edges", {"w": pl.lit(2.0)}, (True, True)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_column_rebuilds_what_it_decides(tables, change):
    folder, keys = tables
    build(folder / "home", "edges", **keys)
    file, columns, reused = CHANGES[change]
    rewrite(folder / f"{file}.parquet", **columns)
    assert build(folder / "home", "edges", **keys).reused == reused


def test_a_digest_is_that_of_the_columns_own_pages(tables, monkeypatch):
    folder, _ = tables
    monkeypatch.setenv("GRAPHMILL_HOME", str(folder / "home"))
    path = folder / "nodes.parquet"
    frame = pl.read_parquet(path).with_columns(x=pl.concat_list("f0", "f1"), s=pl.struct("f0", "part"))

    def digests(frame, **options):
        frame.write_parquet(path, **options)
        with Duck(None, 256 << 20, 1) as duck:
            return column_digests(duck, path, frame.columns)

    whole = digests(frame, row_group_size=17)
    assert len(set(whole.values())) == len(frame.columns)
    assert digests(frame, row_group_size=17) == whole
    for name in frame.columns:  # nested ones as well: each change touches one digest
        changed = digests(frame.with_columns(pl.col(name).reverse()), row_group_size=17)
        assert {each for each in whole if changed[each] != whole[each]} == {name}
    assert digests(frame, row_group_size=16) != whole  # the stored form, not the values


def test_digests_are_remembered_and_renewed(tables, monkeypatch):
    import os
    import time

    from graphmill.assets.storage.files import digests

    folder, _ = tables
    monkeypatch.setenv("GRAPHMILL_HOME", str(folder / "home"))
    monkeypatch.setattr(digests, "SMALL_BYTES", 0)
    monkeypatch.setattr(digests, "SETTLED_NS", 0)  # the change time cannot be set
    path, calls = folder / "nodes.parquet", []
    past = time.time() - 100
    os.utime(path, (past, past))

    def digest(file, names):
        calls.append(list(names))
        return dict.fromkeys(names, "0" * 64)

    for names in (["a", "b"], ["b", "c"], ["a", "c"]):
        assert digests.remembered_digests(path, names, digest).keys() == set(names)
    assert calls == [["a", "b"], ["c"]]
    os.utime(path, (past + 5, past + 5))
    digests.remembered_digests(path, ["a"], digest)
    assert calls[-1] == ["a"]


def test_a_csv_file_counts_as_a_whole(tmp_path):
    keys = write_csv(tmp_path, Drawn())
    build(tmp_path / "home", "edges", **keys)
    (tmp_path / "edges.csv").write_text((tmp_path / "edges.csv").read_text() + "0,1\n")
    assert build(tmp_path / "home", "edges", **keys).reused == (False, True)


def test_feature_files_of_a_folder_count_apart(tmp_path):
    from tests.assets.sources.own_data import write_gz

    graph = Drawn()
    keys = write_ogb_text(tmp_path, graph)
    build(tmp_path / "home", "ogb", **keys)
    write_gz(keys["path"] / "raw" / "node-feat.csv.gz", [[str(value + 1) for value in row] for row in graph.x])
    assert build(tmp_path / "home", "ogb", **keys).reused == (True, False)
    write_gz(keys["path"] / "raw" / "node-label.csv.gz", [[0]] * graph.num_nodes)
    assert build(tmp_path / "home", "ogb", **keys).reused == (False, True)


def test_two_tables_of_one_graph(tables):
    folder, keys = tables
    config, store = config_class("edges")(**keys), Store(folder / "home")
    asked = [
        (FEATURES, features_config(config)),
        (FEATURES, features_config(config, TableConfig(columns="f2"))),
        (GRAPH, config),
    ]
    whole, one, graph = materialize_together(store, asked, Threads(threads=1))
    assert np.array_equal(whole.array("rows")[:, 2:], one.array("rows"))
    assert [each.reused for each in materialize_together(store, asked, Threads(threads=1))] == [True] * 3
    rewrite(folder / "nodes.parquet", f0=first("f0", 9.0))
    renewed = materialize_together(store, asked, Threads(threads=1))
    assert [each.reused for each in renewed] == [False, True, True] and renewed[2].version == graph.version


def test_alone_each_has_the_bytes_of_one_pass(tables):
    folder, keys = tables
    config = config_class("edges")(**keys)
    built = build(folder / "both", "edges", **keys)
    for stage, semantic, one in ((GRAPH, config, built.graph), (FEATURES, features_config(config), built.features)):
        alone = materialize(Store(folder / "alone"), stage, semantic, Threads(threads=1), {})
        assert (alone.version, alone.files, alone.summary) == (one.version, one.files, one.summary)


def test_features_that_are_not_finite_leave_the_graph_to_be_built_alone(tables):
    folder, keys = tables
    rewrite(folder / "nodes.parquet", f1=first("f1", float("nan")))
    with pytest.raises(InputError, match="row 0: column 'f1' is nan"):
        build(folder / "home", "edges", **keys)
    config = config_class("edges")(**keys)
    materialize(Store(folder / "home"), GRAPH, config, Threads(threads=1), {})
    assert [each.stage for each in Store(folder / "home").artifacts()] == ["graph"]


def test_two_tables_of_a_file_of_dgl_come_from_one_reading(tmp_path, monkeypatch):
    import torch

    from graphmill.assets.sources.dgl import source
    from tests.assets.sources.own_data import write_dgl

    graph = Drawn()
    keys = write_dgl(tmp_path, graph)
    import dgl

    (made,), _ = dgl.load_graphs(str(keys["path"]))
    made.ndata["more"] = torch.arange(60).float()
    dgl.save_graphs(str(keys["path"]), [made])
    read, readings = source._run_reader, []
    monkeypatch.setattr(source, "_run_reader", lambda *arguments: readings.append(1) or read(*arguments))
    config = config_class("dgl")(**keys)
    asked = [(FEATURES, features_config(config, TableConfig(columns=name))) for name in ("more", None)]
    more, usual, stored = materialize_together(Store(tmp_path / "home"), [*asked, (GRAPH, config)], Threads(threads=1))
    assert len(readings) == 1 and stored.stage == "graph"
    assert np.array_equal(more.array("rows"), np.arange(60)[:, None]) and np.array_equal(usual.array("rows"), graph.x)
    with pytest.raises(InputError, match="no node type has ndata 'less'"):
        build(tmp_path / "home", "dgl", table=TableConfig(columns="less"), **keys)


def test_more_rows_of_features_may_be_more_nodes(tmp_path):
    """In a folder of arrays the features of a type say how many nodes it has, so their number is the graph's business too."""
    from tests.assets.sources.test_own_data import PAPER_X, write_typed_arrays

    folder, keys = write_typed_arrays(tmp_path), {"undirected": False}
    path = folder / "processed/paper/node_feat.npy"
    build(tmp_path / "home", "ogb", path=folder, **keys)
    np.save(path, PAPER_X + 1)
    assert build(tmp_path / "home", "ogb", path=folder, **keys).reused == (True, False)
    np.save(path, np.concatenate([PAPER_X, PAPER_X[:1]]))
    np.save(folder / "processed/paper/node_label.npy", np.zeros(11, np.float32))
    grown = build(tmp_path / "home", "ogb", path=folder, **keys)
    assert grown.reused == (False, False) and grown.opened.topology.num_nodes == 16 == grown.table.num_nodes
