"""`[memory] device = "auto"` on a machine with a GPU: what the GPU has free; nothing changes on one without."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, CudaWork, MemoryConfig, budgets_config
from graphmill.assets.budgets.measured import PLACE, MachineBytes, measured_bytes, measured_digest, refresh
from graphmill.assets.budgets.read import open_budgets
from graphmill.assets.budgets.stage import BudgetsStage, device_budget, host_budget
from graphmill.assets.building.materialize import materialize
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import canonical
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.runs import TABLE

GB = 10**9
MACHINE = MachineBytes(memory_bytes=64 * GB, disk_bytes=100 * GB, device_bytes=80 * GB)


def table(name: str = "one", **keys: Any) -> TrainTable:
    given: dict[str, Any] = TABLE | {"name": name, "queue": "2GB", "eval_workspace": "1GB"} | keys
    return TrainTable(**given)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The number of GPUs, which is 1, and the bytes that are free on it."""
    found = {"number": 1, "free": 80 * GB}
    monkeypatch.setattr("graphmill.assets.budgets.config.num_gpus", lambda: found["number"])
    monkeypatch.setattr(
        "graphmill.assets.budgets.measured.free_gpu_bytes", lambda: found["free"] if found["number"] else None
    )
    return found


def configured(*tables: TrainTable, **memory: Any) -> BudgetsConfig:
    return budgets_config(MemoryConfig(**memory), tables)


def test_a_gpu_holds_what_was_free_beside_the_work(gpus: dict[str, int]) -> None:
    found = device_budget(configured(table(device="cuda", workspace="3GB")), MACHINE)
    assert found.num_bytes == 75 * GB - 5 * GB
    assert found.words == "auto: 74.5 GiB that were free on the GPU, less a sixteenth, less 4.7 GiB of step and queue"
    undeclared = device_budget(configured(table(device="cuda"), table("b", device="auto", workspace="3GB")), MACHINE)
    assert undeclared.num_bytes == 75 * GB - 10 * GB - 2 * GB, "a step counts as an eighth where it declares nothing"
    evaluation = device_budget(configured(table(device="cuda", workspace="3GB", eval_workspace="9GB")), MACHINE)
    assert evaluation.num_bytes == 75 * GB - 9 * GB and evaluation.words.endswith("8.4 GiB of evaluation")
    small = replace(MACHINE, device_bytes=GB)
    assert device_budget(configured(table(device="cuda")), small).num_bytes == 0


def test_the_host_keeps_its_half_beside_a_gpu(gpus: dict[str, int]) -> None:
    assert host_budget(configured(table(device="cuda")), MACHINE) == (
        29 * GB, "auto: half of 59.6 GiB, less 2.8 GiB of queue and evaluation"
    )  # fmt: skip
    assert host_budget(configured(table()), MACHINE)[0] == 13 * GB


def test_a_pipeline_that_trains_on_both_has_the_lesser_budget(gpus: dict[str, int]) -> None:
    both = configured(table(device="cuda"), table("b"))
    found = device_budget(both, MACHINE)
    assert found.num_bytes == 16 * GB and found.words.endswith("since some tables train on the CPU")
    assert host_budget(both, MACHINE)[0] == 13 * GB
    small = device_budget(both, replace(MACHINE, device_bytes=16 * GB))
    assert small.num_bytes == 15 * GB - 2 * GB - 2 * GB


def test_only_a_table_on_a_gpu_that_is_there_enters_the_version(gpus: dict[str, int]) -> None:
    assert configured(table(device="cuda")).cuda == CudaWork(
        step_bytes=None, queue_bytes=2 * GB, evaluation_bytes=GB, shared=False
    )  # fmt: skip
    assert configured(table(device="cuda"), device="10%", host=5).cuda is None, "nothing is auto but the disk"
    assert "cuda" not in canonical(configured(table()))
    gpus["number"] = 0
    assert "cuda" not in canonical(configured(table(device="cuda"))) and configured(table(device="auto")).cuda is None


def test_without_a_gpu_the_numbers_have_the_digest_that_they_always_had(tmp_path: Path, gpus: dict[str, int]) -> None:
    """Versions of "auto" budgets hang on it; the seal of the file is no part of it."""
    gpus["number"] = 0
    found = measured_bytes(tmp_path)
    text = f'{{\n "disk_bytes": {found.disk_bytes},\n "memory_bytes": {found.memory_bytes}\n}}\n'
    written = json.loads((tmp_path / PLACE).read_text())
    assert written.pop("digest") and written == json.loads(text) and found.device_bytes is None
    assert measured_digest(tmp_path) == hashlib.sha256(text.encode()).hexdigest()


def build(home: Path, *tables: TrainTable) -> Artifact:
    features = random_graph_artifacts(home).features
    return materialize(Store(home), BudgetsStage(home), configured(*tables), BudgetsExecution(), {"features": features})


def test_it_is_measured_once_and_an_older_home_keeps_its_share(tmp_path: Path, gpus: dict[str, int]) -> None:
    (tmp_path / PLACE).parent.mkdir()
    (tmp_path / PLACE).write_text(json.dumps({"memory_bytes": 64 * GB, "disk_bytes": 100 * GB}))
    older = build(tmp_path, table(device="cuda", workspace="3GB"))
    assert open_budgets(older).device_bytes == 13 * GB
    assert "since no GPU was measured (graphmill budgets --refresh)" in older.summary["numbers"]["device"]
    assert refresh(tmp_path).device_bytes == 80 * GB
    newer = build(tmp_path, table(device="cuda", workspace="3GB"))
    assert open_budgets(newer).device_bytes == 70 * GB and newer.version != older.version and newer.verify() == []
    gpus["free"] = GB
    again = build(tmp_path, table(device="cuda", workspace="3GB"))
    assert again.reused and again.version == newer.version


def test_rows_on_the_gpu_do_not_count_against_the_memory(tmp_path: Path, gpus: dict[str, int]) -> None:
    (tmp_path / PLACE).parent.mkdir()
    (tmp_path / PLACE).write_text(json.dumps({"memory_bytes": 10_000, "disk_bytes": GB, "device_bytes": 80 * GB}))
    (check,) = build(tmp_path, table(device="cuda", workspace="3GB")).summary["checks"]
    assert check["passed"] and check["numbers"]["memory, bytes"] == 80 * GB + 10_000
    assert "of the memories of machine and GPU" in check["detail"]
