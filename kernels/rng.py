"""Counter-based random numbers: every random decision is a pure function of named words.

A key absorbs words in a fixed order: seed, stream, epoch, step, layer, node or edge. A draw is the key and a counter. So a
decision does not depend on the thread, rank or device that makes it, nor on earlier decisions, and a run that is resumed makes the same
decisions again. All arithmetic is in unsigned 64-bit integers, which agree everywhere; floats are made from integers by exact operations,
without a mathematical library.

    mix(z)        z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB; z ^= z >> 31
    absorb(h, w)  mix((h ^ w) + GOLDEN), from h = 0
    draw(h, i)    mix(h + (i + 1) * GOLDEN): the i-th 64 bits of key h, as SplitMix64 seeded with h gives them
    bounded(x, n) the high 64 bits of x * n, in 0..n-1; the bias is below n / 2^64

Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014 (the mixing constants are Stafford's
variant 13). native/rng.h is the same rule for C++ and CUDA. The layer word is the block's index: 0 consumes features.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
NORMAL_VARIANCE = 43690  # of `normal_int`: eight bytes, each uniform on 256 values
BYTE_SUM_MEAN = 1020


def _mix_int(z: int) -> int:
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def _mix(z: Array) -> Array:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def key(*words: int) -> int:
    """Returns the key in 0..2^64-1 that names the words, absorbed in order; a word is taken modulo 2^64."""
    h = 0
    for word in words:
        h = absorb(h, word)
    return h


def absorb(h: int, word: int) -> int:
    """Returns the key that follows key h when one more word is appended: key(a, b) == absorb(key(a), b)."""
    return _mix_int((h ^ int(word) & MASK) + GOLDEN & MASK)


def bounded(x: int, n: int) -> int:
    """Maps 64 random bits x to 0..n-1 (n below 2^63) by the high half of their product."""
    return x * n >> 64


def bounded_each(x: Array, n: Any) -> Array:
    """Returns u64: `bounded` of random bits u64 and bounds n, integers below 2^63, broadcast against each other."""
    n = np.asarray(n).astype(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x_high, x_low, n_high, n_low = x >> half, x & low, n >> half, n & low
    middle = x_high * n_low + (x_low * n_low >> half)
    other = x_low * n_high + (middle & low)
    return x_high * n_high + (middle >> half) + (other >> half)


def absorb_ids_reference(h: int, ids: Array) -> Array:
    """Returns u64[n]: absorb(h, id) of every id (the rule in NumPy)."""
    return _mix((np.uint64(h) ^ np.asarray(ids).astype(np.uint64)) + np.uint64(GOLDEN))


def absorb_ids(h: int, ids: Any, *, threads: int = 1) -> Array:
    """Returns u64[n]: the keys absorb(h, id) of ids[n] (nodes or edges)."""
    ids = as_ids(ids, "ids")
    out = np.empty(len(ids), np.uint64)
    _native.absorb_ids(h & MASK, ids, out, check_threads(threads))
    return out


def draws(h: Array | int, i: Any) -> Array:
    """Returns u64: the draws number i of the keys h, broadcast against each other (i may be one counter or an array)."""
    keys = np.asarray(h if isinstance(h, np.ndarray) else np.uint64(h & MASK))
    shape = np.broadcast_shapes(keys.shape, np.shape(i))
    # At least one dimension: NumPy warns of wrapping in scalars only, and here it is meant.
    counters = np.atleast_1d(np.asarray(i)).astype(np.uint64) + np.uint64(1)
    return _mix(np.atleast_1d(keys) + counters * np.uint64(GOLDEN)).reshape(shape)


def permutation(h: int, n: int) -> Array:
    """Returns i64[n], a permutation of 0..n-1: the positions sorted by absorb(h, position), ties by position."""
    if n < 0:
        raise InputError(f"a permutation of {n} items", "give a count of 0 or more")
    return np.argsort(absorb_ids(h, np.arange(n, dtype=np.int64)), kind="stable")


def uniform(h: int, n: int) -> Array:
    """Returns f32[n] in [0, 1): the multiples of 2^-24 made from the top 24 bits of draws 0..n-1 of key h."""
    return (draws(h, np.arange(n)) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def normal_int_reference(h: int, ids: Array, columns: int) -> Array:
    """Returns i32[n, columns] as `normal_int` does (the rule in NumPy)."""
    bits = draws(absorb_ids_reference(h, ids)[:, None], np.arange(columns)[None, :])
    return bits.astype("<u8").view(np.uint8).reshape(len(ids), columns, 8).sum(axis=2, dtype=np.int32) - BYTE_SUM_MEAN


def normal_int(h: int, ids: Any, columns: int, *, threads: int = 1) -> Array:
    """Draws nearly normal integers, one for each id and column.

    The sum of the eight bytes of draw(absorb(h, id), column), less 1,020. Mean 0, variance 43,690 (deviation 209.02), range
    +-1,020, excess kurtosis -0.15. Integers, so every machine agrees to the bit.

    Args:
        ids: ids[n] of rows: nodes, parameters or classes.

    Returns:
        i32[n, columns].
    """
    ids = as_ids(ids, "ids")
    if columns < 0:
        raise InputError(f"columns = {columns}", "give a count of 0 or more")
    out = np.empty((len(ids), columns), np.int32)
    _native.normal_int(h & MASK, ids, out, check_threads(threads))
    return out
