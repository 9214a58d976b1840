"""The technique `distributed`: the bits of one rank on any number of ranks, of `minibatch` with one part, and exact counts."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from graphmill.assets.graph.read import open_graph
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.shards.read import open_shards
from graphmill.assets.storage.system.machine import processor_name
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.inference.answers.kinds import ClassAnswers, Columns
from graphmill.trainers.inference.answers.nodes import AskedNodes, NodeFacts
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.build import build_model
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.rows.source import MemorySource
from graphmill.trainers.techniques.distributed import executor
from graphmill.trainers.techniques.distributed.inference import PartNodes
from graphmill.trainers.techniques.distributed.open_parts import open_data
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from tests.assets.storage.damage import flip
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import SAMPLING, TABLE, Stops, build_shards, content, parts_inputs, train_parts, train_small

WEIGHTS = ("weights.safetensors", "metrics.jsonl")
MODELS = [
    {"model": "sage", "dropout": 0.3},
    {"model": "gat", "heads": 2, "attention_dropout": 0.4, "norm": "layer", "input": "linear", "head": "linear", "jk": "cat"},
]  # fmt: skip


def trained(home, parts, world, **options):
    """The model of so many ranks, and what each call of the exchanging lanes received, by rank."""

    def work(ranks):
        return train_parts(home, parts, ranks, retrain=True, **options), getattr(ranks, "log", [])

    # Threads of one process would get in each other's way; processes do not.
    shared = {name: options[name] for name in ("method", "memory", "featureless", "width") if name in options}
    parts_inputs(home, parts, **shared)
    if world == 1:
        return train_parts(home, parts, ALONE, retrain=True, **options), []
    found = run_threads(world, work)
    return found[0][0], [log for _, log in found]


def bits(model):
    return [content(model)[name] for name in WEIGHTS]


def ledger(model):
    rows = json.loads(model.file("ledger.json").read_text())
    counts = {(row["name"], row["layer"]): row["n"] for row in rows["counts"]}
    moves = {(row["link"], row["kind"]): row["moved_bytes"] for row in rows["moves"]}
    return counts, moves


SOME = [MODELS[0], pytest.param(MODELS[1], marks=pytest.mark.slow("one part of a second model"))]


@pytest.mark.parametrize("model", SOME, ids=lambda model: model["model"])
@pytest.mark.parametrize("reuse", [0, 2])
def test_one_part_is_minibatch_to_the_bit(tmp_path, model, reuse):
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=32, reuse=reuse)
    mine, _ = trained(tmp_path, 1, 1, sampling=sampling, **model)
    assert bits(mine) == bits(train_small(tmp_path, sampling=sampling, **model))
    assert all(check["passed"] for check in mine.summary["checks"] if check["name"] == "ledger equals plan")


@pytest.mark.parametrize("model", SOME, ids=lambda model: model["model"])
def test_the_number_of_ranks_decides_nothing(tmp_path, model):
    options = model | {"accumulate": 2, "sampling": SamplingConfig(fanouts=(4, 3), batch_size=16, reuse=2)}
    models = [trained(tmp_path, 4, world, **options)[0] for world in (1, 2, 4)]
    assert bits(models[0]) == bits(models[1]) == bits(models[2])
    assert len({model.version for model in models}) == 1
    assert [each["processor"] for each in models[2].run_record()["ranks"]] == [processor_name()] * 4


def test_running_statistics_move_in_the_order_of_batches_on_any_ranks(tmp_path, monkeypatch):
    options = {"norm": "batch", "accumulate": 2, "epochs": 2}
    models = [trained(tmp_path / str(world), 4, world, **options)[0] for world in (1, 2, 4)]
    assert bits(models[0]) == bits(models[1]) == bits(models[2])
    found = load_file(models[0].file("weights.safetensors"))
    # What torch moves itself, batch after batch, in one process.
    monkeypatch.setattr(executor, "waiting_norms", lambda model: [])
    moved = 0
    for name, value in load_file(trained(tmp_path / "plain", 4, 1, **options)[0].file("weights.safetensors")).items():
        if "running" in name:
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
            moved += bool(value.abs().sum())
        else:
            assert torch.equal(found[name], value), name
    assert moved == 2


@pytest.mark.parametrize(
    "method",
    [*(pytest.param(each, marks=pytest.mark.slow("METIS and streamed parts")) for each in ("metis", "ldg")), "random"],
)
def test_any_parts_cache_and_scheme_give_the_same_bits(tmp_path, method):
    options = {"method": method, "featureless": 7}
    expected = bits(trained(tmp_path, 2, 1, **options)[0])
    for more in (
        {},
        {"features": "memory"},
        {"memory": {"device": 0, "host": "20%"}},
        {"settings": {"scheme": "unfused"}},
        {"settings": {"scheme": "vanilla"}},
        {"samplers": 3, "queue": "60kB"},
        {"checkpoint_steps": 1},
    ):
        assert bits(trained(tmp_path, 2, 2, **options, **more)[0]) == expected, more


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("more", [{}, {"memory": {"device": 0, "host": "20%"}}, {"fresh": {}}], ids=str)
def test_rows_without_columns_are_fetched_as_any(tmp_path, more):
    models = [trained(tmp_path / str(world), 4, world, width=0, epochs=1, **more)[0] for world in (1, 2, 4)]
    assert bits(models[0]) == bits(models[1]) == bits(models[2])
    for model in models:
        assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
        counts, moves = ledger(model)
        assert (counts["hits_remote", 0] > 0) == (model is not models[0]) and moves.get(("rank", "feature"), 0) == 0


def test_drawing_with_replacement_is_the_same_in_every_scheme(tmp_path):
    sampling = replace(SAMPLING, replace=True)
    found = [
        trained(tmp_path / scheme, 2, 2, sampling=sampling, settings={"scheme": scheme})[0]
        for scheme in ("hybrid", "unfused", "vanilla")
    ]
    assert bits(found[0]) == bits(found[1]) == bits(found[2]) != bits(trained(tmp_path, 2, 2)[0])


def test_uneven_parts_have_empty_batches_and_every_seed_counts(tmp_path):
    sampling = SamplingConfig(fanouts=(3, 3), batch_size=1)
    models = [trained(tmp_path, 4, world, sampling=sampling, epochs=1, accumulate=4)[0] for world in (1, 4)]
    assert bits(models[0]) == bits(models[1])
    counts, _ = ledger(models[1])
    assert counts["seeds", 0] == 200 < counts["batches", 0]


def test_all_reduce_differs_by_rounding_alone(tmp_path):
    ordered, _ = trained(tmp_path, 4, 1)
    found = [trained(tmp_path, 4, world, settings={"gradients": "all-reduce"})[0] for world in (1, 2, 4)]
    assert len({model.version for model in found}) == 1 and found[0].version != ordered.version
    for model in found:
        assert model.summary["numbers"]["loss"] == pytest.approx(ordered.summary["numbers"]["loss"], rel=1e-4)


@pytest.mark.parametrize("evaluated", ["exact", "sampled"])
def test_evaluation_by_parts_has_the_same_scores(tmp_path, evaluated):
    models = [trained(tmp_path, 4, world, eval=evaluated, eval_workspace="16kB")[0] for world in (1, 2, 4)]
    assert bits(models[0]) == bits(models[1]) == bits(models[2])
    numbers = [model.summary["numbers"] for model in models]
    assert numbers[0] == numbers[1] == numbers[2] and "test_accuracy" in numbers[0]


def remote_rows(home, parts, world, cached=None, epochs=3, batch_size=32):
    """Distinct rows of other ranks that all batches need, counted outside of the trainer, and the number of batches."""
    made = random_graph_artifacts(home)
    inputs, _ = build_shards(home, made.inputs, parts)
    part_of, graph = open_partitions(inputs["partitions"]).part_of, made.open()
    train_ids = np.array(graph.train_ids)
    plan = PartPlan(train_ids, part_of[train_ids], parts, batch_size, seed=5, accumulate=3)
    sampler, rows = Sampler(graph.topology, SAMPLING.fanouts, seed=5), 0
    for epoch in range(epochs):
        for item in plan.batches(epoch):
            needed = set(sampler.sample(item.key, item.seeds)[0].src_ids.tolist())
            rank = item.key.step % parts * world // parts
            rows += sum(
                part_of[node] * world // parts != rank and node not in (cached or {}).get(rank, ()) for node in needed
            )
    return rows, plan.num_batches * epochs, graph.features.row_bytes


@pytest.mark.parametrize(
    ("scheme", "rounds"),
    [
        ("hybrid", 2),
        pytest.param("unfused", 2, marks=pytest.mark.slow("rounds and bytes without fused sampling")),
        ("vanilla", 4),
    ],
)
def test_rounds_and_bytes_are_those_of_an_outside_count(tmp_path, scheme, rounds):
    model, logs = trained(tmp_path, 4, 2, settings={"scheme": scheme}, eval_every=3)
    rows, batches, row_bytes = remote_rows(tmp_path, 4, 2)
    counts, moves = ledger(model)
    assert counts["batches", 0] == batches and counts["rounds", 0] == rounds * batches
    assert counts["hits_remote", 0] == rows and moves["rank", "feature"] == rows * row_bytes
    # Calls of the lane itself: those of the batches, and two for each exchange of the evaluations.
    assert all(len(log) >= rounds * batches // 2 and len(log) % 2 == 0 for log in logs)


def test_the_cache_saves_exactly_its_rows(tmp_path):
    made = random_graph_artifacts(tmp_path)
    inputs, shards = build_shards(tmp_path, made.inputs, 2)
    part_of, row_of = open_partitions(inputs["partitions"]).part_of, open_shards(shards).row_of
    model, _ = trained(tmp_path, 2, 2, memory={"device": 0, "host": "10%", "seed": 1})
    order = np.random.default_rng(1).permutation(400)
    kept = int(0.1 * 400)
    cached = {
        rank: {int(v) for v in [v for v in order if part_of[v] != rank and row_of[v] >= 0][:kept]} for rank in (0, 1)
    }
    rows, _, row_bytes = remote_rows(tmp_path, 2, 2, cached)
    counts, moves = ledger(model)
    without, _, _ = remote_rows(tmp_path, 2, 2)
    assert moves["rank", "feature"] == rows * row_bytes and counts["hits_host", 0] == without - rows > 0


def test_each_rank_opens_its_own_shards_alone(tmp_path, monkeypatch):
    opened = []
    from graphmill.assets.shards.read import Shards

    real = Shards.tables
    monkeypatch.setattr(Shards, "tables", lambda self, parts: opened.append(sorted(parts)) or real(self, parts))
    trained(tmp_path, 4, 2)
    assert {tuple(parts) for parts in opened} == {(0, 1), (2, 3)}


@pytest.mark.parametrize("more", [{}, {"features": "memory"}, {"fresh": {}}], ids=["mapped", "memory", "fresh"])
def test_a_wrong_bit_of_a_shard_reaches_no_step(tmp_path, more):
    """Law 6: any bit of the rows of any part; mapped shards are compared when a row of a block is first read."""
    trained(tmp_path, 2, 1, **more)
    _, reads = parts_inputs(tmp_path, 2)
    draw = np.random.default_rng(0)
    for name in reads["shards"].parts:
        path = reads["shards"].open_part(name).path / "rows.npy"
        bit = 8 * 128 + int(draw.integers(8 * (path.stat().st_size - 128)))
        flip(path, bit)
        with pytest.raises(InputError, match=r"rows\.npy is damaged"):
            train_parts(tmp_path, 2, retrain=True, **more)
        flip(path, bit)
        train_parts(tmp_path, 2, retrain=True, **more)


def test_mistakes_are_told(tmp_path):
    with pytest.raises(InputError, match=r"3 ranks cannot share 4 parts evenly(?s:.*)start 1 or 2 or 4 ranks"):
        trained(tmp_path, 4, 3)
    with pytest.raises(InputError, match="ranks = 0 is below 1"):
        trained(tmp_path, 2, 1, settings={"ranks": 0})
    for wrong, problem in (
        ({"ranks": 4097}, "ranks = 4097 is above 4,096"),
        ({"latency_us": -1}, "latency_us = -1 is below 0"),
        ({"latency_us": 1e20}, r"latency_us = 1e\+20 is above 1,000,000,000"),
        ({"latency_us": float("nan")}, "latency_us = nan is below 0"),
    ):
        with pytest.raises(InputError, match=problem):
            DistributedSettings(**wrong)
    trained(tmp_path, 1, 1, norm="batch")
    assert TABLE["accumulate"] == 3


@pytest.mark.parametrize(
    ("before", "after"), [(2, 2), (1, 4), pytest.param(4, 2, marks=pytest.mark.slow("from four ranks to two"))]
)
def test_a_run_goes_on_from_a_checkpoint_on_any_number_of_ranks(tmp_path, before, after):
    options = {"checkpoint_steps": 1, "dropout": 0.3, "accumulate": 1}
    expected = trained(tmp_path / "straight", 4, after, **options)[0]
    parts_inputs(tmp_path / "home", 4)

    def work(ranks, **how):
        return train_parts(tmp_path / "home", 4, ranks, **options, **how)

    for stop in (5, 14):
        with pytest.raises(ConnectionAbortedError):
            if before == 1:
                work(ALONE, resume=stop > 5, progress=Stops(stop))
            else:
                run_threads(before, lambda ranks, stop=stop: work(ranks, resume=stop > 5, progress=Stops(stop)))
    assert len(list((tmp_path / "home" / "checkpoints").iterdir())) == 1
    found = run_threads(after, lambda ranks: work(ranks, resume=True))[0]
    assert bits(found) == bits(expected)
    if before == after:
        # Rows of the evaluations are not in the ledger; sizes go ahead of the first batch after each beginning.
        counts, straight = ledger(found)[0], ledger(expected)[0]
        sizes = ("size_rounds", 0)
        assert counts.pop(sizes) > straight.pop(sizes) and counts == straight


def test_predictions_by_parts_are_those_of_one_process(tmp_path, monkeypatch):
    """The pieces that ranks write, merged, against the whole table; a one-layer model, too, whose embeddings are its inputs."""
    import polars

    from graphmill.trainers.techniques.distributed import predict

    made = random_graph_artifacts(tmp_path)
    nodes = polars.DataFrame({"original_id": [f"n{node}" for node in range(400)]})
    nodes.write_parquet(tmp_path / "nodes.parquet")
    inputs, reads = parts_inputs(tmp_path, 4)
    part_of, graph = open_partitions(inputs["partitions"]).part_of, open_graph(made.graph)
    for layers in (1, 2):
        sampling = SamplingConfig(fanouts=(3,) * layers, batch_size=32)
        table = TrainTable(**(TABLE | {"layers": layers, "trainer": "distributed"}))
        (semantic,) = model_configs(table, sampling, 5)
        model = build_model(semantic.train, 12, 4, 5)
        whole = list(
            Inference(
                model, graph.topology, MemorySource(made.open().features), Bounds(workspace_bytes=1 << 14, threads=1)
            ).ranges()
        )
        expected = torch.cat([each.logits for each in whole])
        folder = tmp_path / f"pieces{layers}"
        folder.mkdir()

        def work(ranks, semantic=semantic, model=model, folder=folder, table=table):
            drawing = open_drawing(semantic.sampling, inputs)
            run = Run(
                graph=graph,
                inputs=inputs,
                reads=reads,
                semantic=semantic,
                execution=table.execution,
                drawing=drawing,
                ranks=ranks,
            )
            open_data(run)
            source = run.features.source
            places = PartNodes(graph.topology, source.owned, source.exchange.lane, graph.topology.indptr)
            bounds, answers = Bounds(workspace_bytes=1 << 14, threads=1), ClassAnswers("abcd", Columns())
            for each in Inference(model, graph.topology, source, bounds, places).ranges():
                for _, frame in answers.frames(each):
                    old = predict._piece(folder, places.part_of(each.low))
                    frames = [polars.read_parquet(old)] if old.exists() else []
                    polars.concat([*frames, frame]).write_parquet(old)

        run_threads(2, work)
        monkeypatch.setattr(predict, "MERGED_NODES", 37)
        facts = NodeFacts(
            tmp_path / "nodes.parquet",
            graph,
            AskedNodes(num_nodes=len(nodes), ranges=[(0, len(nodes))]),
            ClassAnswers("abcd", Columns()),
        )
        merged = polars.concat(predict._merged(folder, facts, part_of))
        assert merged["node_id"].to_list() == nodes["original_id"].to_list()
        probability, place = expected.softmax(dim=1).max(dim=1)
        assert merged["class"].to_list() == ["abcd"[each] for each in place.tolist()]
        np.testing.assert_allclose(merged["probability"].to_numpy(), probability.numpy(), rtol=1e-5)
        embeddings = torch.cat([each.embeddings(each.low, each.high) for each in whole])
        np.testing.assert_allclose(
            np.stack(merged["embedding"].to_list()), embeddings.detach().numpy(), rtol=1e-4, atol=1e-5
        )
