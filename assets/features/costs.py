"""What a feature table takes of the machine."""

from typing import Any

from graphmill.assets.costs.needs import LIBRARIES, Need, Sizes, Term
from graphmill.assets.sources.arrays.archive import SLICE_BYTES


def features_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the features stage; the graph is built in the same pass, after it."""
    if sizes.survey is None:
        return None
    table, survey = sizes.feature_bytes, sizes.survey
    slices = Term("rows on their way", min(2 * table, 2 * SLICE_BYTES))
    words = table // 512  # a digest of 8 bytes per page
    row_of = sizes.id_bytes * sizes.num_nodes * (sizes.num_rows < sizes.num_nodes)
    own = survey.features_memory or (Term("source", survey.source_bytes, survey.key, bound=True),)
    phase = (LIBRARIES, *own, slices, Term("digests of pages", words))
    return Need(name="features", phases=(phase,), stored=table + words + row_of, work=table)
