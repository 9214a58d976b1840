"""The samples stage: which parts there are, and who builds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from assets.building.stage import Progress, Summary
from assets.samples.config import BatchRange, SamplesConfig, SamplesExecution
from assets.storage.user_code import code_digests
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.storage.artifact import Artifact
    from assets.storage.writer import Writer


class SamplesStage:
    """Samples and stores mini-batches; `SAMPLES` is the one instance."""

    name = "samples"
    code_version = 1
    work_unit = "batches"
    Semantic = SamplesConfig
    Execution = SamplesExecution

    def inputs(self, semantic: SamplesConfig) -> Mapping[str, str]:
        """Sampling reads a graph."""
        return {"graph": "graph"}

    def raw(self, semantic: SamplesConfig) -> Mapping[str, str]:
        """The user's own sampling function enters besides the graph."""
        return code_digests({"sampling": semantic.method})

    def parts(self, inputs: Mapping[str, Artifact], semantic: SamplesConfig) -> Sequence[str]:
        """Returns the parts' names, by epoch and step.

        Raises:
            InputError: the graph has no training nodes.
        """
        files = inputs["graph"].files
        num_train = files["train_ids.npy"]["shape"][0]
        if num_train == 0:
            problem = f"{inputs['graph'].label} has no training nodes, so an epoch of samples would be empty"
            raise InputError(problem, "give its source a training split")
        num_batches = -(-num_train // semantic.batch_size)
        seeds = -(-num_train // num_batches)
        shape = files["indptr.npy"]["shape"][0] - 1, files["indices.npy"]["shape"][0]
        bound = _record_bound(seeds, semantic.fanouts, *shape)
        count = min(num_batches, -(-num_batches // max(1, semantic.part_bytes // bound)))
        cuts = [place * num_batches // count for place in range(count + 1)]
        return [BatchRange(epoch, low, high).name for epoch in range(semantic.epochs) for low, high in pairwise(cuts)]

    def work(self, inputs: Mapping[str, Artifact], semantic: SamplesConfig, part: str) -> int:
        """Returns the batches of a part."""
        run = BatchRange.of(part)
        return run.high - run.low

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: SamplesConfig,
        execution: SamplesExecution,
        writer: Writer,
        progress: Progress,
        part: str | None = None,
    ) -> Summary:
        """Samples the batches of a part, or puts the index over finished parts.

        Raises:
            InputError: the topology is not sound, a user's function failed, or a part is damaged.
        """
        if part is None:
            from assets.samples.build_index import build_index

            names = self.parts(inputs, semantic)
            return build_index(inputs, semantic, names, execution.threads, writer, progress)
        threads = execution.threads_each
        from assets.samples.build_part import build_part

        return build_part(inputs["graph"], semantic, threads, BatchRange.of(part), writer, progress)


SAMPLES = SamplesStage()


def _record_bound(seeds: int, fanouts: tuple[int, ...], num_nodes: int, num_edges: int) -> int:
    """Returns bytes that a record hardly exceeds: every draw another edge, and another node while there are any."""
    nodes, num_bytes = seeds, 0
    for fanout in fanouts:
        edges = num_edges if fanout < 0 else min(num_edges, nodes * fanout)
        num_bytes += 4 * edges + 4 * nodes
        nodes = min(num_nodes, nodes + edges)
    return num_bytes + (4 if num_nodes < 2**31 else 8) * nodes
