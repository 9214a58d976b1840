"""Feature rows that lie in the arena of the history, in front of any other source (FreshGNN, section 4.2).

The right half of the arena holds the hottest rows. Embeddings displace them from the coldest on, and a displaced row comes from the source
below, like one that was never in the arena. So the place of a row can change with every update of the history, and is looked up when the
batch's rows are gathered, after the update before it; nothing is marked ahead.

A row from the arena is a copy on the device: booked as d2d, with its bytes there, in the type of the computation. If the
source below has its rows in memory, too, one gather writes all rows. Else rows from below are gathered to a separate buffer and put between
them, one more copy per row; if the arena has none of a batch's rows, the source below writes them itself.

Rows of the source below come in windows: a batch is a hundred megabytes where rows are wide, and rows that wait in a staging buffer and in
the separate one would be as many again, twice. A window of packed rows is read while the one before it crosses to the device; a batch has
several, so that reading and crossing overlap where nothing is known of the next batch. Memory besides the batch's rows: two windows of
stored rows if they are packed, and one in the type of the computation. A collective source takes one window of all rows.

On a device with memory of its own the host waits for nothing here but the windows, of which there are as few as may be. If the device reads
the rows below in place, it finds them itself: rows that the arena has are left out of their gather, and written after it. Else the host has
the inputs, which came with the sizes of the pruned blocks, and finds the arena's rows by a list of its own.
"""

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.history.arena import History
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.move_rows import place_rows
from graphmill.kernels.rows.slots import PEER, make_slots
from graphmill.kernels.types import Array, BatchKey
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.batches.one_ahead import one_ahead
from graphmill.trainers.devices.protocol import Device, kernel_array
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import COUNTS, D2D, SLOTS, FeatureSource, RowIds
from graphmill.trainers.techniques.fresh.settings import WINDOW_ROWS, window_bytes

HITS = "hits_arena"
"""Name of the ledger's count of rows from the arena."""


class ArenaRows:
    """Rows of the arena, and those of another source for all other nodes.

    Args:
        below: the source of every row; a collective one is called for every batch, even for no rows.
        history: the arena, whose feature rows are filled; None without an arena: every row comes from below.
        device: the device that holds the arena, the ids of a batch, and its inputs.
        stages: whether the source below reads by the places that inputs had before the batch was pruned.
    """

    def __init__(
        self, below: FeatureSource, history: History | None, device: Device, stages: bool = False, threads: int = 1
    ):
        self.below, self.history, self.device, self.stages, self.threads = below, history, device, stages, threads
        self.width, self.dtype, self.row_bytes = below.width, below.dtype, below.row_bytes
        self._windows, self._thread = BufferPool(), ThreadPoolExecutor(1, "windows")

    @property
    def found_here(self) -> bool:
        """Whether the host finds the rows of a batch on a device, which must have its inputs for that."""
        return not self.below.finds

    def gather(self, batch: MiniBatch, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from batch.input_ids[i], and books the bytes and the arena's hits.

        Args:
            batch: a pruned batch; one on a device whose rows the host finds has `inputs`.
            out: float[n, F], of the type of the computation.

        Raises:
            InputError: a read failed, or its bytes do not match their digest.
        """
        there = on_device(out)
        if there and not self.found_here:
            self._found_there(batch.input_ids, out, ledger)
            return
        inputs, missing = batch.inputs, None
        ids, origin = (batch.input_ids, batch.origin) if inputs is None else (inputs.ids, inputs.origin)
        assert there == (inputs is not None) and origin is not None, "the host finds the rows of inputs that it knows"
        if self.history is not None:
            lookup = self.history.lookup_features
            places = lookup(ids) if inputs is None else self.history.features_here(ids, inputs.beside)
            hits, missing = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
            ledger.count(HITS, 0, len(hits))
            if len(hits):
                ledger.crossed(D2D, len(hits) * self.width * self.history.dtype.itemsize)
                if self._at_once(ids, places, hits, missing, out, ledger):
                    return
                self._place_hits(places, hits, out, ledger)
                ids, origin = ids[missing], origin[missing]
            else:
                missing = None
        if missing is None or len(missing) or self.below.collective:
            self._from_below(batch.key, ids, origin, out, missing, ledger)

    def _found_there(self, input_ids: Any, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes the rows of the arena, and all others from a source that the device reads in place; the host does not wait."""
        wanted = None
        if self.history is not None:
            places = self.history.lookup_features(input_ids)
            wanted, row_bytes = places < 0, self.width * self.history.dtype.itemsize

            def book(counts: Sequence[int], to: Ledger) -> None:
                to.count(HITS, 0, counts[0])
                if counts[0]:
                    to.crossed(D2D, counts[0] * row_bytes)

            ledger.later(self.device.note((~wanted).sum().reshape(1), COUNTS, ledger), book)
        self.below.gather_found(input_ids, out, ledger, self.device, wanted)
        if self.history is not None:
            place_rows(self.history.features, places, out, None)

    def _place_hits(self, places: Array, hits: Array, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes the rows that the arena has; a device gets the places of all rows, and leaves negative ones out."""
        assert self.history is not None
        if on_device(out):
            (there,) = self.device.send([places], SLOTS, ledger)
            place_rows(self.history.features, there, out, None)
        else:
            place_rows(self.history.features, places[hits], kernel_array(out), hits, self.threads)

    def _at_once(self, input_ids: Any, places: Any, hits: Any, missing: Any, out: torch.Tensor, ledger: Ledger) -> bool:
        """Writes all rows by one gather if those of the arena and of the source below lie in memory in one type; returns whether it did."""
        history = self.history
        assert history is not None
        if on_device(out) or history.dtype.name != self.below.dtype:
            return False
        if (found := self.below.in_memory(input_ids[missing], ledger)) is None:
            return False
        slots, (slots_below, tiers) = np.empty(len(places), np.int32), found
        slots[hits], slots[missing] = make_slots(PEER, places[hits]), slots_below
        arena = {"peers": (history.features,), "peer_stride": len(history.features)}
        gather_tiered(slots, replace(tiers, **arena), kernel_array(out), threads=self.threads)
        return True

    def _from_below(
        self, key: BatchKey, ids: Array, origin: Array, out: torch.Tensor, places: Any, ledger: Ledger
    ) -> None:
        """Gathers rows from the source below: row i goes to out[places[i]], or to out[i] if `places` is None.

        Args:
            ids: ids[n]; origin: i32[n], their places before the batch was pruned.
        """
        if self.below.collective:
            rows = out if places is None else torch.empty((len(places), self.width), dtype=out.dtype, device=out.device)
            self.below.gather(RowIds(ids), rows, ledger)
            if places is not None:
                self._place(rows, places, out, ledger)
            return
        origin = origin if self.stages else np.arange(len(ids))
        row_bytes = max(self.row_bytes, self.width * out.element_size(), 1)
        most = window_bytes(len(origin) * row_bytes, packed=self.stages, there=on_device(out))
        windows = self.below.stage_windows(key, origin, max(1, most // row_bytes // WINDOW_ROWS) * WINDOW_ROWS)
        with closing(windows), closing(self._staged(windows)) as read:
            for part, staged in read:
                self._window(RowIds(ids[part], staged=staged), part, out, places, ledger)

    def _staged(self, windows: Generator[tuple[Any, Any], None, None]) -> Generator[tuple[Any, Any], None, None]:
        """Returns windows of which a thread reads the next one meanwhile, if there is anything to read."""
        return one_ahead(windows, self._thread, lambda window: window[1].release()) if self.stages else windows

    def _place(self, rows: torch.Tensor, places: Any, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes rows to places of out, i64[n]."""
        if on_device(out):
            (places,) = self.device.send([places], SLOTS, ledger)
        place_rows(kernel_array(rows), None, kernel_array(out), places, self.threads)

    def _window(self, batch: RowIds, part: Any, out: torch.Tensor, places: Any, ledger: Ledger) -> None:
        """Gathers the rows of a window and releases it; `part` are their places in the list whose places in `out` are `places`."""
        straight = places is None and isinstance(part, slice)
        if straight:
            rows = out[part]
        else:
            dtype = str(out.dtype).removeprefix("torch.")
            rows = self.device.rows(self._windows, len(batch.input_ids), self.width, dtype)
        try:
            self.below.gather(batch, rows, ledger)
        finally:
            if batch.staged is not None:
                batch.staged.release()
        if not straight:
            self._place(rows, part if places is None else places[part], out, ledger)
