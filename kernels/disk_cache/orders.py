"""Orders of a segment's disk cache: nodes that the same batches want stand on the same pages.

The cache holds each row once, and a batch reads every page that holds one of its rows. So nodes with similar membership (the set
of the segment's batches that want them) should be neighbours.

`minhash_order` is DiskGNN's Algorithm 1: k permutations of the batches; a node's signature is the least value of its batches
under each; nodes are sorted by signature. (As printed, line 11 folds all k minima into one number; the text's purpose, fewer
collisions, needs a signature of k numbers, and that is built.) Two hashes keep two members of a set and forget the rest.

`gray_order` keeps the whole set: membership is a vector of one bit per batch, and nodes are sorted by the vector's place in the reflected
Gray code, where neighbours in the code differ in one batch. A batch's nodes are contiguous under the first two bits, in two ranges under
the third, four under the fourth. With `row_bytes` the pages are then filled greedily: among the next `window` nodes of the Gray order a
page takes the one that brings the fewest new batches, ties to the most shared ones, then to the earlier. The first node of an empty page is
the one most like the page before, which keeps ranges of pages long; a row that straddles pages is the first one of the later.

Both are heuristics: the best order is a hard combinatorial problem (consecutive block minimisation of a 0/1 matrix). Sorting rows in Gray
code is also known from bitmap indexes. Not checked: that a batch names a node once.

Cost for m nodes, B batches, n memberships: O(n + m log m) for both, plus m * window * ceil(B / 64) popcounts at most for filling:
costs are counted anew only when the page has taken a node with a new batch. Memory: m (ceil(B / 64) 16 + 28) bytes and 1.1 bits for
each id up to the largest. Nothing depends on the number of threads: filling works on pieces of 65,536 nodes, whole pages at any width.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key, permutation
from graphmill.kernels.rows.pages import PAGE_BYTES, check_ptr
from graphmill.kernels.types import Array, Stream

MINHASH = 16  # the word after the stream of generators; kernels/graph/generate.py has the small ones
PIECE = 65536
WINDOW = 1024


def membership_reference(ptr: Array, ids: Array) -> tuple[Array, Array]:
    """Returns (ids[m] ascending, bool[m, B]): the segment's nodes and which batches want them."""
    nodes = np.unique(ids)
    members = np.zeros((len(nodes), len(ptr) - 1), bool)
    members[np.searchsorted(nodes, ids), np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))] = True
    return nodes, members


def minhash_order_reference(ptr: Array, ids: Array, seed: int, num_hashes: int = 2) -> Array:
    """Returns the same as `minhash_order` (the rule in NumPy)."""
    nodes, members = membership_reference(ptr, ids)
    hashes = _permutations(seed, num_hashes, members.shape[1])
    signatures = [np.where(members, each, len(each)).min(axis=1, initial=len(each)) for each in hashes]
    return nodes[np.lexsort([nodes, *reversed(signatures)])]


def gray_order_reference(ptr: Array, ids: Array, row_bytes: int = 0, window: int = WINDOW) -> Array:
    """Returns the same as `gray_order` (the rule in NumPy)."""
    nodes, members = membership_reference(ptr, ids)
    ranks = np.bitwise_xor.accumulate(members, axis=1)
    order = np.lexsort([nodes, *ranks.T[::-1]])
    if row_bytes % PAGE_BYTES:
        pieces = [order[first : first + PIECE] for first in range(0, len(order), PIECE)]
        filled = [_fill_reference(piece, members, row_bytes, window) for piece in pieces]
        order = np.concatenate([order[:0], *filled])
    return nodes[order]


def _fill_reference(order: Array, members: Array, row_bytes: int, window: int) -> Array:
    rest, out, taken = [], [], 0
    page, last = np.zeros(members.shape[1], bool), -1
    for place in range(len(order)):
        first, offset = divmod(place * row_bytes, PAGE_BYTES)
        opens = offset == 0
        if first != last:
            refill = min(window - len(rest), len(order) - taken)
            rest += range(taken, taken + refill)
            taken += refill
        sets = members[order[rest]]
        new, shared = (sets & ~page).sum(axis=1), (sets & page).sum(axis=1)
        cost = (sets ^ page).sum(axis=1) if opens else new * (sets.shape[1] + 1) - shared
        best = int(np.argmin(cost))  # the earliest of equals: `rest` ascends
        straddles = offset + row_bytes > PAGE_BYTES
        page, last = (sets[best] if opens or straddles else page | sets[best]), first
        out.append(order[rest.pop(best)])
    return np.array(out, order.dtype)


def minhash_order(ptr: Any, ids: Any, *, seed: int, num_hashes: int = 2) -> Array:
    """Orders a segment's nodes by MinHash signatures of their batches (DiskGNN, Algorithm 1).

    Args:
        ptr: i64[B+1]; batch b wants ids[ptr[b]:ptr[b+1]].
        ids: ids[n], global; every one that occurs is a node of the cache.
        seed: seed of the run, which draws the permutations of the batches.
        num_hashes: k, 1 or more.

    Returns:
        ids[m], each node once; equal signatures stand by node id.
    """
    ptr, ids = _as_batches(ptr, ids)
    if not 1 <= num_hashes <= 64:
        raise InputError(f"num_hashes = {num_hashes}", "give a number in 1..64; the paper uses 2")
    return _native.minhash_order(ptr, ids, _permutations(seed, num_hashes, len(ptr) - 1))


def gray_order(ptr: Any, ids: Any, *, row_bytes: int = 0, window: int = WINDOW, threads: int = 1) -> Array:
    """Orders a segment's nodes by their membership's place in the Gray code, then fills pages from it.

    Args:
        ptr, ids: lists of `minhash_order`; batch 0 is the highest bit.
        row_bytes: bytes per row, so that pages are filled; 0, or a multiple of a page, leaves the plain Gray order.
        window: nodes that a page is filled from.

    Returns:
        ids[m], each node once; equal memberships stand by node id before filling.
    """
    ptr, ids = _as_batches(ptr, ids)
    if row_bytes < 0 or not rows_of_page(row_bytes) <= window <= PIECE:
        problem = f"row_bytes = {row_bytes}, window = {window}"
        raise InputError(problem, f"give 0 or more bytes, and a window of at least a page's rows, at most {PIECE}")
    fill = row_bytes % PAGE_BYTES != 0
    return _native.gray_order(ptr, ids, row_bytes if fill else 0, PAGE_BYTES, window, PIECE, check_threads(threads))


def rows_of_page(row_bytes: int) -> int:
    """Returns how many rows begin on one page, at most: the least window."""
    return -(-PAGE_BYTES // row_bytes) if row_bytes else 1


def _permutations(seed: int, num_hashes: int, num_batches: int) -> Array:
    keys = [key(seed, Stream.GENERATORS, MINHASH, number) for number in range(num_hashes)]
    return np.array([permutation(each, num_batches) for each in keys], np.int32).reshape(num_hashes, num_batches)


def _as_batches(ptr: Any, ids: Any) -> tuple[Array, Array]:
    ids = as_ids(ids, "ids")
    ptr = check_ptr(ptr, len(ids))
    if len(ids) and ids.min() < 0:
        raise InputError(f"node id {ids.min()} in a batch", "give ids of 0 or more")
    return ptr, ids
