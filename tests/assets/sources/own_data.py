"""One graph written in every form that an importer reads; and folders of small graphs to be damaged by tests."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize_together
from graphmill.assets.features.config import features_config
from graphmill.assets.features.read import open_features
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.store import Store
from tests.graphs import GraphArtifacts

COMPARED = ("indptr", "indices", "in_degree", "out_degree", "labels", "train_ids", "valid_ids", "test_ids")


class Built(GraphArtifacts):
    """The two artifacts of a source."""

    @property
    def opened(self) -> Graph:
        return open_graph(self.graph)

    @property
    def table(self) -> FeatureTable:
        return open_features(self.features)

    @property
    def numbers(self) -> dict:
        return {**self.features.summary["numbers"], **self.graph.summary["numbers"]}

    @property
    def versions(self) -> tuple[str, str]:
        return self.graph.version, self.features.version

    @property
    def reused(self) -> tuple[bool, bool]:
        return self.graph.reused, self.features.reused

    def verify(self) -> list[str]:
        return self.graph.verify() + self.features.verify()


@dataclass
class Drawn:
    """A random graph with everything that all forms can hold."""

    num_nodes: int = 60
    num_edges: int = 300
    width: int = 3
    seed: int = 0
    src: np.ndarray = field(init=False)
    dst: np.ndarray = field(init=False)
    x: np.ndarray = field(init=False)
    y: np.ndarray = field(init=False)
    part: np.ndarray = field(init=False)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.src, self.dst = rng.integers(0, self.num_nodes, (2, self.num_edges))
        self.x = rng.standard_normal((self.num_nodes, self.width)).astype(np.float32)
        self.y = rng.integers(0, 4, self.num_nodes)
        self.part = rng.integers(0, 4, self.num_nodes)  # 3 = in no part
        self.y[self.part == 3] = -1

    @property
    def parts(self):
        return [np.flatnonzero(self.part == number) for number in range(3)]

    @property
    def part_names(self):
        return np.array(["train", "valid", "test", None], object)[self.part].tolist()


def build_config(home, config, *, threads=2, table=None) -> Built:
    """Builds the graph and a feature table of a configuration, in one pass, as a pipeline does."""
    asked = [(FEATURES, features_config(config, table)), (GRAPH, config)]
    features, graph = materialize_together(Store(home), asked, Threads(threads=threads))
    return Built(graph, features)


def build(home, source, *, threads=2, table: TableConfig | None = None, **keys) -> Built:
    return build_config(home, config_class(source)(**keys), threads=threads, table=table)


def contents(built: Built):
    found = {name: (built.graph.path / f"{name}.npy").read_bytes() for name in COMPARED}
    return found | {name: (built.features.path / name).read_bytes() for name in built.features.files}


def write_npz(folder, graph):
    train, val, test = graph.parts
    np.savez(
        folder / "graph.npz",
        edge_index=np.stack([graph.src, graph.dst]),
        num_nodes=np.int64(graph.num_nodes),
        x=graph.x, y=graph.y, train=train, val=val, test=test,
    )  # fmt: skip
    return {"path": folder / "graph.npz"}


def edge_frame(graph, names=None):
    ids = np.arange(graph.num_nodes) if names is None else names
    return pl.DataFrame({"src": ids[graph.src], "dst": ids[graph.dst]})


def node_frame(graph, names=None):
    ids = np.arange(graph.num_nodes) if names is None else names
    columns = {f"f{i}": graph.x[:, i] for i in range(graph.width)}
    return pl.DataFrame({"id": ids, **columns, "y": graph.y, "part": graph.part_names})


def write_parquet(folder, graph, *, files=2):
    frame, bounds = edge_frame(graph), np.linspace(0, graph.num_edges, files + 1).astype(int)
    for number in range(files):
        frame[bounds[number] : bounds[number + 1]].write_parquet(folder / f"edges-{number}.parquet", row_group_size=37)
    lists = pl.Series("x", graph.x.tolist(), dtype=pl.List(pl.Float32))
    node_frame(graph).select("id", "y", "part").with_columns(lists).write_parquet(folder / "nodes.parquet")
    keys = {"edges": folder / "edges-*.parquet", "nodes": folder / "nodes.parquet", "features": "x"}
    return keys | {"label_column": "y", "split_column": "part"}


def write_csv(folder, graph):
    """The node table is shuffled: rows are placed by id."""
    edge_frame(graph).write_csv(folder / "edges.csv")
    shuffled = node_frame(graph).sample(fraction=1, shuffle=True, seed=graph.seed)
    (folder / "nodes.csv.gz").write_bytes(gzip.compress(shuffled.write_csv().encode()))
    keys = {"edges": folder / "edges.csv", "nodes": folder / "nodes.csv.gz", "features": "f*"}
    return keys | {"label_column": "y", "split_column": "part"}


def write_gz(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows).encode(), mtime=0))


def write_split(folder, graph):
    for name, ids in zip(("train", "valid", "test"), graph.parts, strict=True):
        write_gz(folder / "split" / "time" / f"{name}.csv.gz", ids[:, None].tolist())


def write_ogb_text(folder, graph):
    top = folder / "ogbn_text"
    write_gz(top / "raw" / "edge.csv.gz", np.stack([graph.src, graph.dst], 1).tolist())
    write_gz(top / "raw" / "num-node-list.csv.gz", [[graph.num_nodes]])
    write_gz(top / "raw" / "num-edge-list.csv.gz", [[graph.num_edges]])
    write_gz(top / "raw" / "node-feat.csv.gz", [[str(value) for value in row] for row in graph.x])
    write_gz(top / "raw" / "node-label.csv.gz", [["nan" if label < 0 else float(label)] for label in graph.y])
    write_split(top, graph)
    return {"path": top}


def write_ogb_binary(folder, graph):
    top = folder / "ogbn_binary"
    (top / "raw").mkdir(parents=True)
    np.savez_compressed(
        top / "raw" / "data.npz",
        edge_index=np.stack([graph.src, graph.dst]),
        num_nodes_list=np.array([graph.num_nodes]), num_edges_list=np.array([graph.num_edges]), node_feat=graph.x,
    )  # fmt: skip
    label = np.where(graph.y < 0, np.nan, graph.y).astype(np.float32)[:, None]
    np.savez_compressed(top / "raw" / "node-label.npz", node_label=label)
    write_split(top, graph)
    return {"path": top}


def write_dgl(folder, graph):
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl
    import torch

    made = dgl.graph((torch.tensor(graph.src), torch.tensor(graph.dst)), num_nodes=graph.num_nodes)
    made.ndata["feat"], made.ndata["label"] = torch.tensor(graph.x), torch.tensor(graph.y)
    for name, number in (("train_mask", 0), ("val_mask", 1), ("test_mask", 2)):
        made.ndata[name] = torch.tensor(graph.part == number)
    dgl.save_graphs(str(folder / "graph.bin"), [made])
    return {"path": folder / "graph.bin"}


def write_pyg(folder, graph):
    """The dictionary of a `Data` object, which needs no torch_geometric to be written."""
    import torch

    names = ("train_mask", "val_mask", "test_mask")
    masks = {name: torch.tensor(graph.part == number) for number, name in enumerate(names)}
    edges = torch.tensor(np.stack([graph.src, graph.dst]))
    made = {"x": torch.tensor(graph.x), "y": torch.tensor(graph.y), "edge_index": edges, "num_nodes": graph.num_nodes}
    torch.save(made | masks, folder / "graph.pt")
    return {"path": folder / "graph.pt"}


FORMS = {
    "npz": ("npz", write_npz),
    "Parquet": ("edges", write_parquet),
    "CSV": ("edges", write_csv),
    "OGB text": ("ogb", write_ogb_text),
    "OGB binary": ("ogb", write_ogb_binary),
    "DGL": ("dgl", write_dgl),
    "PyG": ("pyg", write_pyg),
}
"""Form -> (source, writer that returns its keys)."""


def staging(home: Path) -> list[str]:
    area = home / "store" / ".staging"
    return sorted(os.listdir(area)) if area.is_dir() else []
