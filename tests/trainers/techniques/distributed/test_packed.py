"""Ranks on stored batches and on packed rows: the bits of the exchange on any number of ranks, and no row between ranks."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.packed_chunks.config import STATIC_TIERS, SegmentRange
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.samples.read import StoredOrder, open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.kernels.graphs import assert_same_blocks
from tests.recipes import recipe, sbm
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import Stops, content, parts_inputs, train_packed, train_parts

SAMPLING = SamplingConfig(fanouts=(4, 3), batch_size=16, reuse=2)
PARTS, WIDTH = 4, 300
ROWS: dict[str, Any] = {"settings": {"rows": "packed"}}
"""Rows of 300 floats straddle pages."""


def build(home: Path, sampling: SamplingConfig = SAMPLING, **options: Any) -> Packed:
    """The packed rows of the batches of the small graph's parts."""
    inputs, _ = parts_inputs(home, PARTS, width=WIDTH)
    graph = random_graph_artifacts(home, width=WIDTH)
    how = {"epochs": sampling.reuse, "sampling": sampling, "partitions": inputs["partitions"], "memory": {"disk": "5x"}}
    return build_packed(home, graph=graph, **(how | options))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


@pytest.fixture(scope="module")
def packed(home: Path) -> Packed:
    return build(home)


def train(home: Path, world: int, **options: Any) -> Artifact:
    """The model of so many ranks."""

    def work(ranks: Any) -> Any:
        return train_parts(home, PARTS, ranks, **({"retrain": True, "width": WIDTH, "sampling": SAMPLING} | options))

    found = work(ALONE) if world == 1 else run_threads(world, work)[0]
    assert found is not None
    return found


def bits(model: Artifact) -> list[str]:
    return [content(model)[name] for name in ("weights.safetensors", "metrics.jsonl")]


def ledger(model: Artifact) -> tuple[dict[tuple[str, int], int], dict[tuple[str, str], int]]:
    rows = json.loads(model.file("ledger.json").read_text())
    counts = {(row["name"], row["layer"]): row["n"] for row in rows["counts"]}
    return counts, {(row["link"], row["kind"]): row["moved_bytes"] for row in rows["moves"]}


def assert_counted(model: Artifact) -> None:
    (check,) = [each for each in model.summary["checks"] if each["name"] == "ledger equals plan"]
    assert check["passed"], check["detail"]


@pytest.mark.parametrize("world", [1, 2, pytest.param(4, marks=pytest.mark.slow("four ranks"))])
def test_stored_batches_and_packed_rows_have_the_bits_of_the_exchange(home: Path, packed: Packed, world: int) -> None:
    online = train(home, world)
    stored = train(home, world, packed=packed)
    from_disk = train(home, world, packed=packed, **ROWS)
    assert bits(online) == bits(stored) == bits(from_disk)
    assert online.version == stored.version == from_disk.version
    for model in (stored, from_disk):
        assert_counted(model)


@pytest.mark.parametrize("world", [1, 2])
def test_pruned_batches_take_packed_rows_with_the_bits_of_the_shards(home: Path, packed: Packed, world: int) -> None:
    options: dict[str, Any] = {"fresh": {"arena": "30%"}, "packed": packed}
    table = train(home, world, **options)
    from_disk = train(home, world, **options, **ROWS)
    assert bits(table)[:1] == bits(from_disk)[:1] and table.version == from_disk.version
    for model in (table, from_disk):
        assert_counted(model)
    counts, moves = ledger(from_disk)
    assert ("rank", "feature") not in moves and moves["disk", "feature"] > 0 and counts["history_hits", 1] > 0
    tiers = sum(
        counts[name, 0] for name in ("hits_device", "hits_host", "hits_disk_cache", "hits_packed", "hits_arena")
    )
    assert tiers == counts["inputs", 0]


def test_no_row_goes_between_ranks(home: Path, packed: Packed) -> None:
    counts, moves = ledger(train(home, 2, packed=packed, **ROWS))
    exchanged = ledger(train(home, 2, packed=packed))
    assert counts["batches", 0] == exchanged[0]["batches", 0] and counts["inputs", 0] == exchanged[0]["inputs", 0]
    assert "rounds" not in {name for name, _ in counts} and exchanged[0]["hits_remote", 0] > 0
    assert ("rank", "feature") not in moves and exchanged[1]["rank", "feature"] > 0
    assert moves["rank", "gradient"] == exchanged[1]["rank", "gradient"] > 0
    tiers = sum(counts[name, 0] for name in ("hits_device", "hits_host", "hits_disk_cache", "hits_packed"))
    assert tiers == counts["inputs", 0] and moves["disk", "feature"] > 0


def test_stored_batches_are_those_of_the_parts(home: Path, packed: Packed) -> None:
    inputs, _ = parts_inputs(home, PARTS, width=WIDTH)
    graph, part_of = random_graph_artifacts(home, width=WIDTH).open(), open_partitions(inputs["partitions"]).part_of
    train_ids, samples = np.array(graph.train_ids), open_samples(packed.samples)
    plan = PartPlan(train_ids, part_of[train_ids], PARTS, SAMPLING.batch_size, seed=5)
    sampler = Sampler(graph.topology, SAMPLING.fanouts, seed=5)
    assert (samples.num_batches, samples.num_epochs) == (plan.num_batches, 2)
    for epoch in range(2):
        for item in plan.batches(epoch):
            seeds, blocks = samples.batch(epoch, item.key.step)
            np.testing.assert_array_equal(seeds, item.seeds)
            assert (part_of[seeds] == item.key.step % PARTS).all()
            assert_same_blocks(sampler.sample(item.key, item.seeds, transpose="none"), blocks)


def test_parts_of_uneven_seeds_have_empty_batches(tmp_path: Path) -> None:
    sampling = SamplingConfig(fanouts=(3, 3), batch_size=1, reuse=1)
    packed, options = build(tmp_path, sampling), {"sampling": sampling, "epochs": 1, "accumulate": 4}
    models = [
        train(tmp_path, world, **options, **more)
        for world, more in ((1, {}), (2, {"packed": packed}), (2, {"packed": packed} | ROWS))
    ]
    assert bits(models[0]) == bits(models[1]) == bits(models[2])
    counts, _ = ledger(models[2])
    assert counts["seeds", 0] == 200 < counts["batches", 0]
    for model in models[1:]:
        assert_counted(model)


@pytest.mark.parametrize(
    "memory",
    [
        {"disk": "3.4x"},
        pytest.param({"device": 0, "host": 0, "disk": "100x"}, marks=pytest.mark.slow("ranks without static tiers")),
    ],
    ids=["cached", "packed"],
)
def test_any_tiers_have_the_same_bits(home: Path, memory: dict[str, Any]) -> None:
    packed = build(home, memory=memory)
    model = train(home, 2, packed=packed, **ROWS, link="50 GB/s", io="pread")
    assert bits(model) == bits(train(home, 1))
    assert_counted(model)


def test_a_sampled_evaluation_has_the_same_scores(home: Path) -> None:
    packed, options = build(home, evaluate=True), {"eval": "sampled"}
    models = [
        train(home, 1, **options),
        *(train(home, world, packed=packed, **ROWS, **options) for world in (1, 2)),
    ]
    assert bits(models[0]) == bits(models[1]) == bits(models[2])
    assert models[0].summary["numbers"] == models[2].summary["numbers"]


@pytest.mark.parametrize(
    ("before", "after"), [(1, 2), pytest.param(2, 1, marks=pytest.mark.slow("from two ranks on packed rows to one"))]
)
def test_a_run_goes_on_from_a_checkpoint(home: Path, packed: Packed, before: int, after: int) -> None:
    options = {"checkpoint_steps": 1, "dropout": 0.3, "accumulate": 1, "retrain": False}
    expected = bits(train(home, 1, trial="straight", **options))
    options |= ROWS | {"packed": packed, "trial": f"from {before} to {after}"}
    there = {*(home / "checkpoints").iterdir()}
    with pytest.raises(ConnectionAbortedError):
        train(home, before, progress=Stops(9), **options)
    assert len({*(home / "checkpoints").iterdir()} - there) == 1
    model = train(home, after, resume=True, **options)
    assert not model.reused and bits(model) == expected
    assert_counted(model)


def test_a_history_of_parts_takes_stored_batches(home: Path, packed: Packed) -> None:
    models = [train(home, world, fresh={}, **more) for world, more in ((1, {}), (2, {"packed": packed}))]
    assert bits(models[0]) == bits(models[1])
    assert_counted(models[1])


def test_batches_of_another_plan_are_refused(home: Path, packed: Packed) -> None:
    shuffled = build_packed(home, graph=random_graph_artifacts(home, width=WIDTH), epochs=2, sampling=SAMPLING)
    with pytest.raises(InputError, match=r"input partitions: stored none"):
        train(home, 1, packed=shuffled)
    with pytest.raises(InputError, match=r"config plan: stored 'parts', expected 'shuffled'"):
        train_packed(packed, home, sampling=SAMPLING)
    inputs, _ = parts_inputs(home, 2, width=WIDTH)
    other = build(home, partitions=inputs["partitions"])
    with pytest.raises(InputError, match=r"input partitions: stored \w+, expected"):
        train(home, 1, packed=other, **ROWS)


def test_rows_of_other_features_are_refused(home: Path, packed: Packed) -> None:
    """Both ranks see it, though only the first has the features themselves."""
    made = packed.packed_chunks
    given = made.inputs | {"features": made.inputs["features"] | {"version": "0" * 64}}
    wrong = replace(made, manifest=made.manifest | {"inputs": given})
    with pytest.raises(InputError, match="input features: stored 000000"):
        train(home, 2, packed=packed._replace(packed_chunks=wrong), **ROWS)


def test_a_machine_needs_the_files_of_its_own_parts(tmp_path: Path) -> None:
    made = build(tmp_path)
    for artifact, kept in ((made.samples, "part-2-"), (made.packed_chunks, "")):
        for name in artifact.parts:
            if not name.startswith(kept or tuple(own_groups(made))):
                shutil.rmtree(artifact.open_part(name).path)
    samples = open_samples(made.samples, parts=[2])
    chunks = PackedChunks(made.packed_chunks, made.cache_plan, made.samples, parts=[2])
    for step in range(2, samples.num_batches, PARTS):
        assert len(samples.batch(1, step)[1]) == 2
        assert chunks.place(chunks.number(1, step)).extent.path.exists()
    with pytest.raises(InputError, match=r"part-0"):
        open_samples(made.samples)
    with pytest.raises(InputError, match=r"segments-"):
        PackedChunks(made.packed_chunks, made.cache_plan, made.samples)


def own_groups(made: Packed) -> list[str]:
    """The static tiers, and the groups of part 2, by the numbers of its batches."""
    first, last = StoredOrder.of(made.samples).blocks[2]
    segments = np.unique(np.asarray(made.cache_plan.array("segment_of"))[first:last])
    groups = [name for name in made.packed_chunks.parts if name != STATIC_TIERS]
    own = [name for name in groups if SegmentRange.of(name).low in segments]
    assert 0 < len(own) < len(groups) and {SegmentRange.of(name).high - 1 in segments for name in own} == {True}
    return [STATIC_TIERS, *own]


def test_packed_rows_without_a_plan_are_refused_at_their_line(tmp_path: Path) -> None:
    text = recipe(
        {"name": "x", "trainer": "distributed", "samples": "stored", "distributed": {"rows": "packed"}},
        graph=sbm(nodes=200, edges=1000),
        sampling={"fanouts": [3, 3], "batch_size": 32, "reuse": 1},
        partitions={"parts": 2},
        samples={"plan": "parts"},
    )
    line = text.splitlines().index('rows = "packed"') + 1
    with pytest.raises(InputError, match=rf'mine.toml:{line}: .*rows = "packed" needs \[memory\] and \[cache_plan\]'):
        parse_pipeline(tmp_path / "mine.toml", text.encode(), TrainTable)
