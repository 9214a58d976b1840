"""What a training by `distributed` takes, of all ranks of one machine and of the process that starts them.

The bytes that ranks receive from each other are formulas, which tests compare with the ledgers of trainings:

R  ranks            B  batches of an epoch, of all parts        P  parameters, of p bytes in t tensors
r  rows that batches need of other ranks, each of b bytes       C  calls of the exchange, of all ranks
S  steps of a full-graph pass                                   m  parts

rows          r b                       by `distributed` and `fresh-distributed`
requests      4 r + C (R - 1) h + 8 z (R - 1)   row numbers; a head of h bytes per call and rank; z rounds of sizes, one per epoch
gradients     B (R - 1) (16 + t + p)    per epoch, "ordered": each batch to each other rank
              2 p (R - 1) per step      "all-reduce", whatever the number of batches of a step
neighbours    4 x columns x (crossing rows)     per epoch and layer of `fullgraph`, above the first; as many bytes of gradients
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np

from graphmill.assets.costs.needs import Term
from graphmill.kernels.cuda.held import HeldArrays
from graphmill.kernels.rows.aligned import space_for
from graphmill.kernels.rows.pages import padded_bytes
from graphmill.kernels.types import Array
from graphmill.trainers.ranks.rounds import LinkModel
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.forecast import Costs, Links, Seconds
from graphmill.trainers.recipe.costs.memory import (
    BATCH,
    SAMPLED,
    model_terms,
    process_terms,
    queue_terms,
    row_terms,
    sampler_terms,
    tier_rows,
    tier_terms,
)
from graphmill.trainers.recipe.costs.step import item_bytes, layer_widths, parameter_bytes
from graphmill.trainers.techniques.batch_costs import Pieces, added, edge_links, evaluated
from graphmill.trainers.techniques.distributed.hot_rows import choose_hot
from graphmill.trainers.techniques.distributed.settings import HEAD_BYTES, WINDOW_BYTES
from graphmill.trainers.techniques.stored_costs import from_disk_terms, stored_links

MEMBER_BYTES = 16
"""Position and loss of a batch, which travel with its gradients (trainers/techniques/distributed/executor.py)."""
NUMBER_BYTES, SIZE_BYTES = 4, 8
"""The number of a requested row, and the number of rows of a coming request."""


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """The size of a model's parameters: bytes and number of tensors."""

    num_bytes: int
    tensors: int


def model_size(train: TrainConfig, in_width: int, num_classes: int) -> ModelSize:
    """Returns the size of a model before it is built: its matrices, with three tensors of a layer, and the biases of all of them."""
    biases = sum(out for _, out in layer_widths(train, in_width, num_classes)) + train.hidden * bool(train.projects)
    num_bytes = parameter_bytes(train, in_width, num_classes) + biases * item_bytes(train)
    return ModelSize(num_bytes=num_bytes, tensors=3 * train.layers)


def gradient_bytes(model: ModelSize, batches: int, ranks: int) -> int:
    """Returns the bytes that all ranks receive when the gradients of batches, empty ones included, are added in order."""
    return batches * (ranks - 1) * (MEMBER_BYTES + model.tensors + model.num_bytes)


def summed_gradient_bytes(model: ModelSize, steps: int, ranks: int) -> int:
    """Returns the bytes that all ranks receive when each adds its own gradients and the library adds the sums."""
    return steps * ranks * (2 * model.num_bytes * (ranks - 1) // ranks)


def head_bytes(row_bytes: int) -> int:
    """Returns the bytes of the head of a reply: as many whole rows as a number of 8 bytes needs."""
    return -(-HEAD_BYTES // row_bytes) * row_bytes


def request_bytes(rows: int, calls: int, size_rounds: int, row_bytes: int, ranks: int) -> int:
    """Returns the bytes of requests and of the heads of replies of all ranks; calls and rounds of sizes are counted at each rank."""
    if not row_bytes:  # rows without columns are not exchanged
        return 0
    return NUMBER_BYTES * rows + (ranks - 1) * (calls * head_bytes(row_bytes) + SIZE_BYTES * size_rounds)


def counted_by_formula(
    counts: Mapping[str, int], model: ModelSize, ranks: int, row_bytes: int, ordered: bool, steps: int
) -> dict[str, int]:
    """Returns kind -> bytes between ranks that follow from the counts of a ledger of `distributed`.

    Args:
        counts: name -> count of layer 0 of the ledger, all ranks and epochs together.
    """
    rows, calls = counts.get("hits_remote", 0), counts.get("rounds", 0) // 2
    found = {"feature": rows * row_bytes}
    found["ids"] = request_bytes(rows, calls, counts.get("size_rounds", 0), row_bytes, ranks)
    batches = counts.get("batches", 0)
    found["gradient"] = gradient_bytes(model, batches, ranks) if ordered else summed_gradient_bytes(model, steps, ranks)
    return {kind: num_bytes for kind, num_bytes in found.items() if num_bytes}


def rank_terms(case: Case) -> list[Term]:
    """Returns the terms of all ranks."""
    ranks, packed = case.ranks, case.settings.rows == "packed"
    windows = ranks * WINDOW_BYTES
    expected = min(windows, ranks * case.batch.inputs * case.row_bytes) if ranks > 1 else windows
    return [
        *process_terms(case),
        *(from_disk_terms(case) if packed else queue_terms(case, lanes=1)),
        *model_terms(case, ranks),
        *sampler_terms(case),
        _evaluated(case),
        *(term.times(ranks) for term in row_terms(case)),
        Term("windows of rows in file order", windows, bound=True, likely=expected),
        Term("places of rows", ranks * 4 * case.sizes.num_nodes),
        *([term.times(ranks) for term in tier_terms(case, 0)] if packed else _exchange_terms(case)),
    ]


def _evaluated(case: Case) -> Term:
    """Returns the term of the rows of a batch of a sampled evaluation, one after the other; all else takes what a training has freed."""
    sampled, rows = case.semantic.train.eval != "exact", space_for(case.batch.inputs * case.row_bytes)
    return Term(SAMPLED, case.ranks * rows * sampled, BATCH, bound=True, likely=0 if case.exact_evaluation else None)


def _exchange_terms(case: Case) -> list[Term]:
    """Returns the terms of rows of other ranks: cached ones, and those that are fetched for a batch."""
    ranks, sizes = case.ranks, case.sizes
    fetched = space_for(case.batch.inputs * sizes.row_bytes) if ranks > 1 else 0
    on_devices, automatic = _device_rows(case), tier_rows(sizes, "device")[1]
    # A rank caches rows of others alone, and less beside shards in memory.
    cached = ranks * min(tier_rows(sizes, "host")[0], sizes.num_rows) * sizes.row_bytes
    found = [
        Term("rows on the ranks' devices", ranks * on_devices * sizes.row_bytes, "[memory] device", bound=automatic),
        Term("places of rows on devices", ranks * 4 * sizes.num_nodes if on_devices else 0),
        Term("cached rows of other ranks", cached, "[memory] host", bound=True),
        Term("rows of other ranks for a batch", ranks * fetched, BATCH, bound=True),
    ]
    if case.semantic.train.device != "cpu":
        # Torch lends pinned memory in powers of two; a batch more is filled before the oldest one is given back.
        pinned = (HeldArrays.MOST + 1) << max(0, case.batch.inputs * sizes.row_bytes - 1).bit_length()
        found.append(Term("rows of batches on their way to the device", ranks * pinned, BATCH, bound=True))
    return found


def _device_rows(case: Case) -> int:
    """Returns the rows that each device holds; ranks of a machine share a budget of "auto", which is a bound."""
    rows, automatic = tier_rows(case.sizes, "device")
    return rows // case.ranks if automatic else rows


def remote_links(case: Case, steps: Sequence[int], batches: Sequence[Array]) -> tuple[dict[str, float], float]:
    """Returns (link -> bytes of an epoch's rows besides those between ranks, rows of an epoch that other ranks send).

    Args:
        steps: numbers of drawn batches in their sampling epoch.
        batches: ids[n] of each of them, global: the nodes whose rows it reads.
    """
    ranks, row_bytes = case.ranks, case.sizes.row_bytes
    assert case.part_of is not None and case.drawn is not None
    num_parts = int(case.part_of.max(initial=0)) + 1
    share = max(1, num_parts // ranks)
    here = _on_devices(case, share)
    kept = _kept(case, share, here)
    rows = own = remote = near = 0
    for step, node_ids in zip(steps, map(case.with_rows, batches), strict=True):
        rank = step % num_parts // share
        near += int(np.count_nonzero(here[node_ids]))
        node_ids = node_ids[~here[node_ids]]
        owners = np.asarray(case.part_of)[node_ids] // share
        rows += len(node_ids)
        own += int(np.count_nonzero(owners == rank))
        others = node_ids[owners != rank]
        remote += len(others) if rank not in kept else int(np.count_nonzero(~kept[rank][others]))
    links = {"h2d": rows * row_bytes}
    if case.feature_place == "mapped":
        links["mapped"] = own * row_bytes
    elif case.feature_place == "direct":
        links["disk"] = own * padded_bytes(row_bytes)
    links |= {"d2d": near * row_bytes} if near else {}
    scale = case.drawn.count / max(1, len(batches))
    return {link: num_bytes * scale for link, num_bytes in links.items()}, remote * scale


def _on_devices(case: Case, share: int) -> Array:
    """Returns bool[N], the nodes whose rows a batch reads from a device: of its rank or, with `exchange = "peer"`, of any."""
    found, rows, peer = np.zeros(case.sizes.num_nodes, bool), _device_rows(case), case.settings.exchange == "peer"
    if case.order is not None and rows:
        room, part_of = dict.fromkeys(range(case.ranks), rows), np.asarray(case.part_of)
        order = case.with_rows(np.asarray(case.order))
        replicated = case.settings.replicated if peer else 1.0
        hot = choose_hot(order, np.zeros(len(found)), lambda ids: part_of[ids] // share, room, replicated)
        found[np.concatenate([hot.everywhere, *hot.by_rank])] = True
    return found


def _kept(case: Case, share: int, here: Array) -> dict[int, Array]:
    """Returns rank -> bool[N], the hottest rows of others, which it keeps; empty without a cache. `here` are those on devices."""
    cached = tier_rows(case.sizes, "host")[0]
    if case.order is None or not cached:
        return {}
    hottest, found = case.with_rows(np.asarray(case.order)), {}
    hottest = hottest[~here[hottest]]
    owners = np.asarray(case.part_of)[hottest] // share
    for rank in range(case.ranks):
        mask = np.zeros(case.sizes.num_nodes, bool)
        mask[hottest[owners != rank][:cached]] = True
        found[rank] = mask
    return found


def between_ranks(case: Case, remote_rows: float) -> float:
    """Returns the bytes of an epoch between ranks: rows, their numbers, and gradients."""
    ranks, plan, drawn = case.ranks, case.plan, case.drawn
    if ranks == 1 or plan is None or drawn is None:
        return 0.0
    model, row_bytes = model_size(case.semantic.train, case.sizes.width, case.num_classes), case.sizes.row_bytes
    if case.settings.gradients == "ordered":
        gradients = gradient_bytes(model, drawn.count, ranks)
    else:
        # Drawn batches may be counted for a larger graph than the plan's.
        gradients = summed_gradient_bytes(model, ceil(drawn.count / plan.batches_per_step), ranks)
    if case.settings.rows == "packed":
        return gradients
    return gradients + remote_rows * row_bytes + request_bytes(ceil(remote_rows), drawn.count, ranks, row_bytes, ranks)


def _links(case: Case) -> Links:
    if case.settings.rows == "packed":
        links, exact = stored_links(case, topology=True)
        return added(links, {"rank": between_ranks(case, 0.0)}), exact and case.ranks == 1
    assert case.drawn is not None
    batches = [blocks[0].src_ids for blocks in case.drawn.blocks]
    links, remote = remote_links(case, case.drawn.steps, batches)
    return added(links, edge_links(case), {"rank": between_ranks(case, remote)}), False


def rows_read(each: Pieces, links: Mapping[str, float]) -> float:
    """Returns the seconds in which the disk reads the rows of a batch of each rank; those that others ask for are read, too."""
    if each.case.settings.rows == "packed":
        return each.case.ranks * each.disk(links)
    edges = edge_links(each.case)
    own = {link: num_bytes - edges.get(link, 0.0) for link, num_bytes in links.items()}
    rows = own["h2d"] / max(1, each.case.sizes.row_bytes)
    asked = {"disk": rows * each.touched_bytes, "mapped": own["h2d"]}
    asked = {link: asked[link] for link in asked if own.get(link)}
    return each.case.ranks * each.table_read(added(asked, {link: edges[link] for link in edges if link != "h2d"}))


class ExchangeSeconds(NamedTuple):
    """Seconds of what crosses between ranks for a batch of each.

    Attributes:
        copied: seconds in which a rank receives the bytes as fast as the machine can.
        moved: seconds until they are there: those of a modelled network, if it is slower.
        call: seconds of a call without bytes.
    """

    copied: float
    moved: float
    call: float


def exchanged(each: Pieces, links: Mapping[str, float]) -> ExchangeSeconds:
    """Returns the seconds of the exchanges of a batch, all 0 without other ranks."""
    speeds, settings = each.speeds, each.case.settings
    if each.case.ranks == 1:
        return ExchangeSeconds(0.0, 0.0, 0.0)
    crossing = links.get("rank", 0.0) / each.count
    copied = crossing / speeds.rank_rate if speeds.rank_rate else 0.0
    modelled = LinkModel(gbps=settings.rank_gbps).seconds(round(crossing))
    return ExchangeSeconds(copied, max(copied, modelled), speeds.call + settings.latency_us * 1e-6)


def _seconds(case: Case) -> Seconds:
    """Returns the seconds of ranks that share a machine: rounds of one batch each, and an exchange that nothing hides."""
    ranks, each, links = case.ranks, Pieces(case, case.ranks), _links(case)[0]
    if case.in_turn:
        return each.named(), each.in_turn(each.gather(case.cores) + each.step(each.threads))
    # Each rank receives its share of what crosses, and works on it while it does.
    copied, moved, call = exchanged(each, links)
    ahead = each.prepare(1) + each.gather(1)
    step = each.handed(each.threads)  # another thread exchanges rows beside it
    work = ranks * (ahead + copied + each.threads * step)
    # The thread that exchanges rows draws with the others, too, in two more calls for each layer but the first.
    together = case.settings.scheme == "vanilla" and ranks > 1
    exchanging = moved + call + together * (each.prepare(1) + 2 * (case.semantic.train.layers - 1) * call)
    beside = ((ahead + rows_read(each, links)) / case.samplers, exchanging, step)
    seconds = each.side_by_side(*beside, work=work, ranks=ranks, waiting=2 * call)
    return each.named(exchanging=each.count / ranks * (2 * call + moved)), seconds


COSTS = Costs(memory=rank_terms, links=_links, seconds=_seconds, evaluated=evaluated)
