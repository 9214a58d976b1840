"""The chunk that each part computes in each step (HongTu, section 5.3: cost-effective subgraph reorganization).

The volume of host traffic, V_+ru = |U_0| + sum of |U_j minus U_(j-1)|, depends on which chunks form a batch (one per part) and on the order
of the batches. The best schedule is a hard combinatorial problem, for with one part it is a travelling-salesman path.

`identity`: chunk j in step j.

`hongtu`: Algorithm 4. Phase 1 goes through the parts and gives each batch in turn the chunk that shares most with it, greedily; phase 2
starts with batch 0 and appends the batch that shares most with the last one. Line 15 as printed begins at i = 1 and would leave part 0
where it was, which breaks up the batches of phase 1; it begins at 0 here. Ties go to the lowest index. On graphs with locality it can be
worse than the identity, since its gain with one batch may be a later one's loss.

`best`: three batchings (identity, phase 1, and phase 1 with each part's chunks assigned to the batches so that the sum of shared nodes is
the largest, exactly) times two orders (as they are, or by phase 2), each also improved as a path: reversals of ranges and moves of up to
three batches, in either direction, until none helps. The least V_+ru of each batching goes on to a search that swaps two chunks of a part
if that lowers V_+ru itself, in turns with the path's moves, until nothing helps or its share of the budget is used. The least volume is
taken, the first of equal ones. All volumes are counted anew at the end, so the result is never worse than `identity` or `hongtu`.

If the speeds of the links are given, `best` takes the fewest seconds by equation 4 instead, the first of equal ones, and looks at one more
batching: phase 1 assigns each part's chunks to the batches so that the sum of shared nodes is the smallest. Batches that share little fetch
little from peers, which pays if these are slower than the host, as between ranks. Paths and swaps are still led by V_+ru.

The budget counts work, not time, for equal inputs must give equal bytes on every machine: `SEARCH_WORDS` words of 64 nodes, each read for
one swap that is weighed. Only nodes that two chunks share have bits here.

Time for C = m n sets of W words: C n W words for overlaps per batching, m n^3 for the assignments (left out above `MOST_ASSIGNED` chunks
per part), n^2 per pass over a path, n^2 / 2 swaps of W words per pass over a part. Memory: 8 C W bytes for the shared nodes, and 16 n W,
of one range of nodes: everything above is a sum over ranges. Sets that are not held are made anew for each part of each batching, for each
schedule whose volumes are counted, and for each step whose swaps are weighed, of which the budget allows few where there are many ranges.
The result does not depend on the threads, and not on the ranges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.chunks.counts import cost
from graphmill.kernels.chunks.sets import SharedSets, Volumes, overlaps, set_numbers, volumes
from graphmill.kernels.types import Array

Schedule = Literal["identity", "hongtu", "best"]

SEARCH_WORDS = 1 << 33
"""Words that the swap search may weigh."""
PATH_MOVES = 1 << 28
"""Evaluations that the improvement of one path may take."""
MOST_ASSIGNED = 1024
"""Largest number of chunks per part for which the exact assignment, which takes n^3, is solved."""


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A schedule, and the others that it was compared with."""

    # i32[m, n]; part i computes its chunk schedule[i, j] in step j.
    schedule: Array
    # Name -> volumes of every schedule that was looked at; "identity" and "hongtu" are always there.
    found: dict[str, Volumes]
    # The name of the one that was taken.
    chosen: str
    # Words that the swap search weighed.
    search_words: int = 0

    def fewest_rows(self) -> str:
        """Returns the name of the schedule that loads the fewest rows, the first of equal ones."""
        return min(self.found, key=lambda name: self.found[name].v_ru)


def identity_schedule(num_parts: int, chunks_per_part: int) -> Array:
    """Returns i32[m, n]: chunk j in step j."""
    return np.tile(np.arange(chunks_per_part, dtype=np.int32), (num_parts, 1))


def hongtu_schedule_reference(sets: list[set[int]], num_parts: int) -> Array:
    """Returns the schedule of Algorithm 4, line 15 from i = 0, ties to the lowest index (the rule, by set arithmetic)."""
    n = len(sets) // num_parts
    batches, chosen = [set(each) for each in sets[:n]], [list(range(n))]
    for part in range(1, num_parts):
        left, taken = list(range(n)), []
        for batch in batches:
            k = max(left, key=lambda a: (len(sets[part * n + a] & batch), -a))
            batch |= sets[part * n + k]
            taken.append(k)
            left.remove(k)
        chosen.append(taken)
    order, left = [0], list(range(1, n))
    while left:
        order.append(max(left, key=lambda a: (len(batches[a] & batches[order[-1]]), -a)))
        left.remove(order[-1])
    return np.array([[taken[j] for j in order] for taken in chosen], np.int32)


def choose_schedule(
    sets: SharedSets,
    num_parts: int,
    schedule: Schedule = "best",
    *,
    rates: tuple[float, float, float] | None = None,
    search_words: int = SEARCH_WORDS,
    threads: int = 1,
) -> Scheduled:
    """Returns the schedule that `schedule` names, with its volumes.

    Args:
        sets: neighbour sets of the m n chunks, by their numbers.
        schedule: "identity", "hongtu" or "best".
        rates: (T_hd, T_dd, T_ru) in rows per second, by which "best" counts seconds; None to count rows from the host.
        search_words: budget of the swap search of "best".
    """
    n = len(sets.sizes) // num_parts
    identity = identity_schedule(num_parts, n)
    greedy = _batch_chunks(sets, num_parts, _take_greedily, check_threads(threads))
    hongtu = _reordered(greedy, _order_greedily(_batch_overlaps(sets, greedy, threads)))
    found = {"identity": volumes(sets, identity, threads=threads), "hongtu": volumes(sets, hongtu, threads=threads)}
    if schedule != "best":
        return Scheduled(schedule=identity if schedule == "identity" else hongtu, found=found, chosen=schedule)
    batchings = {"identity": identity, "hongtu": greedy}
    if num_parts > 1 and n <= MOST_ASSIGNED:
        batchings["assignment"] = _batch_chunks(sets, num_parts, _native.assign_most, threads)
        if rates is not None:
            batchings["apart"] = _batch_chunks(sets, num_parts, _assign_least, threads)

    def price(volume: Volumes) -> float:
        return volume.v_ru if rates is None else cost(*volume, rates)

    candidates, left = {"identity": identity, "hongtu": hongtu}, search_words
    for place, (name, batching) in enumerate(batchings.items()):
        tried = _orders(sets, name, batching, threads)
        found |= {said: volumes(sets, each, threads=threads) for said, each in tried.items() if said not in found}
        candidates |= tried
        first = min(tried, key=lambda said: price(found[said]))
        searched, used = _search(sets, tried[first], left // (len(batchings) - place), threads)
        left -= used
        if used:
            candidates[f"{first}, swaps"] = searched
            found[f"{first}, swaps"] = volumes(sets, searched, threads=threads)
    chosen = min(candidates, key=lambda said: price(found[said]))
    return Scheduled(schedule=candidates[chosen], found=found, chosen=chosen, search_words=search_words - left)


def _orders(sets: SharedSets, name: str, batching: Array, threads: int) -> dict[str, Array]:
    """Returns name -> schedule of a batching in its own order and in that of phase 2, as they are and improved as paths."""
    overlap = _batch_overlaps(sets, batching, threads)
    made = {}
    for said, order in {", own order": np.arange(len(overlap)), ", phase 2": _order_greedily(overlap)}.items():
        made[f"{name}{said}"] = _reordered(batching, order)
        made[f"{name}{said}, path moves"] = _reordered(batching, _improved(overlap, order))
    return made


def _batch_chunks(sets: SharedSets, num_parts: int, assign: Callable[[Array], Array], threads: int) -> Array:
    """Phase 1: returns i32[m, n], the chunk of part i in batch j; parts join the batches one after the other.

    Args:
        assign: i64[n, n] shared nodes of batch j and chunk k -> int[n], the chunk of each batch.
    """
    n = len(sets.sizes) // num_parts
    chosen = np.tile(np.arange(n, dtype=np.int32), (num_parts, 1))
    for part in range(1, num_parts):
        numbers, gains = set_numbers(chosen), np.zeros((n, n), np.int64)
        for batches, own in sets.unions(numbers[:part], numbers[part : part + 1]):
            gains += overlaps(batches, own, threads=threads)
        chosen[part] = assign(gains)
    return chosen


def _take_greedily(gains: Array) -> Array:
    """Returns i64[n]: for each batch in turn the chunk that shares most with it, of those that are left; ties to the lowest."""
    chosen, left = np.empty(len(gains), np.int64), np.ones(len(gains), bool)
    for batch, gain in enumerate(gains):
        chosen[batch] = np.argmax(np.where(left, gain, -1))
        left[chosen[batch]] = False
    return chosen


def _assign_least(gains: Array) -> Array:
    """Returns int[n]: the chunk of each batch, so that the sum of shared nodes is the smallest."""
    return _native.assign_most(np.ascontiguousarray(gains.max(initial=0) - gains))


def _order_greedily(overlap: Array) -> Array:
    """Phase 2: returns i64[n], batch 0 and then always the batch that shares most with the last one; ties to the lowest."""
    order, left = np.zeros(len(overlap), np.int64), np.ones(len(overlap), bool)
    left[:1] = False
    for place in range(1, len(overlap)):
        order[place] = np.argmax(np.where(left, overlap[order[place - 1]], -1))
        left[order[place]] = False
    return order


def _improved(overlap: Array, order: Array) -> Array:
    """Returns the order after moves that let successive batches share more."""
    order = np.array(order, np.int64)
    _native.improve_path(overlap, order, PATH_MOVES)
    return order


def _batch_overlaps(sets: SharedSets, schedule: Array, threads: int) -> Array:
    """Returns i64[n, n]: number of nodes that any two batches share."""
    found = np.zeros((schedule.shape[1],) * 2, np.int64)
    for (batches,) in sets.unions(set_numbers(schedule)):
        found += overlaps(batches, batches, threads=threads)
    return found


def _reordered(schedule: Array, order: Array) -> Array:
    return np.ascontiguousarray(schedule[:, order])


def _search(sets: SharedSets, schedule: Array, work: int, threads: int) -> tuple[Array, int]:
    """Swaps chunks of a part, part after part, and moves batches, until nothing helps; returns the schedule and the words it took."""
    num_parts, n = schedule.shape
    chosen, left = schedule.astype(np.int64), work
    if num_parts == 1:
        return schedule, 0  # a batch is one chunk: the path's moves are all there are
    better = True
    while better and left > 0:
        better = False
        for part in range(num_parts):
            swapped, left = _swap(sets, chosen, part, left, threads)
            better |= swapped
        overlap = _batch_overlaps(sets, chosen, threads)
        order = _improved(overlap, np.arange(n))
        better |= not np.array_equal(order, np.arange(n))
        chosen = _reordered(chosen, order)
    return chosen.astype(np.int32), work - max(0, left)


def _swap(sets: SharedSets, chosen: Array, part: int, left: int, threads: int) -> tuple[bool, int]:
    """Exchanges chunks of one part; for each step in turn all swaps with later steps are weighed, and the best is made if it lowers V_+ru.

    Args:
        chosen: i64[m, n], changed in place.
        left: words that may be weighed.

    Returns:
        (whether a swap was made, words that are left).
    """
    n, numbers, swapped = chosen.shape[1], set_numbers(chosen), False
    own = np.sort(numbers[part : part + 1])
    numbers[part] = -1
    held = [*sets.unions(numbers, own)] if sets.held else None
    for step in range(n - 1):
        if left <= 0:
            break
        change = np.zeros(n - step - 1, np.int64)
        for others, each in sets.unions(numbers, own) if held is None else held:
            change += _native.swap_changes(others, each, chosen[part], step, threads)
        left -= len(change) * sets.words
        best = int(np.argmin(change))
        if change[best] < 0:
            other = step + 1 + best
            chosen[part, [step, other]] = chosen[part, [other, step]]
            swapped = True
    return swapped, left
