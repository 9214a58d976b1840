"""Law 6 for packed chunks: kill -9 and a full disk leave whole parts, and the bytes of one calm build."""

import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.storage.store import Store
from tests.assets.packed_chunks.packed import build_packed
from tests.assets.samples.sampled import contents
from tests.laws.crashes import assert_clean, at_line, die, fill_disks, run_child

PARTS, WHOLE = "packed_chunks.parts", "packed_chunks"
HOW: dict[str, Any] = {"groups": 3, "plan": {"segment_size": 2}, "memory": {"disk": "10x"}}
"""Four segments of at most two batches, in three parts."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[Any, bytes], Path]:
    """The bytes of a build that nothing disturbs, and a home that has everything but the chunks."""
    home = tmp_path_factory.mktemp("calm")
    reference = contents(build_packed(home / "whole", **HOW).packed_chunks)
    shutil.copytree(home / "whole", home / "planned", ignore=shutil.ignore_patterns(PARTS, WHOLE))
    return reference, home / "planned"


def parts_of(home: Path) -> dict[str, int]:
    """The parts in a home, all of them sound."""
    store = Store(home)
    assert store.damaged() == {}
    found = [artifact for artifact in store.artifacts() if artifact.stage == PARTS]
    assert all(part.verify() == [] for part in found)
    return {part.version: part.path.stat().st_ino for part in found}


def finish(home: Path, reference: dict[Any, bytes]) -> int:
    """Builds on, and returns how many parts were there and stayed."""
    before = parts_of(home)
    assert contents(build_packed(home, **HOW).packed_chunks) == reference
    after = parts_of(home)
    assert len(after) == 3
    assert {version: after[version] for version in before} == before  # nothing finished was packed again
    Store(home).sweep()
    assert_clean(home)
    return len(before)


def test_kill_at_drawn_lines_of_packing(tmp_path: Path, calm: tuple[dict[Any, bytes], Path]) -> None:
    reference, planned = calm
    shutil.copytree(planned, tmp_path / "counted")
    num_lines = at_line(0, die, lambda: build_packed(tmp_path / "counted", **HOW))
    assert num_lines > 1000
    survived = []
    for number, count in enumerate(sorted(random.Random(3).sample(range(num_lines // 4, num_lines), 6))):
        home = tmp_path / str(number)
        shutil.copytree(planned, home)
        status = run_child(lambda home=home, count=count: at_line(count, die, lambda: build_packed(home, **HOW)))
        assert status == -signal.SIGKILL
        survived.append(finish(home, reference))
    assert survived == sorted(survived) and survived[0] < survived[-1]  # later kills leave more


def test_a_full_disk_while_packing_is_one_clear_error(
    small_disk: Any, tmp_path: Path, calm: tuple[dict[Any, bytes], Path]
) -> None:
    reference, planned = calm
    more = (100_000, 700_000, 1_000_000)
    survived = []
    for text, home in fill_disks(small_disk, planned, more, lambda home: build_packed(home, **HOW), tmp_path):
        assert "GRAPHMILL_HOME" in text and "segments-" in text
        survived.append(len(parts_of(home)))
        finish(home, reference)
    assert survived == sorted(survived) and survived[-1] > survived[0]
