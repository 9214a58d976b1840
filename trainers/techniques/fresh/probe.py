"""The distance of cached embeddings from authentic ones (FreshGNN, Figs. 1 and 3): cosine similarity and relative error of the norm.

Some of the embeddings that a lookup could return are computed anew, with the present weights, without dropout, from neighbours that are
drawn on a stream of their own. Even a row that was just computed differs, since its neighbours are others: a second draw for the same nodes
measures this difference, and the rest is the effect of the updates since then.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.history.arena import History
from graphmill.kernels.types import Array, BatchKey, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.batches.send import send_blocks
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.precision import kept_dtype
from graphmill.trainers.record.ledger import Line
from graphmill.trainers.rows.source import RowIds

DRAWINGS = 2
TO_HOST = Line("d2h", "output")


class Probe:
    """Compares cached embeddings at the end of an epoch.

    Args:
        arena: the history that holds them.
    """

    def __init__(self, run: Run, arena: History, count: int):
        self.run, self.arena, self.count = run, arena, count

    def __call__(self, epoch: int) -> dict[str, float]:
        """Returns the means over the probed embeddings, {} if the history holds none.

        Args:
            epoch: training epoch, from 0, which has just ended.
        """
        state, device = self.arena.state(), self.run.features.device
        device.traffic.carried(self.arena.read_traffic(state), "output")
        owner, age = state["owner"], (epoch + 1) * self.run.plan.steps_per_epoch - state["born"]
        valid = np.flatnonzero((owner >= 0) & (age > 0) & (age <= self.arena.t_stale))
        if not len(valid):
            return {}
        drawn = valid[np.unique(np.linspace(0, len(valid) - 1, min(self.count, len(valid))).astype(np.int64))]
        layers, ids = owner[drawn] // self.arena.num_nodes + 1, owner[drawn] % self.arena.num_nodes
        found: list[Tensor] = []
        for layer in np.unique(layers).tolist():
            at = layers == layer
            cached = torch.from_numpy(state["rows"][drawn[at]])
            fresh = [self._authentic(layer, ids[at], epoch * DRAWINGS + each) for each in range(DRAWINGS)]
            found.append(torch.stack([*_compared(cached, fresh[0]), *_compared(fresh[1], fresh[0])]))
        means = torch.cat(found, dim=1).double().nanmean(dim=1).tolist()
        names = ("cached_cosine", "cached_norm_error", "redrawn_cosine", "redrawn_norm_error")
        return dict(zip(names, means, strict=True)) | {"probed": len(drawn), "mean_age": float(age[drawn].mean())}

    def _authentic(self, layer: int, ids: Array, step: int) -> Tensor:
        """Returns float[n, H] in the host's memory, embeddings of a layer computed anew."""
        run, model, device = self.run, self.run.model, self.run.features.device
        assert isinstance(model, LayeredModel) and run.drawing is not None
        topology, seed = run.graph.topology, run.semantic.sampling_seed
        below = run.drawing.neighbours.fanouts[-layer:]
        sampler = run.drawing.with_fanouts(below).sampler(topology, seed=seed)
        wanted, place = np.unique(ids.astype(topology.indices.dtype), return_inverse=True)
        blocks = sampler.sample(BatchKey(Stream.PROBE, 0, step), wanted, transpose="none")
        attach_weights(blocks, topology, model.edge_weight)
        dtype = np.dtype(kept_dtype(run.semantic.train.dtype))
        x = device.alloc((blocks[0].num_src, run.features.table.width), dtype, "inputs")
        run.features.table.gather(RowIds(blocks[0].src_ids), x, device.traffic)
        there = send_blocks(blocks, device, device.traffic)
        random = StepRandom(seed, training=False)
        model.eval()  # for a user's layers, which are called one by one; each training pass sets its own mode
        with torch.no_grad():
            h = model.input(x, there[0].src_ids, random)
            for number, block in enumerate(there):
                h = model.forward_layer(number, block, h, random)
        return device.fetch(h, TO_HOST, device.traffic)[torch.from_numpy(place)]


def _compared(rows: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Returns float[n] cosine similarities, and float[n] norms of the differences relative to those of `others`; NaN for rows of zeros."""
    cosine = torch.nn.functional.cosine_similarity(rows, others, dim=1)
    norms = others.norm(dim=1)
    cosine = torch.where((norms > 0) & (rows.norm(dim=1) > 0), cosine, torch.nan)
    return cosine, torch.where(norms > 0, (rows - others).norm(dim=1) / norms, torch.nan)
