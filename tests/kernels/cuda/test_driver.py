"""Which GPU a process of several takes, said without the driver."""

import pytest

from kernels.cuda.driver import VISIBLE, gpu_of_rank


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
    monkeypatch.setattr("kernels.cuda.driver.KERNEL_GPUS", tmp_path)
    for number in range(folders):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
    environment = {} if named is None else {VISIBLE: named}
    assert [gpu_of_rank(rank, environment) for rank in range(3)] == taken
