"""Texts of the page of stored mini-batches."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
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
    headline=headline,
    first=("num_epochs", "num_batches", "num_evaluation_batches", "sample_bytes", "num_accesses", "num_accessed_nodes"),
    columns={
        "part_of": "part that holds the batch",
        "offsets": "byte of the part's file at which the batch starts",
        "num_bytes": "bytes of the batch",
        "num_inputs": "input nodes of the batch",
        "num_edges": "edges of the batch by layer, from the input side",
        "digests": "xxh3-64 of the batch",
    },
)
