"""Nothing that waits on a stream touches memory that was given back.

A launch that waits may be far behind the host that queued it. By then a tensor may be freed, pinned memory lent again or unpinned, a buffer
in its pool, rows of a peer unmapped, on the way of an error as well. The simulated accelerators look at the addresses of all launches that
wait when memory is given back (accelerator.cpp), in every test; these are the tests that they see each way, and that trainings which end
anywhere leave nothing behind.
"""

import ctypes
import gc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.cuda.held import HeldArrays, when_untouched
from graphmill.kernels.rows.aligned import BufferPool, aligned_empty
from graphmill.kernels.rows.gather_cuda import gather_tiered_cuda
from graphmill.kernels.rows.slots import HOST, PEER, STAGED, Tiers
from tests import accelerator
from tests.accelerator.backend import SimulatedBackend, seeing, stand_in
from tests.accelerator.kernels import kernels
from tests.accelerator.test_accelerator import ROWS, gathered
from tests.accelerator.test_waits import CACHED, DRAWN_THERE, TYPICAL
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.runs import Stops, train_fresh, train_packed, train_parts, train_small, train_whole


def filled(rows: np.ndarray) -> np.ndarray:
    rows[...] = ROWS
    return rows


def test_pinned_memory_is_unpinned_behind_the_launches_that_read_it():
    host = filled(aligned_empty(ROWS.nbytes).view(np.float32).reshape(ROWS.shape))
    kernels().pin(host)
    out = gathered(HOST, Tiers(host=host))
    del host
    assert not accelerator.take_fault()
    np.testing.assert_array_equal(out.cpu().numpy(), ROWS)


def test_memory_is_waited_for_before_it_is_taken_from_devices_and_freed():
    seen: list[Any] = []
    memory = np.arange(1000)
    place = memory.ctypes.data
    when_untouched(memory[:10], lambda: seen.append("wait"), lambda: seen.append(memory_at(place)))
    view = memory[3:].reshape(-1, 1)
    del memory
    assert not seen
    del view
    assert seen == ["wait", list(range(1000))]


def memory_at(place: int) -> list[int]:
    return list((ctypes.c_int64 * 1000).from_address(place))


def test_a_buffer_that_goes_back_to_its_pool_while_a_launch_reads_it_is_a_fault(monkeypatch):
    stand_in(monkeypatch)
    pool = BufferPool(kernels().pin)
    for waits in (True, False):
        buffer = pool.take(ROWS.nbytes)
        staged = filled(buffer.data[: ROWS.nbytes].view(np.float32).reshape(ROWS.shape))
        out = gathered(STAGED, Tiers(staged=staged))
        if waits:
            kernels().synchronize()
        buffer.release()
        assert ("a buffer of a pool" in accelerator.take_fault()) == (not waits)
        del out


def test_rows_of_a_peer_are_unmapped_behind_the_launches_of_their_device_and_freed_too_early_by_another():
    first, second = SimulatedBackend(0), SimulatedBackend(1)
    own, handle = first.export_rows(ROWS)
    peer = second.open_peer(handle)
    accelerator.load().simulated_set_device(1)
    slots = kernels(1).upload(np.arange(4, dtype=np.int32) | PEER << 29)
    outs = []
    for dropped in ("peer", "own"):
        peer = peer or second.open_peer(handle)
        outs.append(torch.empty(4, 3, device="simulated:1"))
        gather_there(slots, peer, outs[-1])
        if dropped == "peer":
            peer = None
            assert not accelerator.take_fault()
        else:
            del own
            assert "memory of a device that others have mapped" in accelerator.take_fault()
    for out in outs:
        np.testing.assert_array_equal(out.cpu().numpy(), ROWS)


def gather_there(slots: Any, peer: Any, out: torch.Tensor) -> None:
    gather_tiered_cuda(slots, Tiers(peers=(peer,), peer_stride=len(peer)), out, kernels(1), trusted=True)


def test_a_late_copy_begins_where_pinned_memory_does():
    """Else torch does not know that the memory is still read, and lends it again."""
    staged = kernels().pinned((8,), np.int32)
    there = torch.empty(8, dtype=torch.int32, device=accelerator.NAME)
    there.copy_(torch.from_numpy(staged), non_blocking=True)
    torch.from_numpy(staged).copy_(there, non_blocking=True)
    assert not accelerator.take_fault()
    there[:4].copy_(torch.from_numpy(staged[4:]), non_blocking=True)
    assert "in the middle of pinned memory" in accelerator.take_fault()


@given(st.lists(st.sampled_from(["hold", "wait"]), max_size=30))
def test_held_arrays_are_kept_until_their_launches_are_done_and_no_more_of_them_than_said(steps):
    kept, done = HeldArrays(), []
    for step in steps:
        if step == "hold":
            number = len(done)
            done.append(False)
            kept.add(
                np.empty(1), lambda number=number: done[number], lambda number=number: done.__setitem__(number, True)
            )
        elif done:
            done[:] = [True] * len(done)
        held = len(kept._arrays)
        assert done.count(False) <= held <= HeldArrays.MOST


def peers(home: Any, **more: Any) -> Any:
    return train_parts(home, 2, settings={"exchange": "peer"}, memory={"device": "30%", "host": "10%"}, **more)


ENDING: dict[str, Any] = {
    "mapped": train_small,
    "cached": lambda home, **more: train_small(home, memory=CACHED, **more),
    "cached and mapped": lambda home, **more: train_small(
        home, memory={"device": "2KiB", "host": 0, "seed": 3}, **more
    ),
    "pinned": lambda home, **more: train_small(home, features="memory", **more),
    "sampled over the bus": lambda home, **more: train_small(home, features="memory", topology="uva", **more),
    "disk": lambda home, **more: train_packed(build_packed(home), home, **more),
    "fresh": train_fresh,
    "fresh, ahead": lambda home, **more: train_fresh(
        home, fresh={"policy": "performance+features", "lookahead": 1}, **more
    ),
    "fresh, cached": lambda home, **more: train_fresh(
        home, features="memory", memory={"device": "2KiB", "host": "64KiB"}, **more
    ),
    "fresh-factored": lambda home, **more: train_fresh(home, trainer="fresh-factored", features="memory", **more),
    "parts": lambda home, **more: train_parts(home, 2, **more),
    "parts and peers": peers,
    "parts, fresh": lambda home, **more: train_parts(home, 2, fresh={}, **more),
    "whole": lambda home, **more: train_whole(home, parts=2, **(more | {"epochs": 9})),
    "samplers and trainers": DRAWN_THERE["factored"],
}


@pytest.mark.parametrize("name", ENDING)
@pytest.mark.parametrize("after", [0, 2, 7])
def test_a_training_that_ends_anywhere_gives_nothing_back_too_early(tmp_path, monkeypatch, name, after):
    """Its arrays go with the error; the fixture of tests/conftest.py looks at what is given back."""
    stand_in(monkeypatch)
    with seeing(0), pytest.raises(ConnectionAbortedError):
        ENDING[name](tmp_path, progress=Stops(after), **TYPICAL)
    gc.collect()
