"""Law 5: kill -9 anywhere, resume, and the model is bit-equal to that of an uninterrupted run, ledger and history included.

From disk, on the whole graph and with embeddings of earlier steps the graph has node types, relations and weights (train_child.py).
"""

import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from graphmill.assets.storage.store import Store
from tests import forks
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.graphs import attributed, random_graph_artifacts
from tests.trainers.runs import content

ROOT = Path(__file__).parents[2]


def run_child(
    home: Path,
    kill_at: int,
    resume: bool,
    cached: bool = False,
    disk: bool = False,
    device: bool = False,
    whole: bool = False,
    fresh: bool = False,
    factored: bool = False,
    way: str = "",
) -> subprocess.CompletedProcess[str]:
    ways = {"disk": disk, "device": device, "cached": cached, "whole": whole, "fresh": fresh, "factored": factored}
    way = way or next((name for name, chosen in ways.items() if chosen), "plain")
    how = ["resume" if resume else "anew", way]
    words = ["-m", "tests.laws.train_child", str(home), str(kill_at), *how]
    return forks.run(words, cwd=ROOT, imports=("tests.laws.train_child", *forks.TRAININGS), timeout=120)


def model_content(home: Path) -> dict[str, str]:
    (model,) = [artifact for artifact in Store(home).artifacts() if artifact.stage == "model"]
    assert model.verify() == []
    return content(model)


class Straight(NamedTuple):
    """A run that nobody interrupted: its home, the number of its events, and the content of its model."""

    home: Path
    num_events: int
    content: dict[str, str]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Straight:
    home = tmp_path_factory.mktemp("straight")
    random_graph_artifacts(home)
    done = run_child(home, 0, resume=False)
    assert done.returncode == 0, done.stderr
    return Straight(home, int(done.stdout), model_content(home))


@pytest.mark.first
def test_kill_and_resume_gives_the_same_model(tmp_path: Path, straight: Straight) -> None:
    num_events, expected = straight.num_events, straight.content
    assert num_events > 60
    draw = random.Random(20)
    for chain in range(3):
        home = tmp_path / f"chain{chain}"
        shutil.copytree(straight.home, home, ignore=shutil.ignore_patterns("model"))
        # The first kill falls anywhere in the run; each resumed process is killed again after a few more events.
        for kill_at in (draw.randint(1, num_events), draw.randint(2, 25), draw.randint(2, 25)):
            killed = run_child(home, kill_at, resume=True)
            if killed.returncode == 0:
                break
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            assert all(artifact.verify() == [] for artifact in Store(home).artifacts())
        finished = run_child(home, 0, resume=True)
        assert finished.returncode == 0, finished.stderr
        assert model_content(home) == expected
        assert not list((home / "store" / ".staging").glob("*")) and not list(
            (home / "checkpoints").glob("*.safetensors")
        )


@pytest.mark.first
def test_resume_with_a_cache_is_exact_and_ends_with_the_weights_of_none(tmp_path: Path, straight: Straight) -> None:
    """Weights are those of a run without a cache, and the ledger is that of an uninterrupted run with one."""
    cached, killed = tmp_path / "cached", tmp_path / "killed"
    for home in (cached, killed):
        random_graph_artifacts(home)
    assert run_child(cached, 0, resume=False, cached=True).returncode == 0
    for kill_at in (35, 20, 12):
        assert run_child(killed, kill_at, resume=True, cached=True).returncode == -signal.SIGKILL
    assert run_child(killed, 0, resume=True, cached=True).returncode == 0
    expected = model_content(cached)
    assert model_content(killed) == expected
    assert {name for name, digest in straight.content.items() if expected[name] != digest} == {"ledger.json"}


@pytest.mark.first
def test_resume_from_disk_is_exact(tmp_path: Path) -> None:
    """Weights, history and ledger are those of an uninterrupted run from disk."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    with attributed():
        build_packed(straight, epochs=2)
    shutil.copytree(straight, killed)
    assert run_child(straight, 0, resume=False, disk=True).returncode == 0
    for kill_at in (33, 14):
        assert run_child(killed, kill_at, resume=True, disk=True).returncode == -signal.SIGKILL
    assert run_child(killed, 0, resume=True, disk=True).returncode == 0
    assert model_content(killed) == model_content(straight)


@pytest.mark.first
def test_resume_on_a_device_with_memory_of_its_own_is_exact(tmp_path: Path) -> None:
    """Weights, history and ledger are those of an uninterrupted run on the simulated accelerator."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for home in (straight, killed):
        random_graph_artifacts(home)
    done = run_child(straight, 0, resume=False, device=True)
    assert done.returncode == 0, done.stderr
    for kill_at in (33, 14):
        assert run_child(killed, kill_at, resume=True, device=True).returncode == -signal.SIGKILL
    assert run_child(killed, 0, resume=True, device=True).returncode == 0
    assert model_content(killed) == model_content(straight)


@pytest.mark.first
def test_resume_of_a_full_graph_training_is_exact(tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    done = run_child(straight, 0, resume=False, whole=True)
    assert done.returncode == 0, done.stderr
    draw, num_events = random.Random(4), int(done.stdout)
    first = num_events // 2
    for kill_at in (first, draw.randint(3, 12), draw.randint(3, 12)):
        assert run_child(killed, kill_at, resume=True, whole=True).returncode == -signal.SIGKILL
    assert run_child(killed, 0, resume=True, whole=True).returncode == 0
    assert model_content(killed) == model_content(straight)


@pytest.mark.first
def test_resume_with_embeddings_of_earlier_steps_is_exact(tmp_path: Path) -> None:
    """A resumed run finds in the history what an uninterrupted one finds: rows, ages, and which features are gone."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    done = run_child(straight, 0, resume=False, fresh=True)
    assert done.returncode == 0, done.stderr
    for kill_at in (int(done.stdout) // 2, 14, 9):
        assert run_child(killed, kill_at, resume=True, fresh=True).returncode == -signal.SIGKILL
    assert run_child(killed, 0, resume=True, fresh=True).returncode == 0
    assert model_content(killed) == model_content(straight)


@pytest.mark.first
def test_resume_with_rows_of_nodes_in_files_is_exact(tmp_path: Path) -> None:
    """The files are changed in place all the time, and a resumed run finds the rows and moments of its checkpoint in them."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    done = run_child(straight, 0, resume=False, way="files")
    assert done.returncode == 0, done.stderr
    draw, num_events = random.Random(7), int(done.stdout)
    for kill_at in (num_events // 2, *(draw.randint(3, 14) for _ in range(4))):
        assert run_child(killed, kill_at, resume=True, way="files").returncode == -signal.SIGKILL
    done = run_child(killed, 0, resume=True, way="files")
    assert done.returncode == 0, done.stderr
    assert model_content(killed) == model_content(straight)
    assert not [path for home in (killed, straight) for path in (home / "checkpoints").glob("*.npy")]


@pytest.mark.first
def test_without_resume_it_starts_over_and_ends_the_same(tmp_path: Path, straight: Straight) -> None:
    killed = tmp_path / "killed"
    random_graph_artifacts(killed)
    assert run_child(killed, 30, resume=False).returncode == -signal.SIGKILL
    assert list((killed / "checkpoints").glob("*.safetensors"))
    assert run_child(killed, 0, resume=False).returncode == 0
    assert model_content(killed) == straight.content


@pytest.mark.first
def test_resume_of_factored_training_is_exact(tmp_path: Path, straight: Straight) -> None:
    """Batches that trainers had begun beyond the checkpoint are computed again: weights, history and ledger are those of one model."""
    killed = tmp_path / "killed"
    random_graph_artifacts(killed)
    for kill_at in (31, 12):
        assert run_child(killed, kill_at, resume=True, factored=True).returncode == -signal.SIGKILL
    done = run_child(killed, 0, resume=True, factored=True)
    assert done.returncode == 0, done.stderr
    assert model_content(killed) == straight.content
