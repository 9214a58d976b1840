"""Kernels in forked and spawned processes: no call waits for ever, whatever parent and child called before, and results are equal."""

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.forked import calls, perform

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("sample", "gather", "aggregate", "csc")


def drawn(generator: np.random.Generator, depth: int = 0) -> list:
    """Calls of a process: kernels with 1 to 3 threads, forks at any place among them, and forks while a thread calls kernels."""
    order: list = []
    for _ in range(generator.integers(1, 4)):
        kinds = ["call", "call", "fork", "beside"] if depth < 2 else ["call"]
        kind = generator.choice(kinds, p=[0.4, 0.2, 0.3, 0.1] if depth < 2 else [1])
        order.append(
            [str(generator.choice(NAMES)), int(generator.integers(1, 4))]
            if kind == "call"
            else [str(kind), drawn(generator, depth + 1 if kind == "fork" else 2)]
        )
    return order


def flat(found: list) -> list:
    """The results of all processes of an order; None stands for a process that was killed."""
    return [each for one in found for each in ([one] if one is None or isinstance(one[0], str) else flat(one))]


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    """The digest of each call with one thread, in a process that does not fork."""
    return dict(perform([[name, 1] for name in NAMES], calls()))


def test_no_order_of_calls_and_forks_waits_for_ever(wanted: dict[str, str]) -> None:
    generator = np.random.default_rng(87)
    # The smallest order that did: any kernel with a team, then a team in the child.
    orders = [[["gather", 2], ["fork", [["sample", 2]]]], *(drawn(generator) for _ in range(100))]
    assert sum('"fork"' in json.dumps(order) for order in orders) > 50
    command = [sys.executable, "-m", "tests.kernels.forked", json.dumps(orders)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=True)
    for order, found in zip(orders, json.loads(done.stdout), strict=True):
        assert found is not None and all(each is not None and wanted[each[0]] == each[1] for each in flat(found)), order


def _spawned(order: list, answer) -> None:
    answer.send(perform(order, calls()))


def test_spawned_children_have_teams_of_their_own(wanted: dict[str, str]) -> None:
    order = [[name, 2] for name in NAMES]
    assert dict(perform(order, calls())) == wanted
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    child = context.Process(target=_spawned, args=(order, theirs))
    child.start()
    try:
        assert mine.poll(120), "the child does not end"
        assert dict(mine.recv()) == wanted
    finally:
        child.kill()
        child.join()


def test_threads_are_started_in_one_place() -> None:
    """A kernel that starts threads by itself would hang in forked processes: base/parallel.h does not."""
    starts = ("#pragma omp", "std::thread", "std::async", "pthread_create")
    files = [path for path in (ROOT / "kernels/native").glob("*/*") if any(word in path.read_text() for word in starts)]
    assert files == [ROOT / "kernels/native/base/parallel.h"]
