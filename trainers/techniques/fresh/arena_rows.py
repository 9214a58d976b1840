"""Feature rows that lie in the arena of the history, in front of any other source (FreshGNN, section 4.2).

The right half of the arena holds the hottest rows. Embeddings displace them from the coldest on, and a displaced row comes from the source
below, like one that was never in the arena. So the place of a row can change with every update of the history, and is looked up when the
batch's rows are gathered, after the update before it; nothing is marked ahead.

A row from the arena is a copy on the device: booked as d2d, with its bytes there, in the type of the computation. Rows of the source below
are gathered to a separate buffer and put between them, one more copy per row; if the arena has none of a batch's rows, the source below
writes them itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels.history.arena import History
from kernels.rows.move_rows import place_rows
from kernels.types import BatchKey
from trainers.devices.protocol import Device, kernel_array
from trainers.record.ledger import Ledger
from trainers.rows.source import COUNTS, D2D, FeatureSource, FindsRows, RowIds

HITS = "hits_arena"
"""Name of the ledger's count of rows from the arena."""


class ArenaRows:
    """Rows of the arena, and those of another source for all other nodes.

    Args:
        below: the source of every row; a collective one is called for every batch, even for no rows.
        history: the arena, whose feature rows are filled; None without an arena: every row comes from below.
        device: the device that holds the arena, the ids of a batch, and its inputs.
        stages: whether the source below reads by the places that inputs had before the batch was pruned.
        threads: number of threads of the copies.
    """

    def __init__(
        self, below: FeatureSource, history: History | None, device: Device, stages: bool = False, threads: int = 1
    ):
        self.below, self.history, self.device, self.stages, self.threads = below, history, device, stages, threads
        self.width, self.dtype, self.row_bytes = below.width, below.dtype, below.row_bytes

    def gather(self, key: BatchKey, input_ids: Any, origin: Any, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from input_ids[i], and books the bytes and the arena's hits.

        Args:
            key: key of the mini-batch.
            input_ids: ids[n], on the device.
            origin: i32[n], their places before the batch was pruned.
            out: float[n, F], of the type of the computation.
            ledger: receives the transfers.

        Raises:
            InputError: a read failed, or its bytes do not match their digest.
        """
        if self.history is None:
            self._from_below(key, input_ids, origin, out, ledger)
            return
        places = self.history.lookup_features(input_ids)
        hits, missing = self._parted(places, ledger)
        ledger.count(HITS, 0, len(hits))
        if len(hits):
            place_rows(self.history.features, places[hits], kernel_array(out), hits, self.threads)
            ledger.crossed(D2D, len(hits) * self.width * self.history.dtype.itemsize)
        if len(missing) or self.below.collective:
            others = torch.empty((len(missing), self.width), dtype=out.dtype, device=out.device) if len(hits) else out
            self._from_below(key, input_ids[missing], origin[missing], others, ledger)
            if len(hits):
                place_rows(kernel_array(others), None, kernel_array(out), missing, self.threads)

    def _parted(self, places: Any, ledger: Ledger) -> tuple[Any, Any]:
        """Returns i64[h], i64[m]: the rows that the arena has, and the others; a device sends back their number."""
        if not self.device.remote:
            return np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        absent = places < 0
        num_hits = len(places) - int(self.device.fetch(absent.sum(), COUNTS, ledger))
        order = torch.sort(absent, stable=True).indices
        return order[:num_hits], order[num_hits:]

    def _from_below(self, key: BatchKey, input_ids: Any, origin: Any, out: torch.Tensor, ledger: Ledger) -> None:
        """Gathers rows from the source below; arguments as in `gather`."""
        if self.device.remote:
            if isinstance(self.below, FindsRows) and self.below.finds_on(self.device):
                self.below.gather_found(input_ids, out, ledger, self.device)
                return
            input_ids = self.device.fetch(input_ids, COUNTS, ledger).numpy()
            if self.stages:
                origin = self.device.fetch(origin, COUNTS, ledger).numpy()
        staged = self.below.stage(key, origin)
        try:
            self.below.gather(RowIds(input_ids, staged=staged), out, ledger)
        finally:
            if staged is not None:
                staged.release()
