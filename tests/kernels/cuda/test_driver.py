"""Which GPU a process of several takes, said without the driver; and what a GPU has free, asked without a context on it."""

import pytest

from graphmill.kernels.cuda.driver import VISIBLE, Gpu, free_gpu_bytes, gpu_of_rank, require_gpus
from graphmill.kernels.errors import InputError


@pytest.mark.parametrize(
    ("named", "folders", "taken"),
    [
        (None, 0, [None, None, None]),
        (None, 2, ["0", "1", "0"]),
        ("", 2, [None, None, None]),
        ("5", 2, ["5", "5", "5"]),
        ("GPU-7a, 3", 0, ["GPU-7a", "3", "GPU-7a"]),
    ],
)
def test_ranks_take_the_visible_gpus_in_turn(tmp_path, monkeypatch, named, folders, taken):
    monkeypatch.setattr("graphmill.kernels.cuda.driver.KERNEL_GPUS", tmp_path)
    for number in range(folders):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
    environment = {} if named is None else {VISIBLE: named}
    assert [gpu_of_rank(rank, environment) for rank in range(3)] == taken


def test_ranks_of_several_gpus_take_those_that_stand_side_by_side():
    four, one = {VISIBLE: "4, 5, GPU-7a, 7"}, {VISIBLE: "3"}
    assert [gpu_of_rank(rank, four, 2) for rank in range(3)] == ["4,5", "GPU-7a,7", "4,5"]
    assert [gpu_of_rank(rank, one, 2) for rank in range(2)] == ["3", "3"]


class Library:
    """Stands in for the driver and for NVML: one GPU with 16,000 bytes, of which `free` are free; a call of `failing` fails."""

    def __init__(self, free, failing=""):
        self.free, self.failing, self.open, self.asked = free, failing, 0, []

    def __getattr__(self, name):
        def call(*arguments):
            self.asked.append(name)
            if name == self.failing:
                return 3
            if name == "cuDeviceGetPCIBusId":
                arguments[0].value = b"0000:00:1e.0"
            elif name == "nvmlDeviceGetHandleByPciBusId_v2":
                assert arguments[0].value == b"0000:00:1e.0"
                arguments[1]._obj.value = 77
            elif name == "nvmlDeviceGetMemoryInfo":
                assert arguments[0].value == 77
                arguments[1][:] = [16_000, self.free, 16_000 - self.free]
            self.open += {"nvmlInit_v2": 1, "nvmlShutdown": -1}.get(name, 0)
            return 0

        return call


@pytest.mark.parametrize(
    ("failing", "free", "expected"),
    [
        ("", 9_000, 9_000),
        ("", 99_000, 16_000),
        ("nvmlInit_v2", 9_000, 16_000),
        ("cuDeviceGetPCIBusId", 9_000, 16_000),
        ("nvmlDeviceGetHandleByPciBusId_v2", 9_000, 16_000),
        ("nvmlDeviceGetMemoryInfo", 9_000, 16_000),
    ],
)
def test_the_free_bytes_of_a_gpu_are_asked_without_a_context(monkeypatch, failing, free, expected):
    library = Library(free, failing)
    monkeypatch.setattr("graphmill.kernels.cuda.driver.gpus", lambda: (Gpu("one", 16_000),))
    monkeypatch.setattr("graphmill.kernels.cuda.driver._library", lambda name: library)
    assert free_gpu_bytes() == expected and library.open == 0
    assert not any("Ctx" in name or "Retain" in name for name in library.asked)
    assert free_gpu_bytes(1) is None


def test_without_a_driver_or_nvml(monkeypatch):
    monkeypatch.setattr("graphmill.kernels.cuda.driver._library", lambda name: None)
    monkeypatch.setattr("graphmill.kernels.cuda.driver.gpus", lambda: ())
    assert free_gpu_bytes() is None
    monkeypatch.setattr("graphmill.kernels.cuda.driver.gpus", lambda: (Gpu("one", 16_000),))
    assert free_gpu_bytes() == 16_000


def test_ranks_with_several_gpus_each_do_not_share_them():
    three = {VISIBLE: "0,1,2"}
    require_gpus(3, 1, three)
    require_gpus(4, 1, three)  # one each: they take turns
    require_gpus(1, 3, three)
    with pytest.raises(InputError, match="2 ranks with 2 GPUs each need 4, and the machine shows 3"):
        require_gpus(2, 2, three)
