"""Admission to the history of embeddings, eviction and lookups on a GPU; see kernels/history/admit.py for the rule.

Norms are ranked by a stable sort of their bits. An update waits for the device twice: for the number of candidates, which decides whether
some have to stay outside, and at the end for the counts, 4 bytes per list and 8 per layer. Not checked, since that would wait more often:
that ids are nodes of the graph.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, address, launch
from graphmill.kernels.history.admit import Admitted, Index, LayerRows, Rule, num_stable

DONE_BYTES = 4
"""Bytes downloaded for the candidates, for each list, and twice for each layer."""


def look_up_cuda(index: Index, layer: int, ids: Any, now: int, t_stale: int, device: CudaDevice) -> Any:
    """Returns i32[n] on the device: slots of nodes; see `graphmill.kernels.history.admit.look_up`."""
    out, name = device.empty((len(ids),), np.int32), dtype_name(ids.dtype)
    of_layer = index.slot_of[(layer - 1) * index.num_nodes : layer * index.num_nodes]
    _Launches(device, name)(
        "look_up", len(ids), _at(of_layer, device), _at(index.born, device, "int64"), _at(ids, device, name),
        np.int32(len(ids)), np.int64(now), np.int64(t_stale), _at(out, device),
    )  # fmt: skip
    return out


def look_up_features_cuda(place_of: Any, ids: Any, first: int, device: CudaDevice) -> Any:
    """Returns i32[n] on the device: the place of each node's feature row, -1 if it is before `first` or the node has none.

    Args:
        place_of: i32[N] on the device.
        ids: ids[n] on the device.
        first: the first place that is left.
    """
    out, name = device.empty((len(ids),), np.int32), dtype_name(ids.dtype)
    known = _at(place_of, device), _at(ids, device, name), np.int32(len(ids)), np.int32(first)
    _Launches(device, name)("look_up_features", len(ids), *known, _at(out, device))
    return out


def admit_cuda(
    index: Index, lists: Sequence[LayerRows], num_layers: int, rule: Rule, device: CudaDevice
) -> tuple[Admitted, Any, list[int]]:
    """Updates the index and returns the entries that entered.

    Args:
        index: index of the history on the device, written in place.
        lists: entries on the device, layer after layer, batches in order within each.

    Returns:
        The result, its entries and slots on the device; i32[a] there, the row of each entry in its list; and the places in those arrays at
        which the entries of each list end.
    """
    return _Admission(index, lists, num_layers, rule, device).run()


def _at(array: Any, device: CudaDevice, dtype: str = "int32", length: int | None = None) -> np.uint64:
    return address(array, "an array of the history", device, length, dtype)


class _Launches:
    def __init__(self, device: CudaDevice, id_name: str = "int32"):
        self.device, self.defines = device, {"ID": ID_TYPES[id_name]}

    def __call__(self, name: str, num_threads: int, *arguments: Any) -> None:
        launch(self.device, "history/admit", name, num_threads, arguments, self.defines)


class _Admission:
    """The launches of one update."""

    def __init__(self, index: Index, lists: Sequence[LayerRows], num_layers: int, rule: Rule, device: CudaDevice):
        self.index, self.lists, self.num_layers, self.rule, self.device = index, lists, num_layers, rule, device
        self.launch = _Launches(device)
        self.ends = np.cumsum([0, *(len(given.ids) for given in lists)])
        self.total = int(self.ends[-1])
        self.size = np.int32(self.total)
        self.where, self.saved = device.empty((self.total,), np.int64), device.empty((self.total,), np.float32)
        self.keys, self.computed, self.stable = (self.ints(self.total) for _ in range(3))
        # Counts of entered and evicted rows by layer, and the entries that entered up to the end of each list: downloaded together.
        self.results = device.zeros((2 * num_layers + len(self.lists),), np.int32)
        self.done, self.totals = self.results[: 2 * num_layers], self.results[2 * num_layers :]
        self.slot_of, self.owner = self.at(index.slot_of), self.at(index.owner, "int64")

    def ints(self, count: int) -> Any:
        return self.device.empty((count,), np.int32)

    def at(self, array: Any, dtype: str = "int32") -> np.uint64:
        return _at(array, self.device, dtype)

    def run(self) -> tuple[Admitted, Any, list[int]]:
        num_layers, free = self.num_layers, self.rule.free
        num_slots = len(self.index.owner) if free is None else len(free)
        if not self.total:
            nobody, counts = self.ints(0), np.zeros(num_layers, np.int64)
            return Admitted(nobody, nobody, counts, counts.copy(), 0), nobody, [0] * len(self.lists)
        self._enter()
        self._mark_stable()
        self._evict()
        enters = self._candidates()
        sums = self.device.running_sums(enters)
        wanted = int(self.device.download(sums[-1:])[0])
        if wanted > num_slots:
            enters = self._most_saving(enters, sums, wanted, num_slots)
            sums = self.device.running_sums(enters)
        entries, local, slots = self._take_slots(enters, sums, min(wanted, num_slots))
        self._measure(sums)
        results = np.asarray(self.device.download(self.results))
        counts, ends = results[: 2 * num_layers].astype(np.int64), results[2 * num_layers :].tolist()
        done = Admitted(entries, slots, counts[:num_layers], counts[num_layers:], max(0, wanted - num_slots))
        return done, local, ends

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
        evicted = self.at(self.done[self.num_layers :])
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

    def _most_saving(self, enters: Any, sums: Any, wanted: int, num_slots: int) -> Any:
        candidates, keys = self.ints(wanted), self.ints(wanted)
        flags = self.at(enters), self.at(sums), self.at(self.saved, "float32"), self.size
        self.launch("list_candidates", self.total, *flags, self.at(candidates), self.at(keys))
        order, chosen = self.device.stable_order(keys), self.device.zeros((self.total,), np.int32)
        count = np.int32(num_slots)
        self.launch("choose", num_slots, self.at(candidates), self.at(order), count, self.at(chosen))
        return chosen

    def _take_slots(self, enters: Any, sums: Any, count: int) -> tuple[Any, Any, Any]:
        entries, local, slots = (self.ints(count) for _ in range(3))
        where, index = self.at(self.where, "int64"), self.index
        ends = self.device.upload(self.ends[1:].astype(np.int32), waits=False)
        ring = np.int64(self.rule.head), np.int64(len(index.owner)), np.int64(self.rule.now)
        self.launch(
            "take_slots", self.total, self.at(enters), self.at(sums), where, self.size, np.int64(index.num_nodes),
            self.at(ends), self.at(self.rule.free), *ring, self.slot_of, self.owner, self.at(index.born, "int64"), self.at(entries),
            self.at(local), self.at(slots), self.at(self.done),
        )  # fmt: skip
        named = self.at(entries), self.at(slots), where, np.int32(count), self.slot_of
        self.launch("name_slots", count, *named)
        return entries, local, slots

    def _measure(self, sums: Any) -> None:
        """Counts the entries that entered up to the end of each list."""
        ends, count = self.device.upload(self.ends[1:].astype(np.int32), waits=False), np.int32(len(self.lists))
        self.launch("measure", len(self.lists), self.at(sums), self.at(ends), count, self.at(self.totals))
