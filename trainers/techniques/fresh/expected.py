"""What a history of embeddings is expected to spare.

It follows from the rates at which batches visit nodes. A node that batches visit at a rate r per batch is kept for the share q of the time
that ranking.py derives from r, p_grad and t_stale. So at a visit its embedding is found with probability q. Drawn batches are pruned by
draws of that probability, with the kernel that prunes those of the training: the rest of them is read and computed by the training.

With several parts each has a history of its own, which sees the batches of its part alone. Hotness counts batches of all parts, so rates
are split by the share of visits that stay within a part, as the drawn batches have it. Such a history holds feature rows of other parts.

Known limits: gradients are taken as independent of nodes and epochs, and rates as those without a history. Of more than `MOST_PARTS` parts
some stand for all.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graphmill.assets.packed_chunks.expected_reads import wanted_rows
from graphmill.assets.sizes import parse_size
from graphmill.kernels.history.csr2 import prune
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.types import Array, Block
from graphmill.trainers.recipe.costs.course import Case, CountedVisits
from graphmill.trainers.recipe.costs.step import item_bytes
from graphmill.trainers.techniques.batch_costs import rows_links
from graphmill.trainers.techniques.fresh.ranking import SCORED_AT_ONCE, BatchVisits, Share, share_arena, share_of_time
from graphmill.trainers.techniques.fresh.settings import kept_layers

DRAW_SEED = 0
MOST_PARTS = 4
"""Parts whose histories are worked out, each of which takes a sort of all nodes."""


@dataclass(frozen=True, kw_only=True)
class ExpectedHistory:
    """Drawn batches without what a history spares."""

    # Numbers of the batches in their sampling epoch; those of parts that are not worked out are left out.
    steps: list[int]
    # ids[n] of each of them: the nodes whose rows a batch would read without a history.
    whole: list[Array]
    # Those of them whose rows come from below the arena.
    below: list[Array]
    # f64[n], the chance of each of `whole` that the batch reads its row.
    chances: list[Array]
    # Link -> bytes of an epoch of embeddings, and of rows that the arena has.
    arena_links: dict[str, float]
    # Shares of edges and of input rows that are left.
    edges_share: float
    rows_share: float

    def table_links(self, case: Case) -> dict[str, float]:
        """Returns link -> bytes of an epoch of the rows from below the arena."""
        assert case.drawn is not None
        scale = case.drawn.count / max(1, len(self.below))
        return {link: scale * num_bytes for link, num_bytes in rows_links(case, self.below).items()}


class _Chances(NamedTuple):
    """The state of one history at a visit."""

    # f32[N] of each cached layer, the chance that a visit finds the node's embedding.
    held: list[Array]
    # Rows that the arena has, bool[N].
    in_arena: Array
    # bool[N] of each cached layer, nodes whose embeddings may enter.
    enters: list[Array]
    # Share of the steps whose embeddings may be kept.
    keeps: float


def expected_history(case: Case) -> ExpectedHistory:
    """Returns the drawn batches of a training without those parts that its history is expected to spare.

    Args:
        case: the training, with counts of visits by layer; each part of its plan has an arena, and a batch in every step.
    """
    if "history" not in case.shared:
        case.shared["history"] = _expected(case)
    return case.shared["history"]


class _Sums:
    """Sums over pruned batches."""

    def __init__(self, case: Case):
        self.case, self.random = case, np.random.default_rng(DRAW_SEED)
        self.whole: list[Array] = []
        self.below: list[Array] = []
        self.chances: list[Array] = []
        self.steps: list[int] = []
        self.hits = self.embeddings = self.edges = self.inputs = 0
        self.whole_edges = self.whole_inputs = 0
        self.admitted = 0.0

    def add(self, step: int, blocks: tuple[Block, ...], ends: int, chances: _Chances) -> None:
        """Prunes a batch and adds what is left of it; rows of its first `ends` seeds are computed in any case."""
        slots = []
        for layer in range(1, len(blocks)):
            ids = blocks[layer].src_ids
            found = self.random.random(len(ids)) < chances.held[layer - 1][ids]
            found[:ends] = False
            slots.append(np.where(found, 0, -1).astype(np.int32))
        left = prune(blocks, slots)
        ids = self.case.with_rows(left.blocks[0].src_ids)
        found = chances.in_arena[ids]
        self.steps.append(step)
        whole = self.case.with_rows(every := blocks[0].src_ids)
        self.whole.append(whole)
        wanted = wanted_rows(blocks, chances.held) * ~chances.in_arena[every]
        self.chances.append(wanted if len(whole) == len(every) else wanted[np.isin(every, whole)])
        self.below.append(ids[~found])
        self.hits, self.inputs = self.hits + int(found.sum()), self.inputs + len(ids)
        self.edges += sum(len(block.indices) for block in left.blocks)
        self.whole_edges += sum(len(block.indices) for block in blocks)
        self.whole_inputs += blocks[0].num_src
        for layer, block in enumerate(left.blocks):
            self.embeddings += 0 if block.splice is None else len(block.splice.hist_pos)
            if layer:
                computed = block.src_ids if block.splice is None else block.src_ids[block.splice.computed]
                computed = computed[ends:]
                entering = float(np.count_nonzero(chances.enters[layer - 1][computed]))
                self.admitted += self.case.settings.p_grad * chances.keeps * entering


def _expected(case: Case) -> ExpectedHistory:
    drawn, train, parts = case.drawn, case.semantic.train, case.plan.num_parts if isinstance(case.plan, PartPlan) else 1
    assert drawn is not None
    by_part: dict[int, list[int]] = {}
    for i, step in enumerate(drawn.steps):
        by_part.setdefault(step % parts, []).append(i)
    sums, within = _Sums(case), _within(case, parts)
    for part in list(by_part)[:MOST_PARTS]:
        chances = _chances(case, parts, part, within)
        for i in by_part[part]:
            sums.add(drawn.steps[i], drawn.blocks[i], drawn.ends[i] if drawn.ends else 0, chances)
    scale, value = drawn.count / max(1, len(sums.below)), item_bytes(train)
    row_bytes, width = train.hidden * value, case.sizes.width * value
    moved = {"d2d": scale * ((sums.embeddings + sums.admitted) * row_bytes + sums.hits * width)}
    return ExpectedHistory(
        steps=sums.steps,
        whole=sums.whole,
        below=sums.below,
        chances=sums.chances,
        arena_links=moved,
        edges_share=sums.edges / max(1, sums.whole_edges),
        rows_share=sums.inputs / max(1, sums.whole_inputs),
    )


def _within(case: Case, parts: int) -> list[float]:
    """Returns the share of the visits of each cached layer that are those of nodes of the batch's own part, by the drawn batches."""
    drawn, part_of, layers = case.drawn, case.part_of, case.semantic.train.layers - 1
    if parts == 1 or part_of is None or drawn is None:
        return [1.0] * layers
    own, visits = np.zeros(layers), np.zeros(layers)
    for step, blocks in zip(drawn.steps, drawn.blocks, strict=True):
        for layer in range(layers):
            ids = blocks[layer + 1].src_ids
            own[layer] += np.count_nonzero(part_of[ids] == step % parts)
            visits[layer] += len(ids)
    return (own / np.maximum(1, visits)).tolist()


def _held(visits: Array, num_batches: int, p_grad: float, longest: int | None, times: Array | float = 1.0) -> Array:
    """Returns f32[N], the share of the time that each node's embedding is held; some nodes at a time, since a rate takes 64 bytes.

    Args:
        visits: numbers[N], visits in `num_batches` batches.
        p_grad, longest: as in `share_of_time`.
        times: f32[N] or one number, rate of visits by the batches that the history sees over that of all batches.
    """
    found = np.empty(len(visits), np.float32)
    for low in range(0, len(found), SCORED_AT_ONCE):
        part = slice(low, low + SCORED_AT_ONCE)
        rates = (
            np.asarray(visits[part])
            / max(1, num_batches)
            * (times if isinstance(times, float) else np.asarray(times)[part])
        )
        found[part] = share_of_time(rates, p_grad, longest)
    return found


def _chances(case: Case, parts: int, part: int, within: list[float]) -> _Chances:
    """Returns the state of the history of a part; `within` is the share of visits of each cached layer that stay within a part."""
    train, settings, sizes = case.semantic.train, case.settings, case.sizes
    layers, num_nodes = kept_layers(train), sizes.num_nodes
    counted, plan = case.counted, case.plan
    none = np.zeros(num_nodes, np.float32), np.zeros(num_nodes, bool)
    above = train.layers - 1 - layers
    if counted is None or plan is None or not layers:
        return _Chances([none[0]] * (layers + above), none[1], [none[1]] * (layers + above), 0.0)
    per_epoch, value = plan.steps_per_epoch, item_bytes(train)
    stale, first = settings.stale_steps(per_epoch), settings.first_step(per_epoch)
    # Ages are counted in steps; a history sees its own part's batches.
    per_step = max(1, plan.batches_per_step // parts)
    longest = None if stale is None else stale * per_step
    # With lookahead an embedding is found one batch later, and no older.
    found = None if longest is None else max(0, longest - settings.lookahead)
    size = parse_size(settings.arena, sizes.feature_bytes // parts)
    slot_bytes, row_bytes = train.hidden * value, sizes.width * value
    own = None if parts == 1 or case.part_of is None else np.asarray(case.part_of) == part
    bounds = settings.p_grad, longest, slot_bytes, row_bytes, size
    share = _shared(counted, layers, own, *bounds) if settings.ranked else None
    kept = max(0.0, 1 - first / max(1, per_epoch * train.epochs)) * (stale != 0)
    chances, accepted, entering = [], [], 0.0
    for layer in range(layers):
        enters = np.ones(num_nodes, bool)
        if share is not None:
            enters = (share.score[layer] >= share.least) & (share.score[layer] > 0)
        times = _beside_ends(case) * (1.0 if own is None else _times(own, parts, within[layer]))
        held = _held(counted.layer_visits[layer], counted.num_batches, settings.p_grad, found, times)
        if share is None:
            rates = np.asarray(counted.layer_visits[layer]) / max(1, counted.num_batches) * times
            # Of the first window, in which the history fills: its longest one, and features that it displaces never return.
            entering += settings.p_grad * float(np.sum(rates * (1 - held / 2)))
        held *= enters
        held *= np.float32(kept)
        chances.append(held)
        accepted.append(enters)
    room = sum(float(each.sum(dtype=np.float64)) for each in chances) * slot_bytes
    if share is None and room > size:
        chances = [each * np.float32(size / room) for each in chances]
    # A ring grows over all rows that enter until it comes back to its first slot, every `longest` batches.
    ring = size if longest is None else min(size, kept * longest * entering * slot_bytes)
    used = ring if share is None else share.max_slots * slot_bytes
    rows = int((size - used) // max(1, row_bytes)) if settings.features else 0
    in_arena = _in_arena(case, counted, own, rows)
    return _Chances([*chances, *[none[0]] * above], in_arena, [*accepted, *[none[1]] * above], kept)


def _beside_ends(case: Case) -> float:
    """Returns the share of a batch's sources above the first layer of which a history gives and keeps rows: all but ends of links."""
    assert case.drawn is not None
    sources = sum(blocks[1].num_src for blocks in case.drawn.blocks)
    return 1.0 - sum(case.drawn.ends) / max(1, sources)


def _times(own: Array, parts: int, within: float) -> Array:
    """Returns f32[N], the rate at which a part's batches visit each node over that of all batches.

    Args:
        own: bool[N], nodes of the part.
        within: share of visits that stay within a part; the others go to the other parts in equal shares.
    """
    rates = parts * within, parts * (1 - within) / (parts - 1)
    return np.where(own, *map(np.float32, rates))


def _in_arena(case: Case, counted: CountedVisits, own: Array | None, rows: int) -> Array:
    """Returns bool[N], the hottest `rows` rows; those of its own part cost a history of several parts no exchange."""
    found = np.zeros(case.sizes.num_nodes, bool)
    hottest = case.with_rows(np.asarray(counted.order))
    hottest = hottest if own is None else hottest[~own[hottest]]
    found[hottest[:rows]] = True
    return found


def _shared(
    counted: CountedVisits,
    layers: int,
    own: Array | None,
    p_grad: float,
    longest: int | None,
    slot_bytes: int,
    row_bytes: int,
    size: int,
) -> Share:
    """Returns the shares of an arena, as the training's history works them out; rows of `own` nodes, bool[N], do not enter it."""
    visits = BatchVisits(
        num_batches=counted.num_batches,
        visits=counted.visits if own is None else np.where(own, 0, counted.visits),
        layer_visits=counted.layer_visits[:layers],
        layer_inputs=counted.layer_inputs[:layers],
    )
    return share_arena(visits, p_grad, longest, slot_bytes, row_bytes, size)
