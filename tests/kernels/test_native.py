"""The kernels that are imported are the ones beside these tests, and they take and return numbers as NumPy has them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill import kernels
from graphmill.kernels import _native
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.edge_records import sort_ends
from graphmill.kernels.graph.generate import rmat_edges, rmat_labels
from graphmill.kernels.graph.text_columns import LineForm, text_columns
from graphmill.kernels.history.csr2 import prune
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import random_topology

ROOT = Path(__file__).resolve().parents[2]
GRAPH = random_topology(30, 200, dtype=np.int64)
ENDS = np.array([0, 3, 3, 1]), np.array([1, 2, 2, 0])
RECORDS = np.array([(1, 0), (1, 0), (0, 2)], [("dst", np.int64), ("src", np.int64)])


def test_kernels_are_ours():
    # A package on the index provides a module of the same name; it must not stand in front of this folder.
    assert Path(kernels.__file__ or "").resolve().parent == ROOT / "kernels"
    assert Path(_native.BUILD_FILE).resolve().parent == ROOT / "kernels" / "_native"


def arrays(found: Any) -> Iterator[np.ndarray]:
    """The arrays in a result, at any depth."""
    if isinstance(found, np.ndarray):
        yield found
    elif isinstance(found, (tuple, list)):
        for each in found:
            yield from arrays(each)
    elif hasattr(found, "__dataclass_fields__"):
        for name in found.__dataclass_fields__:
            yield from arrays(getattr(found, name))


def sampled(replace: Any = False) -> Any:
    return Sampler(GRAPH, [3, 2], seed=1, replace=replace).sample(BatchKey(0, 0, 0), [4, 7], transpose="all")


WITH_FLAGS: dict[str, Callable[[Any], Any]] = {
    "sample": sampled,
    "csc": lambda flag: build_csc(*ENDS, 4, undirected=flag, duplicates="merge", self_loops="keep"),
    "alias": lambda flag: build_alias(GRAPH, np.ones(30 if flag else 200), of_nodes=flag),
    "edges": lambda flag: rmat_edges(16, 40, 1, scramble=flag),
    "labels": lambda flag: rmat_labels(16, 3, 1, scramble=flag),
    "ends": lambda flag: sort_ends(RECORDS, 0, 3, merge=flag),
}


@pytest.mark.parametrize("name", WITH_FLAGS)
@pytest.mark.parametrize("flag", [False, True])
def test_a_bool_of_numpy_is_a_bool(name: str, flag: bool) -> None:
    """nanobind takes Python's own alone, so the front doors make it one."""
    call = WITH_FLAGS[name]
    for found, expected in zip(arrays(call(np.bool_(flag))), arrays(call(flag)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "call",
    [
        sampled,
        lambda: prune(sampled(), [np.full(sampled()[0].num_dst, -1, np.int32)]),
        lambda: build_csc(*ENDS, 4, undirected=True, duplicates="keep", self_loops="keep"),
        lambda: sort_ends(RECORDS, 0, 3, merge=True),
        lambda: text_columns(b"1 2\n3 4\n", 0, 8, LineForm(separator=" ", num_fields=2), [(0, False)]),
    ],
    ids=["sample", "prune", "csc", "ends", "text"],
)
def test_whole_numbers_of_64_bits_are_numpys_int64(call: Callable[[], Any]) -> None:
    """C has two types of 64 bits. They are equal to NumPy, but only the elements of one are instances of numpy.int64."""
    wide = [array for array in arrays(call()) if array.dtype.kind in "iu" and array.dtype.itemsize == 8]
    assert wide
    assert {array.dtype.char for array in wide} <= {"l", "L"}
