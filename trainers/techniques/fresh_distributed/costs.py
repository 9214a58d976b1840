"""What a training by `fresh-distributed` takes: what `distributed` does, and an arena per rank."""

from graphmill.assets.costs.needs import Term
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.device import batch_terms
from graphmill.trainers.recipe.costs.forecast import Costs, Links, Seconds
from graphmill.trainers.techniques.batch_costs import Pieces, added, edge_links, evaluated
from graphmill.trainers.techniques.distributed.costs import (
    between_ranks,
    exchanged,
    rank_terms,
    remote_links,
    rows_read,
)
from graphmill.trainers.techniques.fresh.costs import arena_device_terms, arena_terms, behind, window_term
from graphmill.trainers.techniques.fresh.expected import expected_history
from graphmill.trainers.techniques.stored_costs import pruned_links


def _memory(case: Case) -> list[Term]:
    packed = [window_term(case, case.ranks)] if case.settings.rows == "packed" else []
    return [*rank_terms(case), *packed, *arena_terms(case)]


def _device(case: Case) -> list[Term]:
    return [*batch_terms(case), *arena_device_terms(case)]


def _links(case: Case) -> Links:
    history = expected_history(case)
    if case.settings.rows == "packed":
        links, remote = pruned_links(case, history.whole, history.below, history.chances), 0.0
    else:
        links, remote = remote_links(case, history.steps, history.below)
        links = added(links, edge_links(case))
    return added(links, history.arena_links, {"rank": between_ranks(case, remote)}), False


def _seconds(case: Case) -> Seconds:
    ranks, each, links = case.ranks, Pieces(case, case.ranks), _links(case)[0]
    if case.in_turn:
        return each.named(share=expected_history(case).edges_share), each.in_turn(behind(each, each.threads))
    _, moved, call = exchanged(each, links)
    exchanging, rounds = moved + (1 if case.settings.rows == "packed" else 3) * call, each.count / ranks
    # Ranks that have fewer cores than threads take turns.
    turns = max(1.0, ranks * each.threads / case.cores)
    seconds = rounds * (turns * (each.prepare(1) + behind(each, 1) + exchanging) + rows_read(each, links))
    return each.named(share=expected_history(case).edges_share, exchanging=rounds * exchanging), seconds


COSTS = Costs(memory=_memory, links=_links, seconds=_seconds, evaluated=evaluated, device=_device)
