"""Softmax attention over a block on a GPU; the rule is in kernels/layers/attention.py, the kernels in kernels/cuda/layers/attention.cu.

Memory besides results: with a mask or weights of edges one more array like alpha, forward and backward; backward the gradients of scores,
another one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels.arrays import sum_dtype
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import BLOCK, C_TYPES, NUMPY, address, grid, matrix, pack_and_team
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.aggregate_cuda import own_destinations
from graphmill.kernels.types import Block

NOTHING = np.uint64(0)


@dataclass(frozen=True)
class _Attention:
    """Arguments that several kernels share."""

    block: Block
    z: Any
    left: Any
    right: Any
    slope: float
    kept: Any
    scale: float
    weight: Any
    device: CudaDevice

    def __post_init__(self):
        block, heads, width = self.block, self.left.shape[1], self.z.shape[1]
        if heads == 0 or width % heads or self.right.shape[1] != heads:
            given = f"z has {width} columns, left {heads}, right {self.right.shape[1]}"
            problem = f"heads do not fit together: {given}"
            raise InputError(problem, "give z [num_src, H D], left [num_src, H], right [num_dst, H]")
        dtypes = {
            matrix(self.z, "z", self.device, block.num_src)[1],
            matrix(self.left, "left", self.device, block.num_src)[1],
        }
        dtypes.add(matrix(self.right, "right", self.device, block.num_dst)[1])
        if len(dtypes) > 1:
            raise InputError(f"z, left and right are {', '.join(sorted(dtypes))}", "give one type")

    @property
    def dtype(self) -> str:
        return matrix(self.z, "z", self.device, self.block.num_src)[1]

    @property
    def heads(self) -> int:
        return self.left.shape[1]

    @property
    def width(self) -> int:
        return self.z.shape[1]

    @property
    def number(self) -> Any:
        return sum_dtype(NUMPY[self.dtype]).type

    @property
    def num_edge_rows(self) -> int:
        return len(self.block.indices) + self.block.num_dst

    def at(self, array: Any, what: str = "an array") -> np.uint64:
        return NOTHING if array is None or 0 in array.shape else np.uint64(self.device.pointer(array, what))

    def rows(self) -> tuple[Any, ...]:
        """Returns the arguments start, end, indices, dst_pos, number of edges."""
        block, device = self.block, self.device
        ranges = (address(getattr(block, name), name, device, block.num_dst) for name in ("start", "end"))
        places = address(block.dst_pos, "dst_pos", device, block.num_dst)
        return *ranges, address(block.indices, "indices", device), places, np.int32(len(block.indices))

    def scores(self) -> tuple[Any, ...]:
        """Returns the arguments left, right, slope, mask, scale, weights."""
        return self.at(self.left), self.at(self.right), self.number(self.slope), *self.after()

    def after(self) -> tuple[Any, ...]:
        """Returns the arguments mask, scale, weights: the factors after the softmax."""
        weights = address(self.weight, "weight", self.device, len(self.block.indices), "float32")
        return self.at(self.kept), self.number(self.scale), weights

    @property
    def weakened(self) -> bool:
        """Whether there are factors after the softmax; weights of no edges are none, as the kernels see them by their address."""
        return self.kept is not None or (self.weight is not None and len(self.block.indices) > 0)

    def launch(self, name: str, threads: int, arguments: tuple[Any, ...], **defines: Any) -> None:
        if threads:
            given = {"ELEMENT": C_TYPES[self.dtype][0], "PACK": 1, "TEAM": 32, "BACKWARD": 0} | defines
            kernel = self.device.kernel("layers/attention", name, {key: str(value) for key, value in given.items()})
            kernel(grid(threads, self.device), (BLOCK,), arguments)

    def factors(self, alpha: Any) -> Any:
        """Returns [E + num_dst, H], the weights times their factors after the softmax; the weights themselves without such factors."""
        if not self.weakened:
            return alpha
        factors = self.device.empty((self.num_edge_rows, self.heads), self.number)
        count = self.num_edge_rows * self.heads
        sizes = np.int32(len(self.block.indices)), np.int32(self.heads)
        arguments = self.at(alpha), *self.after(), *sizes, self.at(factors), np.int64(count)
        self.launch("weaken", count, arguments)
        return factors

    def spread(self, lists: tuple[Any, ...], factors: Any, rows: Any, out: Any, num_rows: int, backward: bool) -> None:
        """Writes out[r] = sum of factor * row over the edges of r."""
        places = [self.at(rows), self.at(out)]
        pack, team = pack_and_team(self.width, self.dtype, places)
        sizes = (
            np.int64(num_rows),
            np.int32(self.width // pack),
            np.int32(self.heads),
            np.int32(self.width // self.heads),
        )
        arguments = (*lists, np.int32(len(self.block.indices)), self.at(factors), *places, *sizes)
        threads = num_rows * team if self.width else 0
        self.launch("spread", threads, arguments, PACK=pack, TEAM=team, BACKWARD=int(backward))


def attend_cuda(
    block: Block,
    z: Any,
    left: Any,
    right: Any,
    *,
    slope: float,
    kept: Any,
    scale: float,
    weight: Any = None,
    out: Any,
    alpha: Any,
    device: CudaDevice,
) -> None:
    """Attends from every destination to its sources and itself; see `graphmill.kernels.layers.attention.attend`."""
    given = _Attention(block, z, left, right, slope, kept, scale, weight, device)
    matrix(out, "out", device, block.num_dst, given.width)
    factors = alpha if not given.weakened else device.empty((given.num_edge_rows, given.heads), given.number)
    sizes = np.int32(block.num_dst), np.int32(given.heads)
    arguments = (*given.rows(), *given.scores(), given.at(alpha), given.at(factors), *sizes)
    given.launch("weigh", block.num_dst * given.heads, arguments)
    begins, ends, sources, dst_pos, _ = given.rows()
    given.spread(
        (begins, ends, sources, NOTHING, dst_pos, np.int32(block.num_dst)), factors, z, out, block.num_dst, False
    )


def attend_backward_cuda(
    block: Block,
    z: Any,
    left: Any,
    right: Any,
    alpha: Any,
    grad_out: Any,
    *,
    slope: float,
    kept: Any,
    scale: float,
    weight: Any = None,
    out: tuple[Any, Any, Any],
    device: CudaDevice,
) -> None:
    """Sends the gradient of `attend_cuda` back; see `graphmill.kernels.layers.attention.attend_backward`."""
    given = _Attention(block, z, left, right, slope, kept, scale, weight, device)
    if block.t_start is None or block.t_edge is None or block.t_dst is None:
        problem = "the block has no transpose of its present edges, which the backward pass needs"
        raise InputError(problem, 'sample with transpose="all"')
    matrix(grad_out, "grad_out", device, block.num_dst, given.width)
    of_z, of_left, of_right = out
    shape, heads, depth = (given.num_edge_rows, given.heads), given.heads, given.width // given.heads
    products, factors = device.empty(shape, given.number), given.factors(alpha)
    starts = address(block.t_start, "t_start", device, block.num_src + 1)
    edges, dsts = (address(getattr(block, name), name, device) for name in ("t_edge", "t_dst"))
    inverse = own_destinations(block, device)
    own, num_own, num_edges = given.at(inverse), np.int32(block.num_dst), np.int32(len(block.indices))
    sizes = np.int32(block.num_src), np.int32(given.width), np.int32(heads), np.int32(depth)
    lanes = 8 if given.number is np.float64 else 16
    products_of = (starts, edges, dsts, own, num_own, num_edges, given.at(grad_out), given.at(z), given.at(products))
    given.launch("multiply", block.num_src * lanes, (*products_of, *sizes))
    lists = (starts, starts + np.uint64(4), dsts, edges, own, num_own)
    given.spread(lists, factors, grad_out, of_z, block.num_src, True)
    scores = (*given.rows(), *given.scores(), given.at(alpha), given.at(products), given.at(of_right))
    given.launch("grade", block.num_dst * heads, (*scores, np.int32(block.num_dst), np.int32(heads)))
    pulled = (starts, edges, own, num_own, num_edges, given.at(products), given.at(of_left))
    given.launch("pull", block.num_src * heads, (*pulled, np.int32(block.num_src), np.int32(heads)))
