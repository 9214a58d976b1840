"""Texts of the page of a ranking by hotness."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the policy of the ranking, and the hit ratio of a cache of a tenth of the nodes if it was measured or computed."""
    numbers, policy = artifacts[0].summary["numbers"], artifacts[0].config["hotness"]["policy"]
    found = numbers.get(f"hit_ratio_{policy}_10_percent")
    expected = numbers.get("expected_hit_ratio_10_percent")
    ranked = f"{numbers['num_nodes']:,} nodes ranked by {policy}"
    if found is not None:
        best = numbers.get("hit_ratio_optimal_10_percent")
        bound = f"; no ranking finds more than {100 * best:.1f} %" if best is not None else ""
        return f"**{100 * found:.1f} % of the rows are found** in a cache of 10 % of the nodes{bound}; {ranked}"
    if expected is not None:
        return f"**{100 * expected:.1f} % of the rows are expected** in a cache of 10 % of the nodes; {ranked}"
    return f"**{ranked}**"


HOTNESS_PAGE = Page(
    about="A ranking of all nodes by how often mini-batches will ask for them, counted in trial batches or estimated from the graph. "
    "Caches on the device and on the host hold the first nodes of this ranking, so a better one moves fewer bytes. "
    "Look at the hit ratios by policy: how far the chosen policy is from `optimal`, and from `random`.",
    docs="docs/stages/hotness.md",
    headline=headline,
    first=tuple(
        f"hit_ratio_{policy}_10_percent" for policy in ("optimal", "presample", "bayes", "degree", "pagerank", "random")
    ),
    columns={
        "order": "the node at this place of the ranking, hottest first",
        "visits": "counted batches that asked for node i, in row i",
        "score": "what node i is ranked by, in row i",
    },
)
