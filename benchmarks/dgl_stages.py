"""DGL on a graph in memory, an epoch stage by stage, on one device or as one of several replicas, in a process that answers questions.

    python -m benchmarks.dgl_stages SPEC.json

It is benchmarks/rival_child.py with one more answer. Stages run one after the other, as DGL's loader runs them on a CPU: sampling, rows of
the inputs, the step. `link_gbps` of SPEC is the speed of a modelled link, which all input rows cross, since DGL has no cache; like our
`trainers/devices/link.py` it waits for the time that copying has left. `ranks`, `rank` and `meeting` (a file) make it a replica that adds
its gradients with the others', by torch's `DistributedDataParallel`. The file imports nothing of graphmill.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.rival_child import Rival, main


class StagedRival(Rival):
    """DGL, whose epoch is timed by stage; see `Rival`."""

    def __init__(self, spec: dict[str, Any]):
        super().__init__(spec)
        self.ranks, self.rank = spec.get("ranks", 1), spec.get("rank", 0)
        if self.ranks > 1:
            meeting = f"file://{spec['meeting']}"
            torch.distributed.init_process_group("gloo", meeting, rank=self.rank, world_size=self.ranks)

    @cached_property
    def replica(self) -> Any:
        """The model, whose gradients are added with those of the other replicas."""
        return torch.nn.parallel.DistributedDataParallel(self.model) if self.ranks > 1 else self.model

    @cached_property
    def sampler(self) -> Any:
        """DGL's sampler as it is by default: fused."""
        import dgl

        return dgl.dataloading.NeighborSampler(list(reversed(self.spec["fanouts"])))

    def stages(self, epoch: int) -> dict[str, float]:
        """Trains an epoch. Returns its seconds, those of each stage, the cores used on average, edges, rows and bytes of input rows.

        Args:
            epoch: its number, which all replicas are told, for they share one order of the training nodes.
        """
        self.replica.train()
        found = dict.fromkeys(("sample", "extract", "train", "edges", "rows", "batches"), 0.0)
        began, used = time.perf_counter(), time.process_time()
        for seeds in self._seeds(epoch):
            self._step(seeds, found)
        if self.ranks > 1:
            torch.distributed.barrier()
        found["seconds"] = time.perf_counter() - began
        found["cores"] = (time.process_time() - used) / found["seconds"]
        return found | {"bytes": found["rows"] * self.rows.shape[1] * self.rows.element_size()}

    def _seeds(self, epoch: int) -> tuple[torch.Tensor, ...]:
        ids = torch.from_numpy(np.load(self.spec["train_ids"])).long()
        order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(epoch))
        batches = ids[order].split(self.spec["batch_size"])
        return batches[self.rank : len(batches) // self.ranks * self.ranks : self.ranks]

    def _step(self, seeds: torch.Tensor, found: dict[str, float]) -> None:
        started = time.perf_counter()
        inputs, _, blocks = self.sampler.sample_blocks(self.graph, seeds)
        sampled = time.perf_counter()
        x, labels = self.rows[inputs], self.labels[seeds]
        if gbps := self.spec.get("link_gbps"):
            time.sleep(max(0.0, sampled + x.nbytes / gbps / 1e9 - time.perf_counter()))
        extracted = time.perf_counter()
        found["batches"] += 1
        # The gradients of `accumulate` batches are added, over all replicas, before an update.
        updates = found["batches"] * self.ranks % self.spec["accumulate"] == 0
        alone = self.ranks > 1 and not updates
        with self.replica.no_sync() if alone else nullcontext():
            cross_entropy(self.replica(blocks, x), labels).backward()
        if updates:
            self.optimiser.step()
            self.optimiser.zero_grad()
        ended = time.perf_counter()
        found["sample"] += sampled - started
        found["extract"] += extracted - sampled
        found["train"] += ended - extracted
        found["edges"] += sum(block.num_edges() for block in blocks)
        found["rows"] += len(inputs)


if __name__ == "__main__":
    main(StagedRival)
