"""Softmax attention over a block on a GPU; the rule is in kernels/layers/attention.py, the kernels in kernels/cuda/layers/attention.cu.

Memory besides results: with a mask or weights of edges one more array like alpha, forward and backward; backward the gradients of scores,
another one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels.arrays import sum_dtype
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import C_TYPES, NUMPY, address, block_lists, launch, matrix, pack_and_team
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.aggregate_cuda import own_destinations
from graphmill.kernels.types import Block

NOTHING = np.uint64(0)


@dataclass(frozen=True)
class Attention:
    """What both passes take, on a device; kept and scale are those of a mask, or None and 1."""

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
    def _dtype(self) -> str:
        return matrix(self.z, "z", self.device, self.block.num_src)[1]

    @property
    def _heads(self) -> int:
        return self.left.shape[1]

    @property
    def _width(self) -> int:
        return self.z.shape[1]

    @property
    def _number(self) -> Any:
        return sum_dtype(NUMPY[self._dtype]).type

    @property
    def _num_edge_rows(self) -> int:
        return len(self.block.indices) + self.block.num_dst

    def _at(self, array: Any, what: str = "an array") -> np.uint64:
        return NOTHING if array is None or 0 in array.shape else np.uint64(self.device.pointer(array, what))

    def _rows(self) -> tuple[Any, ...]:
        """Returns the arguments start, end, indices, dst_pos, number of edges."""
        return *block_lists(self.block, self.device), np.int32(len(self.block.indices))

    def _scores(self) -> tuple[Any, ...]:
        """Returns the arguments left, right, slope, mask, scale, weights."""
        return self._at(self.left), self._at(self.right), self._number(self.slope), *self._after()

    def _after(self) -> tuple[Any, ...]:
        """Returns the arguments mask, scale, weights: the factors after the softmax."""
        weights = address(self.weight, "weight", self.device, len(self.block.indices), "float32")
        return self._at(self.kept), self._number(self.scale), weights

    @property
    def _weakened(self) -> bool:
        """Whether there are factors after the softmax; weights of no edges are none, as the kernels see them by their address."""
        return self.kept is not None or (self.weight is not None and len(self.block.indices) > 0)

    def _launch(self, name: str, threads: int, arguments: tuple[Any, ...], **defines: Any) -> None:
        if threads:
            given = {"ELEMENT": C_TYPES[self._dtype][0], "PACK": 1, "TEAM": 32, "BACKWARD": 0} | defines
            launch(self.device, "layers/attention", name, threads, arguments, given)

    def _factors(self, alpha: Any) -> Any:
        """Returns [E + num_dst, H], the weights times their factors after the softmax; the weights themselves without such factors."""
        if not self._weakened:
            return alpha
        factors = self.device.empty((self._num_edge_rows, self._heads), self._number)
        count = self._num_edge_rows * self._heads
        sizes = np.int32(len(self.block.indices)), np.int32(self._heads)
        arguments = self._at(alpha), *self._after(), *sizes, self._at(factors), np.int64(count)
        self._launch("weaken", count, arguments)
        return factors

    def _spread(self, lists: tuple[Any, ...], factors: Any, rows: Any, out: Any, num_rows: int, backward: bool) -> None:
        """Writes out[r] = sum of factor * row over the edges of r."""
        places = [self._at(rows), self._at(out)]
        pack, team = pack_and_team(self._width, self._dtype, places)
        sizes = np.int64(num_rows), *map(np.int32, (self._width // pack, self._heads, self._width // self._heads))
        arguments = (*lists, np.int32(len(self.block.indices)), self._at(factors), *places, *sizes)
        threads = num_rows * team if self._width else 0
        self._launch("spread", threads, arguments, PACK=pack, TEAM=team, BACKWARD=int(backward))

    def attend(self, out: Any, alpha: Any) -> None:
        """Attends from every destination to its sources and itself; see `graphmill.kernels.layers.attention.attend`."""
        block, device, heads = self.block, self.device, self._heads
        matrix(out, "out", device, block.num_dst, self._width)
        factors = alpha if not self._weakened else device.empty((self._num_edge_rows, heads), self._number)
        sizes = np.int32(block.num_dst), np.int32(heads)
        arguments = (*self._rows(), *self._scores(), self._at(alpha), self._at(factors), *sizes)
        self._launch("weigh", block.num_dst * heads, arguments)
        begins, ends, sources, dst_pos, _ = self._rows()
        lists = begins, ends, sources, NOTHING, dst_pos, np.int32(block.num_dst)
        self._spread(lists, factors, self.z, out, block.num_dst, False)

    def backward(self, alpha: Any, grad_out: Any, out: tuple[Any, Any, Any]) -> None:
        """Sends the gradient of `attend` back; see `graphmill.kernels.layers.attention.attend_backward`."""
        block, device, heads = self.block, self.device, self._heads
        if block.t_start is None or block.t_edge is None or block.t_dst is None:
            problem = "the block has no transpose of its present edges, which the backward pass needs"
            raise InputError(problem, 'sample with transpose="all"')
        matrix(grad_out, "grad_out", device, block.num_dst, self._width)
        of_z, of_left, of_right = out
        shape, depth = (self._num_edge_rows, heads), self._width // heads
        products, factors = device.empty(shape, self._number), self._factors(alpha)
        starts = address(block.t_start, "t_start", device, block.num_src + 1)
        edges, dsts = (address(getattr(block, name), name, device) for name in ("t_edge", "t_dst"))
        inverse = own_destinations(block, device)
        own, num_own, num_edges = self._at(inverse), np.int32(block.num_dst), np.int32(len(block.indices))
        sizes = np.int32(block.num_src), np.int32(self._width), np.int32(heads), np.int32(depth)
        lanes = 8 if self._number is np.float64 else 16
        read = self._at(grad_out), self._at(self.z), self._at(products)
        products_of = (starts, edges, dsts, own, num_own, num_edges, *read)
        self._launch("multiply", block.num_src * lanes, (*products_of, *sizes))
        lists = (starts, starts + np.uint64(4), dsts, edges, own, num_own)
        self._spread(lists, factors, grad_out, of_z, block.num_src, True)
        scores = (*self._rows(), *self._scores(), self._at(alpha), self._at(products), self._at(of_right))
        self._launch("grade", block.num_dst * heads, (*scores, np.int32(block.num_dst), np.int32(heads)))
        pulled = (starts, edges, own, num_own, num_edges, self._at(products), self._at(of_left))
        self._launch("pull", block.num_src * heads, (*pulled, np.int32(block.num_src), np.int32(heads)))
