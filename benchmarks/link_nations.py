"""R-GCN with DistMult on Nations, which PyKEEN's package ships with its split, beside DGL's RelGraphConv.

The input of both is a column per node, so that their layer learns a row of each. Both pass messages over all edges to train on and their
reverses (but those that the batch predicts), and take the same batches and pairs. First the losses of one batch by the same parameters,
and their gradients, must agree in float64. Ranks of both are exact and filtered.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.assets.graph.read import Graph
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.training_edges import training_edges
from graphmill.assets.storage.store import Store
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.links.splits import PARTS
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.links.heads import DistMultHead
from graphmill.trainers.models.links.losses import LinkLoss, PairLoss
from graphmill.trainers.models.links.ranks import Pairs, link_ranks
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from graphmill.trainers.record.link_scores import rank_scores
from graphmill.trainers.run import train_table
from graphmill.trainers.tasks.links import SIDES, LinkTask
from tests.assets.sources.own_data import build_config

HIDDEN, EPOCHS, EVERY, LR, SEEDS, NATIONS = 24, 60, 5, 0.02, 5, 14
LARGEST_ERROR = 1e-10
FILE = f"""
[task]
kind = "links"
split = "given"
[graph]
source = "tables"
reverse_types = "own"
[graph.nodes.nation]
path = "nations.parquet"
features = {[f"x{number}" for number in range(NATIONS)]}
[graph.edges.triple]
path = "triples.parquet"
source_type = "nation"
target_type = "nation"
type_column = "relation"
split_column = "part"
[sampling]
fanouts = [-1]
batch_size = 256
per_positive = 28
[[train]]
name = "rgcn"
model = "rgcn"
layers = 1
hidden = {HIDDEN}
link_head = "distmult"
link_loss = "binary"
epochs = {EPOCHS}
eval_every = {EVERY}
lr = {LR}
dropout = 0.0
threads = 1
"""


def measure(quick: bool) -> dict[str, Any]:
    """Returns ranks and processor seconds of both, and the difference of their losses; says so and returns none without PyKEEN."""
    if find_spec("pykeen") is None:
        print("nations: left out, PyKEEN is not installed")
        return {"absent": "pykeen"}
    torch.set_num_threads(1)
    seeds = range(1 if quick else SEEDS)
    with tempfile.TemporaryDirectory(prefix="graphmill-nations-") as name:
        write(Path(name))
        pipeline, store = load_pipeline(Path(name) / "nations.toml", TrainTable), Store(Path(name) / "home")
        assert pipeline.sampling is not None
        built = build_config(store.home, pipeline.graph, threads=1)
        error = compare(built.opened, pipeline.sampling)
        found: dict[str, list[dict[str, float]]] = {"ours": [], "dgl": []}
        for seed in seeds:
            started = time.process_time()
            (model,) = train_table(
                store, built.inputs, pipeline.train[0], pipeline.sampling, seed, report=lambda line: None
            )
            numbers = model.summary["numbers"]
            scores = {"mrr": numbers["test_mrr"], "hits@10": numbers["test_hits@10"]}
            found["ours"].append(scores | {"processor": time.process_time() - started})
            found["dgl"].append(by_dgl(built.opened, pipeline, seed))
    means = {name: {key: statistics.fmean(run[key] for run in runs) for key in runs[0]} for name, runs in found.items()}
    for name, mean in means.items():
        shown = ", ".join(f"{key} {value:.3f}" for key, value in mean.items())
        print(f"  nations, {name}: {shown}; losses and gradients of one batch differ by {error:.1e}", flush=True)
    return {"epochs": EPOCHS, "hidden": HIDDEN, "seeds": len(seeds), "error": error, "means": means, "runs": found}


def write(folder: Path) -> None:
    """Writes the triples with their parts, the nations, and the pipeline file."""
    spec = find_spec("pykeen")
    assert spec is not None and spec.submodule_search_locations
    shipped = Path(spec.submodule_search_locations[0]) / "datasets" / "nations"
    columns = ["src", "relation", "dst"]
    parts = [
        pl.read_csv(shipped / f"{part}.txt", has_header=False, new_columns=columns, separator="\t").with_columns(
            pl.lit(part).alias("part")
        )
        for part in PARTS
    ]
    triples = pl.concat(parts)
    triples.write_parquet(folder / "triples.parquet")
    own = {f"x{number}": np.eye(NATIONS, dtype=np.float32)[number] for number in range(NATIONS)}
    names = sorted({*triples["src"], *triples["dst"]})
    pl.DataFrame({"id": names, **own}).write_parquet(folder / "nations.parquet")
    (folder / "nations.toml").write_text(FILE)


class DglModel(nn.Module):
    """A RelGraphConv and the rows of DistMult."""

    def __init__(self, relations: int):
        import dgl

        super().__init__()
        self.conv = dgl.nn.pytorch.RelGraphConv(NATIONS, HIDDEN, relations)
        self.relation = nn.Parameter(torch.empty(relations, HIDDEN))
        nn.init.xavier_uniform_(self.relation, nn.init.calculate_gain("relu"))

    def forward(self, edges: Edges) -> Tensor:
        """Returns float[N, HIDDEN], with the means of each relation's neighbours."""
        dtype = self.relation.dtype
        return self.conv(edges.graph, torch.eye(NATIONS, dtype=dtype), edges.kind, edges.norm(dtype))

    def loss(self, h: Tensor, ends: Tensor, kinds: Tensor, num: int) -> Tensor:
        """Returns the mean over `num` edges of the mean binary cross entropy of each edge and its negatives, i64[n, 1 + k, 2]."""
        scores = (h[ends[..., 0]] * self.relation[kinds][:, None] * h[ends[..., 1]]).sum(dim=-1)
        labels = torch.zeros_like(scores)
        labels[:, 0] = 1
        return functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / (num * scores.shape[1])


class Edges:
    """The edges of a topology without some pairs, as DGL sees them.

    Args:
        gone: (source, target, relation) of edges that are left out.
    """

    def __init__(self, graph: Graph, gone: set[tuple[int, int, int]]):
        import dgl

        topology = graph.topology
        target = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
        assert topology.edge_types is not None
        columns = [np.asarray(each).astype(np.int64) for each in (topology.indices, target, topology.edge_types)]
        kept = np.array([edge not in gone for edge in zip(*(each.tolist() for each in columns), strict=True)])
        source, target, kind = (torch.from_numpy(each[kept]) for each in columns)
        self.graph, self.kind = dgl.graph((source, target), num_nodes=topology.num_nodes), kind
        run = target * len(graph.relations) + kind
        self.counts = torch.bincount(run)[run]

    def norm(self, dtype: torch.dtype) -> Tensor:
        """Returns float[E, 1], one over the number of edges of the target's relation."""
        return 1 / self.counts.to(dtype)[:, None]


def taken_out(graph: Graph, edges: EdgeSeeds, chosen: np.ndarray) -> set[tuple[int, int, int]]:
    """Returns the chosen edges and their reverses."""
    assert graph.links is not None and edges.relation is not None
    found = set()
    for u, v, r in zip(*(each[chosen].tolist() for each in (edges.source, edges.target, edges.relation)), strict=True):
        found |= {(u, v, r), (v, u, graph.links.reverse_of[r])}
    return found


def pairs_of(edges: EdgeSeeds, key: BatchKey, chosen: np.ndarray) -> tuple[Tensor, Tensor]:
    """Returns i64[n, 1 + k, 2], the ends of edges and of their negatives, and i64[n], their relations."""
    batch = edges.batch(key, chosen)
    places = np.concatenate([batch.pairs[:, None], batch.negatives], axis=1)
    assert batch.relation is not None
    return torch.from_numpy(batch.nodes[places].astype(np.int64)), torch.from_numpy(batch.relation.astype(np.int64))


def compare(graph: Graph, sampling: SamplingConfig) -> float:
    """Returns the largest difference of the losses of one batch and of their gradients, by the same parameters in float64.

    Raises:
        AssertionError: it is above 1e-10.
    """
    assert graph.links is not None
    relations, key, chosen = len(graph.relations), BatchKey(Stream.PROBE, 0, 0), np.arange(64)
    config = TrainConfig(model="rgcn", layers=1, hidden=HIDDEN, dropout=0.0)
    ours: Any = build_model(config, NATIONS, HIDDEN, 0, relations).double()
    theirs, head, layer = DglModel(relations).double(), DistMultHead(HIDDEN, relations).double(), ours.layers[0]
    with torch.no_grad():
        theirs.conv.linear_r.W.copy_(torch.stack([each.T for each in layer.matrices]))
        theirs.conv.loop_weight.copy_(layer.own.weight.T)
        theirs.conv.h_bias.copy_(layer.own.bias)
        head.relation.copy_(theirs.relation)
    edges = training_edges(graph.links, graph.topology, sampling, 0)
    sampler = LinkSampler(Sampler(graph.topology, (-1,), seed=0), edges, graph.links.reverse_of)
    blocks, batch = sampler.sample(key, chosen, transpose=ours.transpose), edges.batch(key, chosen)
    x = torch.eye(NATIONS, dtype=torch.float64)[torch.from_numpy(blocks[0].src_ids).long()]
    rows = ours(blocks, x, StepRandom(0, training=False))
    mine = PairLoss(head, LinkLoss("binary"))(rows, torch.from_numpy(batch.scored)) / len(chosen)
    other = theirs.loss(
        theirs(Edges(graph, taken_out(graph, edges, chosen))), *pairs_of(edges, key, chosen), len(chosen)
    )
    mine.backward()
    other.backward()
    matrices = [torch.zeros_like(each) if each.grad is None else each.grad for each in layer.matrices]
    pairs = [
        (mine, other),
        (torch.stack([each.T for each in matrices]), theirs.conv.linear_r.W.grad),
        (layer.own.weight.grad.T, theirs.conv.loop_weight.grad),
        (layer.own.bias.grad, theirs.conv.h_bias.grad),
        (head.relation.grad, theirs.relation.grad),
    ]
    error = max((one - two).abs().max().item() for one, two in pairs)
    assert error < LARGEST_ERROR, f"losses or gradients differ by {error:.1e}"
    return error


def by_dgl(graph: Graph, pipeline: Pipeline, seed: int) -> dict[str, float]:
    """Trains DGL's model. Returns the test scores of the epoch that was best on validation, and its processor seconds."""
    started, sampling = time.process_time(), pipeline.sampling
    assert graph.links is not None and sampling is not None
    torch.manual_seed(seed)
    edges, model = training_edges(graph.links, graph.topology, sampling, seed), DglModel(len(graph.relations))
    optimiser, best = torch.optim.Adam(model.parameters(), lr=LR), {"mrr": 0.0}
    plan, whole = EpochPlan(np.arange(len(edges.source)), sampling.batch_size, seed=seed), Edges(graph, set())
    chosen: dict[str, float] = {}
    for epoch in range(EPOCHS):
        for item in plan.batches(epoch):
            h = model(Edges(graph, taken_out(graph, edges, item.seeds)))
            optimiser.zero_grad()
            model.loss(h, *pairs_of(edges, item.key, item.seeds), len(item.seeds)).backward()
            optimiser.step()
        if (epoch + 1) % EVERY == 0:
            valid, test = (scores(graph, model, whole, part) for part in (1, 2))
            if valid["mrr"] > best["mrr"]:
                best, chosen = valid, test
    return {"mrr": chosen["mrr"], "hits@10": chosen["hits@10"], "processor": time.process_time() - started}


@torch.no_grad()
def scores(graph: Graph, model: DglModel, whole: Edges, part: int) -> dict[str, float]:
    """Returns the scores of exact filtered ranks of the links of a part."""
    task = LinkTask(graph)
    links, head = task.links, DistMultHead(HIDDEN, len(graph.relations))
    head.relation.data = model.relation
    own = np.flatnonzero(links.split == part)
    assert links.relation is not None
    source, target, relation = (
        np.array(each[own]).astype(np.int64) for each in (links.source, links.target, links.relation)
    )
    pairs, rows = Pairs(source=source, target=target, relation=relation, ranges=task.ranges), model(whole)
    return rank_scores(np.concatenate([link_ranks(head, rows, pairs, task.known, side) for side in SIDES]))
