"""What a training by `minibatch` takes."""

from __future__ import annotations

from graphmill.assets.costs.needs import Term
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.forecast import Costs, Seconds
from graphmill.trainers.recipe.costs.memory import model_terms, process_terms, queue_terms, sampler_terms, source_terms
from graphmill.trainers.techniques.row_links import table_links
from graphmill.trainers.techniques.seconds import Pieces, evaluated


def _memory(case: Case) -> list[Term]:
    waiting = 1.0
    if case.speeds is not None and case.drawn is not None:
        ahead, step = _lanes(Pieces(case))
        waiting = max(0.0, 1 - ahead / max(step, 1e-9))
    return [
        *process_terms(case),
        *queue_terms(case, waiting),
        *model_terms(case),
        *sampler_terms(case),
        *source_terms(case),
    ]


def _seconds(case: Case) -> Seconds:
    each = Pieces(case)
    if case.in_turn:
        return each.named(), each.count * (each.prepare(case.cores) + each.gather(case.cores) + each.step(each.threads))
    work = each.prepare(1) + each.gather(1) + each.step_work
    return each.named(), each.side_by_side(*_lanes(each), work=work)


def _lanes(each: Pieces) -> tuple[float, float]:
    """Returns the seconds until a further batch is prepared, and those of a step."""
    ahead = each.prepare(1) + each.gather(1) + each.table_read(table_links(each.case))
    return ahead / each.case.samplers, each.step(each.threads)


COSTS = Costs(memory=_memory, links=lambda case: (table_links(case), False), seconds=_seconds, evaluated=evaluated)
