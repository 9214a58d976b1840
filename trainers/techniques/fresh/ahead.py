"""Lookups one batch ahead of the step, so that a batch's rows are loaded while the batch before it is trained on (`lookahead = 1`).

    step      train b-1 ................. | update b-1 |  train b ...
    pruner    lookup, prune, copy of b | load rows of b | lookup of b+1 ...

Two pruners take turns, so that the lookup of b+1, and its first reads, do not wait until the last rows of b have crossed to the device.

FreshGNN looks up behind the update of the step before (Algorithm 1, lines 7 to 11), so no row of a batch is known before that update, and
nothing hides its loading. Here the batch is decided when the batch before it is asked for: the history is that of one update earlier, and
the first batch of an epoch is decided as in the paper. The embeddings that a batch reads are copied when it is decided, since the update
between may evict or overwrite them. That update waits for the copies, not for the rows. The age of an embedding is counted at the step
that reads it, so that it is bounded by `t_stale` as in the paper; at its first use it is two steps old instead of one.

Feature rows of the arena are copied beside the update, so they must not move: an arena of policy "performance+features" leaves the slots
of embeddings free of feature rows from the beginning, and "accuracy+features" is refused.

A checkpoint holds the decision about the next batch: the history that it was taken from is gone. The ledger counts the rows of a batch
that a lookup behind the update would have decided otherwise.

Memory: copies of the embeddings of two batches, the rows of a second batch, and a second pruner's windows of rows on their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.types import Block
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.batches.flow import Closable
from graphmill.trainers.devices.launches import Launches
from graphmill.trainers.devices.protocol import Device

AHEAD = "ahead/"
PLACE, NODES, ROWS = f"{AHEAD}place", f"{AHEAD}nodes", f"{AHEAD}rows"
"""Names in a checkpoint: training epoch and position of the batch; ids and rows of its embeddings, with the layer behind."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The embeddings that a batch reads from the history.

    Attributes:
        place: training epoch and position of the batch.
        ids: layer -> ids[h], the nodes.
        rows: layer -> float[h, H], their embeddings.
    """

    place: tuple[int, int]
    ids: Mapping[int, Any]
    rows: Mapping[int, Tensor]

    @property
    def tensors(self) -> list[Any]:
        """Its ids and rows."""
        return [*self.ids.values(), *self.rows.values()]

    @staticmethod
    def of(batch: MiniBatch) -> Decision:
        """Returns the decision about a pruned batch."""
        spliced = {layer: (block, block.splice) for layer, block in enumerate(batch.blocks) if block.splice is not None}
        return Decision(
            place=(batch.train_epoch, batch.position),
            ids={layer: block.src_ids[index_of(splice.hist_pos)] for layer, (block, splice) in spliced.items()},
            rows={layer: splice.rows for layer, (_, splice) in spliced.items()},
        )

    @staticmethod
    def restored(state: Mapping[str, Tensor], layers: int, num_nodes: int, rows: Any) -> Decision | None:
        """Returns the decision of a checkpoint, None if it has none.

        Args:
            state: tensors in the host's memory.
            layers: number of layers whose rows are kept.
            rows: an array with the columns and the type that rows must have.

        Raises:
            ValueError: a tensor has another shape or type, or names no node.
        """
        if PLACE not in state:
            return None
        epoch, position = state[PLACE].tolist()
        found = [layer for layer in range(1, layers + 1) if f"{NODES}/{layer}" in state]
        ids = {layer: state[f"{NODES}/{layer}"].numpy() for layer in found}
        copies = {layer: state[f"{ROWS}/{layer}"] for layer in found}
        for layer in found:
            given, wanted = copies[layer], torch.as_tensor(rows[:0]).dtype
            if given.shape != (len(ids[layer]), rows.shape[1]) or given.dtype != wanted or ids[layer].dtype.kind != "i":
                raise ValueError(f"layer {layer} of the next batch has embeddings {given.dtype}{[*given.shape]}")
            if len(given) and not 0 <= ids[layer].min() <= ids[layer].max() < num_nodes:
                raise ValueError(f"layer {layer} of the next batch has embeddings of unknown nodes")
        return Decision(place=(epoch, position), ids=ids, rows=copies)

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors for a checkpoint."""
        ids = {f"{NODES}/{layer}": torch.as_tensor(each) for layer, each in self.ids.items()}
        rows = {f"{ROWS}/{layer}": each for layer, each in self.rows.items()}
        return {PLACE: torch.tensor(self.place)} | ids | rows

    def slots(self, blocks: Sequence[Block], num_nodes: int, device: Device, line: Any) -> list[Any]:
        """Returns i32[num_src] for each of blocks[1:], the place of each source among `rows` of its layer, -1 for none.

        Args:
            line: line of the device's own ledger on which transfers are booked.
        """
        found = []
        for layer in range(1, len(blocks)):
            ids = self.ids.get(layer, np.empty(0, np.int32))
            place = np.full(num_nodes, -1, np.int32)
            place[ids] = np.arange(len(ids), dtype=np.int32)
            (there,) = device.send([place], line, device.traffic)
            found.append(there[index_of(blocks[layer].src_ids)])
        return found


def with_copies(blocks: Sequence[Block], rows: Mapping[int, Any]) -> tuple[Block, ...]:
    """Returns pruned blocks that hold copies of the embeddings that they read.

    Args:
        rows: layer -> float[n, H], the rows that the splices of its block name.
    """
    return tuple(
        block
        if block.splice is None
        else replace(
            block, splice=replace(block.splice, rows=torch.as_tensor(rows[layer][index_of(block.splice.hist_slot)]))
        )
        for layer, block in enumerate(blocks)
    )


class Decisions(Closable):
    """The newest decision of an epoch, for which the update before its step waits.

    Attributes:
        newest: the decision that was taken last; launches: those that copy its embeddings.
        taken: position of the batch that the step got last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.newest: Decision | None = None
        self.launches, self.taken = Launches(), -1

    def put(self, decision: Decision, launches: Launches) -> None:
        """Takes the decision about the next batch, and the launches that copy its embeddings."""
        with self._changed:
            self.newest, self.launches = decision, launches
            self._changed.notify_all()

    def wait_for(self, position: int) -> None:
        """Waits for the decision about the batch at a position, or until a task has failed; the next batch then brings the error."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or (self.newest is not None and self.newest.place[1] >= position)
            )

    @property
    def pending(self) -> Decision | None:
        """The decision about a batch that the step does not have yet."""
        return self.newest if self.newest is not None and self.newest.place[1] > self.taken else None


def index_of(places: Any) -> Any:
    """Returns places as an index of an array or a tensor."""
    return places.long() if isinstance(places, Tensor) else places
