"""Law 2 for training from disk: losses, scores and weights of `minibatch` to the bit, whatever the tiers hold."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.cache_plan.config import CachePlanTable, cache_plan_config
from graphmill.assets.cache_plan.stage import CACHE_PLAN
from graphmill.assets.packed_chunks.config import PackedConfig, PackedExecution
from graphmill.assets.packed_chunks.stage import PACKED_CHUNKS
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.samples.config import SamplesExecution, SamplesTable, samples_config
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.sources.own_data import build_config
from tests.trainers.runs import SAMPLING, Stops, content, train_packed

TIERS = {
    "nothing cached": {"device": "0", "host": "0", "disk": "100x"},
    "all on the device": {"device": "100%", "host": "0", "disk": "0"},
    "all on the host": {"device": "0", "host": "100%", "disk": "0"},
    "all levels": {"device": "5%", "host": "10%", "disk": "2x"},
}


CONTENT = ("weights.safetensors", "metrics.jsonl")


def booked(model: Artifact) -> list[dict[str, Any]]:
    """What a training moved, by line."""
    return json.loads(model.file("ledger.json").read_text())["moves"]


def digests(packed: Packed, home: Path, trainer: str, **options: Any) -> list[str]:
    model = train_packed(packed, home, trainer, **options)
    return [model.files[name]["digest"] for name in CONTENT]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store: the graph and three epochs of samples are the same for all tiers."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def online(home: Path) -> list[str]:
    """What `minibatch` learns; it knows no tiers."""
    return digests(build_packed(home, epochs=3, memory=TIERS["nothing cached"]), home, "minibatch", epochs=4)


@pytest.mark.parametrize("memory", TIERS.values(), ids=TIERS.keys())
def test_any_tiers_and_three_sampling_epochs(
    home: Path, online: list[str], tmp_path: Path, memory: dict[str, Any]
) -> None:
    packed = build_packed(home, epochs=3, memory=memory)
    assert digests(packed, tmp_path, "disk", epochs=4) == online


def test_copies_of_rows_in_the_disk_cache(home: Path, online: list[str], tmp_path: Path) -> None:
    packed = build_packed(home, epochs=3, memory={"disk": "8x"}, plan={"order": "copies"})
    assert packed.cache_plan.summary["numbers"]["num_cached_rows"] > 400  # of 400 nodes
    assert digests(packed, tmp_path, "disk", epochs=4) == online


ROLES = {
    "2 and 2": {"samplers": 2, "trainers": 2},
    "no trainer": {"samplers": 2, "trainers": 0, "devices": 2},
    "in time": {"sharing": "time", "trainers": 2},
}


@pytest.mark.parametrize("roles", ROLES.values(), ids=ROLES.keys())
def test_roles_on_packed_rows(home: Path, online: list[str], tmp_path: Path, roles: dict[str, Any]) -> None:
    """Samplers load the rows of stored batches; weights and disk reads are those of `disk`, whose graph loader books its own."""
    packed = build_packed(home, epochs=3, memory=TIERS["all levels"])
    settings = FactoredSettings(rows="packed", **roles)
    how: dict[str, Any] = {"epochs": 4, "samples": "stored", "settings": settings}
    model, disk = train_packed(packed, tmp_path, "factored", **how), train_packed(packed, tmp_path, epochs=4)
    assert [model.files[name]["digest"] for name in CONTENT] == online
    assert booked(model) == [row for row in booked(disk) if row["kind"] != "topology"]
    (check,) = (check for check in model.summary["checks"] if check["name"] == "ledger equals plan")
    assert check["passed"], check
    held = {name: held["cache"] for name, held in model.run_record()["executors"]["peak_bytes"].items()}
    rows, row_bytes = (
        packed.cache_plan.summary["numbers"]["num_device_rows"],
        packed.packed_chunks.summary["numbers"]["row_bytes"],
    )
    assert set(held.values()) == {rows * row_bytes}


def test_roles_on_packed_rows_evaluate_from_them_and_go_on(home: Path, tmp_path: Path) -> None:
    """Stored evaluations read packed rows as well; a queue of two batches is enough, and a stop changes no bit."""
    packed = build_packed(home, epochs=2, memory=TIERS["all levels"])
    how: dict[str, Any] = {
        "epochs": 3,
        "samples": "stored",
        "queue": "600kB",
        "checkpoint_steps": 1,
        "settings": FactoredSettings(rows="packed", samplers=1, trainers=1),
    }
    straight = train_packed(packed, tmp_path / "straight", "factored", **how)
    with pytest.raises(ConnectionAbortedError):
        train_packed(packed, tmp_path / "stopped", "factored", progress=Stops(5), **how)
    resumed = train_packed(packed, tmp_path / "stopped", "factored", resume=True, **how)
    assert content(resumed) == content(straight)


def test_one_set_of_samples_serves_several_seeds(home: Path, tmp_path: Path) -> None:
    """Trainings of two seeds read the batches that a third one draws: as many inputs and edges, other first values, other weights."""
    packed, sampling = build_packed(home, epochs=2, memory=TIERS["all levels"]), replace(SAMPLING, sampling_seed=5)
    found = {}
    for seed in (5, 8):
        how: dict[str, Any] = {"sampling": sampling, "seed": seed}
        models = [
            train_packed(packed, tmp_path / f"{seed} {trainer}", trainer, **how) for trainer in ("minibatch", "disk")
        ]
        online, disk = ([model.files[name]["digest"] for name in CONTENT] for model in models)
        assert online == disk
        counts = [json.loads(model.file("ledger.json").read_text())["counts"] for model in models]
        assert [row for row in counts[1] if not row["name"].startswith("hits")] == counts[0]
        found[seed] = online, counts
    assert found[5][0] != found[8][0] and found[5][1] == found[8][1]
    own = train_packed(packed, tmp_path / "own", "minibatch", seed=8)
    assert json.loads(own.file("ledger.json").read_text())["counts"] != found[8][1][0]
    with pytest.raises(InputError, match="stored 5, expected 8"):
        train_packed(packed, tmp_path / "mistaken", seed=8)


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """A real graph whose rows of 2,980 bytes straddle pages."""
    pipeline, store = load_pipeline("photo", TrainTable), Store(tmp_path_factory.mktemp("photo"))
    assert pipeline.sampling is not None
    built = build_config(store.home, pipeline.graph, threads=1)
    graph, features = built.graph, built.features
    config = samples_config(SamplesTable(epochs=3), pipeline.sampling, 5)
    samples = materialize(store, SAMPLES, config, SamplesExecution(threads=1), {"graph": graph})
    memory = BudgetsConfig(memory=MemoryConfig(device="5%", host="10%", disk="4x"))
    budgets = materialize(store, BudgetsStage(), memory, BudgetsExecution(), {"features": features})
    inputs = {"features": features, "samples": samples, "budgets": budgets}
    plan = cache_plan_config(CachePlanTable(), 5)
    cache_plan = materialize(store, CACHE_PLAN, plan, Threads(threads=1), inputs)
    inputs = {"features": features, "samples": samples, "cache_plan": cache_plan}
    chunks = materialize(store, PACKED_CHUNKS, PackedConfig(), PackedExecution(threads=1), inputs)
    return Packed(graph, features, samples, cache_plan, chunks)


@pytest.mark.skipif(
    not os.environ.get("GRAPHMILL_TEST_DATA"), reason="GRAPHMILL_TEST_DATA names no folder of real graphs"
)
@pytest.mark.first
@pytest.mark.parametrize("model", ["sage", pytest.param("gcn", marks=pytest.mark.slow("GCN on Photo from disk"))])
def test_photo(photo: Packed, tmp_path: Path, model: str) -> None:
    pipeline = load_pipeline("photo", TrainTable)
    (table,) = (table for table in pipeline.train if table.name == model)
    shape = {"model": model, "layers": 2, "hidden": table.hidden, "norm": "layer", "residual": True, "lr": 0.005}
    options: dict[str, Any] = {"sampling": pipeline.sampling, "epochs": 4, "eval_every": 2, "accumulate": 1, **shape}
    assert digests(photo, tmp_path, "disk", **options) == digests(photo, tmp_path, "minibatch", **options)
