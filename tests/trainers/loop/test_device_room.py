"""The simulated step is exact, leaves no trace in the run, and what it needs is taken from the cache."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.assets.budgets.read import Budgets
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.loop.device_room import automatic_device_bytes, simulated_peak
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.training.open_rows import open_rows
from tests.assets.budgets.test_budgets import write_measured
from tests.trainers.graphs import random_graph, random_graph_artifacts
from tests.trainers.rows.caches import cache_inputs
from tests.trainers.runs import SAMPLING, TABLE, content, train_small


def simulate(home: Path, work_bytes: int | None = None, **options) -> int:
    graph = random_graph(home)
    table = TrainTable(**(TABLE | options))
    plan = EpochPlan(np.array(graph.train_ids), SAMPLING.batch_size, seed=5, accumulate=3)
    semantic = ModelConfig(seed=5, train=table.config, sampling=SAMPLING)
    return simulated_peak(graph, semantic, plan, graph.features.width, work_bytes)


def test_the_peak_is_that_of_a_step_and_repeats(tmp_path: Path) -> None:
    peak = simulate(tmp_path)
    assert peak == simulate(tmp_path)
    trained = train_small(tmp_path, workspace="64MiB", eval="sampled").run_record()["peak_bytes"]
    # Training evaluates as well, and other batches are a little larger or smaller; its inputs come from the queue.
    assert 0.5 < peak / trained["total"] < 2
    assert simulate(tmp_path, hidden=64) > peak


def test_it_draws_nothing_from_torch(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    simulate(tmp_path, model="gat", heads=2, dropout=0.5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_workspace_that_is_too_small_is_named_before_training(tmp_path: Path) -> None:
    peak = simulate(tmp_path)
    assert simulate(tmp_path, work_bytes=peak) == peak
    with pytest.raises(OverBudget, match="raise `workspace`"):
        simulate(tmp_path, work_bytes=peak - 1)


def test_the_cache_gets_what_the_step_leaves() -> None:
    budgets = Budgets(device_bytes=900, host_bytes=0, disk_bytes=0, automatic=("device",), device_total_bytes=1000)
    assert [automatic_device_bytes(budgets, peak) for peak in (0, 80, 400, 800, 5000)] == [900, 900, 500, 0, 0]
    assert [automatic_device_bytes(budgets, peak, 4) for peak in (0, 80, 160, 200)] == [225, 150, 50, 0]


def test_an_automatic_device_is_filled_up_to_what_one_step_needs(tmp_path: Path) -> None:
    peak = simulate(tmp_path)
    device_total = peak * 5 // 4 + 48 * 100 + 47
    write_measured(tmp_path, 4 * device_total)
    model = train_small(tmp_path, memory={"device": "auto", "host": 0})
    record = model.run_record()["cache"]
    assert (record["simulated_peak_bytes"], record["device_rows"], record["host_rows"]) == (peak, 100, 0)
    assert content(model)["weights.safetensors"] == content(train_small(tmp_path / "plain"))["weights.safetensors"]


def test_a_table_in_memory_needs_no_host_tier_and_must_fit_a_given_budget(tmp_path: Path) -> None:
    artifacts = random_graph_artifacts(tmp_path)
    graph, table = artifacts.open(), TrainTable(**TABLE, features="memory")
    semantic = ModelConfig(seed=5, train=table.config, sampling=SAMPLING)
    plan = EpochPlan(np.array(graph.train_ids), SAMPLING.batch_size, seed=5)

    def rows(**memory) -> tuple[int, int]:
        cache = cache_inputs(tmp_path, artifacts, device="10%", **memory)
        run = Run(graph=graph, inputs={}, reads=cache, semantic=semantic, execution=table.execution)
        run.plan = plan
        record = open_rows(run, graph.features).record
        return record["device_rows"], record["host_rows"]

    assert rows(host="100%") == (40, 0)
    with pytest.raises(InputError, match=r'features = "memory" holds 18.8 KiB where \[memory\] host allows 9,600'):
        rows(host="50%")
