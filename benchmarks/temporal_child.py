"""GraphBolt's sampling as of times, in a process that answers questions; see benchmarks/rival_child.py.

    python -m benchmarks.temporal_child SPEC.json

SPEC names the file of the edges' times, too. GraphBolt's times are whole numbers. Each drawn edge is a source of its own there, so a node
that is reached twice as of one time is drawn for twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch

from benchmarks.rival_child import Rival, main


class TemporalRival(Rival):
    """Answers by name."""

    @cached_property
    def timed(self) -> Any:
        """The graph whose edges have times."""
        import dgl.graphbolt as gb  # pyright: ignore

        times = torch.from_numpy(np.load(self.spec["edge_times"])).long()
        return gb.fused_csc_sampling_graph(self.indptr, self.indices, edge_attributes={"timestamp": times})

    def _as_of(self, seeds: str, times: str, count: int | None = None) -> Iterator[Any]:
        import dgl.graphbolt as gb  # pyright: ignore

        batches, moments = (torch.from_numpy(np.load(each)[:count]) for each in (seeds, times))
        given = gb.ItemSet((batches.flatten(), moments.flatten().long()), names=("seed_nodes", "timestamp"))
        items = gb.ItemSampler(given, batch_size=batches.shape[1], shuffle=False)
        fanouts = list(reversed(self.spec["fanouts"]))
        yield from items.temporal_sample_neighbor(self.timed, fanouts, edge_timestamp_attr_name="timestamp")

    def sample_as_of(self, seeds: str, times: str) -> dict[str, Any]:
        """Samples batches as of times. Returns the seconds of all, those of the processor, and their number of edges.

        Args:
            seeds: file of ids[batches, size].
            times: file of the time of each.
        """
        edges, drawn = 0, self._as_of(seeds, times)
        self.timed  # noqa: B018
        started, busy = time.perf_counter(), time.process_time()
        for batch in drawn:
            edges += sum(len(each.sampled_csc.indices) for each in batch.sampled_subgraphs)
        seconds = {"seconds": time.perf_counter() - started, "processor": time.process_time() - busy}
        return seconds | {"edges": edges}

    def sampled_as_of(self, seeds: str, times: str, out: str) -> None:
        """Writes the first batch: `src`, `dst` and `start` of each layer, original ids from the seeds on."""
        found, batch = {}, next(self._as_of(seeds, times, 1))
        for hop, each in enumerate(reversed(batch.sampled_subgraphs)):
            found |= {f"dst{hop}": each.original_column_node_ids, f"start{hop}": each.sampled_csc.indptr}
            found[f"src{hop}"] = each.original_row_node_ids[each.sampled_csc.indices]
        np.savez(out, **{name: value.numpy() for name, value in found.items()})


if __name__ == "__main__":
    main(TemporalRival)
