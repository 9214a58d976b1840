"""The lane on which ranks exchange rows: its links, and whether transfers run in rounds or all at once (FreshGNN, section 6)."""

from __future__ import annotations

from graphmill.trainers.ranks.gpu_links import gpu_links
from graphmill.trainers.ranks.group import Lane, Ranks
from graphmill.trainers.ranks.link_seconds import LinkModel, faster_in_rounds
from graphmill.trainers.ranks.links import Interconnect, parse_links
from graphmill.trainers.ranks.measured_links import measured_links
from graphmill.trainers.ranks.rounds import Rounds, make_rounds
from graphmill.trainers.techniques.distributed.settings import DistributedSettings


def open_lane(settings: DistributedSettings, ranks: Ranks) -> Lane:
    """Returns the lane of the exchange, with its rounds and its modelled network; all ranks call it.

    Raises:
        InputError: the links are of fewer devices, or they cannot be found.
    """
    links = find_links(settings.links, ranks) if settings.links and ranks.world > 1 else None
    modelled = links if settings.model_links else None
    model = LinkModel(latency_seconds=settings.latency_us * 1e-6, gbps=settings.rank_gbps, links=modelled)
    lane = ranks.lane(model if settings.latency_us or settings.rank_gbps or modelled else None)
    if links is not None and settings.exchange != "all_to_all":
        lane.order = _order(settings, links, ranks)
    return lane


def find_links(named: str, ranks: Ranks) -> Interconnect:
    """Returns the links between the ranks; all ranks call it.

    Args:
        named: the key `links`.

    Raises:
        InputError: as in `open_lane`.
    """
    if named == "measured":
        return measured_links(ranks)
    return gpu_links(ranks) if named == "nvml" else parse_links(named).between(range(ranks.world))


def _order(settings: DistributedSettings, links: Interconnect, ranks: Ranks) -> Rounds | None:
    """Returns the rounds, None if all transfers run at once."""
    order = make_rounds(links)
    if settings.exchange != "rounds" and not faster_in_rounds(links, order):
        order = None
    # The first rank decides: ranks may run other versions of Python, and rounds that differ would wait for one another.
    told = ranks.tell(None if order is None else [order.rounds, order.least])
    return None if told is None else Rounds.of(*told)
