"""What a feature table takes of the machine."""

from __future__ import annotations

from typing import Any

from graphmill.assets.building.needs import Need, Sizes, Term, libraries

SLICE_BYTES = 8 << 20
"""Bytes of a slice of rows of a source (assets/sources/readers/archive.py)."""


def features_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the features stage; the graph is built in the same pass, after it."""
    if sizes.survey is None:
        return None
    table, survey = sizes.feature_bytes, sizes.survey
    slices = Term(what="rows on their way", num_bytes=min(2 * table, 2 * SLICE_BYTES))
    words = table // 512  # a digest of 8 bytes per page
    row_of = sizes.id_bytes * sizes.num_nodes * (sizes.num_rows < sizes.num_nodes)
    own = survey.features_memory or (Term(what="source", num_bytes=survey.source_bytes, key=survey.key, at_most=True),)
    phase = (libraries(), *own, slices, Term(what="digests of pages", num_bytes=words))
    return Need(name="features", phases=(phase,), stored=table + words + row_of, work=table)
