"""What a training by `disk` takes: a third of the queue each for graphs, staged rows and input rows."""

from __future__ import annotations

from graphmill.assets.costs.needs import Term
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.forecast import Costs, Links, Seconds
from graphmill.trainers.recipe.costs.memory import (
    evaluation_terms,
    model_terms,
    process_terms,
    sampler_terms,
    source_terms,
)
from graphmill.trainers.rows.packed_loader import NUM_LOADERS
from graphmill.trainers.techniques.disk_volumes import from_disk_terms, stored_links
from graphmill.trainers.techniques.seconds import CHUNK_PASSES, Pieces, evaluated


def _memory(case: Case) -> list[Term]:
    return [
        *process_terms(case),
        *from_disk_terms(case),
        *evaluation_terms(case, 0),  # its batches are in heaps of other threads
        *model_terms(case),
        *sampler_terms(case),
        *source_terms(case, packed=True),
    ]


def _links(case: Case) -> Links:
    return stored_links(case, topology=True)


def _seconds(case: Case) -> Seconds:
    each = Pieces(case)
    # Chunks are compared with their digest and gathered: two passes over the rows. What is read directly takes the cores, too.
    ahead = each.prepare(1) + CHUNK_PASSES * each.gather(1) + each.disk(_links(case)[0])
    return each.named(), each.side_by_side(ahead / NUM_LOADERS, each.step(each.threads), work=ahead + each.step_work)


COSTS = Costs(memory=_memory, links=_links, seconds=_seconds, evaluated=evaluated)
