"""What an accelerator does with memory: staging in pieces, pinned arrays that stay, what is free, what is told when it is not enough."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.batches.batch import extract_batch
from graphmill.trainers.devices.accelerator import ALIGNMENT, Accelerator
from graphmill.trainers.devices.cuda import CudaBackend
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.loop.device_room import free_device_bytes
from graphmill.trainers.record.ledger import Ledger, Line
from tests.accelerator.backend import SimulatedBackend, stand_in
from tests.assets.budgets.test_budgets import write_measured
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.runs import train_small

LINE = Line("h2d", "topology")


@pytest.mark.parametrize("piece_bytes", [1, 100, 256, 1000, 1 << 20])
def test_arrays_are_sent_whole_by_staging_memory_of_a_piece(monkeypatch, piece_bytes):
    monkeypatch.setattr("graphmill.trainers.devices.accelerator.PIECE_BYTES", piece_bytes)
    device, ledger, lent = Accelerator(SimulatedBackend()), Ledger(), []
    monkeypatch.setattr(device, "staging", lambda shape, dtype: lent.append(shape[0]) or np.empty(shape, dtype))
    arrays = [np.arange(70, dtype=np.int64), np.empty(0, np.int32), np.arange(12, dtype=np.float32).reshape(4, 3)]
    found = device.send(arrays, LINE, ledger)
    for array, there in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(there.cpu().numpy(), array)
    whole = sum(-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays)
    assert sum(lent) == whole and max(lent) <= piece_bytes
    (row,) = ledger.rows()["moves"]
    assert (row["requests"], row["asked_bytes"], row["moved_bytes"]) == (1, 560 + 48, whole)


def test_arrays_that_stay_on_the_host_take_their_own_bytes_and_share_no_page():
    """The driver pins whole pages, each once; torch's pool would round to a power of two and keep the memory."""
    device = Accelerator(SimulatedBackend())
    arrays = [device.host_array((3, 5), np.float32) for _ in range(20)]
    pages = [
        page
        for array in arrays
        for page in range(array.ctypes.data // PAGE_BYTES, (array.ctypes.data + array.nbytes - 1) // PAGE_BYTES + 1)
    ]
    assert len(pages) == len(set(pages)) == 20 and all(array.ctypes.data % PAGE_BYTES == 0 for array in arrays)
    assert [device.backend.kernels.rows(array, "rows").count for array in arrays] == [3] * 20  # the device reads them
    view = arrays.pop()[1:]
    assert device.backend.kernels.rows(view, "a view of rows") is not None  # pinned for as long as any view lives
    assert device.host_array((0, 5), np.float32).shape == (0, 5)


def test_an_evaluation_that_does_not_fit_names_its_own_key(tmp_path, monkeypatch):
    stand_in(monkeypatch)

    def full(*given):
        raise torch.OutOfMemoryError("out of memory: tried to allocate 7 bytes\nmore")
        yield

    monkeypatch.setattr("graphmill.trainers.inference.exact.Inference._ranges", full)
    with pytest.raises(OverBudget, match=r"evaluation on simulated:0 .*7 bytes(?s:.*)remedy: lower `eval_workspace`"):
        train_small(tmp_path, device="cuda")


def test_a_sampled_evaluation_that_does_not_fit_names_its_own_key(tmp_path, monkeypatch):
    stand_in(monkeypatch)

    def full(batching, *given):
        if batching.transpose == "none":  # a batch of an evaluation
            raise torch.OutOfMemoryError("out of memory")
        return extract_batch(batching, *given)

    monkeypatch.setattr("graphmill.trainers.batches.source.extract_batch", full)
    with pytest.raises(OverBudget, match="remedy: lower `eval_workspace`"):
        train_small(tmp_path, device="cuda", eval="sampled", epochs=1)


def test_what_is_free_goes_to_rows_but_for_what_the_training_needs():
    assert free_device_bytes(1600, 400, 100, 300, 50) == 1600 - 100 - 50 - (500 + 100)
    assert free_device_bytes(1600, 400, 100, 900, 50) == 1600 - 100 - 50 - 900
    assert free_device_bytes(1600, 4000, 0, 0, 0) == 0


@pytest.mark.parametrize("topology", ["host", "uva", "device"])
def test_an_automatic_device_takes_what_the_accelerator_has_free(tmp_path, monkeypatch, topology):
    """A share of the machine's memory, which "auto" is on the CPU, says nothing of a GPU's."""
    stand_in(monkeypatch)
    write_measured(tmp_path, 1 << 20)
    small = {"queue": "64KiB", "eval_workspace": "16KiB", "topology": topology, "device": "cuda"}
    memory = {"device": "auto", "host": 0}
    rows, row_bytes = 90, 48
    peak = train_small(tmp_path, memory=memory, **small).run_record()["cache"]["simulated_peak_bytes"]
    graph = random_graph_artifacts(tmp_path).open().topology
    graph_bytes = {"host": 0, "uva": 16 * 400, "device": 16 * 400 + 401 * 8 + graph.num_edges * 4}[topology]
    beside = graph_bytes + peak * 5 // 4 + (64 << 10)
    free = next(free for free in range(1 << 20) if free - free // 16 - beside == rows * row_bytes)
    monkeypatch.setattr(SimulatedBackend, "free_bytes", lambda self: free)
    record = train_small(tmp_path, memory=memory, retrain=True, **small).run_record()["cache"]
    assert (record["device_budget_bytes"], record["device_rows"]) == (rows * row_bytes, rows)


def test_a_stream_is_used_again_by_whoever_comes_next(monkeypatch):
    """Torch keeps the freed memory of each stream apart: a stream per thread would keep that of every epoch's threads."""
    made = []

    class Stream:
        def __init__(self, device):
            made.append(self)

        def record_event(self):
            return self

        def synchronize(self):
            pass

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    backend = object.__new__(CudaBackend)
    backend.torch_device, backend._idle = torch.device("cuda", 0), []
    backend.kernels = SimpleNamespace()
    device = Accelerator(backend)

    def one():
        with device.preparing():
            pass

    for _ in range(3):
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
    assert len(made) == 1
    with device.preparing(), device.launching():
        assert len(made) == 2
    with pytest.raises(InputError), device.preparing():
        raise InputError("a batch", "none")
    assert len(backend._idle) == len(made) == 2
