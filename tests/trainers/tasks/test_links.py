"""Trainings of links: equal bits however they are carried out, above chance, and refused with one sentence where something is not wired."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.sampling.training_edges import candidate_ranges, training_edges
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.inference.answers.kinds import Columns
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.recipe.costs.course import Speeds
from graphmill.trainers.recipe.costs.known import graph_at_hand, open_case
from graphmill.trainers.recipe.page import headline, sentence
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.recipe.together import unused_lines
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from graphmill.trainers.training.open_run import open_run
from graphmill.trainers.training.speeds import measure_speeds
from tests.assets.packed_chunks.packed import build_packed
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe, sbm
from tests.trainers.graphs import link_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.rows.caches import cache_inputs
from tests.trainers.runs import Predicted, Stops, build_shards, content, losses, train_packed

DATA = "GRAPHMILL_TEST_DATA"
GRAPH = sbm(nodes=300, edges=3000, features=8, classes=6, p_in=0.9)
SAMPLING = SamplingConfig(fanouts=(4, 3), batch_size=128)
TABLE: dict[str, Any] = {
    "name": "links", "model": "gcn", "layers": 2, "hidden": 16, "epochs": 3, "lr": 0.02, "dropout": 0.2, "threads": 1,
    "accumulate": 3, "metric": "auc",
}  # fmt: skip
FACTORED = {"trainer": "factored", "settings": FactoredSettings(samplers=1, trainers=2)}


def train_links(
    home: Path,
    *,
    sampling: SamplingConfig = SAMPLING,
    relations: int = 0,
    resume: bool = False,
    progress: Any = None,
    reads: Any = None,
    **options: Any,
) -> Artifact:
    """Trains a model of the small graph of links; `options` override `TABLE`."""
    artifacts, table = link_graph_artifacts(home, relations=relations), TrainTable(**(TABLE | options))
    run: dict[str, Any] = {"resume": resume, "progress": progress or Predicted(), "report": lambda line: None}
    run |= {"reads": reads or {}}
    return train_table(Store(home), artifacts.inputs, table, sampling, 5, **run)[0]


def weights(model: Artifact) -> str:
    return model.files["weights.safetensors"]["digest"]


@pytest.mark.parametrize(("head", "negatives"), [("dot", "uniform"), ("mlp", "degree"), ("bilinear", "in_batch")])
def test_a_training_has_equal_bits_however_it_is_carried_out(tmp_path: Path, head: str, negatives: Any) -> None:
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=128, negatives=negatives, per_positive=2)
    options: dict[str, Any] = {"sampling": sampling, "link_head": head, "norm": "batch"}
    whole = train_links(tmp_path / "whole", samplers=1, **options)
    assert content(train_links(tmp_path / "ahead", samplers=3, queue="64kB", **options)) == content(whole)
    shared = train_links(tmp_path / "factored", **options | FACTORED)
    assert weights(shared) == weights(whole)
    with pytest.raises(ConnectionAbortedError):
        train_links(tmp_path / "stopped", progress=Stops(13), checkpoint_steps=1, **options)
    assert content(train_links(tmp_path / "stopped", resume=True, **options)) == content(whole)


@pytest.mark.parametrize("loss", ["bpr", "margin", "binary"])
def test_a_model_learns_which_pairs_are_edges(tmp_path: Path, loss: str) -> None:
    model = train_links(tmp_path, link_loss=loss, epochs=10, dropout=0.0, metric="mrr")
    numbers = model.summary["numbers"]
    assert {f"{split}_{each}" for split in ("valid", "test") for each in ("mrr", "hits@10", "auc", "ap")} <= set(
        numbers
    )
    assert "train_mrr" not in numbers and numbers["test_auc"] > 0.8
    checks = {check["name"]: check for check in model.summary["checks"]}
    assert all(check["passed"] for check in checks.values()), checks
    rows = [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]
    assert max(row["valid"] for row in rows) == numbers["valid_mrr"]
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_relations_have_rows_of_their_own(tmp_path: Path) -> None:
    model = train_links(tmp_path, relations=2, link_head="distmult", model="rgcn", epochs=10, dropout=0.0)
    assert model.summary["numbers"]["test_auc"] > 0.8


def test_excluded_targets_change_the_blocks_and_so_the_weights(tmp_path: Path) -> None:
    assert weights(train_links(tmp_path / "out")) != weights(train_links(tmp_path / "in", exclude_targets=False))


def test_negatives_are_no_edges_of_training_unless_they_may_be(tmp_path: Path) -> None:
    graph = link_graph_artifacts(tmp_path).open()
    assert graph.links is not None
    links, topology = graph.links, graph.topology
    assert candidate_ranges(links, topology) == {"source": [(0, 300)], "target": [(0, 300)]}
    for may in (False, True):
        sampling = SamplingConfig(fanouts=(4, 3), known_negatives=may, per_positive=20)
        edges = training_edges(links, topology, sampling, seed=1)
        own = links.split == 0
        assert len(edges.source) == own.sum() == len(topology.indices) // 2
        known = KnownEdges(Triples(num_nodes=300), links.source[own], links.target[own])
        batch = edges.batch(BatchKey(0, 0, 0), np.arange(200))
        drawn = batch.nodes[batch.negatives]
        assert known.contains(drawn[..., 0].reshape(-1), drawn[..., 1].reshape(-1)).any() == may


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"eval": "sampled"}, 'eval = "sampled", but'),
    ({"metric": "accuracy"}, "is not a metric of"),
    ({"margin": 2.0}, "is for link_loss"),
    ({"sampling": SamplingConfig(fanouts=(4, 3), method="random_walk")}, "may pass the edges"),
]


@pytest.mark.parametrize(("options", "problem"), REFUSED, ids=str)
def test_what_links_cannot_do_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        train_links(tmp_path, **options)


def test_stored_batches_and_packed_rows_end_with_equal_bits(tmp_path: Path) -> None:
    """The samples of a run are those that it draws, and a disk has the same rows."""
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=128, reuse=2, per_positive=2, negatives="degree")
    graph = link_graph_artifacts(tmp_path)
    packed = build_packed(tmp_path, graph=graph, sampling=sampling, epochs=2)
    checks = {check["name"]: check for check in packed.samples.summary["checks"]}
    assert all(check["passed"] for check in checks.values())
    assert "the 1,200 training links, each once" in checks["every seed once an epoch"]["detail"]
    online = train_links(tmp_path, sampling=sampling, epochs=4)
    for trainer, more in {
        "minibatch": {"samples": "stored"},
        "disk": {},
        "factored": FACTORED | {"samples": "stored"},
    }.items():
        options = TABLE | {"trainer": trainer, "epochs": 4} | more
        made = train_packed(packed, tmp_path / trainer, sampling=sampling, **options)
        assert weights(made) == weights(online)
        assert all(check["passed"] for check in made.summary["checks"]), made.summary["checks"]
    other = SamplingConfig(fanouts=(4, 3), batch_size=128, reuse=2, per_positive=3, negatives="degree")
    with pytest.raises(InputError, match="per_positive"):
        train_packed(packed, tmp_path / "other", sampling=other, **TABLE)


@pytest.mark.parametrize("policy", ["bayes", "presample", "pagerank"])
def test_cached_rows_are_those_that_batches_of_links_ask_for(tmp_path: Path, policy: Any) -> None:
    artifacts = link_graph_artifacts(tmp_path)
    graph = artifacts.open()
    config = hotness_config(HotnessTable(policy=policy, layers="inputs", evaluate_epochs=1), SAMPLING, 3)
    made = materialize(Store(tmp_path), HOTNESS, config, Threads(threads=2), {"graph": artifacts.graph})
    assert all(check["passed"] for check in made.summary["checks"]), made.summary["checks"]
    assert [check["name"] for check in made.summary["checks"]] == list(HOTNESS.expected_checks(config))
    assert graph.links is not None
    edges, sampler = training_edges(graph.links, graph.topology, SAMPLING, 3), Sampler(graph.topology, (4, 3), seed=3)
    visits = np.zeros(300, int)
    for item in EpochPlan(np.arange(1200), 128, seed=3, stream=Stream.PRESAMPLE).batches(0):
        visits[sampler.sample(item.key, edges.batch(item.key, item.seeds).nodes)[0].src_ids] += 1
    assert (made.array("visits") == visits).all()
    reads = cache_inputs(tmp_path, artifacts, device="auto", host="10kB")
    cached = train_table(
        Store(tmp_path / "cached"),
        artifacts.inputs,
        TrainTable(**TABLE),
        SAMPLING,
        5,
        reads=reads,
        report=lambda line: None,
    )[0]
    assert weights(cached) == weights(train_links(tmp_path / "plain"))
    record = cached.run_record()["cache"]
    assert record["device_rows"] and record["simulated_peak_bytes"] > 0


def test_a_pass_over_the_whole_graph_has_the_loss_of_one_batch_of_all_links(tmp_path: Path) -> None:
    """The pass passes messages over the links that it predicts, as a batch of all neighbours does that leaves them in."""
    options: dict[str, Any] = {"accumulate": 1, "dropout": 0.0, "exclude_targets": False, "dtype": "float64"}
    batched = train_links(tmp_path / "batch", sampling=SamplingConfig(fanouts=(-1, -1), batch_size=5000), **options)
    uncut: dict[str, Any] = {"trainer": "fullgraph", "settings": FullGraphSettings(mode="device")}
    whole = train_links(tmp_path / "whole", **options | uncut)
    np.testing.assert_allclose(losses(whole), losses(batched), rtol=1e-10)
    assert whole.summary["numbers"]["test_mrr"] == pytest.approx(batched.summary["numbers"]["test_mrr"], abs=1e-6)
    dropped: dict[str, Any] = options | uncut | {"dropout": 0.3}
    assert content(train_links(tmp_path / "again", **dropped)) == content(train_links(tmp_path / "once", **dropped))


MANY = pytest.param(10_000, marks=pytest.mark.slow("10,000 batches of a training"))


@pytest.mark.parametrize("excluded", [True, False])
@pytest.mark.parametrize("relations", [0, 2])
@pytest.mark.parametrize("batches", [200, MANY])
def test_no_batch_has_its_links_and_no_held_out_one_among_its_edges(
    tmp_path: Path, batches: int, relations: int, excluded: bool
) -> None:
    artifacts = link_graph_artifacts(tmp_path, relations=relations)
    (config,) = model_configs(TrainTable(**(TABLE | {"exclude_targets": excluded})), SAMPLING, 5)
    run, _ = open_run(artifacts.inputs, {}, config, TrainTable(**TABLE).execution)
    links, edges = run.graph.links, run.edges
    assert links is not None and edges is not None
    source = find_technique("minibatch").load().open_executor(run).source
    triples, ends = Triples(num_nodes=300, reverse_of=links.reverse_of), (links.source, links.target, links.relation)
    held_out = KnownEdges(triples, *(None if each is None else each[links.split > 0] for each in ends))
    counts = {"batches": 0, "edges": 0, "own": 0, "held out": 0}
    for batch in (batch for epoch in range(batches // 10) for batch in source.batches(epoch)):
        own = (None if each is None else each[batch.seeds] for each in (edges.source, edges.target, edges.relation))
        targets = KnownEdges(triples, *own)
        for block in batch.blocks:
            found = block.src_ids[block.indices], np.repeat(block.dst_ids, block.end - block.start), block.edge_type
            found = found if relations else found[:2]
            counts["edges"] += len(found[0])
            counts["own"] += int(targets.contains(*found).sum())
            counts["held out"] += int(held_out.contains(*found).sum())
        counts["batches"] += 1
    assert counts["batches"] == batches and counts["edges"] > 1000 * batches
    assert (counts["own"] == 0) == excluded and counts["held out"] == 0


def text(table: dict[str, Any], **tables: Any) -> str:
    """A pipeline file of a small generated graph whose links are trained; a table that is None is left out."""
    given = {"task": {"kind": "links"}, "sampling": {"fanouts": [4, 3], "batch_size": 256}} | tables
    given = {name: keys for name, keys in given.items() if keys is not None}
    train = {"name": "gcn", "model": "gcn", "hidden": 8, "epochs": 8, "lr": 0.02, "dropout": 0.0}
    return recipe(train | table, graph=GRAPH, **given)


def test_a_pipeline_file_trains_links_and_orders_them_by_rank(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text({}))
    pipeline, store = load_pipeline(tmp_path / "mine.toml", TrainTable), Store(tmp_path / "home")
    assert pipeline.train[0].metric == "mrr"  # which the file leaves out
    built = build_config(store.home, pipeline.graph, threads=1)
    (model,) = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    assert model.summary["numbers"]["test_auc"] > 0.6
    assert "test mean reciprocal rank" in headline([model])
    with pytest.raises(InputError, match="the model scores pairs"):
        predict_table(store, pipeline, "gcn", tmp_path / "a.parquet", columns=Columns(probabilities=True))


MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"trainer": "fresh", "model": "rows"}, {"hotness": {}}, 'model = "rows" has no layers, and trainer = "fresh" computes layer by layer'),
    ({"trainer": "fullgraph"}, {"sampling": None}, "exclude_targets = true, but"),
    ({"trainer": "fullgraph", "fullgraph": {"mode": "device"}}, {"sampling": None}, "exclude_targets = true, but"),
    ({"eval": "sampled"}, {}, "computes: remove the key"),
    ({"trainer": "distributed", "distributed": {"scheme": "vanilla"}}, {"partitions": {}}, "draws neighbours of nodes by messages"),
    ({"metric": "accuracy"}, {}, 'metric = "accuracy" is not a metric of'),
    ({"class_weights": "balanced"}, {}, "class_weights = 'balanced' is for"),
    ({"margin": 0.5}, {}, 'is for link_loss = "margin"'),
    ({}, {"sampling": {"fanouts": [4, 3], "method": "random_walk"}}, "may pass the edges that are predicted"),
    ({"link_head": "mlp"}, {"task": {"kind": "classes"}}, "link_head = 'mlp' is for .task. kind = 'links'"),
    ({}, {"task": {"kind": "classes"}, "sampling": {"fanouts": [4, 3], "per_positive": 2}}, "per_positive = 2 is for"),
    ({}, {"sampling": {"fanouts": [4, 3], "reuse": 1}, "samples": {"evaluate": True}}, "evaluate = True is not for"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "tables", "problem"), MISTAKES, ids=str)
def test_a_file_that_links_cannot_follow_is_refused_in_one_sentence(
    tmp_path: Path, table: dict[str, Any], tables: dict[str, Any], problem: str
) -> None:
    (tmp_path / "mine.toml").write_text(text(table, **tables))
    with pytest.raises(InputError, match=rf"has 1 mistake:\n.*{problem}"):
        load_pipeline(tmp_path / "mine.toml", TrainTable)


@pytest.mark.slow("the scores of a model of links on the citations of Cora")
@pytest.mark.skipif(not os.environ.get(DATA), reason=f"{DATA} names no folder of real graphs")
def test_citations_of_cora_are_told_from_other_pairs(tmp_path: Path) -> None:
    """A graph auto-encoder reaches 91.0 and 92.0 (Kipf and Welling: Variational Graph Auto-Encoders, 2016); here with mini-batches.

    Four pairs per link have a better validation score than one.
    """
    graph = {"source": "npz", "path": f"{os.environ[DATA]}/cora.npz", "undirected": True}
    table = {
        "name": "gcn",
        "model": "gcn",
        "hidden": 64,
        "epochs": 40,
        "lr": 0.01,
        "dropout": 0.0,
        "eval_every": 5,
        "metric": "auc",
    }
    sampling, task = (
        {"fanouts": [-1, -1], "batch_size": 1024, "per_positive": 4},
        {"kind": "links", "train_ratio": 0.85, "valid_ratio": 0.05},
    )
    (tmp_path / "cora.toml").write_text(
        recipe(table | {"seeds": [*range(10)]}, graph=graph, task=task, sampling=sampling)
    )
    pipeline, store = load_pipeline(tmp_path / "cora.toml", TrainTable), Store(tmp_path / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    models = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    numbers = [model.summary["numbers"] for model in models]
    assert np.mean([each["test_auc"] for each in numbers]) >= 0.905
    assert np.mean([each["test_ap"] for each in numbers]) >= 0.915


def test_rows_alone_are_a_baseline_with_equal_bits(tmp_path: Path) -> None:
    """They learn nothing of a node without links, so a model that reads features is better on this small graph."""
    sampling = SamplingConfig(fanouts=(1,), batch_size=128, per_positive=4)
    options: dict[str, Any] = {
        "model": "rows",
        "layers": 1,
        "hidden": 16,
        "epochs": 12,
        "lr": 0.05,
        "sampling": sampling,
    }
    rows = train_links(tmp_path / "rows", **options)
    assert rows.summary["numbers"]["parameters"] == 300 * 16
    assert rows.summary["numbers"]["test_auc"] > 0.6
    assert weights(train_links(tmp_path / "factored", **options | FACTORED)) == weights(rows)
    with pytest.raises(ConnectionAbortedError):
        train_links(tmp_path / "stopped", progress=Stops(13), checkpoint_steps=1, **options)
    assert content(train_links(tmp_path / "stopped", resume=True, **options)) == content(rows)
    # A step is simulated for a cache of "auto", and measured for a plan: nothing but rows has a gradient.
    home = tmp_path / "cached"
    reads = cache_inputs(home, link_graph_artifacts(home), device="auto", host="10kB")
    assert weights(train_links(home, reads=reads, **options)) == weights(rows)
    inputs, table = link_graph_artifacts(home).inputs, TrainTable(**(TABLE | {"model": "rows", "layers": 1}))
    (config,) = model_configs(table, sampling, 5)
    case, at_hand = open_case(config, table.execution, inputs, 1), graph_at_hand(inputs, open_drawing(sampling, inputs))
    assert case is not None
    speeds = measure_speeds(replace(case, speeds=Speeds()), at_hand, 1)
    assert min(speeds.step.values()) > 0 and speeds.compare > 0


def test_ranks_that_share_the_parts_end_with_equal_bits(tmp_path: Path) -> None:
    """A link belongs to the part of its target; with one part the batches are those of one process."""
    artifacts = link_graph_artifacts(tmp_path)

    def trained(parts: int, home: str, ranks: Any = ALONE, scheme: Any = "hybrid") -> Artifact | None:
        table = TrainTable(**(TABLE | {"trainer": "distributed", "settings": DistributedSettings(scheme=scheme)}))
        inputs, shards = build_shards(tmp_path, artifacts.inputs, parts)
        run: dict[str, Any] = {
            "reads": {"shards": shards},
            "ranks": ranks,
            "progress": Predicted(),
            "report": lambda line: None,
        }
        models = train_table(Store(tmp_path / home), inputs, table, SAMPLING, 5, **run)
        return models[0] if models else None

    one, alone = trained(1, "one"), trained(4, "alone")
    assert one is not None and alone is not None
    assert weights(one) == weights(train_links(tmp_path))
    two_steps = trained(4, "two steps", scheme="unfused")
    assert two_steps is not None and weights(two_steps) == weights(alone)
    shared = run_threads(2, lambda ranks: trained(4, "shared", ranks))[0]
    assert shared is not None and content(shared)["metrics.jsonl"] == content(alone)["metrics.jsonl"]
    assert weights(shared) == weights(alone) != weights(one)
    assert shared.summary["numbers"]["test_mrr"] == alone.summary["numbers"]["test_mrr"]


def test_a_file_whose_model_sees_what_it_predicts_is_told(tmp_path: Path) -> None:
    for excluded in (True, False):
        (tmp_path / "mine.toml").write_text(text({"exclude_targets": excluded}))
        pipeline = load_pipeline(tmp_path / "mine.toml", TrainTable)
        lines = [*unused_lines(pipeline.train, pipeline.sampling, ())]
        says = "exclude_targets = false passes messages over the links that it predicts"
        assert lines == [] if excluded else lines[0].startswith(f"note: gcn: {says}")
        (config,) = model_configs(pipeline.train[0], pipeline.sampling, 0)
        assert (f"`exclude_targets = false` {says[24:]}" in sentence(config)) != excluded


def test_pairs_have_the_node_types_of_their_relation(tmp_path: Path) -> None:
    text = recipe(
        graph={"source": "ratings", "nodes": 300, "edges": 1500, "features": 4, "classes": 4}, task={"kind": "links"}
    )
    (tmp_path / "mine.toml").write_text(text)
    graph = build_config(tmp_path / "home", load_pipeline(tmp_path / "mine.toml", TrainTable).graph, threads=1).opened
    assert graph.links is not None and graph.node_types == ("user", "item")
    # No link has the second relation, that of the reverses.
    every = (0, 300)
    assert candidate_ranges(graph.links, graph.topology) == {"source": [(0, 240), every], "target": [(240, 300), every]}
    edges = training_edges(graph.links, graph.topology, SamplingConfig(fanouts=(4, 3), per_positive=4), seed=1)
    batch = edges.batch(BatchKey(0, 0, 0), np.arange(500))
    sources, targets = batch.nodes[batch.negatives[..., 0]], batch.nodes[batch.negatives[..., 1]]
    assert sources.max() < 240 <= targets.min()
    own = batch.nodes[batch.pairs]
    assert (sources[:, 0::2] == own[:, :1]).all() and (targets[:, 1::2] == own[:, 1:]).all()


@pytest.mark.slow("the score of links between two node types beside the best known one")
def test_ratings_are_ranked_as_well_as_can_be(tmp_path: Path) -> None:
    graph = {"source": "ratings", "nodes": 2000, "edges": 30_000, "features": 8, "classes": 8, "noise": 1.0}
    table = {"name": "sage", "hidden": 32, "input": "typed", "epochs": 12, "lr": 0.01, "dropout": 0.0, "eval_every": 3}
    sampling = {"fanouts": [10, 10], "batch_size": 1024}
    (tmp_path / "mine.toml").write_text(recipe(table, graph=graph, task={"kind": "links"}, sampling=sampling))
    pipeline, store = load_pipeline(tmp_path / "mine.toml", TrainTable), Store(tmp_path / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    (model,) = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    # The best one counts rated items among the others.
    assert model.summary["numbers"]["test_auc"] == pytest.approx(built.numbers["best_roc_auc"], abs=0.02)
