"""Laws 2 to 6 for neighbours that are drawn by weight and by walks: every exact technique learns what `minibatch` learns, to the bit."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.features.read import open_features
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import BatchKey
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import loader_reading
from graphmill.trainers.rows.source import RowIds
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.sampling_tables.tables import with_tables
from tests.assets.storage.damage import flip
from tests.laws.test_resume_exact import model_content, run_child
from tests.laws.test_rows_exactly_once import expected_rows
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.recipe.test_techniques import Stop, Stopping
from tests.trainers.runs import DRAWN, content, train_fresh, train_packed, train_parts, train_small

LEARNT = ("weights.safetensors", "metrics.jsonl")
# One thread per step: on a busy machine two that wait for one another take ten times as long.
FAST: dict[str, Any] = {"epochs": 3, "dropout": 0.3, "threads": 1}
TIERS = {
    "nothing cached": {"device": "0", "host": "0", "disk": "100x"},
    "all levels": {"device": "5%", "host": "10%", "disk": "2x"},
}


@pytest.fixture(params=DRAWN)
def drawn(request: pytest.FixtureRequest) -> tuple[SamplingConfig, str]:
    """How neighbours are drawn, and a model that averages by their shares."""
    return DRAWN[request.param]


def learnt(model: Artifact) -> dict[str, str]:
    assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
    return {name: content(model)[name] for name in LEARNT}


def losses(model: Artifact) -> list[float]:
    return [json.loads(line)["loss"] for line in model.file("metrics.jsonl").read_text().splitlines()]


def test_disk_learns_what_minibatch_learns(tmp_path: Path, drawn: tuple[SamplingConfig, str]) -> None:
    """Law 2, at a budget of nothing (law 4) and with all tiers; and `fresh` over the same packed rows, with nothing kept."""
    options: dict[str, Any] = {"sampling": drawn[0], "model": drawn[1], **FAST}
    found = []
    for name, memory in TIERS.items():
        packed = build_packed(tmp_path, epochs=2, memory=memory, sampling=drawn[0])
        found.append(train_packed(packed, tmp_path / name, "disk", **options))
    plain = train_packed(packed, tmp_path / "plain", "minibatch", **options)
    assert [learnt(each) for each in found] == [learnt(plain)] * 2
    fresh = train_fresh(tmp_path / "fresh", packed=packed, fresh={"p_grad": 0.0}, **options)
    assert learnt(fresh)["weights.safetensors"] == learnt(plain)["weights.safetensors"]


def test_factored_distributed_and_fresh_learn_what_minibatch_learns(
    tmp_path: Path, drawn: tuple[SamplingConfig, str]
) -> None:
    options: dict[str, Any] = {"sampling": drawn[0], "model": drawn[1], **FAST}
    plain = train_small(tmp_path / "plain", **options)
    factored = train_small(
        tmp_path / "factored", trainer="factored", settings=FactoredSettings(samplers=2, trainers=2), **options
    )
    assert learnt(factored) == learnt(plain)
    alone = train_parts(tmp_path / "parts", 1, **options)
    assert alone is not None and losses(alone) == losses(plain)
    for name, kept in (("none", {"p_grad": 0.0}), ("at once too old", {"t_stale": 0, "policy": "accuracy"})):
        fresh = train_fresh(tmp_path / name, fresh=kept, **options)
        assert learnt(fresh)["weights.safetensors"] == learnt(plain)["weights.safetensors"]
        assert losses(fresh) == losses(plain)
    kept = train_fresh(tmp_path / "kept", **options)
    assert losses(kept) != losses(plain) and learnt(kept)


def test_rows_of_drawn_batches_come_once(tmp_path: Path, drawn: tuple[SamplingConfig, str]) -> None:
    """Law 3: every needed row once, from one of four levels, byte-equal to the features."""
    packed = build_packed(tmp_path, epochs=2, sampling=drawn[0], featureless=3)
    table, samples = open_features(packed.features), open_samples(packed.samples)
    chunks = PackedChunks(packed.packed_chunks, packed.cache_plan, packed.samples)
    reading = loader_reading(method="buffered")
    rows = PackedRows(chunks, table, device=LogicalDevice(), reading=reading)
    for number in range(samples.num_epochs * samples.num_batches):
        epoch, step = divmod(number, samples.num_batches)
        ids, ledger = np.asarray(samples.batch(epoch, step)[1][0].src_ids), Ledger()
        out = torch.full((len(ids), table.width), torch.nan)
        staged = rows.stage(BatchKey(0, epoch, step))
        rows.gather(RowIds(ids, staged=staged), out, ledger)
        assert out.numpy().tobytes() == expected_rows(table, ids).tobytes()
        assert sum(row["n"] for row in ledger.rows()["counts"]) == len(ids) == len(np.unique(ids))
        staged.release()
    rows.close()


@pytest.mark.parametrize("stop_after", [5, 16])
def test_a_stopped_run_goes_on_to_the_same_bits(
    tmp_path: Path, drawn: tuple[SamplingConfig, str], stop_after: int
) -> None:
    options: dict[str, Any] = {"sampling": drawn[0], "model": drawn[1], "checkpoint_steps": 1, **FAST}
    for number, train in enumerate((train_small, train_fresh)):
        straight = train(tmp_path / f"straight{number}", **options)
        with pytest.raises(Stop):
            train(tmp_path / f"stopped{number}", progress=Stopping(stop_after), **options)
        resumed = train(tmp_path / f"stopped{number}", resume=True, **options)
        assert content(resumed) == content(straight)


@pytest.mark.slow("kill -9 and resume of weighted sampling and of walks, online and from disk")
@pytest.mark.parametrize("name", DRAWN)
def test_kill_and_resume_gives_the_same_model(tmp_path: Path, name: str) -> None:
    """Law 5: killed at drawn events, from disk as online."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    build_packed(straight, epochs=2, sampling=DRAWN[name][0])
    with_tables(straight, random_graph_artifacts(straight).inputs, DRAWN[name][0])
    shutil.copytree(straight, killed)
    for way in (name, f"{name} from disk"):
        done = run_child(straight, 0, resume=False, way=way)
        assert done.returncode == 0, done.stderr
        for kill_at in (int(done.stdout) // 2, 14, 9):
            assert run_child(killed, kill_at, resume=True, way=way).returncode == -signal.SIGKILL
        assert run_child(killed, 0, resume=True, way=way).returncode == 0
        assert model_content(killed) == model_content(straight)
        for home in (straight, killed):
            shutil.rmtree(home / "store" / "model")


def files_of(artifact: Artifact) -> Iterator[Path]:
    yield from (artifact.path / name for name in artifact.files)
    for part in artifact.parts:
        yield from files_of(artifact.open_part(part))


def test_damaged_tables_and_samples_never_reach_a_step(tmp_path: Path, drawn: tuple[SamplingConfig, str]) -> None:
    """Law 6 for readers: with one bit wrong, a training ends in an error that names the artifact, or with the bytes of a sound run."""
    options: dict[str, Any] = {"sampling": drawn[0], "model": drawn[1], **FAST, "epochs": 2}
    packed: Packed = build_packed(tmp_path, epochs=2, sampling=drawn[0])
    generator = np.random.default_rng(0)
    tables = with_tables(tmp_path / "0", packed.inputs, drawn[0]).get("sampling_tables")
    # The tables of the home in which the first training looks for them.
    attacked = [(path, "minibatch") for path in ([] if tables is None else files_of(tables))]
    attacked += [(path, "disk") for path in files_of(packed.samples) if path.name == "batches.npy"]
    sound, refused = learnt(train_packed(packed, tmp_path / "sound", "minibatch", **options)), []
    for number, (path, trainer) in enumerate(attacked):
        bit = 8 * (4096 + int(generator.integers(path.stat().st_size - 4096))) + 3
        flip(path, bit)
        try:
            assert learnt(train_packed(packed, tmp_path / str(number), trainer, **options)) == sound, path
        except InputError as error:
            assert path.parent.name[:12] in str(error), error
            refused.append(path.name)
        flip(path, bit)
    assert "batches.npy" in refused and ("table.npy" in refused) == (tables is not None)
