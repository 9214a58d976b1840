"""Forecasts of tiny trainings against what their ledgers and records say afterwards; speeds that the home keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.building.stage import Silent
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.samples.config import SamplesTable, samples_config
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.jobs.planning.graph import stand_in
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.rows.aligned import space_for
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.optimiser import make_optimiser
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.recipe.costs.batch import batch_sizes, draw_batches
from graphmill.trainers.recipe.costs.course import Case, Speeds
from graphmill.trainers.recipe.costs.forecast import expected_memory
from graphmill.trainers.recipe.costs.known import case_on, keep_speeds, kept_speeds, speeds_path
from graphmill.trainers.recipe.costs.memory import EXACT, training_need
from graphmill.trainers.recipe.queue_bytes import MOST_CORES_IN_TURN
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.batch_costs import pages_of
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.fullgraph.pieces import folded_block
from graphmill.trainers.training.speeds import _step, measure_speeds
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import content, parts_inputs, train_fresh, train_packed, train_parts, train_small, train_whole


def predicted(model: Artifact) -> dict[str, Any]:
    return model.run_record()["prediction"]


def moved(model: Artifact) -> dict[str, float]:
    epochs = model.summary["numbers"]["epochs_run"]
    links = Ledger.from_rows(json.loads(model.file("ledger.json").read_text())).bytes_by_link()
    return {link: num_bytes / epochs for link, num_bytes in links.items() if num_bytes}


def test_a_minibatch_training_moves_what_drawn_batches_say(tmp_path: Path) -> None:
    """Behind a cache each row comes from one place, and all places together from the drawn batches."""
    cached = {"device": "10%", "host": "20%", "seed": 3}
    for memory in (None, cached):
        model = train_small(tmp_path, epochs=2, samplers=1, memory=memory, retrain=True)
        found, counted = predicted(model), moved(model)
        assert found["bytes_per_epoch"].keys() == counted.keys()
        for link, num_bytes in counted.items():
            assert found["bytes_per_epoch"][link] == pytest.approx(num_bytes, rel=0.05), (link, memory)
        assert found["memory_bytes"] > 100 << 20 and found["epoch_seconds"] is None and not found["exact"]


def test_stored_batches_are_forecast_to_the_byte(tmp_path: Path) -> None:
    packed = build_packed(tmp_path, epochs=2)
    for trainer, options in (("disk", {}), ("minibatch", {"samples": "stored"})):
        keys: dict[str, Any] = {"epochs": 4} | options
        model = train_packed(packed, tmp_path, trainer, **keys)
        assert predicted(model)["bytes_per_epoch"] == moved(model), trainer
    assert not predicted(model)["exact"] and predicted(train_packed(packed, tmp_path, epochs=2))["exact"]


@pytest.mark.parametrize(("mode", "model"), [("p2p+reuse", "sage"), ("vanilla", "gcn"), ("p2p", "gat")])
def test_a_full_graph_epoch_is_forecast_to_the_byte(tmp_path: Path, mode: str, model: str) -> None:
    trained = train_whole(tmp_path, mode=mode, model=model, epochs=2, input_dropout=0.5 if model == "gcn" else 0.0)
    found = predicted(trained)
    assert found["exact"] and found["bytes_per_epoch"] == moved(trained)


def test_passes_of_batch_normalisations_are_forecast_to_the_byte(tmp_path: Path) -> None:
    trained = train_whole(tmp_path, norm="batch", layers=3, epochs=2)
    assert predicted(trained)["exact"] and predicted(trained)["bytes_per_epoch"] == moved(trained)


def test_rows_of_other_ranks_are_forecast_from_parts(tmp_path: Path) -> None:
    parts_inputs(tmp_path, 2)
    model = run_threads(2, lambda rank: train_parts(tmp_path, 2, rank, accumulate=1))[0]
    found, counted = predicted(model)["bytes_per_epoch"], moved(model)
    assert found.keys() == counted.keys() and "rank" in counted
    for link, num_bytes in counted.items():
        assert found[link] == pytest.approx(num_bytes, rel=0.05), link
    terms = model.run_record()["memory_need"]["terms"]
    assert predicted(model)["memory_bytes"] <= sum(terms.values()) - terms["the process that starts the ranks"], (
        "it waits"
    )


@pytest.mark.parametrize("parts", [2, 4])
def test_each_part_has_an_arena_of_rows_of_the_others(tmp_path: Path, parts: int) -> None:
    parts_inputs(tmp_path, parts)
    fresh = {"t_stale": 6, "policy": "performance+features", "arena": "40%"}
    small = {"accumulate": 1, "epochs": 6, "batch_size": 8}
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=small.pop("batch_size"))
    model = run_threads(
        parts, lambda rank: train_parts(tmp_path, parts, rank, fresh=fresh, sampling=sampling, **small)
    )[0]
    found, counted = predicted(model)["bytes_per_epoch"], moved(model)
    assert found.keys() == counted.keys() and "rank" in counted
    for link, num_bytes in counted.items():
        assert found[link] == pytest.approx(num_bytes, rel=0.15), link


def test_devices_that_hold_the_graph_have_a_smaller_cache(tmp_path: Path) -> None:
    """If devices are shared in time all of them have it, and if none switches no batch meets it; between the two is the range."""
    memory, options = {"device": "90%", "host": "0%", "seed": 3}, {"topology": "device", "epochs": 4, "accumulate": 1}
    split: Any = ({"sharing": "time", "trainers": 2}, {"samplers": 1, "trainers": 1, "switching": False})
    ends = []
    for keys in split:
        home = tmp_path / str(len(ends))
        model = train_small(home, trainer="factored", settings=FactoredSettings(**keys), memory=memory, **options)
        found, counted = predicted(model), moved(model)
        assert found["bytes_range"] == {}
        for link, num_bytes in counted.items():
            assert found["bytes_per_epoch"][link] == pytest.approx(num_bytes, rel=0.1), (link, keys)
        ends.append(found["bytes_per_epoch"]["d2d"])
    assert ends[0] < 0.8 * ends[1]


def test_what_a_standby_trainer_takes_is_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.trainers.recipe.queue_bytes.MOST_CORES_IN_TURN", 0)  # as with more cores
    memory, settings = {"device": "90%", "host": "0%", "seed": 3}, FactoredSettings(samplers=1, trainers=1)
    model = train_small(
        tmp_path, trainer="factored", settings=settings, memory=memory, topology="device", epochs=2, accumulate=1
    )
    found = predicted(model)
    assert found["bytes_range"].keys() == {"d2d", "h2d", "mapped"}
    for link, (least, most) in found["bytes_range"].items():
        assert least <= found["bytes_per_epoch"][link] <= most and least < most
    rows = sum(found["bytes_per_epoch"][link] for link in ("d2d", "h2d"))
    assert rows == pytest.approx(sum(moved(model)[link] for link in ("d2d", "h2d")), rel=0.05), "their sum is sure"


def test_rows_without_columns_are_not_exchanged(tmp_path: Path) -> None:
    parts_inputs(tmp_path, 2, width=0)
    model = run_threads(2, lambda rank: train_parts(tmp_path, 2, rank, accumulate=1, width=0))[0]
    assert predicted(model)["bytes_per_epoch"] == moved(model)


@pytest.mark.parametrize("more", [{}, {"lookahead": 1, "policy": "accuracy"}], ids=["behind", "ahead"])
def test_a_history_spares_about_what_the_rates_of_visits_say(tmp_path: Path, more: dict[str, Any]) -> None:
    model = train_fresh(tmp_path, epochs=8, fresh={"t_stale": 6, "arena": "60%"} | more, accumulate=1)
    counts = {
        row["name"]: row["n"] for row in json.loads(model.file("ledger.json").read_text())["counts"] if row["layer"] < 2
    }
    assert counts["history_hits"] > 100, "the history is used"
    found, counted = predicted(model)["bytes_per_epoch"], moved(model)
    assert found["h2d"] == pytest.approx(counted["h2d"], rel=0.15)


def test_an_arena_holds_rows_though_no_cache_does(tmp_path: Path) -> None:
    fresh = {"t_stale": 6, "policy": "performance+features", "arena": "40%"}
    model = train_fresh(tmp_path, epochs=6, fresh=fresh, accumulate=1, cache="none")
    found, counted = predicted(model)["bytes_per_epoch"], moved(model)
    assert found["d2d"] == pytest.approx(counted["d2d"], rel=0.15)
    never = train_fresh(tmp_path / "never", epochs=2, fresh=fresh | {"t_stale": 0}, accumulate=1, cache="none")
    assert predicted(never)["bytes_per_epoch"]["d2d"] == pytest.approx(moved(never)["d2d"], rel=0.05), "none is kept"


@pytest.mark.parametrize("arena", ["10%", "60%"])
def test_a_history_leaves_of_packed_rows_what_it_spares_and_what_its_arena_has(tmp_path: Path, arena: str) -> None:
    """Rows of 300 columns lie on two pages of a chunk with others, so that fewer bytes are spared than rows."""
    packed = build_packed(tmp_path, epochs=2)
    fresh = {"t_stale": 6, "policy": "performance+features", "arena": arena}
    model = train_fresh(tmp_path, packed=packed, epochs=6, fresh=fresh, accumulate=1)
    found, counted = predicted(model)["bytes_per_epoch"], moved(model)
    assert found.keys() == counted.keys() >= {"disk", "h2d", "d2d"}
    for link, num_bytes in counted.items():
        assert found[link] == pytest.approx(num_bytes, rel=0.15), (link, found, counted)
    whole = train_packed(packed, tmp_path, "disk", epochs=6)
    assert counted["h2d"] < 0.95 * moved(whole)["h2d"], "it spares rows"


def test_an_evaluation_of_rows_at_hand_keeps_one_batch() -> None:
    """`disk` evaluates batches that are drawn in turn, behind a cache, too; stored ones and those over a link are prepared ahead."""
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=32)
    table = TrainTable(name="sage", trainer="disk", eval="sampled", queue="1GiB")
    semantic = ModelConfig(seed=1, train=table.config, sampling=sampling)
    found = {}
    for evaluate in (False, True):
        config = samples_config(SamplesTable(evaluate=evaluate), replace(sampling, reuse=1), 0)
        sizes = Sizes(
            num_nodes=1000, num_edges=10**4, num_train=500, num_valid=300, num_classes=3, width=256, row_bytes=1024
        )
        sizes = replace(sizes, configs={"samples": config})
        case = Case(semantic=semantic, execution=table.execution, sizes=sizes, batch=batch_sizes(sampling, sizes))
        for link in (None, "1GB/s"):
            linked = replace(case, execution=replace(case.execution, link=link))
            for cached in (False, True):
                terms = expected_memory(replace(linked, cached=cached))
                found[evaluate, link, cached] = terms["batches of an evaluation that wait"] / case.batch_bytes
    in_turn = [found.pop((False, None, cached)) for cached in (False, True)]
    assert all(each > 5 for each in found.values())
    assert in_turn == [1, 1] if usable_cores() <= MOST_CORES_IN_TURN else min(in_turn) > 5


@pytest.mark.parametrize(("features", "fits", "there"), [("auto", True, 0), ("auto", False, 1), ("direct", True, 1)])
def test_rows_that_are_mapped_have_no_readers_and_others_come_ahead(features: Any, fits: bool, there: int) -> None:
    """Where two cores prepare batches in turn, rows that turn out to be read directly have threads that work ahead of the step."""
    sizes = Sizes(num_nodes=1000, num_edges=10**4, num_train=500, num_classes=3, width=256, row_bytes=1024)
    table, sampling = TrainTable(name="sage", features=features), SamplingConfig(fanouts=(4, 3), batch_size=32)
    semantic = ModelConfig(seed=1, train=table.config, sampling=sampling)
    batch = batch_sizes(sampling, sizes)
    case = Case(semantic=semantic, execution=table.execution, sizes=sizes, batch=batch)
    found = expected_memory(replace(case, fits=fits))
    each = space_for(batch.inputs * case.row_bytes) + case.block_bytes
    in_turn = fits and case.may_be_in_turn
    assert ("readers of rows" in found) == there
    assert found["batches in work"] == (1 if in_turn else 1 + case.samplers) * each


def test_speeds_are_kept_and_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    path, speeds = tmp_path / "home" / "pieces.json", Speeds(step={1: 0.5, 4: 0.25}, handed={2: 0.75}, copy_rate=1e9)
    assert kept_speeds(path) is None
    keep_speeds(path, speeds)
    assert kept_speeds(path) == speeds
    assert [speeds.at("step", threads) for threads in (1, 2, 3, 64)] == [0.5, 0.5, 0.25, 0.25]
    path.write_bytes(path.read_bytes().replace(b"0.25", b"0.75"))
    assert kept_speeds(path) is None


def test_speeds_of_a_stand_in_are_not_those_of_the_built_graph(tmp_path: Path) -> None:
    sizes = Sizes(num_nodes=1000, num_edges=8000, num_classes=3, width=8, row_bytes=32)
    semantic = ModelConfig(seed=1, train=TrainTable(name="sage").config, sampling=SamplingConfig(fanouts=(4, 3)))
    others = (replace(sizes, num_classes=4), replace(sizes, num_nodes=10**6))
    paths = {speeds_path(tmp_path, semantic, each, built=True) for each in (sizes, *others)}
    paths.add(speeds_path(tmp_path, semantic, sizes, built=False))
    assert len(paths) == 4
    assert speeds_path(tmp_path, semantic, replace(sizes, num_nodes=1001), built=True) in paths, "a little larger"


@pytest.mark.parametrize("model", ["sage", "gcn", "gin", "gat"])
def test_an_exact_evaluation_takes_the_rows_of_all_nodes_and_none_per_edge(model: str) -> None:
    def found(num_edges: int, workspace: str = "512MiB") -> int:
        sizes = Sizes(
            num_nodes=100_000,
            num_edges=num_edges,
            num_train=100,
            num_classes=3,
            num_rows=100_000,
            width=256,
            row_bytes=1024,
        )
        table = TrainTable(name="sage", model=model, hidden=64, eval_workspace=workspace)  # pyright: ignore
        sampling = SamplingConfig(fanouts=(4, 3), batch_size=32)
        semantic = ModelConfig(seed=1, train=table.config, sampling=sampling)
        batch = batch_sizes(sampling, sizes)
        given = {"execution": table.execution, "sizes": sizes, "batch": batch, "cores": usable_cores()}
        case = Case(semantic=semantic, exact_evaluation=True, **given)
        (need,) = (term for term in training_need(semantic, case.execution, sizes, 1).memory if term.name == EXACT)  # pyright: ignore
        assert need.most == expected_memory(case)[EXACT]
        return need.most

    few, hidden_rows = found(10**6), 100_000 * 64 * 4
    # Three sets of rows at most, and tiles in work, whose edges take a quarter of the workspace at most.
    assert few <= found(10**8) <= few + (128 << 20) and 2 * hidden_rows <= few <= 3 * hidden_rows + (86 << 20)
    # What does not fit its share is in a file, and sums take half of the workspace at most.
    assert found(10**6, "32MiB") <= (64 << 20) + 100_000 * 3


@pytest.mark.parametrize("trainer", ["minibatch", "fullgraph"])
def test_pieces_are_measured_on_drawn_batches(trainer: str) -> None:
    sizes = Sizes(num_nodes=300, num_edges=2400, num_train=200, num_classes=3, width=8, row_bytes=32)
    table = TrainTable(name="sage", trainer=trainer, hidden=4, threads=1)
    sampling = None if trainer == "fullgraph" else SamplingConfig(fanouts=(4, 3), batch_size=32)
    semantic, at_hand = ModelConfig(seed=1, train=table.config, sampling=sampling), stand_in(sizes, 1, sampling)
    found = measure_speeds(case_on(semantic, table.execution, sizes, at_hand, {}), at_hand, 3)
    pieces = (found.layers, found.whole) if trainer == "fullgraph" else (found.step, found.handed)
    assert pieces[0].keys() == pieces[1].keys() >= {1} and min(*pieces[0].values(), *pieces[1].values()) > 0
    assert all(found.handed[threads] >= seconds for threads, seconds in found.step.items())


def test_timed_steps_learn_nothing_however_many_there_are() -> None:
    """A model that has learnt its labels has denormal gradients, with which processors compute many times slower."""
    sizes = Sizes(num_nodes=300, num_edges=2400, num_train=200, num_classes=3, width=8, row_bytes=32)
    train = TrainTable(name="sage", hidden=32, threads=1, lr=0.05).config
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=32)
    at_hand = stand_in(sizes, 1, sampling)
    model, ids = build_model(train, 8, 3, 1), np.arange(32, dtype=np.int32)
    optimiser = make_optimiser(model.parameters(), train)
    blocks = Sampler(at_hand.graph.topology, (4, 3), seed=0).sample(BatchKey(0, 0, 0), ids, transpose="all")
    attach_weights(blocks, at_hand.graph.topology, model.edge_weight)
    rows = torch.ones((blocks[0].num_src, 8))
    for _ in range(300):
        _step(model, optimiser, blocks, rows)
    logits = model(blocks, rows, StepRandom(0)).detach()
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(32) % 3)
    assert loss.item() == pytest.approx(np.log(3), rel=0.1), "logits do not grow"


def test_a_whole_graph_has_no_source_besides_its_nodes() -> None:
    topology = stand_in(Sizes(num_nodes=100, num_edges=800, num_train=8, num_classes=2), 1, None).graph.topology
    (block,) = Sampler(topology, (-1,), seed=0).sample(BatchKey(0, 0, 0), np.arange(20, dtype=np.int32))
    folded = transpose(folded_block(block))
    assert folded.num_src == folded.num_dst == 20 < block.num_src
    assert len(folded.indices) == len(block.indices) == len(folded.t_dst)  # pyright: ignore


def test_drawing_stops_after_some_seconds() -> None:
    sizes = Sizes(num_nodes=100, num_edges=800, num_train=8, num_classes=2)
    topology = stand_in(sizes, 1, None).graph.topology
    plan, sampler = EpochPlan(np.arange(8, dtype=np.int32), 1, seed=0), Sampler(topology, (2,), seed=0)
    assert len(draw_batches(plan, sampler).blocks) == 8
    assert len(draw_batches(plan, sampler, most_seconds=0).blocks) == 1


def test_pages_of_rows_are_counted_once() -> None:
    assert pages_of(np.array([0, 1, 2]), 1024) == 4096
    assert pages_of(np.array([0, 3, 4]), 1024) == 2 * 4096
    assert pages_of(np.array([0, 1]), 3000) == 2 * 4096  # the second row ends in the second page
    assert pages_of(np.array([], np.int64), 1024) == pages_of(np.array([7]), 0) == 0


def test_a_prediction_that_fails_is_told_and_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> None:
        raise ZeroDivisionError("a formula")

    class Told(Silent):
        def tell(self, line: str) -> None:
            told.append(line)

    told: list[str] = []
    plain = train_small(tmp_path / "plain", epochs=1)
    monkeypatch.setattr("graphmill.trainers.training.stage.open_case", fails)
    model = train_small(tmp_path / "failed", epochs=1, progress=Told())
    assert "no prediction was recorded: ZeroDivisionError: a formula" in told
    assert predicted(plain) and not predicted(model)
    assert content(model) == content(plain)
