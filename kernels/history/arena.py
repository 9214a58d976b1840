"""The bidirectional arena: embeddings of earlier steps from the left, rows of features from the right (FreshGNN, 4.2, Fig. 7).

One block of memory holds both. Embeddings of all cached layers share slots of one size, which grow from the left and form a ring: the head
moves on with each row that enters, comes back to the first slot every `t_stale` steps, so that new rows overwrite outdated ones, and wraps
where the ring ends. With `reuse` the slots are not a ring: a row that enters takes the lowest slot that holds nothing of use, so that holes
which evictions leave are filled at once.

Features lie on the right, hottest outermost. A feature row goes for good when an embedding first reaches its bytes, so the boundary only
moves to the right; a node whose row is gone is read from the source below, as one that was never there.

    lookup        slot_of[layer, v], valid if 0 < now - born <= t_stale: nothing outdated is ever returned, whatever lies in the slots
    overwrite     the slot's owner loses its entry in `slot_of`, so no lookup reads another node's row
    eviction      of an entry clears both ends; the ring reuses its slot

Admission is kernels/history/admit.py. Memory beside the arena: 4 N (L-1) bytes for `slot_of`, 16 per slot, 4 N for the features' places.
Lookups cost one random read of 4 bytes per node, and one of 8 per hit. Other names: historical embedding cache, GAS's history. The arena
holds the dtype of the model's rows. Not thread-safe: a lookup must not run beside an update.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.arrays import FLOATS, as_ids, dtype_name
from graphmill.kernels.cuda.device import CudaDevice, device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.history.admit import (
    Admitted,
    Index,
    LayerRows,
    Rule,
    admit,
    list_entries,
    look_up,
    place_in_lists,
)
from graphmill.kernels.history.admit_cuda import (
    Admission,
    FeatureBytes,
    Ring,
    admit_cuda,
    look_up_cuda,
    look_up_features_cuda,
)
from graphmill.kernels.rows.move_rows import place_rows
from graphmill.kernels.rows.move_rows_cuda import place_rows_cuda
from graphmill.kernels.types import NO_TRAFFIC, Array, Traffic

FOREVER = 1 << 62
"""`t_stale` of entries that never grow too old."""
HIGH, RING_BYTES = 1, 16
"""Place in the ring of the end of the slots that were taken so far, behind the head; bytes of both."""


class FeatureSide(NamedTuple):
    """The right half of an arena."""

    # The nodes whose rows it may hold, hottest first, ids[r]; those without space are left out.
    ids: Array
    # Columns of a feature row.
    width: int


class History:
    """Embeddings of earlier steps, and the hottest features, in one arena.

    Args:
        memory: u8[size], C-contiguous, aligned to the dtype, uninitialised; native code runs in host memory, CUDA kernels on a device.
        num_layers: cached layers, L-1; 0 is allowed.
        width: columns of an embedding, equal in all cached layers.
        dtype: float32 or float64, of embeddings and features.
        t_stale: oldest age, in optimiser steps, at which a row is still used; 0 uses none, `FOREVER` any.
        p_grad: share of each layer's entries that counts as stable, in [0, 1]; taken as it is written, so 0.29 of 100 are 29.
        max_slots: most slots that embeddings may take; None for all that fit.
        reuse: whether rows take the lowest slots whose row is gone or too old, instead of a ring's next; no usable row is overwritten.
        device: the device that holds the memory; None derives it from the memory.

    Attributes:
        embeddings: dtype[slots, width], rows by slot: a view of the arena.
        features: dtype[r, F], rows by place: a view of the arena; the owner fills it once, row j with the features of feature_ids[j].
        feature_ids: ids[r], hottest last.
        ring: i64[2], the head of the slots, and the end of those that were taken so far.
    """

    def __init__(
        self, *, memory: Any, num_layers: int, num_nodes: int, width: int, dtype: Any, t_stale: int,
        p_grad: float | str | Fraction, features: FeatureSide | None = None, max_slots: int | None = None,
        least: float = 0.0, reuse: bool = False, threads: int = 1, device: CudaDevice | None = None,
    ):  # fmt: skip
        self.dtype = np.dtype(dtype)
        self.p_grad = p_grad if isinstance(p_grad, Fraction) else Fraction(str(p_grad))
        if self.dtype not in FLOATS or not 0 <= self.p_grad <= 1 or t_stale < 0 or width < 1 or num_layers < 0:
            raise InputError(
                f"dtype = {self.dtype}, p_grad = {p_grad}, t_stale = {t_stale}, width = {width}, num_layers = {num_layers}",
                "give float32 or float64, a share in [0, 1], and numbers of steps, columns and layers",
            )
        self.memory, self.num_layers, self.num_nodes = memory, num_layers, num_nodes
        self.width, self.t_stale, self.least, self.reuse, self.threads = width, t_stale, least, reuse, threads
        self.device = device or (device_of(memory) if on_device(memory) else None)
        self.size, self._stride = len(memory), width * self.dtype.itemsize
        fitting = self.size // self._stride if num_layers else 0
        num_slots = fitting if max_slots is None else min(fitting, max_slots)
        self.embeddings = self._view(0, num_slots, width)
        self.index = Index(
            slot_of=self._sent(np.full(num_layers * num_nodes, -1, np.int32)),
            owner=self._sent(np.full(num_slots, -1, np.int64)),
            born=self._sent(np.zeros(num_slots, np.int64)),
            num_nodes=num_nodes,
        )
        self.ring, self._reset_at = self._sent(np.zeros(2, np.int64)), 0
        self._place_features(features or FeatureSide(np.empty(0, np.int32), 0))

    def _view(self, start: int, num_rows: int, width: int) -> Any:
        num_bytes = num_rows * width * self.dtype.itemsize
        part = self.memory[start : start + num_bytes]
        if not isinstance(part, np.ndarray):  # a tensor of a device
            import torch

            return part.view(getattr(torch, self.dtype.name)).reshape(num_rows, width)
        return part.view(self.dtype).reshape(num_rows, width)

    def _sent(self, array: Array) -> Any:
        return array if self.device is None else self.device.upload(array)

    def _fetched(self, array: Any) -> Array:
        return array.copy() if self.device is None else np.asarray(self.device.download(array))

    def _place_features(self, side: FeatureSide) -> None:
        self._row_bytes = side.width * self.dtype.itemsize
        whole = self.size // self.dtype.itemsize * self.dtype.itemsize
        num_rows = min(len(side.ids), whole // self._row_bytes) if self._row_bytes else 0
        self._features_end = whole
        self.feature_ids = np.ascontiguousarray(side.ids[:num_rows][::-1])
        self.features = self._view(whole - num_rows * self._row_bytes, num_rows, side.width)
        self._place_of = self._sent(self._feature_places())
        self._place_here: Array | None = None

    def _feature_places(self) -> Array:
        """Returns i32[N], the place in `features` of the row of each node, -1 for none; of no node if there are no rows."""
        places = np.full(self.num_nodes if len(self.feature_ids) else 0, -1, np.int32)
        places[self.feature_ids] = np.arange(len(self.feature_ids), dtype=np.int32)
        return places

    @property
    def num_slots(self) -> int:
        """Most embeddings that the arena holds."""
        return len(self.index.owner)

    @property
    def first_feature(self) -> int:
        """The first place of `features` that no embedding has reached; rows before it are gone. Waits for a device."""
        return self._first_feature(self._fetched(self.ring)) if self._row_bytes else 0

    def _first_feature(self, ring: Array) -> int:
        left = (self._features_end - int(ring[HIGH]) * self._stride) // max(1, self._row_bytes)
        return max(0, len(self.feature_ids) - left)

    def lookup(self, layer: int, ids: Any, now: int) -> Any:
        """Returns i32[n]: the slot of each node's embedding of a layer, -1 if step `now` may use none.

        Args:
            layer: l in 1..L-1.
            ids: ids[n], global.
            now: the optimiser step of the lookup; rows that it writes itself have its number.

        Raises:
            InputError: the layer is not a cached one, or an id is not a node (which a device does not check).
        """
        self._check_layer(layer)
        if self.device is not None:
            return look_up_cuda(self.index, layer, ids, now, self.t_stale, self.device)
        return look_up(self.index, layer, as_ids(ids, "ids"), now, self.t_stale, self.threads)

    def lookup_features(self, ids: Any) -> Any:
        """Returns i32[n]: the place in `features` of the row of each of ids[n], -1 if the arena does not hold it (any more)."""
        if self.device is None:
            ids = self._check_ids(ids)
        if not len(self._place_of):
            return (
                np.full(len(ids), -1, np.int32) if self.device is None else self.device.zeros((len(ids),), np.int32) - 1
            )
        if self.device is not None:
            size = FeatureBytes(self._features_end, self._stride, self._row_bytes)
            return look_up_features_cuda(self._place_of, ids, self.ring, size, len(self.feature_ids), self.device)
        return self._held_places(self._place_of, ids, self.ring)

    def features_here(self, ids: Array, ring: Array) -> Array:
        """Returns the same as `lookup_features` of an arena on a device, by the host: no byte crosses, and nothing waits.

        Args:
            ids: ids[n], of nodes.
            ring: what `ring` was at the lookup, on the host.
        """
        if self._place_here is None:
            self._place_here = self._feature_places()
        if not len(self._place_here):
            return np.full(len(ids), -1, np.int32)
        return self._held_places(self._place_here, ids, ring)

    def _held_places(self, place_of: Array, ids: Array, ring: Array) -> Array:
        places = place_of[ids]
        return np.where(places >= self._first_feature(ring), places, np.int32(-1))

    def update(self, now: int, rows: Sequence[LayerRows]) -> Admitted | Admission:
        """Evicts and admits after optimiser step `now`, which grows from call to call; does not wait for a device.

        Args:
            rows: rows of all cached layers of all batches of the step, the batches in order.

        Returns:
            The rows admitted and evicted, by layer; on a device they are counted there.

        Raises:
            InputError: a layer, a shape or a dtype does not fit, rows are apart, or an id is not a node (which a device does not check);
                nothing is written then.
        """
        ordered = self._by_layer(rows)
        anew = now - self._reset_at >= self.t_stale
        update = self._update_here if self.device is None else self._update_there
        done = update(now, ordered, anew)
        self._reset_at = now if anew else self._reset_at
        return done

    def _update_here(self, now: int, rows: Sequence[LayerRows], anew: bool) -> Admitted:
        head, high = (int(place) for place in self.ring)
        free = np.flatnonzero(self._is_free(now)).astype(np.int32) if self.reuse else None
        rule, num_slots = Rule(self.p_grad, self.least, 0 if anew else head, now, free), self.num_slots
        done = admit(self.index, list_entries(rows, self.num_layers, self.num_nodes), rule, self.threads)
        local, ends = place_in_lists(done.entries, rows)
        for given, low, end in zip(rows, (0, *ends), ends, strict=False):
            if end > low:
                place_rows(given.rows, local[low:end], self.embeddings, done.slots[low:end], self.threads)
        count = len(done.slots)
        if free is None:
            reached = rule.head + count
            self.ring[:] = reached % num_slots if num_slots else 0, max(high, min(reached, num_slots))
        else:
            self.ring[:] = rule.head, max(high, int(free[count - 1]) + 1 if count else 0)
        return done

    def _update_there(self, now: int, rows: Sequence[LayerRows], anew: bool) -> Admission:
        assert self.device is not None
        free = room = None
        if self.reuse and self.num_slots:
            flags = self._is_free(now)
            free, room = self.device.stable_order(_numbers(~flags)), self.device.running_sums(_numbers(flags))[-1:]
        rule, ring = Rule(self.p_grad, self.least, 0, now, free), Ring(self.ring, anew, room)
        done, first = admit_cuda(self.index, rows, self.num_layers, rule, ring, self.device), 0
        for given in rows:
            targets = done.targets[first : first + len(given.ids)]
            place_rows_cuda(given.rows, None, self.embeddings, targets, self.device)
            first += len(given.ids)
        return done

    def _is_free(self, now: int) -> Any:
        """Returns bool[slots]: the slots whose row step `now` + 1 could not use."""
        return (self.index.owner < 0) | (self.index.born <= now - self.t_stale)

    def _by_layer(self, rows: Sequence[LayerRows]) -> list[LayerRows]:
        for given in rows:
            self._check_layer(given.layer)
            if tuple(given.rows.shape) != (len(given.ids), self.width) or len(given.norms) != len(given.ids):
                problem = f"layer {given.layer}: rows {list(given.rows.shape)}, {len(given.norms)} norms of {len(given.ids)} nodes"
                raise InputError(problem, f"give [{len(given.ids)}, {self.width}] and {len(given.ids)}")
            # The index is written before the rows: rows that the copy would refuse must be refused here.
            values: Any = given.rows  # an array or a tensor
            whole = values.flags.c_contiguous if hasattr(values, "flags") else values.is_contiguous()
            found, lies = dtype_name(values.dtype), "in C order" if whole else "apart"
            if (found, lies) != (self.dtype.name, "in C order"):
                problem = f"layer {given.layer}: rows are {found} and lie {lies}, the arena holds {self.dtype.name}"
                raise InputError(problem, f"give rows of {self.dtype.name} in C order")
            if self.device is None:
                self._check_ids(given.ids)  # beyond N stand the nodes of the next layer
        return sorted(rows, key=lambda given: given.layer)

    def _check_ids(self, ids: Any) -> Array:
        """Returns ids of nodes; a negative one would name a node from the end."""
        ids = as_ids(ids, "ids")
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.num_nodes:
            wrong = ids[(ids < 0) | (ids >= self.num_nodes)][0]
            raise InputError(f"node {wrong} is none of {self.num_nodes}", "give global ids")
        return ids

    def _check_layer(self, layer: int) -> None:
        if not 1 <= layer <= self.num_layers:
            problem = f"layer {layer} of {self.num_layers} cached layers"
            raise InputError(problem, "give 1 for the output of the first block")

    @property
    def index_traffic(self) -> Traffic:
        """The bytes that sending the index moves: slots of nodes, owners and ages of slots, the ring, places of features."""
        num_bytes = 4 * self.num_layers * self.num_nodes + 16 * self.num_slots + RING_BYTES
        num_bytes += 4 * self.num_nodes * (len(self.feature_ids) > 0)
        return NO_TRAFFIC if self.device is None else Traffic(sent=num_bytes, sends=5)

    def read_traffic(self, state: Mapping[str, Array] | None = None) -> Traffic:
        """Returns the bytes that reading a `state` moved, or `held` if none is given."""
        if self.device is None:
            return NO_TRAFFIC
        if state is None:
            fetched, reads_ring = self.index.owner.nbytes + self.index.born.nbytes, self._row_bytes > 0
            return Traffic(fetched=fetched + RING_BYTES * reads_ring, fetches=2 + reads_ring)
        num_bytes = sum(array.nbytes for name, array in state.items() if name != "ring")
        return Traffic(fetched=num_bytes + RING_BYTES, fetches=4)

    def held(self, now: int) -> tuple[int, int]:
        """Returns how many embeddings a lookup of step `now` could return, and how many feature rows are left."""
        owner, born = self._fetched(self.index.owner), self._fetched(self.index.born)
        age = now - born[owner >= 0]
        return int(np.count_nonzero((age > 0) & (age <= self.t_stale))), len(self.feature_ids) - self.first_feature

    def state(self) -> dict[str, Array]:
        """Returns the arrays for a checkpoint: the index, the ring's place and the embeddings; features come from their table."""
        ring = np.append(self._fetched(self.ring), self._reset_at)
        index, high = self.index, int(ring[HIGH])
        arrays = {"owner": index.owner[:high], "born": index.born[:high], "rows": self.embeddings[:high]}
        return {"ring": ring} | {name: self._fetched(array) for name, array in arrays.items()}

    def restore(self, state: Mapping[str, Array]) -> Traffic:
        """Restores the `state` of an arena of the same shape; the features must be filled.

        Returns:
            The bytes that sending the embeddings moved, besides `index_traffic`.

        Raises:
            InputError: the state is of an arena of another shape.
        """
        *ring, reset_at = (int(number) for number in state["ring"])
        high = ring[HIGH]
        if high > self.num_slots or state["rows"].shape != (high, self.width):
            problem = f"the state has {high} slots of {list(state['rows'].shape)}, the arena {self.num_slots} of {self.width} columns"
            raise InputError(problem, "restore with the settings of the run that was stopped")
        self.ring, self._reset_at = self._sent(np.array(ring, np.int64)), reset_at
        owner, born = np.full(self.num_slots, -1, np.int64), np.zeros(self.num_slots, np.int64)
        owner[:high], born[:high] = state["owner"], state["born"]
        slot_of, slots = np.full(self.num_layers * self.num_nodes, -1, np.int32), np.flatnonzero(owner >= 0)
        slot_of[owner[slots]] = slots
        self.index = Index(
            slot_of=self._sent(slot_of), owner=self._sent(owner), born=self._sent(born), num_nodes=self.num_nodes
        )
        rows = np.ascontiguousarray(state["rows"])
        self.embeddings[:high] = self._sent(rows)
        return NO_TRAFFIC if self.device is None else Traffic(sent=rows.nbytes, sends=1)


def _numbers(flags: Any) -> Any:
    if hasattr(flags, "astype"):
        return flags.astype(np.int32)
    return flags.int()  # a tensor
