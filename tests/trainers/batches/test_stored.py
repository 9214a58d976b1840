"""Law 2 for stored samples: batches, losses and models are equal to the bit to those of the online sampler."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.graph.read import Graph
from graphmill.assets.samples.read import open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.batches.batch import Batching
from graphmill.trainers.batches.source import OnlineSource
from graphmill.trainers.batches.stored import StoredSampler, require_samples
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.rows.source import MemorySource
from graphmill.trainers.run import train_table
from tests.assets.samples.sampled import build_samples
from tests.assets.samples.test_samples import flip
from tests.trainers.batches.test_online import contents
from tests.trainers.graphs import OpenedGraph, random_graph, random_graph_artifacts
from tests.trainers.runs import TABLE, content

MODELS = [{"model": "sage"}, {"model": "gcn"}, {"model": "gat", "heads": 2}, {"model": "gin"}]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build_samples(tmp_path_factory.mktemp("home"), epochs=2)


@pytest.fixture(scope="module")
def graph(stored: Any) -> OpenedGraph:
    return random_graph(stored.path.parents[2])


def batching_of(graph: OpenedGraph, **changes: Any) -> Batching:
    plan = EpochPlan(np.asarray(graph.train_ids), 32, seed=5, reuse=changes.pop("reuse", 2), accumulate=3)
    settings: dict[str, Any] = {"topology": graph.topology, "labels": graph.labels, "plan": plan}
    return Batching(**(settings | {"edge_weight": "gcn", "queue_bytes": 2**20} | changes))


@pytest.mark.parametrize("transpose", ["none", "hidden", "all"])
def test_batches_are_the_online_ones_to_the_byte(stored: Any, graph: OpenedGraph, transpose: str) -> None:
    batching, features = batching_of(graph, transpose=transpose), MemorySource(graph.features)
    online = OnlineSource(batching, features, [Sampler(graph.topology, (4, 3), seed=5)] * 1)
    for workers in (1, 3):
        offline = OnlineSource(batching, features, [StoredSampler(open_samples(stored))] * workers)
        for epoch, start in ((0, 0), (1, 2), (4, 0)):
            expected = [contents(batch) for batch in online.batches(epoch, start)]
            assert [contents(batch) for batch in offline.batches(epoch, start)] == expected
    assert {f.name for f in fields(next(iter(online.batches(0))).blocks[0])} >= {"t_start", "weight", "self_weight"}


def train(home: Path, stored: Any, reuse: int, give: bool = True, **changes: Any) -> Any:
    table = TrainTable(**(TABLE | changes))
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=32, reuse=reuse)
    samples = stored if give and table.samples == "stored" else None
    (model,) = train_table(
        Store(home),
        random_graph_artifacts(stored.path.parents[2]).inputs,
        table,
        sampling,
        5,
        reads={"samples": samples} if samples else {},
        report=lambda line: None,
    )
    return model


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["model"])
@pytest.mark.parametrize("reuse", [1, 2])
def test_models_are_bit_equal_to_online_training(tmp_path: Path, stored: Any, model: dict, reuse: int) -> None:
    online = train(tmp_path / "online", stored, reuse, **model, epochs=4)
    offline = train(tmp_path / "offline", stored, reuse, **model, epochs=4, samples="stored", samplers=3)
    assert content(online) == content(offline) and online.version == offline.version
    assert offline.run_record()["execution"]["samples"] == "stored"


def test_without_reuse_each_epoch_takes_its_own_stored_one(tmp_path: Path, stored: Any) -> None:
    online = train(tmp_path / "online", stored, 0, epochs=2)
    assert content(train(tmp_path / "offline", stored, 0, epochs=2, samples="stored")) == content(online)
    with pytest.raises(InputError, match=r"samples/\w+ has 2 epochs of 7 batches, but 3 epochs of 7 are asked for"):
        train(tmp_path / "more", stored, 0, epochs=3, samples="stored")


def test_other_samples_are_refused(tmp_path: Path, stored: Any, graph: Graph) -> None:
    with pytest.raises(InputError, match=r"config seed: stored 5, expected 6(?s:.*)config fanouts: stored \[4, 3\]"):
        other = SamplingConfig(fanouts=(3, 3), batch_size=32)
        require_samples(open_samples(stored), batching_of(graph).plan, 1, other, seed=6)
    with pytest.raises(InputError, match=r"no samples were given"):
        train(tmp_path, stored, 1, give=False, samples="stored")
    wrong = replace(batching_of(graph), plan=EpochPlan(np.asarray(graph.train_ids)[::-1], 32, seed=5, reuse=2))
    with pytest.raises(InputError, match=r"batch \d of epoch 0 of samples/\w+ has other seeds than this run"):
        list(OnlineSource(wrong, MemorySource(graph.features), [StoredSampler(open_samples(stored))]).batches(0))


def test_samples_that_were_drawn_with_replacement_are_others(tmp_path: Path, graph: Graph) -> None:
    """The run's key has its default, so only the stored one says it."""
    plain = SamplingConfig(fanouts=(4, 3), batch_size=32)
    drawn = open_samples(build_samples(tmp_path, replace=True))
    with pytest.raises(InputError, match="config replace: stored True, expected False"):
        require_samples(drawn, batching_of(graph).plan, 1, plain, seed=5)
    require_samples(drawn, batching_of(graph).plan, 1, replace(plain, replace=True), seed=5)


def test_a_flipped_bit_ends_training_with_the_batch_and_the_command(tmp_path: Path) -> None:
    stored = build_samples(tmp_path)
    samples = open_samples(stored)
    flip(samples.files[samples.part_of[4]], 8 * int(samples.offsets[4]) + 5000)
    with pytest.raises(
        InputError, match=r"batch 4 of epoch 0 of samples/\w+ is damaged(?s:.*)graphmill repair samples"
    ):
        train(tmp_path, stored, 1, samples="stored")
