"""What a file asks for by each option of the table of options, and by each condition, for tests that try every cell.

A file has one small graph, one train table and the tables that its technique needs; what an option or a condition asks for comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.recipes import recipe

CODE = '''
import torch
from torch import nn

from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer


class Counting(SageLayer):
    """Its outputs are scaled by what it has seen."""

    def update(self, agg, h_dst, rng):
        if rng.training:
            self.seen += 1
        return super().update(agg, h_dst, rng) * (1 + 1 / (1 + self.seen))


def layers(in_width, num_classes, config):
    return [
        SageLayer(in_width, config.hidden, LayerOptions()),
        SageLayer(config.hidden, num_classes, LayerOptions(last=True)),
    ]


def counting(in_width, num_classes, config):
    first, last = layers(in_width, num_classes, config)
    first.__class__ = Counting
    first.register_buffer("seen", torch.zeros(()))
    return [first, last]


class Rows(nn.Module):
    """torch's masks depend on the order of rows, which the whole graph and a batch of everything, computed in float64, do not share."""

    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.linear = nn.Linear(in_width, num_classes)
        self.dropout = nn.Dropout(0.0 if config.dtype == "float64" else 0.5)


class Whole(Rows):
    def forward(self, blocks, x):
        last = blocks[-1]
        num_seeds = last.num_dst_nodes() if hasattr(last, "num_dst_nodes") else last.size[1]
        return self.linear(self.dropout(x))[:num_seeds]


class Graph(Rows):
    def forward(self, x, edge_index):
        source, destination = edge_index
        x = self.linear(self.dropout(x))
        for _ in range(2):
            x = torch.zeros_like(x).index_add(0, destination, x[source])
        return x
'''
MODULE = "asked_for"
"""The module with users' own models, beside the pipeline files."""
SBM: dict[str, Any] = {"source": "sbm", "nodes": 240, "edges": 1400, "features": 8, "classes": 3}
TYPED: dict[str, Any] = {"source": "pyg", "path": "typed.pt", "weight": "w"}
WIDE: dict[str, Any] = {"source": "pyg", "path": "wide.pt"}
TABLES: dict[str, Any] = {
    "source": "edges", "edges": "edges.csv", "nodes": "nodes.csv", "features": "f", "label_column": "y", "weight_column": "w",
}  # fmt: skip
TIMED: dict[str, Any] = {"source": "npz", "path": "timed.npz"}
FEATURELESS: dict[str, Any] = {"source": "typed_citation", "nodes": 400, "edges": 1600, "features": 8, "classes": 3}
SAMPLING: dict[str, Any] = {"fanouts": [4, 3], "batch_size": 32, "reuse": 2}
CACHE: dict[str, Any] = {"memory": {"host": "20%"}}
CACHED: dict[str, Any] = {"hotness": {"policy": "degree"}} | CACHE
STORED: dict[str, Any] = {"samples": {}}
PACKED: dict[str, Any] = CACHED | STORED | {"memory": {"device": "10%", "host": "20%", "disk": "9x"}, "cache_plan": {}}
TRAIN: dict[str, Any] = {"name": "x", "hidden": 8, "epochs": 2, "eval_every": 2, "lr": 0.02, "threads": 1}
KEPT: dict[str, Any] = {"t_stale": 3, "p_grad": 0.8, "arena": "60%", "policy": "accuracy+features"}
OWN: Mapping[str, dict[str, Any]] = {
    "factored": {"samplers": 1, "trainers": 1},
    "fresh": KEPT,
    "fresh-factored": KEPT | {"samplers": 1, "trainers": 1},
    "fresh-distributed": KEPT,
}
"""Keys of the sub-tables, by technique."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a file asks for.

    Attributes:
        keys, own: keys of [[train]] and of its sub-table.
        sampling: keys of [sampling].
        tables: other tables.
        graph: the table [graph].
    """

    keys: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)
    graph: Mapping[str, Any] = field(default_factory=dict)

    def __or__(self, other: Ask) -> Ask:
        found = {name: {**getattr(self, name), **getattr(other, name)} for name in self.__dataclass_fields__}
        # An option and a condition may ask for keys of one table.
        found["tables"] |= (
            {"samples": self.tables["samples"] | found["tables"]["samples"]} if "samples" in self.tables else {}
        )
        return Ask(**found)


SCHEDULE = Ask(sampling={"reuse": 0, "schedule": [{"epoch": 2, "fanouts": [2, 2]}]})
WEIGHTED = {"method": "weighted", "weights": "node:out_degree", "empty_rows": "none"}
ON_GPU = Ask(keys={"device": "cuda"})
PACKED_ROWS = Ask(keys={"samples": "stored"}, own={"rows": "packed"}, tables=PACKED)

ASKED: Mapping[str, Ask] = {
    "cache": Ask(keys={"cache": "none"}, tables=CACHE),
    "features": Ask(keys={"features": "memory"}),
    "samplers": Ask(keys={"samplers": 3}),
    "queue": Ask(keys={"queue": "200kB"}),
    "workspace": Ask(keys={"workspace": "64MiB"}),
    "link": Ask(keys={"link": "100 GB/s"}),
    "stored": Ask(keys={"samples": "stored"}, tables=STORED),
    "io": Ask(keys={"io": "pread"}),
    "checkpoint_steps": Ask(keys={"checkpoint_steps": 1}),
    "topology": Ask(keys={"topology": "device"}) | ON_GPU,
    "booked": Ask(keys={"topology": "device"}),
    "uva": Ask(keys={"topology": "uva"}),
    "accumulate": Ask(keys={"accumulate": 3}),
    "batch_norm": Ask(keys={"norm": "batch"}),
    "sampled": Ask(keys={"eval": "sampled"}, sampling=SAMPLING),
    "own_fanouts": Ask(keys={"fanouts": [3, 2]}),
    "relations": Ask(keys={"model": "rgcn"}, graph=TYPED),
    "edge_weight": Ask(keys={"edge_weight": True}, graph=TYPED),
    "edge_features": Ask(
        keys={"edge_features": True}, tables={"features": {"edges": {"file": "edge_rows.npy"}}}, graph=TYPED
    ),
    "node_rows": Ask(keys={"input": "typed", "embedding": "node"}, graph=FEATURELESS),
    "row_files": Ask(keys={"input": "typed", "embedding": "node", "embedding_rows": "mapped"}, graph=FEATURELESS),
    "pyg": Ask(keys={"model": f"{MODULE}:Whole", "blocks": "pyg"}),
    "subgraph": Ask(keys={"model": f"{MODULE}:Graph", "blocks": "subgraph"}),
    "graph_module": Ask(keys={"model": f"{MODULE}:Graph"}),
    "layers": Ask(keys={"model": f"{MODULE}:layers"}),
    "module": Ask(keys={"model": f"{MODULE}:Whole"}),
    "buffers": Ask(keys={"model": f"{MODULE}:counting"}),
    "packed": PACKED_ROWS,
    "probe": Ask(own={"probe": 5}),
    "lookahead": Ask(own={"lookahead": 1, "policy": "accuracy"}),
    "unfused": Ask(own={"scheme": "unfused"}),
    "vanilla": Ask(own={"scheme": "vanilla"}),
    "peer": Ask(own={"exchange": "peer"}, tables=CACHED | {"memory": {"device": "10%", "host": "20%"}}),
    "trainers": Ask(own={"trainers": 2}, keys={"accumulate": 2}),
    "devices": Ask(own={"devices": 2}),
    "ranks": Ask(own={"ranks": 2}),
    "sharing": Ask(own={"sharing": "time", "samplers": 0, "trainers": 2}),
    "staleness": Ask(own={"staleness": 1}),
    "presample": Ask(own={"presample": 1}, tables={"memory": {"device": "10%", "host": "20%"}}),
    "sampling": Ask(sampling=SAMPLING),
    "weighted": Ask(sampling=WEIGHTED),
    "walks": Ask(keys={"model": "pinsage"}, sampling={"method": "random_walk"}),
    "own_sampling": Ask(sampling={"method": f"{MODULE}:rare_ones"}),
    "by_relation": Ask(sampling={"fanouts": [{"cites": 3}, 2]}, graph=TYPED),
    "before": Ask(keys={"eval": "sampled"}, sampling=SAMPLING | {"before": "seed", "window": 500.0}, graph=TIMED),
    "sampling_seed": Ask(sampling={"sampling_seed": 11}),
    "schedule": SCHEDULE,
    "hotness": Ask(tables=CACHED),
    "memory": Ask(tables=CACHE),
    "device_cache": Ask(tables={"memory": {"device": "10%", "host": "20%"}}),
    "part_plan": Ask(tables={"samples": {"plan": "parts"}, "partitions": {"parts": 2}, "sampling": SAMPLING}),
    "self_term": Ask(tables={"chunks": {"chunks_per_part": 3, "self_term": False}}),
}
"""Option -> what a file asks for."""

WHEN: Mapping[str, Ask] = {
    "": Ask(),
    "gpu": ON_GPU,
    "stored": Ask(keys={"samples": "stored"}, tables=STORED),
    "stored_other": Ask(keys={"samples": "stored"}, tables=STORED),
    "other": Ask(),
    "online": Ask(keys={"samples": "online"}),
    "on_device": ON_GPU | Ask(keys={"topology": "device"}),
    "exact": Ask(keys={"eval": "exact"}),
    "packed": PACKED_ROWS,
    "presample": Ask(own={"presample": 1}, tables=CACHED),
    "unpacked": Ask(),
    "exchanged": Ask(),
    "packed_exact": PACKED_ROWS | Ask(keys={"eval": "exact"}),
    "shuffled": Ask(tables={"samples": {"plan": "shuffled"}}),
    "chunks": Ask(),
    "uncut": Ask(own={"mode": "device"}),
    "parts": Ask(tables={"partitions": {"parts": 2}}),
    "unfused": Ask(own={"scheme": "unfused"}),
    "vanilla": Ask(own={"scheme": "vanilla"}),
    "several": Ask(own={"ranks": 2}),
}
"""Condition -> what a file asks for in which it holds."""

OTHERWISE: Mapping[str, Ask] = {
    "exact": Ask(keys={"eval": "sampled"}, sampling=SAMPLING),
    "unpacked": PACKED_ROWS,
    "exchanged": PACKED_ROWS,
    "online": Ask(),
    "chunks": Ask(own={"mode": "device"}),
    "parts": Ask(tables={"partitions": {"parts": 1}}),
    "other": Ask(keys={"fanouts": SAMPLING["fanouts"]}),
}
"""Condition that holds of a plain file -> what a file asks for in which it does not."""


def pipeline_text(trainer: str, ask: Ask, **keys: Any) -> str:
    """Returns the text of a file for a technique.

    Args:
        trainer: the technique.
        ask: what it asks for on top.
        keys: of the train table, over all others.
    """
    technique = TECHNIQUES[trainer]
    tables: dict[str, Any] = {"graph": dict(ask.graph) or SBM}
    sampling = (SAMPLING if "sampling" in technique.needs else {}) | dict(ask.sampling)
    tables |= {"sampling": sampling} if sampling else {}
    tables |= PACKED if technique.stored else {}
    tables |= {"partitions": {"parts": 2}} if technique.by_parts or technique.whole_graph else {}
    tables |= {"chunks": {"chunks_per_part": 3}} if technique.whole_graph else {}
    tables |= ask.tables
    if technique.by_parts and "samples" in tables:
        tables["samples"] = {"plan": "parts"} | tables["samples"]
    groups = {} if technique.whole_graph else {"accumulate": 2}
    train = TRAIN | {"trainer": trainer} | groups | dict(ask.keys) | keys
    own = {**OWN.get(trainer, {}), **ask.own}
    if own.get("mode") == "device" and "chunks" not in ask.tables:
        tables = {name: value for name, value in tables.items() if name not in ("partitions", "chunks")}
    return recipe(train | ({trainer: own} if own else {}), seed=5, **tables)


def write_beside(folder: Path) -> None:
    """Writes what the files of a folder name: users' own code, and the data of a graph with relations and weights."""
    by_hand = Path(__file__).with_name("chosen_by_hand.py").read_text()
    (folder / f"{MODULE}.py").write_text(by_hand + CODE)
    made = torch.Generator().manual_seed(3)
    nodes, edges = 240, 1400
    labels = torch.arange(nodes) % 3
    part = torch.rand(nodes, generator=made)
    data = {
        "paper": {
            "x": torch.randn(nodes, 8, generator=made) + 2 * torch.eye(3, 8)[labels],
            "y": labels,
            "train_mask": part < 0.6,
            "val_mask": (part >= 0.6) & (part < 0.8),
            "test_mask": part >= 0.8,
        }
    }
    rows = np.random.default_rng(7).standard_normal((edges, 4)).astype(np.float32)
    np.save(folder / "edge_rows.npy", rows)
    relations = {
        ("paper", name, "paper"): {
            "edge_index": torch.randint(0, nodes, (2, edges // 2), generator=made),
            "w": 0.5 + torch.rand(edges // 2, generator=made),
        }
        for name in ("cites", "likes")
    }
    torch.save({"_global_store": {}, **data, **relations}, folder / "typed.pt")
    others = {"author": {"x": torch.randn(60, 3, generator=made)}}
    ends = torch.stack(
        [torch.randint(0, 60, (edges,), generator=made), torch.randint(0, nodes, (edges,), generator=made)]
    )
    writes = {("author", "writes", "paper"): {"edge_index": ends}}
    torch.save({"_global_store": {}, **data, **others, **writes}, folder / "wide.pt")
    np.savez(
        folder / "timed.npz",
        edge_index=torch.randint(0, nodes, (2, edges), generator=made).numpy(),
        edge_time=torch.randint(0, 1000, (edges,), generator=made).numpy(),
        node_time=torch.randint(200, 1000, (nodes,), generator=made).numpy(),
        x=data["paper"]["x"].numpy(),
        y=labels.numpy(),
        **{part: np.flatnonzero(data["paper"][f"{part}_mask"].numpy()) for part in ("train", "val", "test")},
    )
    pairs = torch.randint(0, nodes, (edges, 2), generator=made).tolist()
    (folder / "edges.csv").write_text("src,dst,w\n" + "".join(f"n{a},n{b},{1 + a % 3}\n" for a, b in pairs))
    rows = (f"n{node},{node % 7 / 7},{node % 3}\n" for node in range(nodes))
    (folder / "nodes.csv").write_text("id,f,y\n" + "".join(rows))
