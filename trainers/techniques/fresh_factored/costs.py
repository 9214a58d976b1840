"""What a training by `fresh-factored` takes: what `factored` does, whose trainers load packed rows themselves, and the arena."""

from graphmill.assets.costs.needs import Term
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.forecast import Costs, Seconds
from graphmill.trainers.techniques.batch_costs import Pieces, evaluated
from graphmill.trainers.techniques.factored.costs import role_device_terms, role_terms
from graphmill.trainers.techniques.fresh.costs import (
    arena_device_terms,
    arena_terms,
    behind,
    history_bytes,
    history_links,
    window_term,
)
from graphmill.trainers.techniques.fresh.expected import expected_history


def _memory(case: Case) -> list[Term]:
    windows = window_term(case, sum(case.settings.roles(usable_cores())))
    return [*role_terms(case, 0, history_bytes(case)), windows, *arena_terms(case)]


def _device(case: Case) -> list[Term]:
    return [*role_device_terms(case), *arena_device_terms(case)]


def _seconds(case: Case) -> Seconds:
    samplers, trainers = case.settings.roles(case.cores)
    each = Pieces(case, trainers)
    # Batches of a step group are pruned and gathered beside each other, behind the update before.
    group = min(trainers, case.semantic.train.accumulate)
    links = history_links(case)[0]
    waits = behind(each, 1) + max(each.rows_read(links), each.crossing(links))
    share = expected_history(case).edges_share
    if case.in_turn:
        return each.named(share=share), each.in_turn(waits)
    return each.named(share=share), each.count * max(each.prepare(1) / samplers, waits / group)


COSTS = Costs(memory=_memory, links=history_links, seconds=_seconds, evaluated=evaluated, device=_device)
