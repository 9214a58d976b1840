"""Admission to the history of embeddings, eviction and lookups on a GPU; see kernels/history/admit.py for the rule.

Norms are ranked by a stable sort of their bits. Nothing is downloaded and nothing waits: how many entries enter, which slots they take and
how far the ring has come stay on the device, and so do an update's counts, which are read later. If candidates may be more than
slots, they are sorted by what they save, whether they are more or not. Not checked, since that would wait: that ids are nodes of the graph.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, address, launch
from graphmill.kernels.history.admit import Index, LayerRows, Rule, num_stable


class FeatureBytes(NamedTuple):
    """The end of the rows of features in an arena, and the bytes of its rows."""

    # Bytes from the arena's beginning to the end of the last feature row.
    end: int
    # Bytes of an embedding, and of a feature row.
    stride: int
    row: int


class Ring(NamedTuple):
    """The state of an arena's slots at an update."""

    # Head, and end of the slots that were taken so far, i64[2] on the device.
    places: Any
    # Whether the head goes back to the first slot.
    anew: bool
    # Number of slots of `Rule.free` that may be written, i32[1] on the device; None without such.
    room: Any = None


class Admission(NamedTuple):
    """The result of an update on a device.

    Attributes:
        targets: i32[n], the slot of each entry of all lists, -1 for those that stay outside.
        counts: i32[2 (L-1) + 1], rows that entered each layer, entries that left each because of their gradient, and entries that had to
            stay outside since there are too few slots.
    """

    targets: Any
    counts: Any


def look_up_cuda(index: Index, layer: int, ids: Any, now: int, t_stale: int, device: CudaDevice) -> Any:
    """Returns i32[n] on the device: slots of nodes; see `graphmill.kernels.history.admit.look_up`."""
    out, name = device.empty((len(ids),), np.int32), dtype_name(ids.dtype)
    of_layer = index.slot_of[(layer - 1) * index.num_nodes : layer * index.num_nodes]
    _Launches(device, name)(
        "look_up", len(ids), _at(of_layer, device), _at(index.born, device, "int64"), _at(ids, device, name),
        np.int32(len(ids)), np.int64(now), np.int64(t_stale), _at(out, device),
    )  # fmt: skip
    return out


def look_up_features_cuda(
    place_of: Any, ids: Any, ring: Any, size: FeatureBytes, count: int, device: CudaDevice
) -> Any:
    """Returns i32[n] on the device: the place of each node's feature row, -1 if embeddings have reached its bytes or the node has none.

    Args:
        place_of: i32[N] on the device.
        ids: ids[n] on the device.
        ring: i64[2] on the device, head and end of the slots that were taken so far.
        count: number of feature rows.
    """
    out, name = device.empty((len(ids),), np.int32), dtype_name(ids.dtype)
    known = _at(place_of, device), _at(ids, device, name), np.int32(len(ids)), _at(ring, device, "int64")
    sizes = (*map(np.int64, size), np.int32(count))
    _Launches(device, name)("look_up_features", len(ids), *known, *sizes, _at(out, device))
    return out


def admit_cuda(
    index: Index, lists: Sequence[LayerRows], num_layers: int, rule: Rule, ring: Ring, device: CudaDevice
) -> Admission:
    """Updates the index and the ring, and returns what entered.

    Args:
        index: index of the history on the device, written in place.
        lists: entries on the device, layer after layer, batches in order within each.
        rule: its head is not read; `free` has all slots, those that may be written first.
        ring: the state of the slots, written in place.
    """
    return _Admission(index, lists, num_layers, rule, ring, device).run()


def _at(array: Any, device: CudaDevice, dtype: str = "int32", length: int | None = None) -> np.uint64:
    return address(array, "an array of the history", device, length, dtype)


class _Launches:
    def __init__(self, device: CudaDevice, id_name: str = "int32"):
        self.device, self.defines = device, {"ID": ID_TYPES[id_name]}

    def __call__(self, name: str, num_threads: int, *arguments: Any) -> None:
        launch(self.device, "history/admit", name, num_threads, arguments, self.defines)


class _Admission:
    def __init__(
        self, index: Index, lists: Sequence[LayerRows], num_layers: int, rule: Rule, ring: Ring, device: CudaDevice
    ):
        self.index, self.lists, self.num_layers, self.rule, self.device = index, lists, num_layers, rule, device
        self.ring, self.places = ring, _at(ring.places, device, "int64")
        self.launch = _Launches(device)
        self.ends = np.cumsum([0, *(len(given.ids) for given in lists)])
        self.total = int(self.ends[-1])
        self.size = np.int32(self.total)
        self.where, self.saved = device.empty((self.total,), np.int64), device.empty((self.total,), np.float32)
        self.keys, self.computed, self.stable = (self.ints(self.total) for _ in range(3))
        self.counts = device.zeros((2 * num_layers + 1,), np.int32)
        self.slot_of, self.owner = self.at(index.slot_of), self.at(index.owner, "int64")

    def ints(self, count: int) -> Any:
        return self.device.empty((count,), np.int32)

    def at(self, array: Any, dtype: str = "int32") -> np.uint64:
        return _at(array, self.device, dtype)

    def run(self) -> Admission:
        targets, sums, taken = self.ints(self.total), None, None
        if self.total:
            self._enter()
            self._mark_stable()
            self._evict()
            enters = self._candidates()
            sums = taken = self.device.running_sums(enters)
            if self.ring.room is not None or self.total > len(self.index.owner):
                enters = self._most_saving(enters, sums)
                taken = self.device.running_sums(enters)
            self._take_slots(enters, taken, targets)
        slots = self.at(self.rule.free), np.int32(self.ring.anew), np.int64(len(self.index.owner)), self.places
        overflow = self.at(self.counts[2 * self.num_layers :])
        self.launch("close_update", 1, self.at(sums), self.at(taken), self.size, *slots, overflow)
        return Admission(targets, self.counts)

    def _enter(self) -> None:
        """Writes all lists one after the other."""
        columns = (
            self.at(self.where, "int64"),
            self.at(self.keys),
            self.at(self.saved, "float32"),
            self.at(self.computed),
        )
        for given, first in zip(self.lists, self.ends[:-1], strict=True):
            count, name = len(given.ids), dtype_name(given.ids.dtype)
            offset = np.int64((given.layer - 1) * self.index.num_nodes)
            _Launches(self.device, name)(
                "enter", count, _at(given.ids, self.device, name), _at(given.norms, self.device, "float32", count),
                _at(given.saved, self.device, "float32", count), np.int32(count), np.int32(first), offset, *columns,
            )  # fmt: skip
            if given.cached is not None:
                cached = self.at(given.cached), np.int32(len(given.cached))
                self.launch("clear_cached", len(given.cached), *cached, np.int32(first), self.at(self.computed))

    def _mark_stable(self) -> None:
        for layer in range(1, self.num_layers + 1):
            own = [number for number, given in enumerate(self.lists) if given.layer == layer]
            first, last = (int(self.ends[own[0]]), int(self.ends[own[-1] + 1])) if own else (0, 0)
            count = last - first
            keep = num_stable(self.rule.p_grad, count)
            order = self.device.stable_order(self.keys[first:last]) if 0 < keep < count else None
            numbers = np.int32(count), np.int32(keep), np.int32(first)
            self.launch("mark_stable", count, self.at(order), *numbers, self.at(self.stable))

    def _evict(self) -> None:
        before, where = self.ints(self.total), self.at(self.where, "int64")
        self.launch("read_slots", self.total, self.slot_of, where, self.size, self.at(before))
        known = self.at(before), where, self.at(self.stable), self.at(self.computed), self.size
        evicted = self.at(self.counts[self.num_layers :])
        self.launch("evict", self.total, *known, np.int64(self.index.num_nodes), self.slot_of, self.owner, evicted)

    def _candidates(self) -> Any:
        """Returns flags of the entries that are to enter, one of each node."""
        enters, where = self.ints(self.total), self.at(self.where, "int64")
        known = self.at(self.stable), self.at(self.computed), self.at(self.saved, "float32")
        self.launch("find_candidates", self.total, *known, np.float32(self.rule.least), self.size, self.at(enters))
        if len(self.lists) == len({given.layer for given in self.lists}):
            return enters
        left = self.ints(self.total)
        self.launch("mark_last", self.total, self.at(enters), where, self.size, self.slot_of)
        self.launch("bar_unstable", self.total, self.at(self.stable), where, self.size, self.slot_of)
        self.launch("keep_last", self.total, self.at(enters), where, self.size, self.slot_of, self.at(left))
        self.launch("clear_marks", self.total, self.at(enters), where, self.size, self.slot_of)
        return left

    def _most_saving(self, enters: Any, sums: Any) -> Any:
        """Returns flags of the candidates that get a slot, which are all if there are enough."""
        keys, chosen = self.ints(self.total), self.device.zeros((self.total,), np.int32)
        flags = self.at(enters), self.at(self.saved, "float32")
        self.launch("order_candidates", self.total, *flags, self.size, self.at(keys))
        order = self.device.stable_order(keys)  # its memory is lent again when nothing refers to it
        room = self.at(self.ring.room), np.int32(len(self.index.owner))
        self.launch("choose", self.total, self.at(order), self.at(sums), self.size, *room, self.at(chosen))
        return chosen

    def _take_slots(self, enters: Any, sums: Any, targets: Any) -> None:
        where, index = self.at(self.where, "int64"), self.index
        slots = self.at(self.rule.free), self.places, np.int32(self.ring.anew), np.int64(len(index.owner))
        self.launch(
            "take_slots", self.total, self.at(enters), self.at(sums), where, self.size, np.int64(index.num_nodes), *slots,
            np.int64(self.rule.now), self.slot_of, self.owner, self.at(index.born, "int64"), self.at(targets), self.at(self.counts),
        )  # fmt: skip
        self.launch("name_slots", self.total, self.at(targets), where, self.size, self.slot_of)
