"""No operation of a run is the first of its kind in the process: that one may differ from all later ones where threads share it."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from graphmill.trainers.devices.torch_threads import VECTOR_MATH, on_threads, torch_threads
from tests import forks
from tests.e2e.commands import ROOT

# Prints, for every function, how many numbers each of its calls had while a process trained or computed.
RECORDED = """
import json, sys
from pathlib import Path
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from tests.trainers.runs import train_small
from graphmill.trainers.devices.torch_threads import VECTOR_MATH, torch_threads

class Record(TorchDispatchMode):
    calls = {}
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__.rstrip("_")
        if name in VECTOR_MATH:
            self.calls.setdefault(f"{name} {args[0].dtype}", []).append(args[0].numel())
        return function(*args, **(kwargs or {}))

with Record():
    if sys.argv[1] == "train":
        train_small(Path(sys.argv[2]), hidden=64)
    else:
        for _ in range(2):
            with torch_threads(2):
                torch.rand(8192).exp()
print(json.dumps(Record.calls))
"""


def recorded(what: str, folder: Path) -> dict[str, list[int]]:
    done = forks.run(["-c", RECORDED, what, str(folder)], cwd=ROOT, imports=forks.TRAININGS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_training_computes_with_functions_that_were_called_before(tmp_path: Path) -> None:
    calls = recorded("train", tmp_path)
    assert {name: sizes[0] for name, sizes in calls.items()} == {
        f"{name} {dtype}": 1 for name in VECTOR_MATH for dtype in (torch.float32, torch.float64)
    }
    assert max(calls["sqrt torch.float32"]) >= 64  # Adam's: what this is about is there


def test_the_first_calls_are_made_once_a_process(tmp_path: Path) -> None:
    calls = recorded("compute", tmp_path)
    assert calls["exp torch.float32"] == [1, 8192, 8192] and calls["tanh torch.float64"] == [1]


def test_every_function_that_this_torch_gives_to_mkl_is_called() -> None:
    header = Path(torch.__file__).parent / "include/ATen/cpu/vml.h"
    if not header.exists():
        pytest.skip(f"this torch has no {header}")
    names = re.findall(r"^IMPLEMENT_VML_MKL\((\w+),", header.read_text(), re.MULTILINE)
    assert set(names) == set(VECTOR_MATH)


def test_the_number_of_threads_comes_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_pieces_are_computed_with_the_number_whichever_thread_asks() -> None:
    def pieces() -> Iterator[int]:
        for _ in range(4):
            yield torch.get_num_threads()

    before = torch.get_num_threads()
    asked = on_threads(pieces(), before + 2)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.set_num_threads, 1).result()
        found = [pool.submit(next, asked).result(), next(asked), pool.submit(next, asked).result()]
        assert pool.submit(torch.get_num_threads).result() == 1
    assert [*found, *asked] == [before + 2] * 4 and torch.get_num_threads() == before
