"""Attributes of edges that a graph stores and a training does not use; without torch.

The models of graphmill read the neighbours of a node and nothing else of an edge, but for `rgcn` and `rgat`, which read relations. Fan-outs
per relation read those as well. Weighted sampling reads weights, and so does a model with `edge_weight = true`. Your own model or sampler
may read all attributes of a block, so nothing is said about those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.fanouts import by_relation
from graphmill.assets.storage.user_code import is_reference
from graphmill.trainers.recipe.config import TrainTable

OWN = "your own model may read them (docs/own-models.md)"
NAMES = {"weights": "edge weights", "edge_types": "relations (edge types)", "edge_ids": "edge ids"}
"""Attributes of edges in the graph artifact, and their names for people."""


def unused_attributes(table: TrainTable, sampling: SamplingConfig | None, stored: Collection[str]) -> list[str]:
    """Returns a sentence for each attribute of the edges that is stored and that a training does not use.

    Args:
        sampling: the `[sampling]` table of its pipeline, None without one.
        stored: names of the attributes that the graph has, of `NAMES`.
    """
    drawn = None if table.technique.whole_graph else sampling
    own = is_reference(table.model) or (drawn is not None and is_reference(drawn.method))
    equal = f'model = "{table.model}" treats all edges alike'
    found = {"edge_ids": "a training reads none"}
    drawn_by_relation = drawn is not None and by_relation(table.fanouts or drawn.fanouts)
    if not own and table.model not in ("rgcn", "rgat") and not drawn_by_relation:
        found["edge_types"] = f"{equal}; {OWN}"
    if not own and (why := _without_weights(table, drawn)):
        found["weights"] = f"{equal}, and {why}"
    return [
        f"{words} are stored and not used: {found[name]}"
        for name, words in NAMES.items()
        if name in stored and name in found
    ]


def unused_lines(
    tables: Sequence[TrainTable], sampling: SamplingConfig | None, stored: Collection[str]
) -> Iterator[str]:
    """Yields a line for each attribute that train tables do not use, with the names of those tables.

    Args:
        tables, sampling: the tables of a pipeline file.
        stored: as for `unused_attributes`.
    """
    found: dict[str, list[str]] = {}
    for table in tables:
        for sentence in unused_attributes(table, sampling, stored):
            found.setdefault(sentence, []).append(table.name)
    yield from (f"note: {', '.join(names)}: {sentence}" for sentence, names in found.items())


def _without_weights(table: TrainTable, drawn: SamplingConfig | None) -> str:
    """Returns why edge weights decide nothing in the blocks of a training, and how they would; "" if they do."""
    if table.edge_weight:
        return ""
    counts = "" if table.model == "pinsage" else "; edge_weight = true in [[train]] multiplies messages by them"
    if drawn is None:
        return f'trainer = "{table.trainer}" takes all neighbours of a node{counts}; other trainers draw by [sampling] method = "weighted"'
    if drawn.method != "weighted":
        return f'[sampling] method = "{drawn.method}" draws without them{counts}; method = "weighted" draws by them, or {OWN}'
    if drawn.weights != "edge":
        return f'[sampling] weights = "{drawn.weights}" draws by other ones; weights = "edge" draws by them'
    if table.model == "gat" and not drawn.replace and all(fanout == -1 for fanout in drawn.fanouts):
        return "fanouts of -1 draw all neighbours; numbers in their place draw by weights"
    return ""
