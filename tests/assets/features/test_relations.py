"""Rows of the edges of single relations: those of one file of all edges, zeros where a relation has none, and mistakes by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.features.config import EDGES
from graphmill.assets.features.read import open_features
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.inputs import find_table_inputs
from tests.laws.made import Made
from tests.recipes import recipe

USERS, ITEMS, COUNTS = 40, 30, {"buys": 150, "likes": 90, "knows": 60}
ENDS = {"buys": ("user", "item"), "likes": ("user", "item"), "knows": ("user", "user")}
WIDTHS = {"buys": 3, "likes": 3, "knows": 2}
FORMS = ("tables", "pyg")
SHORT = ("middle part", "whole name")


class Shop:
    """A drawn graph of three relations, with rows of edges of each."""

    def __init__(self, seed: int = 0):
        rng, sizes = np.random.default_rng(seed), {"user": USERS, "item": ITEMS}
        self.ends = {
            name: np.stack([rng.permutation(sizes[kind] * 20)[: COUNTS[name]] % sizes[kind] for kind in kinds])
            for name, kinds in ENDS.items()
        }
        self.rows = {name: rng.random((COUNTS[name], WIDTHS[name])).astype(np.float32) for name in ENDS}
        self.x = {kind: rng.random((size, 2)).astype(np.float32) for kind, size in sizes.items()}
        self.label = rng.integers(0, 2, USERS)

    def write(self, folder: Path, form: str) -> dict[str, Any]:
        """Writes the graph and a file of rows of each relation; returns the table [graph]."""
        for name, rows in self.rows.items():
            np.save(folder / f"{name}_rows.npy", rows)
        if form == "pyg":
            data: dict[Any, Any] = {kind: {"x": torch.from_numpy(x)} for kind, x in self.x.items()}
            data["user"]["y"] = torch.from_numpy(self.label)
            for name, (source, target) in ENDS.items():
                data[source, name, target] = {"edge_index": torch.from_numpy(self.ends[name])}
            torch.save(data, folder / "shop.pt")
            return {"source": "pyg", "path": "shop.pt"}
        nodes: dict[str, Any] = {}
        for kind, x in self.x.items():
            label = {"label": self.label} if kind == "user" else {}
            pl.DataFrame({"id": np.arange(len(x)), "a": x[:, 0], "b": x[:, 1]} | label).write_parquet(
                folder / f"{kind}.parquet"
            )
            nodes[kind] = {"path": f"{kind}.parquet", "features": ["a", "b"]} | (
                {"label_column": "label"} if label else {}
            )
        edges = {}
        for name, (source, target) in ENDS.items():
            pl.DataFrame({"src": self.ends[name][0], "dst": self.ends[name][1]}).write_parquet(
                folder / f"{name}.parquet"
            )
            edges[name] = {"path": f"{name}.parquet", "source_type": source, "target_type": target}
        return {"source": "tables", "nodes": nodes, "edges": edges}


TRAIN = {"name": "x", "model": "rgcn", "hidden": 4, "epochs": 1, "layers": 1, "threads": 1, "edge_features": True}


def artifact(folder: Path, graph: dict[str, Any], edges: dict[str, Any], **keys: Any) -> tuple[Artifact, Artifact]:
    """The rows of edges that a pipeline builds, and the model that it trains."""
    (folder / "made").mkdir(exist_ok=True)
    made = Made(folder / "made")
    text = recipe(
        TRAIN | {"input": "typed"} | keys,
        graph=graph,
        features={"edges": edges},
        sampling={"fanouts": [3], "batch_size": 16},
    )
    made.folder = folder
    pipeline = made.parse(text)
    made.build(pipeline)
    found = find_table_inputs(pipeline, pipeline.train[0], made.store, {}).inputs[EDGES]
    return found, made.train(pipeline)


def joined(shop: Shop, given: set[str]) -> Any:
    """The rows of all edges, padded with zeros."""
    parts = []
    for name in ENDS:
        rows = np.zeros((COUNTS[name], max(WIDTHS[each] for each in given)), np.float32)
        if name in given:
            rows[:, : WIDTHS[name]] = shop.rows[name]
        parts.append(rows)
    return np.concatenate(parts)


def named(name: str, how: str) -> str:
    source, target = ENDS[name]
    return name if how == "middle part" else f"{source}/{name}/{target}"


@pytest.mark.parametrize("how", SHORT)
@pytest.mark.parametrize("given", [{*ENDS}, {"likes"}, {"knows", "buys"}])
@pytest.mark.parametrize("form", FORMS)
def test_files_of_relations_are_one_file_of_all_edges(tmp_path: Path, form: str, given: set[str], how: str) -> None:
    shop = Shop()
    graph = shop.write(tmp_path, form)
    apart = {named(name, how): {"file": f"{name}_rows.npy"} for name in given}
    found, model = artifact(tmp_path, graph, apart)
    expected = joined(shop, given)
    np.testing.assert_array_equal(open_features(found).open(), expected)
    np.save(tmp_path / "all.npy", expected)
    other, same = artifact(tmp_path, graph, {"file": "all.npy"})
    assert other.version != found.version
    assert model.file("weights.safetensors").read_bytes() == same.file("weights.safetensors").read_bytes()


def test_a_changed_file_of_a_relation_changes_the_version(tmp_path: Path) -> None:
    shop = Shop()
    graph = shop.write(tmp_path, "tables")
    apart = {name: {"file": f"{name}_rows.npy"} for name in ENDS}
    before = artifact(tmp_path, graph, apart)[0].version
    shop.rows["likes"][3, 1] += 1
    np.save(tmp_path / "likes_rows.npy", shop.rows["likes"])
    assert artifact(tmp_path, graph, apart)[0].version != before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ({"like": {"file": "likes_rows.npy"}}, r"\[features.edges.like\]: the graph has no such relation.*likes"),
        ({"likes": {"file": "buys_rows.npy"}}, "buys_rows.npy has 150 rows for 90 edges of user/likes/item"),
        (
            {"file": "all.npy", "likes": {"file": "likes_rows.npy"}},
            "has the rows of all edges, and likes has rows of its own",
        ),
        ({"likes": {"file": "none.npy"}}, "none.npy"),
    ],
)
def test_wrong_rows_of_a_relation_are_told(tmp_path: Path, form: str, edges: dict[str, Any], said: str) -> None:
    graph = Shop().write(tmp_path, form)
    with pytest.raises(InputError, match=said):
        artifact(tmp_path, graph, edges)


def test_edges_that_are_not_listed_by_relation_are_told(tmp_path: Path) -> None:
    shop = Shop()
    nodes = shop.write(tmp_path, "tables")["nodes"]["user"]
    graph = {
        "source": "edges",
        "edges": "knows.parquet",
        "nodes": nodes["path"],
        "features": nodes["features"],
        "label_column": "label",
    }
    with pytest.raises(InputError, match="source = 'edges' does not list its edges by relation here"):
        artifact(tmp_path, graph, {"knows": {"file": "knows_rows.npy"}}, model="sage", input="linear")
