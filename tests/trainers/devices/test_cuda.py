"""`device = "cuda"` where it cannot work is one message with the remedy, and never a training on the CPU."""

import sys
import types
from contextlib import nullcontext

import pytest
import torch

from graphmill.kernels.cuda import device as cuda_device
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.cuda import CudaBackend
from graphmill.trainers.devices.logical import open_device
from graphmill.trainers.recipe.config import TrainTable
from tests.trainers.runs import train_small


class FakeError(Exception):
    """Stands for CuPy's errors."""


def fake_cupy(monkeypatch, devices=1, message="", compile_message=""):
    """Puts a CuPy in place that finds so many devices, or fails."""

    def count():
        if message:
            raise FakeError(message)
        return devices

    def compiled(program, options):
        raise FakeError("it fails")

    runtime = types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=FakeError, deviceGetAttribute=lambda *_: 1)
    nvrtc = types.SimpleNamespace(
        getVersion=lambda: (0, 0), createProgram=lambda *_: 1, compileProgram=compiled, NVRTCError=FakeError,
        getProgramLog=lambda _: compile_message, destroyProgram=lambda _: None,
    )  # fmt: skip
    device = nullcontext(types.SimpleNamespace(compute_capability="90"))
    function = types.SimpleNamespace(Module=lambda: None)
    cuda = types.SimpleNamespace(runtime=runtime, nvrtc=nvrtc, Device=lambda _: device, function=function)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setattr("graphmill.kernels.cuda.compile._headers", lambda cupy: ())
    for cached in (cuda_device._module, cuda_device._num_multiprocessors):
        cached.cache_clear()


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_torch_for_the_cpu_is_named(monkeypatch, no_gpu):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(
        InputError, match=r'device = "cuda", but torch .* is built for the CPU\n  remedy: install a build for CUDA'
    ):
        open_device("cuda")


def test_cupy_that_is_missing_is_named(monkeypatch, no_gpu):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(InputError, match=r"CuPy is not installed\n  remedy: pip install -e"):
        CudaBackend()


def test_an_old_driver_is_named(monkeypatch, no_gpu):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    fake_cupy(
        monkeypatch, message="cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
    )
    with pytest.raises(InputError, match=r"driver version is insufficient.*\n  remedy: install a driver"):
        CudaBackend()


def test_a_torch_that_does_not_see_the_gpu_is_named(monkeypatch, no_gpu):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    fake_cupy(monkeypatch)
    with pytest.raises(InputError, match=r"\(CUDA 13.0\) finds no GPU that it can use\n  remedy"):
        CudaBackend()


def test_headers_that_are_missing_are_named(monkeypatch):
    fake_cupy(monkeypatch, compile_message='gather.cu(8): catastrophic error: cannot open source file "cuda_fp16.h"')
    with pytest.raises(InputError, match=r"rows/gather.cu does not compile: .*cuda_fp16.h.*\n  remedy: .*\[ctk\]"):
        CudaDevice().kernel("rows/gather", "gather_tiered", {})


def test_a_backend_begins_with_its_own_peak_and_knows_what_is_free(monkeypatch):
    """Torch counts the peak of the process; what its allocator keeps and nothing uses is free as well."""
    fake_cupy(monkeypatch)
    asked = []
    answers = {
        "is_available": True,
        "get_device_properties": types.SimpleNamespace(total_memory=1000),
        "current_stream": "the step's",
        "reset_peak_memory_stats": None,
        "mem_get_info": (600, 1000),
        "memory_reserved": 300,
        "memory_allocated": 120,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name, answer=answer: asked.append(name) or answer)
    backend = CudaBackend()
    assert asked.count("reset_peak_memory_stats") == 1 and backend.total_bytes == 1000
    assert backend.free_bytes() == 600 + 300 - 120


def test_a_training_says_so_and_trains_nothing(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(InputError, match='device = "cuda"'):
        train_small(tmp_path, device="cuda")
    assert not list((tmp_path / "store" / "model").glob("*"))


def test_auto_is_resolved_before_the_version(monkeypatch):
    table = TrainTable(name="a", device="auto")
    for gpus, kind in ((0, "cpu"), (2, "cuda")):
        monkeypatch.setattr("graphmill.trainers.recipe.config.num_gpus", lambda gpus=gpus: gpus)
        assert table.config.device == kind
    assert num_gpus() >= 0


def test_auto_says_what_it_took(tmp_path, monkeypatch):
    monkeypatch.setattr("graphmill.trainers.recipe.config.num_gpus", lambda: 0)
    lines = []
    train_small(tmp_path, device="auto", epochs=1, report=lines.append)
    assert lines[0] == 'small: device = "auto" is cpu on this machine'
