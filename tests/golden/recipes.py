"""The pipelines whose estimates are committed: three graphs, and trainings by every technique."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.docs.pages import ROOT
from tests.recipes import recipe

PIPELINES = ROOT / "jobs" / "pipelines"
SMALL = {"nodes = 150000": "nodes = 3000", "edges = 1500000": "edges = 20000", "features = 256": "features = 64"}
SMALL_TYPED = {"nodes = 50_000": "nodes = 3_000", "edges = 350_000": "edges = 20_000"}
BATCHES = {"hidden": 16, "epochs": 3, "queue": "8MiB"}


def own(name: str, trainer: str = "minibatch", **keys: Any) -> dict[str, Any]:
    """A train table with a model of its own."""
    common = {} if trainer == "fullgraph" else BATCHES
    return {"name": name, "trial": name, "trainer": trainer, **common, **keys}


ON_BATCHES = [
    own("direct", features="direct", eval="sampled", samplers=2),
    own("in-memory", features="memory", eval="exact", eval_workspace="64MiB", accumulate=2),
    own("gat", model="gat", cache="none", heads=2, input_dropout=0.1),
    own("deep", residual=True, norm="layer", samples="stored", eval="sampled"),
    own("disk-sampled", "disk", eval="sampled", model="gcn"),
    own("disk-exact", "disk", eval="exact", io_depth=4),
    own("roles", "factored", accumulate=4, factored={"samplers": 1, "trainers": 2, "presample": 1}),
    own("in-time", "factored", topology="device", factored={"sharing": "time", "trainers": 2}),
    own("standby", "factored", topology="device", accumulate=1, factored={"samplers": 1, "trainers": 1}),
    own("history", "fresh", fresh={"arena": "20%", "policy": "accuracy"}),
    own("packed-history", "fresh", samples="stored", fresh={"rows": "packed", "policy": "performance+features"}),
    own("role-history", "fresh-factored", **{"fresh-factored": {"samplers": 1, "trainers": 2, "arena": "10%"}}),
]
ON_PARTS = [
    own("parts", "distributed", distributed={"ranks": 2}),
    own("summed", "distributed", distributed={"ranks": 2, "gradients": "all-reduce"}),
    own("one-rank", "distributed", eval="sampled", distributed={"ranks": 1}),
    own("part-history", "fresh-distributed", features="direct", **{"fresh-distributed": {"ranks": 2, "arena": "1MiB"}}),
    own("whole", "fullgraph", hidden=16, eval="exact"),
    own("whole-gcn", "fullgraph", hidden=4, model="gcn", fullgraph={"mode": "vanilla", "hybrid": False}),
    own("whole-gat", "fullgraph", hidden=16, model="gat", eval="sampled", fullgraph={"mode": "p2p"}),
    own("whole-ranks", "fullgraph", hidden=16, threads=1, fullgraph={"ranks": 2, "keep_first": False}),
    own("uncut", "fullgraph", hidden=16, fullgraph={"mode": "device"}),
]


def rmat() -> str:
    """An R-MAT graph, which lists the techniques with the keys that change their formulas."""
    tables: Mapping[str, Any] = {
        "graph": {"source": "rmat", "nodes": 2000, "edges": 12_000, "features": 300, "classes": 5, "labelled": 0.6},
        "sampling": {"fanouts": [4, 3], "batch_size": 64, "reuse": 2},
        "hotness": {"policy": "presample", "rounds": 1, "layers": "inputs"},
        "samples": {"evaluate": True},
        "memory": {"device": "auto", "host": "20%", "disk": "4x"},
        "cache_plan": {},
        "packed": {},
        "partitions": {"method": "ldg", "parts": 2},
        "chunks": {"chunks_per_part": 3},
    }
    return recipe(*ON_BATCHES, *ON_PARTS, **tables)


def replaced(name: str, changes: Mapping[str, str], more: str = "") -> str:
    """A pipeline of the program with a smaller graph, and more text behind it."""
    text = (PIPELINES / f"{name}.toml").read_text()
    for old, new in changes.items():
        assert old in text, (name, old)
        text = text.replace(old, new)
    return text + more


def texts() -> dict[str, str]:
    """Name -> text of each pipeline file."""
    return {
        "rmat": rmat(),
        "showcase": replaced("showcase", SMALL),
        "typed": replaced("typed", SMALL_TYPED, TYPED_MORE),
        "walks": replaced("walks", {"nodes = 10000": "nodes = 2000", "edges = 80000": "edges = 4000"}),
    }


TYPED_MORE = """
[[train]]
name = "learnt"
model = "rgcn"
input = "typed"
embedding = "node"
hidden = 16
eval = "sampled"

[[train]]
name = "attends"
trainer = "factored"
model = "rgat"
input = "typed"
hidden = 16
heads = 2
"""
"""More trainings on the typed graph: rows of nodes that are learnt, and attention."""
