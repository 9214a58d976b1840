"""Admission to the history of embeddings and eviction from it, after one optimiser step (FreshGNN, 4.1.1, 4.2, Fig. 6).

Entries of one step are all nodes of a cached layer that received a gradient, batch after batch. Per layer they are ranked by the norm of
their gradient, ties by their place; the floor(p_grad n) smallest are stable. Then

    unstable entries                 lose their row in the history
    stable ones that were cached     keep their row and its age
    stable ones that were computed   enter with born = now

A row that is computed again makes an older one of its node worthless, so that one goes in any case. A node with several entries (batches
of one step group) is stable only if all of them are, and the last of its rows enters. Entries that enter get successive slots of the ring
from its head on, in their order; the owner of a slot loses it. If more want to enter than the ring has slots, the ones with the highest
saved access do, ties by place; entries that save less than `least` never enter. A NaN norm counts as infinite.

Every phase writes different places from different entries, so that on a GPU each is one parallel pass.

Cost: O(entries), three to four random accesses to `slot_of` each. Other names: cache admission and eviction policy. Not checked: that the
nodes of one list are distinct, and that `slot_of` and `owner` point to each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class LayerRows:
    """The rows of one layer of one mini-batch after its backward pass: all sources of the block above, in order."""

    # Number l in 1..L-1; the rows are h^(l), the sources of blocks[l].
    layer: int
    # ids[n], distinct: `blocks[l].src_ids`.
    ids: Any
    # float[n, H], computed and spliced ones.
    rows: Any
    # Norms of the loss's gradient in them (`row_norms`), f32[n].
    norms: Any
    # Ascending places of rows that came from the history (`Splice.hist_pos`), i32[h]; None for none.
    cached: Any = None
    # Saved access of each, f32[n], or None for equal ones.
    saved: Any = None


@dataclass(frozen=True, kw_only=True)
class Index:
    """The places of nodes' embeddings; written by every update.

    Attributes:
        slot_of: i32[(L-1) N], slot of node v in layer l at place (l-1) N + v, or -1.
        owner: i64[slots], place in `slot_of` of each slot's node, or -1.
        born: i64[slots], optimiser step that wrote each slot.
    """

    slot_of: Any
    owner: Any
    born: Any
    num_nodes: int


class Entries(NamedTuple):
    """All entries of one update, layer after layer, batches in order within each.

    Attributes:
        where: i64[n], places in `slot_of`.
        layer_ptr: i64[L], entries of layer l are those from layer_ptr[l-1] to layer_ptr[l].
        norms: f32[n]; saved: f32[n], saved access.
        computed: bool[n], False for rows that came from the history.
        repeated: whether a node may have several entries.
    """

    where: Array
    layer_ptr: Array
    norms: Array
    saved: Array
    computed: Array
    repeated: bool


class Rule(NamedTuple):
    """The settings of an update.

    Attributes:
        p_grad: share of each layer's entries that are stable.
        least: least saved access of an entry that enters.
        head: first slot that is written; now: the optimiser step.
        free: i32[f], distinct slots that may be written, in the order in which they are taken; None: all of the ring from the head on.
    """

    p_grad: Fraction
    least: float
    head: int
    now: int
    free: Any = None


class Admitted(NamedTuple):
    """The result of an update.

    Attributes:
        entries: i32[a], ascending: the entries whose rows are to be copied; slots: i32[a], their targets.
        admitted, evicted: i64[L-1], rows that entered each layer, and entries that left it because of their gradient.
        overflow: entries that had to stay outside since the ring is too small.
    """

    entries: Any
    slots: Any
    admitted: Array
    evicted: Array
    overflow: int

    @property
    def counts(self) -> Array:
        """i64[2 (L-1) + 1]: `admitted`, `evicted`, `overflow`."""
        return np.concatenate([self.admitted, self.evicted, [self.overflow]])


def list_entries(lists: Sequence[LayerRows], num_layers: int, num_nodes: int) -> Entries:
    """Returns the entries of lists, which are sorted by layer."""
    counts = np.zeros(num_layers + 1, np.int64)
    parts = [(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, bool))]
    for given in lists:
        count = len(given.ids)
        counts[given.layer] += count
        computed = np.ones(count, bool)
        if given.cached is not None:
            computed[given.cached] = False
        saved = np.zeros(count, np.float32) if given.saved is None else np.asarray(given.saved, np.float32)
        where = np.asarray(given.ids, np.int64) + (given.layer - 1) * num_nodes
        parts.append((where, np.asarray(given.norms, np.float32), saved, computed))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    repeated = len(lists) > len({given.layer for given in lists})
    return Entries(columns[0], np.cumsum(counts), columns[1], columns[2], columns[3], repeated)


def place_in_lists(entries: Array, lists: Sequence[LayerRows]) -> tuple[Array, list[int]]:
    """Returns the row of each ascending entry in its list, and where the entries of each list end."""
    firsts = np.cumsum([0, *(len(given.ids) for given in lists)])
    ends = np.searchsorted(entries, firsts)
    local = entries - np.repeat(firsts[:-1], np.diff(ends)).astype(np.int32)
    return local, ends[1:].tolist()


def num_stable(p_grad: Fraction, count: int) -> int:
    """Returns floor(p_grad n), exactly."""
    return int(p_grad * count)


def admit_reference(index: Index, entries: Entries, rule: Rule) -> Admitted:
    """Updates the index and returns the entries that entered (the rule in NumPy)."""
    slot_of, owner, where = index.slot_of, index.owner, entries.where
    stable = _stable(entries, rule.p_grad)
    held = slot_of[where] >= 0
    evicted = ~stable & ~entries.computed & held
    gone = where[(entries.computed | ~stable) & held]
    owner[slot_of[gone]] = -1
    slot_of[gone] = -1
    enters = stable & entries.computed & (entries.saved >= np.float32(rule.least))
    enters &= ~np.isin(where, where[~stable])
    last = {int(where[i]): i for i in np.flatnonzero(enters)}
    chosen = np.array(sorted(last.values()), np.int64)
    num_wanted, num_slots = len(chosen), len(owner) if rule.free is None else len(rule.free)
    if num_wanted > num_slots:
        order = np.lexsort((chosen, -entries.saved[chosen]))
        chosen = np.sort(chosen[order[:num_slots]])
    ring = (rule.head + np.arange(len(chosen))) % max(len(owner), 1)
    slots = ring if rule.free is None else rule.free[: len(chosen)].astype(np.int64)
    before = owner[slots]
    slot_of[before[before >= 0]] = -1
    owner[slots], index.born[slots], slot_of[where[chosen]] = where[chosen], rule.now, slots
    return Admitted(
        chosen.astype(np.int32),
        slots.astype(np.int32),
        _by_layer(entries, chosen),
        _by_layer(entries, np.flatnonzero(evicted)),
        num_wanted - len(chosen),
    )


def admit(index: Index, entries: Entries, rule: Rule, threads: int = 1) -> Admitted:
    """Updates the index and returns the entries that entered.

    Args:
        index: index of the history, written in place.

    Raises:
        InputError: arrays differ in length, or an entry is not of a node; nothing is written then.
    """
    counts = np.diff(entries.layer_ptr)
    keep = [num_stable(rule.p_grad, int(count)) for count in counts]
    done = _native.admit(
        index.slot_of, index.owner, index.born, entries.where, entries.layer_ptr, entries.norms, entries.saved,
        entries.computed, keep, rule.least, rule.head, rule.free, rule.now, entries.repeated, check_threads(threads),
    )  # fmt: skip
    return Admitted(*done)


def look_up_reference(index: Index, layer: int, ids: Array, now: int, t_stale: int) -> Array:
    """Returns i32[n]: slots of nodes' embeddings, -1 if step `now` may not use one (the rule in NumPy)."""
    slots = index.slot_of[(layer - 1) * index.num_nodes :][ids]
    held = np.flatnonzero(slots >= 0)
    age = now - index.born[slots[held]]
    slots[held[(age <= 0) | (age > t_stale)]] = -1
    return slots


def look_up(index: Index, layer: int, ids: Array, now: int, t_stale: int, threads: int = 1) -> Array:
    """Returns i32[n]: slots of nodes' embeddings, -1 if step `now` may not use one.

    Args:
        layer: l in 1..L-1.
        ids: i32[n] or i64[n], global.
        t_stale: oldest age that is used.
    """
    first, out = (layer - 1) * index.num_nodes, np.empty(len(ids), np.int32)
    _native.look_up(index.slot_of, first, index.num_nodes, index.born, ids, now, t_stale, out, check_threads(threads))
    return out


def _stable(entries: Entries, p_grad: Fraction) -> Array:
    norms = np.where(entries.norms >= 0, entries.norms, np.float32(np.inf))  # NaN is not >= 0
    stable = np.zeros(len(norms), bool)
    for low, high in zip(entries.layer_ptr, entries.layer_ptr[1:], strict=False):
        order = np.argsort(norms[low:high], kind="stable")
        stable[low + order[: num_stable(p_grad, high - low)]] = True
    return stable


def _by_layer(entries: Entries, chosen: Array) -> Array:
    return np.diff(np.searchsorted(chosen, entries.layer_ptr)).astype(np.int64)
