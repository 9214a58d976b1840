"""The samples stage: its parts, and their builds."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, FanOut, Summary
from graphmill.assets.costs.needs import Sizes, Speed
from graphmill.assets.graph.read import SAMPLING, seed_counts
from graphmill.assets.samples.config import (
    PARTS_AT_ONCE,
    BatchRange,
    SamplesConfig,
    SamplesExecution,
    SamplesTable,
    epoch_size,
    samples_config,
)
from graphmill.assets.samples.costs import part_seeds, samples_need
from graphmill.assets.sampling.bounds import batch_bound
from graphmill.assets.sampling.passes import FACTS, is_sequential
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.files.digests import code_digests
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.tasks.labels import ON_EDGES
from graphmill.kernels.errors import InputError


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the number and size of the stored batches."""
    numbers = artifacts[0].summary["numbers"]
    epochs = f"{numbers['num_epochs']:,} epoch" + ("s" if numbers["num_epochs"] != 1 else "")
    inputs = f"{numbers['inputs_a_batch']['mean']:,.0f} input nodes per batch on average"
    evaluated = numbers.get("num_evaluation_batches")
    more = f" and {evaluated:,} of an evaluation" if evaluated else ""
    return f"**{epochs} of {numbers['num_batches']:,} batches{more}**, {inputs}, {format_bytes(numbers['sample_bytes'])} on disk"


SAMPLES_PAGE = Page(
    about="All mini-batches of some epochs, sampled before training and stored in parts. "
    "With the batches known beforehand, training reads instead of sampling, and rows can be placed and packed by exact counts. "
    "Look at the size on disk, at the inputs per batch, and at the share of accesses that the hottest nodes take.",
    docs="docs/stages/samples.md",
    headline=_headline,
    first=("num_epochs", "num_batches", "num_evaluation_batches", "sample_bytes", "num_accesses", "num_accessed_nodes"),
    recorded=FACTS,
    columns={
        "part_of": "part that holds the batch",
        "offsets": "byte of the part's file at which the batch starts",
        "num_bytes": "bytes of the batch",
        "num_inputs": "input nodes of the batch",
        "num_edges": "edges of the batch by layer, from the input side",
        "digests": "xxh3-64 of the batch",
    },
)


class SamplesStage(FanOut):
    """Samples and stores mini-batches; `SAMPLES` is the one instance."""

    page = SAMPLES_PAGE
    name = table = "samples"
    code_version = 1
    work_unit = "batches"
    by_sample_set = True
    speed = Speed(per_second=20e6)
    Table = SamplesTable
    Semantic = SamplesConfig
    Execution = SamplesExecution
    need = staticmethod(samples_need)
    reads_aspects: Mapping[str, str] = {"graph": SAMPLING}
    says: Mapping[str, str] = {
        "blocks are sound": "Every edge of a stored block leads to one of its sources, and the last block ends in the seeds of "
        "its batch.",
        "input ids are unique": "No stored batch asks for the row of a node twice; of one that is drawn as of times, twice as of one time.",
        "every seed once an epoch": "The seeds of each sampling epoch are the training nodes, each once; those of evaluations are the "
        "validation and the test nodes.",
    }
    needs: Mapping[str, str] = {"sampling": " with fanouts and batch_size"}

    def wanted(self, pipeline: Any) -> SamplesConfig | None:
        """Returns the config if the pipeline has `[samples]`."""
        table, sampling = pipeline.table(self.table), pipeline.sampling
        return None if table is None or sampling is None else samples_config(table, sampling, pipeline.seed)

    def problems(self, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields the problems of `epochs` that do not fit `reuse`, and of parts that the file does not have."""
        table, sampling = tables[self.table], tables.get("sampling")
        if table.plan == "parts" and "partitions" not in tables:
            yield "plan", 'plan = "parts" needs [partitions]'
        if (kind := getattr(tables.get("task"), "kind", "")) in ON_EDGES:
            for key in ("plan",) * (table.plan == "parts") + ("evaluate",) * table.evaluate:
                yield key, f"{key} = {getattr(table, key)!r} is not for [task] kind = {kind!r}: remove the key"
        if sampling is not None and (text := table.problem(sampling)):
            yield ("epochs" if table.epochs else ""), text

    def inputs(self, semantic: SamplesConfig) -> Mapping[str, str]:
        """Reads a graph, the inputs of the sampling, and the parts if batches are of single ones."""
        return {"graph": "graph", **{name: name for name in semantic.inputs}}

    def raw(self, semantic: SamplesConfig) -> Mapping[str, str]:
        """Returns the digest of the user's own sampling function, if there is one."""
        return code_digests({"sampling": semantic.method})

    def parts(self, inputs: Mapping[str, Artifact], semantic: SamplesConfig) -> Sequence[str]:
        """Returns the names, in the order of the batches (assets/samples/read.py); raises InputError if the graph has no training nodes."""
        files = inputs["graph"].files
        splits = seed_counts(inputs["graph"])
        if splits[0] == 0:
            problem = f"{inputs['graph'].label} has no training nodes, so an epoch of samples would be empty"
            raise InputError(problem, "give its source a training split")
        shape = {"num_nodes": files["indptr.npy"]["shape"][0] - 1, "num_edges": files["indices.npy"]["shape"][0]}
        sizes = Sizes(**shape, artifacts={"graph": inputs["graph"]})
        parts, largest = part_seeds(inputs["graph"], inputs["partitions"]) if semantic.plan == "parts" else (0, 0)
        names, places = [], [(epoch, part) for part in range(parts) for epoch in range(semantic.epochs)]
        without = range(semantic.epochs if parts else 0, semantic.num_stored)
        for epoch, part in [*places, *((epoch, -1) for epoch in without)]:
            num_batches, seeds = epoch_size(semantic, splits, epoch, largest)
            bound = batch_bound(semantic, seeds, sizes).record_bytes
            count = min(num_batches, -(-num_batches // max(1, semantic.part_bytes // max(1, bound))))
            cuts = [place * num_batches // count for place in range(count + 1)] if count else []
            names += [BatchRange(epoch, low, high, part).name for low, high in pairwise(cuts)]
        return names

    def work(self, inputs: Mapping[str, Artifact], semantic: SamplesConfig, part: str) -> int:
        """Returns the number of batches of a part."""
        run = BatchRange.of(part)
        return run.high - run.low

    def together(self, inputs: Mapping[str, Artifact], semantic: SamplesConfig) -> int:
        """Returns the largest number of parts of which the batches are drawn by the same passes over the edges; 0 without passes."""
        return PARTS_AT_ONCE if is_sequential(semantic, inputs) else 0

    def build(self, building: Building[SamplesConfig, SamplesExecution]) -> Summary:
        """Writes the index of the finished parts."""
        from graphmill.assets.samples.build_index import build_index

        return build_index(building, self.parts(building.inputs, building.semantic))

    def build_part(self, building: Building[SamplesConfig, SamplesExecution]) -> Summary:
        """Samples the batches of a part."""
        from graphmill.assets.samples.build_part import build_part

        return build_part(building)

    def build_parts(self, buildings: Sequence[Building[SamplesConfig, SamplesExecution]]) -> Iterator[Summary]:
        """Samples the batches of several parts by passes over the edges."""
        from graphmill.assets.samples.build_part import build_parts

        return build_parts(buildings)


SAMPLES = SamplesStage()
