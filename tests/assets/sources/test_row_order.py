"""Rows of a file beside a source belong to nodes by ids if the file has them, by position only if the order of the nodes is stated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from graphmill.assets.building.materialize import stage_version
from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.readers.row_order import stated_order
from graphmill.assets.sources.registry import config_class
from graphmill.jobs.commands.pipelines.inspect_pipeline import survey_pipeline
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import FORMS, Built, Drawn, build_config, edge_frame, node_frame

pytestmark = pytest.mark.usefixtures("quick_readers")

X = np.random.default_rng(5).normal(size=(60, 2)).astype(np.float32)


def write_sparse_ids(folder: Path, graph: Drawn) -> dict:
    """Node tables in three parts, of ids with gaps."""
    ids = 7 * np.arange(graph.num_nodes) + 3
    edge_frame(graph, ids).write_parquet(folder / "edges.parquet")
    nodes = node_frame(graph, ids).sample(fraction=1, shuffle=True, seed=1)
    for number in range(3):
        nodes[20 * number : 20 * number + 20].write_parquet(folder / f"nodes.{number}.parquet")
    return {"edges": folder / "edges.parquet", "nodes": folder / "nodes.*.parquet", "label_column": "y"}


SOURCES = {**FORMS, "ids with gaps": ("edges", write_sparse_ids)}


def ids_of(form: str) -> np.ndarray:
    return 7 * np.arange(60) + 3 if form == "ids with gaps" else np.arange(60)


def written(form: str, folder: Path):
    if form == "DGL":
        pytest.importorskip("dgl")
    source, write = SOURCES[form]
    return config_class(source)(**write(folder, Drawn()))


def built(folder: Path, config, rows: dict[str, np.ndarray], name: str) -> Built:
    save_file(rows, folder / f"{name}.safetensors")
    return build_config(folder / name, config, table=TableConfig(file=folder / f"{name}.safetensors"))


@pytest.mark.parametrize("form", SOURCES)
def test_rows_of_every_source_are_matched_by_ids(tmp_path: Path, form: str) -> None:
    config, ids = written(form, tmp_path), ids_of(form)
    for seed, kind in enumerate((np.int64, np.int32, np.uint16)):
        order = np.random.default_rng(seed).permutation(60)
        found = built(tmp_path, config, {"x": X[order], "id": ids[order].astype(kind)}, f"f{seed}")
        assert np.array_equal(found.features.array("rows"), X), "nodes stand in the order of their ids"


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), parts=st.integers(1, 12), sparse=st.booleans())
def test_permuted_rows_and_tables_give_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, seed, parts, sparse
) -> None:
    """Tables of nodes of two types are permuted and cut, and so are files with ids: features are those of their nodes."""
    folder, rng = tmp_path_factory.mktemp("drawn"), np.random.default_rng(seed)
    sizes = {"user": int(rng.integers(parts, 40)), "item": int(rng.integers(parts, 40))}
    ids = {
        name: np.sort(rng.choice(1000, count, replace=False)) if sparse else np.arange(count)
        for name, count in sizes.items()
    }
    for name, count in sizes.items():
        (folder / name).mkdir()
        frame = pl.DataFrame({"id": ids[name][rng.permutation(count)]})
        for number, part in enumerate(np.array_split(np.arange(count), parts)):
            frame[part.tolist()].write_parquet(folder / name / f"part.{number}.parquet")
    pl.DataFrame({name: rng.choice(ids[name], 50) for name in sizes}).write_parquet(folder / "e.parquet")
    text = """
[graph]
source = "tables"
[graph.nodes.user]
path = "user"
[graph.nodes.item]
path = "item"
[graph.edges.buys]
path = "e.parquet"
source_type = "user"
target_type = "item"
source_column = "user"
target_column = "item"
"""
    config, order = parse_pipeline(folder / "p.toml", text.encode()).graph, rng.permutation(sizes["item"])
    x = rng.normal(size=(sizes["item"], 3)).astype(np.float32)
    save_file({"rows": x[order], "ids": ids["item"][order]}, folder / "x.safetensors")
    found = build_config(folder / "home", config, table=TableConfig(file=folder / "x.safetensors", node_type="item"))
    assert np.array_equal(found.features.array("rows"), x)
    by_row = np.concatenate(
        [pl.read_parquet(path)["id"] for path in (folder / "item" / f"part.{n}.parquet" for n in range(parts))]
    )
    np.save(folder / "x.npy", x[np.searchsorted(ids["item"], by_row)])
    placed = build_config(folder / "home", config, table=TableConfig(file=folder / "x.npy", node_type="item"))
    assert np.array_equal(placed.features.array("rows"), x)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (np.arange(60) + 1, "id of row 59 names no node"),
        (np.arange(60) - 1, "id of row 0 names no node"),
        (np.arange(60) // 2, "id of row 1 stands in a row before it"),
        (np.arange(59), "has 59 ids for 60 nodes"),
    ],
)
@pytest.mark.parametrize("form", ["npz", "CSV"])
def test_ids_of_other_nodes_are_refused(tmp_path: Path, form: str, ids: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        built(tmp_path, written(form, tmp_path), {"x": X, "id": ids}, "f")


def test_ids_of_text_are_refused(tmp_path: Path) -> None:
    graph = Drawn()
    names = np.array([f"n{number}" for number in range(60)])
    edge_frame(graph, names).write_csv(tmp_path / "e.csv")
    node_frame(graph, names).write_csv(tmp_path / "n.csv")
    config = config_class("edges")(edges=tmp_path / "e.csv", nodes=tmp_path / "n.csv")
    with pytest.raises(InputError, match="those of the tables are not"):
        built(tmp_path, config, {"x": X, "id": np.arange(60)}, "f")


def files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"id": [1]}).write_parquet(folder / name)


@pytest.mark.parametrize(
    ("names", "patterns", "words"),
    [
        (["n.parquet"], ["n.parquet"], "one file"),
        (["n/a.parquet"], ["n"], "one file"),
        (["n/part.2.parquet", "n/part.10.parquet"], ["n"], "2 files in the order of the numbers in their names"),
        (["n/day=1/x.parquet", "n/day=2/x.parquet"], ["n/*/*.parquet"], "2 files in the order of the numbers in their names"),
        (["b.parquet", "a.parquet"], ["b.parquet", "a.parquet"], "2 files in the order of the list of nodes"),
        (["b/1.parquet", "b/2.parquet", "a.parquet"], ["b", "a.parquet"], "3 files in the order of the list of nodes"),
        (["n/bern.parquet", "n/rom.parquet"], ["n"], ""),
        (["n/country=DE/1.parquet", "n/country=FR/1.parquet"], ["n"], ""),
        (["n/part-0-ab1c.parquet", "n/part-1-9f.parquet"], ["n/*.parquet"], ""),
        (["b/x.parquet", "b/y.parquet", "a.parquet"], ["b", "a.parquet"], ""),
    ],
)  # fmt: skip
def test_orders_that_are_stated(tmp_path: Path, names: list[str], patterns: list[str], words: str) -> None:
    files(tmp_path, *names)
    paths = [tmp_path / pattern for pattern in patterns]
    if words:
        assert stated_order(paths, "nodes") == words
    else:
        with pytest.raises(InputError, match="nodes: nothing states the order of"):
            stated_order(paths, "nodes")


RECIPE = '[graph]\nsource = "edges"\nedges = "e.parquet"\nnodes = "n"\n[features]\nfile = "FILE"\n'


def test_inspect_says_how_rows_are_matched_and_what_is_refused(tmp_path: Path) -> None:
    graph = Drawn()
    edge_frame(graph).write_parquet(tmp_path / "e.parquet")
    (tmp_path / "n").mkdir()
    nodes = node_frame(graph).select("id")
    for name, part in (("part.2", nodes[:30]), ("part.10", nodes[30:])):
        part.write_parquet(tmp_path / "n" / f"{name}.parquet")
    np.save(tmp_path / "x.npy", X)
    save_file({"x": X, "id": np.arange(60)}, tmp_path / "x.safetensors")

    def pipeline(name: str):
        return parse_pipeline(tmp_path / "p.toml", RECIPE.replace("FILE", name).encode())

    by_position = survey_pipeline(pipeline("x.npy"))
    assert (
        "features of x.npy: 60 rows, matched by position: 2 files in the order of the numbers in their names"
        in by_position.notes
    )
    assert "features of x.safetensors: 60 rows, matched by id" in survey_pipeline(pipeline("x.safetensors")).notes
    (tmp_path / "n" / "part.10.parquet").rename(tmp_path / "n" / "last.parquet")
    with pytest.raises(InputError, match=r"nothing states the order of last\.parquet, part\.2\.parquet"):
        survey_pipeline(pipeline("x.npy"))
    with pytest.raises(InputError, match="nothing states the order"):
        build_config(tmp_path / "home", pipeline("x.npy").graph, table=TableConfig(file=tmp_path / "x.npy"))
    assert not survey_pipeline(pipeline("x.safetensors")).problems


def test_ids_are_part_of_the_version_and_other_files_keep_theirs(tmp_path: Path) -> None:
    config = written("npz", tmp_path)

    def raw(rows: dict[str, np.ndarray]) -> list[str]:
        save_file(rows, tmp_path / "x.safetensors")
        features = features_config(config, TableConfig(file=tmp_path / "x.safetensors", tensor="x"))
        assert stage_version(FEATURES, features, {})
        return sorted(FEATURES.raw(features))

    assert raw({"x": X}) == raw({"x": X, "y": X}) == ["file", "npz"]
    assert raw({"x": X, "id": np.arange(60)}) == ["file", "npz", "rows"]
