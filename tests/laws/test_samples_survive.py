"""Law 6 for stored samples: kill -9, a full disk and two builders at once leave whole parts, and the bytes of one calm build."""

import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.storage.store import Store
from tests.assets.samples.sampled import build_samples, contents
from tests.laws.crashes import assert_clean, at_line, die, fill_disks, run_child
from tests.trainers.graphs import random_graph_artifacts

ROOT = Path(__file__).parents[2]
PARTS = "samples.parts"


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The bytes of a build that nothing disturbs, and a home that has the graph only."""
    home = tmp_path_factory.mktemp("calm")
    random_graph_artifacts(home / "graph")
    shutil.copytree(home / "graph", home / "whole")
    return contents(build_samples(home / "whole", epochs=2)), home / "graph"


def parts_of(home):
    """The parts in a home, all of them sound."""
    store = Store(home)
    assert store.damaged() == {}
    found = [artifact for artifact in store.artifacts() if artifact.stage == PARTS]
    assert all(part.verify() == [] for part in found)
    return {part.version: part.path.stat().st_ino for part in found}


def finish(home, reference):
    """Builds on, and returns how many parts were there and stayed."""
    before = parts_of(home)
    assert contents(build_samples(home, epochs=2)) == reference
    after = parts_of(home)
    assert {version: after[version] for version in before} == before  # nothing finished was built again
    Store(home).sweep()
    assert_clean(home)
    assert not list((Store(home).root / ".claims").iterdir())
    return len(before)


def test_kill_at_drawn_lines_of_a_build(tmp_path, calm):
    reference, graph = calm
    shutil.copytree(graph, tmp_path / "counted")
    num_lines = at_line(0, die, lambda: build_samples(tmp_path / "counted", epochs=2))
    assert num_lines > 1000
    survived = []
    for number, count in enumerate(sorted(random.Random(5).sample(range(1, num_lines), 6))):
        home = tmp_path / str(number)
        shutil.copytree(graph, home)
        status = run_child(lambda home=home, count=count: at_line(count, die, lambda: build_samples(home, epochs=2)))
        assert status == -signal.SIGKILL
        survived.append(finish(home, reference))
    assert survived == sorted(survived) and survived[0] < survived[-1]  # later kills leave more


def test_kill_at_drawn_moments_of_a_build_by_processes(tmp_path, calm):
    """The processes of the pool are killed with their parent; what they had finished stays."""
    reference, graph = calm
    code = "import sys; from tests.assets.samples.sampled import *; build_samples(__import__('pathlib').Path(sys.argv[1]), "
    code += "epochs=2, workers=2, threads=2)"
    survived = []
    for number in (1, 3):
        home = tmp_path / str(number)
        shutil.copytree(graph, home)
        process = subprocess.Popen([sys.executable, "-c", code, str(home)], cwd=ROOT)
        while len([path for path in Store(home).folders() if path.parent.name == PARTS]) < number:
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
        process.wait()
        survived.append(finish(home, reference))
    assert survived[0] >= 1 and survived[1] >= 3


def test_a_full_disk_at_any_point_is_one_clear_error(small_disk, tmp_path, calm):
    reference, graph = calm
    more = (0, 100_000, 200_000, 300_000)
    survived = []
    for text, home in fill_disks(small_disk, graph, more, lambda home: build_samples(home, epochs=2), tmp_path):
        assert "part epoch-" in text and "GRAPHMILL_HOME" in text
        survived.append(len(parts_of(home)))
        finish(home, reference)
    assert survived == sorted(survived) and survived[-1] > survived[0]


def _build(home, barrier, results):
    barrier.wait()
    built = []
    real = SAMPLES.build_part
    SAMPLES.build_part = lambda building: built.append(building.part) or real(building)  # pyright: ignore
    made = build_samples(home, epochs=2)
    results.put((made.version, built))


def test_processes_that_build_the_same_samples_share_the_work(tmp_path, calm):
    reference, graph = calm
    home = tmp_path / "home"
    shutil.copytree(graph, home)
    fork = multiprocessing.get_context("fork")
    barrier, results = fork.Barrier(2), fork.Queue()
    workers = [fork.Process(target=_build, args=(home, barrier, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    built = [results.get(timeout=120)[1] for _ in workers]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert contents(build_samples(home, epochs=2)) == reference
    assert sorted(built[0] + built[1]) == sorted(build_samples(home, epochs=2).parts), "each part was built once"
    assert built[0] and built[1]
    assert_clean(home)
