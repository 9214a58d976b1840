"""Law 2 for graphs of several types: whichever form a graph comes in, the losses are those of the same graph in any other form.

The forms are tables per type and relation, PyG's `HeteroData`, and one list of nodes and edges with a column of relations and one wide
table of features. The reference in float64 is a loop over types and relations as PyG's `HeteroConv` has it, in plain torch. Law 7, too:
other ids inside each type change no loss; and predictions are those that the evaluation scored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.features.read import node_types
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.models.build import build_model
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import Built, build_config
from tests.recipes import recipe
from tests.trainers.runs import content, losses

SIZES = {"user": 120, "item": 70, "city": 30}
RELATIONS = {"a_buys": ("user", "item"), "b_lives": ("user", "city"), "c_knows": ("user", "user")}
"""Relation -> types of its ends; in ascending order, in which a column of relations is numbered."""

EDGES = {"a_buys": 500, "b_lives": 150, "c_knows": 300}
SAMPLING: dict[str, Any] = {"fanouts": [{"a_buys": 3, "reverse of a_buys": 2, "*": 2}, 3], "batch_size": 16}
TRAIN: dict[str, Any] = {"model": "rgcn", "hidden": 8, "epochs": 2, "lr": 0.02, "edge_weight": True, "threads": 1}


class Drawn:
    """A random graph of three types, the last one without features.

    Args:
        widths: columns of users and items.
        renamed: whether nodes have other ids inside their types.
    """

    def __init__(self, widths: tuple[int, int], renamed: bool = False):
        rng = np.random.default_rng(3)
        self.ids = {name: np.arange(size) for name, size in SIZES.items()}
        labels = rng.integers(0, 3, SIZES["user"])
        self.x = {
            name: rng.normal(size=(SIZES[name], width)).astype(np.float32)
            for name, width in zip(("user", "item"), widths, strict=True)
        }
        self.x["user"][np.arange(SIZES["user"]), labels] += 1.5
        self.labels, self.parts = labels, rng.choice(["train", "valid", "test"], SIZES["user"], p=[0.6, 0.2, 0.2])
        self.edges: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        for name, (source, target) in RELATIONS.items():
            pairs = np.divmod(rng.permutation(SIZES[source] * SIZES[target]), SIZES[target])
            kept = np.flatnonzero((pairs[0] != pairs[1]) | (source != target))[: EDGES[name]]
            src, dst = pairs[0][kept], pairs[1][kept]
            self.edges[name] = src, dst, rng.random(EDGES[name]).astype(np.float32) + 0.5
        if renamed:
            self.ids = {name: rng.permutation(ids) for name, ids in self.ids.items()}

    def write_tables(self, folder: Path) -> dict[str, Any]:
        """Writes a table per type and relation, and returns the table [graph]."""
        for name, x in self.x.items():
            columns: dict[str, Any] = {"id": self.ids[name]} | {f"x{n}": column for n, column in enumerate(x.T)}
            columns |= {"label": self.labels, "part": self.parts} if name == "user" else {}
            pl.DataFrame(columns).write_parquet(folder / f"{name}.parquet")
        for name, (source, target) in RELATIONS.items():
            src, dst, weight = self.edges[name]
            columns = {"src": self.ids[source][src], "dst": self.ids[target][dst], "weight": weight}
            pl.DataFrame(columns).write_parquet(folder / f"{name}.parquet")
        nodes: dict[str, Any] = {name: {"path": f"{name}.parquet", "features": "x*"} for name in self.x}
        nodes["user"] |= {"label_column": "label", "split_column": "part"}
        ends = {
            name: dict(zip(("source_type", "target_type"), types, strict=True)) for name, types in RELATIONS.items()
        }
        edges = {name: {"path": f"{name}.parquet", "weight_column": "weight", **types} for name, types in ends.items()}
        nodes["city"] = {"num_nodes": SIZES["city"]}
        return {"source": "tables", "reverse_types": "own", "nodes": nodes, "edges": edges}

    def write_pyg(self, folder: Path) -> dict[str, Any]:
        """Writes a `HeteroData` object."""
        data = pytest.importorskip("torch_geometric.data").HeteroData()
        for name, x in self.x.items():
            data[name].x = torch.from_numpy(x)
        data["city"].num_nodes = SIZES["city"]
        data["user"].y = torch.from_numpy(self.labels)
        for part, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
            data["user"][mask] = torch.from_numpy(self.parts == part)
        for name, (source, target) in RELATIONS.items():
            src, dst, weight = self.edges[name]
            data[source, name, target].edge_index = torch.from_numpy(np.stack([src, dst]))
            data[source, name, target].edge_weight = torch.from_numpy(weight)
        torch.save(data, folder / "graph.pt")
        return {"source": "pyg", "path": "graph.pt", "reverse_types": "own", "weight": "edge_weight"}

    def write_homogenised(self, folder: Path) -> dict[str, Any]:
        """Writes one list of nodes, whose rows without features are zeros, and one of edges with a column of relations."""
        first = dict(zip(SIZES, np.cumsum([0, *SIZES.values()]), strict=False))
        rest = sum(SIZES.values()) - SIZES["user"]
        x = np.concatenate([*self.x.values(), np.zeros((SIZES["city"], self.x["user"].shape[1]), np.float32)])
        columns: dict[str, Any] = {"id": np.arange(len(x))} | {f"x{n}": column for n, column in enumerate(x.T)}
        columns |= {"label": [*self.labels.tolist(), *[-1] * rest], "part": [*self.parts.tolist(), *[None] * rest]}
        pl.DataFrame(columns).write_parquet(folder / "nodes.parquet")
        edges = {
            "src": np.concatenate([first[RELATIONS[name][0]] + src for name, (src, _, _) in self.edges.items()]),
            "dst": np.concatenate([first[RELATIONS[name][1]] + dst for name, (_, dst, _) in self.edges.items()]),
            "weight": np.concatenate([weight for _, _, weight in self.edges.values()]),
            "relation": [name for name, count in EDGES.items() for _ in range(count)],
        }
        pl.DataFrame(edges).write_parquet(folder / "edges.parquet")
        keys = {"features": "x*", "label_column": "label", "split_column": "part", "type_column": "relation"}
        paths = {"nodes": "nodes.parquet", "edges": "edges.parquet"}
        return {"source": "edges", "reverse_types": "own", "weight_column": "weight", **paths, **keys}


def built(folder: Path, graph: dict[str, Any], **keys: Any) -> tuple[Any, Built]:
    """Writes a pipeline file, and builds its graph."""
    sampling = {} if keys.get("trainer") == "fullgraph" else {"sampling": SAMPLING}
    text = recipe({"name": "m"} | TRAIN | keys, seed=5, graph=graph, **sampling)
    (folder / "p.toml").write_text(text)
    pipeline = load_pipeline(folder / "p.toml", TrainTable, files=True)
    return pipeline, build_config(folder / "home", pipeline.graph, threads=1)


def trained(folder: Path, graph: dict[str, Any], sampling: SamplingConfig | None = None, **keys: Any) -> Artifact:
    """The model of a graph in one of its forms."""
    pipeline, made = built(folder, graph, **keys)
    table, drawn = pipeline.train[0], sampling or pipeline.sampling
    return train_table(Store(folder / "home"), made.inputs, table, drawn, 5, report=lambda line: None)[0]


def forms(home: Path, drawn: Drawn, names: tuple[str, ...]) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Form -> folder and table [graph]."""
    found = {}
    for name in names:
        (home / name).mkdir()
        found[name] = home / name, getattr(drawn, f"write_{name}")(home / name)
    return found


@pytest.mark.parametrize("end", ["none", "linear"])
def test_a_homogenised_graph_and_its_heterograph_give_equal_bits(tmp_path: Path, end: str) -> None:
    made = forms(tmp_path, Drawn((4, 4)), ("tables", "pyg", "homogenised"))
    models = {name: trained(*form, input=end) for name, form in made.items()}
    found = {name: (losses(model), content(model)["weights.safetensors"]) for name, model in models.items()}
    assert found["tables"] == found["pyg"] == found["homogenised"]
    assert len(set(losses(models["tables"]))) == 2


def test_features_of_different_widths_give_equal_bits_from_tables_and_pyg(tmp_path: Path) -> None:
    made = forms(tmp_path, Drawn((6, 3)), ("tables", "pyg"))
    one, other = (trained(*form, input="typed", norm="layer") for form in made.values())
    assert content(one) == content(other)


def reference(drawn: Drawn, parameters: dict[str, torch.Tensor], epochs: int, weighted: bool) -> list[float]:
    """The losses of a typed R-GCN, computed type by type and relation by relation in float64."""
    names, x = list(SIZES), {name: torch.from_numpy(each).double() for name, each in drawn.x.items()}
    values = {name: each.detach().clone().requires_grad_() for name, each in parameters.items()}
    directions = [(*RELATIONS[name], *drawn.edges[name]) for name in RELATIONS]
    directions += [(target, source, dst, src, weight) for source, target, src, dst, weight in directions]

    def forward() -> torch.Tensor:
        h = {}
        for number, name in enumerate(names):
            if name in x:
                h[name] = (
                    x[name] @ values[f"projection.maps.{number}.weight"].T + values[f"projection.maps.{number}.bias"]
                )
            else:
                h[name] = values[f"projection.embeddings.{number}"].expand(SIZES[name], -1)
        for layer in range(2):
            own = {
                name: rows @ values[f"layers.{layer}.own.weight"].T + values[f"layers.{layer}.own.bias"]
                for name, rows in h.items()
            }
            for relation, (source, target, src, dst, weight) in enumerate(directions):
                w, to = torch.from_numpy(weight if weighted else np.ones_like(weight)).double(), torch.from_numpy(dst)
                sums = torch.zeros(SIZES[target], h[source].shape[1], dtype=torch.float64).index_add(
                    0, to, w[:, None] * h[source][torch.from_numpy(src)]
                )
                total = torch.zeros(SIZES[target], dtype=torch.float64).index_add(0, to, w)
                means = sums / total.clamp(min=1e-300)[:, None]
                own[target] = own[target] + means @ values[f"layers.{layer}.matrices.{relation}"].T
            h = {name: rows.relu() if layer == 0 else rows for name, rows in own.items()}
        return h["user"]

    optimizer, found = torch.optim.Adam(values.values(), lr=TRAIN["lr"]), []
    ids, labels = torch.from_numpy(np.flatnonzero(drawn.parts == "train")), torch.from_numpy(drawn.labels)
    for _ in range(epochs):
        loss = torch.nn.functional.cross_entropy(forward()[ids], labels[ids])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize(("weighted", "bound"), [(False, 1e-10), (True, 1e-8)])
def test_a_typed_rgcn_is_the_loop_over_types_and_relations(tmp_path: Path, weighted: bool, bound: float) -> None:
    """With edge weights a block holds their shares of a mean, which are float32 in a model of any type."""
    drawn = Drawn((6, 3))
    made = forms(tmp_path, drawn, ("tables",))["tables"]
    keys: dict[str, Any] = {"input": "typed", "dropout": 0.0, "dtype": "float64", "epochs": 5, "edge_weight": weighted}
    whole = {"trainer": "fullgraph", "fullgraph": {"mode": "device"}}
    model = trained(*made, **keys, **whole)
    batch = trained(*made, SamplingConfig(fanouts=(-1, -1), batch_size=1000), **keys)
    pipeline, graph = built(*made, **keys, **whole)
    types = node_types(graph.opened.topology, graph.table)
    first = build_model(pipeline.train[0].config, 6, 3, 5, len(graph.opened.relations), types)
    expected = reference(drawn, dict(first.named_parameters()), 5, weighted)
    for found in (model, batch):
        np.testing.assert_allclose(losses(found), expected, rtol=bound)
    assert expected[-1] < expected[0]


def test_other_ids_inside_the_types_change_no_loss(tmp_path: Path) -> None:
    """Law 7: rows are added in another order, so losses are equal within rounding."""
    found = []
    for renamed in (False, True):
        (tmp_path / str(renamed)).mkdir()
        made = forms(tmp_path / str(renamed), Drawn((6, 3), renamed), ("tables",))["tables"]
        keys: dict[str, Any] = {"input": "typed", "dropout": 0.0, "dtype": "float64", "epochs": 4}
        found += [trained(*made, **keys, trainer="fullgraph", fullgraph={"mode": "device"})]
        found += [trained(*made, SamplingConfig(fanouts=(-1, -1), batch_size=1000), **keys)]
    for each in found:
        np.testing.assert_allclose(losses(each), losses(found[0]), rtol=1e-10)


def test_predictions_are_what_the_evaluation_scored(tmp_path: Path) -> None:
    drawn = Drawn((6, 3))
    folder, graph = forms(tmp_path, drawn, ("tables",))["tables"]
    model = trained(folder, graph, input="typed", eval="exact", epochs=4)
    pipeline, _ = built(folder, graph, input="typed", eval="exact", epochs=4)
    predict_table(Store(folder / "home"), pipeline, "m", tmp_path / "found.parquet")
    found = pl.read_parquet(tmp_path / "found.parquet")
    assert set(found["node_type"]) == {"user"}
    assert found["node_id"].to_list() == list(range(SIZES["user"]))
    test = drawn.parts == "test"
    right = (found["class"].to_numpy()[test] == drawn.labels[test]).mean()
    assert right == pytest.approx(model.summary["numbers"]["test_accuracy"], abs=1e-12)
