"""The formulas of bytes and seconds of each technique's epoch (trainers/recipe/forecast.py)."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.recipe.forecast import (
    COMPUTING,
    EXCHANGING,
    LOADING,
    SAMPLING,
    Formula,
    Outlook,
    side_by_side,
)
from graphmill.trainers.recipe.need import Case, evaluation_terms, tier_rows
from graphmill.trainers.recipe.step_bytes import item_bytes, layer_widths, parameter_bytes
from graphmill.trainers.recipe.terms import KEPT_ROWS, ROWS_ON_THEIR_WAY
from graphmill.trainers.techniques.disk_volumes import pruned_links, stored_links
from graphmill.trainers.techniques.distributed.volumes import (
    ModelSize,
    gradient_bytes,
    request_bytes,
    summed_gradient_bytes,
)
from graphmill.trainers.techniques.factored.standby import StandbyShare, standby_rows, standby_share
from graphmill.trainers.techniques.fresh.expected import ExpectedHistory, expected_history
from graphmill.trainers.techniques.fullgraph.need import expected_terms
from graphmill.trainers.techniques.fullgraph.volumes import pass_links, pass_seconds
from graphmill.trainers.techniques.needs import WINDOW_COPIES, reader_bytes
from graphmill.trainers.techniques.remote_rows import remote_links
from graphmill.trainers.techniques.row_links import added, epoch_edges, epoch_inputs, stored_counts, table_links

Links = tuple[Mapping[str, float], bool]
Seconds = tuple[Mapping[str, float], float]
CHUNK_PASSES, NUM_LOADERS = 2, 6
"""Passes over the rows of a packed chunk, and threads that load them (trainers/techniques/disk.py)."""
RECORD_COPIES = 2
"""Passes over the bytes of a stored record: it is read, and compared with its digest."""


class Pieces:
    """Seconds of the pieces of one batch of a training.

    Args:
        outlook: the training; its speeds are measured.
        threads: threads of a step.

    Attributes:
        count: batches of an epoch.
    """

    def __init__(self, outlook: Outlook, threads: int = 0):
        assert outlook.speeds is not None and outlook.drawn is not None
        self.outlook, self.speeds, self.count = outlook, outlook.speeds, outlook.drawn.count
        # Edges and rows of the training's own batches over those of the measured ones, which may have been drawn of another graph.
        self._edges = epoch_edges(outlook) / self.count / max(1.0, self.speeds.edges)
        self._rows = epoch_inputs(outlook) / self.count / max(1.0, self.speeds.inputs)
        self.threads = threads or outlook.threads

    def prepare(self, threads: int) -> float:
        """Returns the seconds of drawing a batch, or of reading a stored one, on some threads."""
        if not self.outlook.case.stored:
            return self.speeds.at("draw", threads) * self._edges
        stored = stored_counts(self.outlook)
        num_bytes = stored.num_bytes / self.count if stored else 4 * epoch_edges(self.outlook) / self.count
        return RECORD_COPIES * num_bytes / self.speeds.copy_rate + self.speeds.transpose * self._edges

    def gather(self, threads: int) -> float:
        """Returns the seconds of gathering its rows on some threads."""
        return self.speeds.at("gather", threads) * self._rows

    def step(self, threads: int) -> float:
        """Returns the seconds of its step on some threads."""
        return self.speeds.at("step", threads) * self._edges

    def handed(self, threads: int) -> float:
        """Returns the seconds of its step on some threads, if it waits for the thread that brings its rows."""
        return (self.speeds.at("handed", threads) or self.speeds.at("step", threads)) * self._edges

    @property
    def step_work(self) -> float:
        """Seconds of the cores that its step takes: all of its threads are busy while it computes."""
        return self.threads * self.step(self.threads)

    def named(self, *, share: float = 1.0, exchanging: float = 0.0) -> dict[str, float]:
        """Returns piece -> seconds of an epoch, each on its own, of a training whose steps take a share of a batch."""
        return {
            SAMPLING: self.count * self.prepare(1),
            LOADING: self.count * self.gather(1) * share,
            COMPUTING: self.count * self.step(self.threads) * share,
            EXCHANGING: exchanging,
        }


def _disk_seconds(outlook: Outlook, links: Mapping[str, float], count: int) -> float:
    """Returns the seconds in which a disk reads the bytes of one batch."""
    assert outlook.speeds is not None
    return links.get("disk", 0.0) / count / outlook.speeds.disk_rate if outlook.speeds.disk_rate else 0.0


def _touched_bytes(outlook: Outlook) -> int:
    """Returns the mean bytes of the pages that a row touches, wherever it begins."""
    return PAGE_BYTES + outlook.sizes.row_bytes - 1


def _table_read_seconds(outlook: Outlook, links: Mapping[str, float], count: int) -> float:
    """Returns the seconds in which a disk reads the rows of one batch from the table: each is a request, of the pages that it touches."""
    assert outlook.speeds is not None
    requests = links.get("disk", 0.0) / count / _touched_bytes(outlook)
    return requests * outlook.speeds.request() + _disk_seconds(outlook, links, count)


def _rows_read_seconds(outlook: Outlook, links: Mapping[str, float], count: int) -> float:
    """Returns the seconds in which a disk reads all rows of one batch, from packed chunks or from the shards of all ranks."""
    if outlook.settings.rows == "packed":
        return _disk_seconds(outlook, links, count)
    all_rows = links["h2d"] / max(1, outlook.sizes.row_bytes) * _touched_bytes(outlook)
    return _table_read_seconds(outlook, {"disk": all_rows if links.get("disk") else 0.0}, count)


def _minibatch_links(outlook: Outlook) -> Links:
    return table_links(outlook), False


def _minibatch_seconds(outlook: Outlook) -> Seconds:
    each, cores = Pieces(outlook), outlook.cores
    if outlook.in_turn:
        seconds = each.prepare(cores) + each.gather(cores) + each.step(each.threads)
        return each.named(), each.count * seconds
    work = each.prepare(1) + each.gather(1) + each.step_work
    return each.named(), side_by_side(outlook, each.count, *_minibatch_lanes(outlook), work=work)


def _minibatch_lanes(outlook: Outlook) -> tuple[float, float]:
    each = Pieces(outlook)
    read = _table_read_seconds(outlook, table_links(outlook), each.count)
    return (each.prepare(1) + each.gather(1) + read) / outlook.case.threads, each.step(each.threads)


def _disk_links(outlook: Outlook) -> Links:
    return stored_links(outlook, topology=True)


def _disk_epoch_seconds(outlook: Outlook) -> Seconds:
    each = Pieces(outlook)
    read = _disk_seconds(outlook, stored_links(outlook, topology=True)[0], each.count)
    # Chunks are compared with their digest and gathered: two passes over the rows. What is read directly takes the cores, too.
    ahead = each.prepare(1) + CHUNK_PASSES * each.gather(1) + read
    beside = (ahead / NUM_LOADERS, each.step(each.threads))
    return each.named(), side_by_side(outlook, each.count, *beside, work=ahead + each.step_work)


def _factored_links(outlook: Outlook) -> Links:
    if outlook.settings.rows == "packed":
        return stored_links(outlook, topology=False)
    found = _standby_links(outlook)
    return table_links(outlook) if found is None else found.mixed(found.share.expected), False


class _StandbyLinks(NamedTuple):
    """Bytes of an epoch of two kinds of devices, whose caches hold different rows.

    Attributes:
        share: shares of the batches that go to devices which sample.
        whole, narrow: link -> bytes if all batches went to devices that train, and to those that sample.
    """

    share: StandbyShare
    whole: Mapping[str, float]
    narrow: Mapping[str, float]

    def mixed(self, share: float) -> dict[str, float]:
        """Returns link -> bytes if a share of the batches goes to devices that sample."""
        return {link: (1 - share) * self.whole[link] + share * self.narrow[link] for link in self.whole}


def _standby_links(outlook: Outlook) -> _StandbyLinks | None:
    """Returns the bytes of rows on both kinds of devices; None if their caches hold the same rows."""
    rows = None if outlook.settings.rows == "packed" else standby_rows(outlook)
    if rows is None:
        return None
    if "standby" not in outlook.shared:
        share = standby_share(outlook, *_stage_seconds(outlook))
        outlook.shared["standby"] = _StandbyLinks(share, table_links(outlook), table_links(outlook, rows))
    return outlook.shared["standby"]


def _stage_seconds(outlook: Outlook) -> tuple[float, float, float]:
    """Returns the seconds in which a batch is sampled, its rows are extracted, and it is trained on; 0 if nothing was measured."""
    if outlook.speeds is None:
        return 0.0, 0.0, 0.0
    trainers = outlook.settings.roles(outlook.cores)[1]
    each = Pieces(outlook, max(1, outlook.cores // max(1, trainers)))
    return each.prepare(1), each.gather(1), each.step(each.threads)


def _factored_ranges(outlook: Outlook) -> Mapping[str, tuple[float, float]]:
    """Returns link -> least and most bytes: which batches a standby trainer takes depends on the threads of the run."""
    found = _standby_links(outlook)
    if found is None:
        return {}
    ends = [found.mixed(share) for share in (found.share.least, found.share.most)]
    return {link: (min(each[link] for each in ends), max(each[link] for each in ends)) for link in found.whole}


def _factored_seconds(outlook: Outlook) -> Seconds:
    samplers, trainers = outlook.settings.roles(outlook.cores)
    each, packed = Pieces(outlook, max(1, outlook.cores // max(1, trainers))), outlook.settings.rows == "packed"
    read = (_disk_seconds if packed else _table_read_seconds)(outlook, _factored_links(outlook)[0], each.count)
    # A sampler that loads packed rows waits for each of its reads.
    ahead = each.prepare(1) + read + packed * CHUNK_PASSES * each.gather(1)
    trained = min(trainers, outlook.case.semantic.train.accumulate)
    step = each.handed(each.threads)
    beside = (ahead / samplers, each.gather(1) / trained, step / trained)
    work = ahead + each.gather(1) + each.threads * step
    return each.named(), side_by_side(outlook, each.count, *beside, work=work)


def _role_memory(case: Case, found: Mapping[str, int]) -> dict[str, int]:
    """Returns memory term -> bytes with the rows that roles keep: each has rows of its own, of which some come back beside a full queue."""
    if case.semantic.train.own_settings.rows == "packed":
        return dict(found)
    kept = {term.name: term.most for term in evaluation_terms(case, 0) if term.name == KEPT_ROWS}
    return dict(found) | kept


def _fresh_links(outlook: Outlook) -> Links:
    history = expected_history(outlook)
    if outlook.settings.rows == "packed":
        return added(history.arena_links, pruned_links(outlook, history.whole, history.below)), False
    return added(history.arena_links, history.table_links(outlook)), False


def _fresh_memory(case: Case, found: Mapping[str, int]) -> dict[str, int]:
    """Returns memory term -> bytes: a batch whose rows are smaller than the windows in which they come takes no more than they do."""
    rows = WINDOW_COPIES * case.batch.inputs * case.row_bytes + reader_bytes(case, 1)
    return {what: min(rows, num) if what == ROWS_ON_THEIR_WAY else num for what, num in found.items()}


def _behind(each: Pieces, history: ExpectedHistory, threads: int) -> float:
    """Returns the seconds of a batch between two updates: pruned, gathered through a window and from there, and trained on."""
    rows = (each.gather(threads) + each.gather(1)) * history.rows_share
    return each.speeds.prune + rows + each.handed(each.threads) * history.edges_share


def _fresh_read(each: Pieces) -> float:
    """Returns the seconds of reading the rows of a batch from disk, which waits for the update before."""
    packed, links = each.outlook.settings.rows == "packed", _fresh_links(each.outlook)[0]
    return (_disk_seconds if packed else _table_read_seconds)(each.outlook, links, each.count)


def _fresh_seconds(outlook: Outlook) -> Seconds:
    each, history = Pieces(outlook), expected_history(outlook)
    drawn, behind = each.prepare(1), _behind(each, history, each.threads) + _fresh_read(each)
    seconds = each.count * max(drawn / outlook.case.threads, behind)
    return each.named(share=history.edges_share), seconds


def _fresh_factored_seconds(outlook: Outlook) -> Seconds:
    samplers, trainers = outlook.settings.roles(outlook.cores)
    each, history = Pieces(outlook, max(1, outlook.cores // max(1, trainers))), expected_history(outlook)
    # Batches of a step group are pruned and gathered beside each other, behind the update before.
    group = min(trainers, outlook.case.semantic.train.accumulate)
    behind = _behind(each, history, 1) + _fresh_read(each)
    seconds = each.count * max(each.prepare(1) / samplers, behind / group)
    return each.named(share=history.edges_share), seconds


def _model_size(outlook: Outlook) -> ModelSize:
    train, sizes = outlook.case.semantic.train, outlook.sizes
    classes = max(2, sizes.num_classes)
    biases = sum(out for _, out in layer_widths(train, sizes.width, classes)) + train.hidden * bool(train.projects)
    num_bytes = parameter_bytes(train, sizes.width, classes) + biases * item_bytes(train)
    return ModelSize(num_bytes=num_bytes, tensors=3 * train.layers)


def _between_ranks(outlook: Outlook, remote_rows: float) -> float:
    """Returns the bytes of an epoch between ranks: rows, their numbers, and gradients."""
    ranks, plan = outlook.case.ranks, outlook.plan
    if ranks == 1 or plan is None or outlook.drawn is None:
        return 0.0
    settings, model = outlook.settings, _model_size(outlook)
    if settings.gradients == "ordered":
        gradients = gradient_bytes(model, outlook.drawn.count, ranks)
    else:
        # Drawn batches may be counted for a larger graph than the plan's.
        gradients = summed_gradient_bytes(model, ceil(outlook.drawn.count / plan.batches_per_step), ranks)
    if settings.rows == "packed":
        return gradients
    row_bytes = outlook.sizes.row_bytes
    asked = request_bytes(ceil(remote_rows), outlook.drawn.count, ranks, row_bytes, ranks)
    return gradients + remote_rows * row_bytes + asked


def _distributed_links(outlook: Outlook) -> Links:
    if outlook.settings.rows == "packed":
        links, exact = stored_links(outlook, topology=True)
        return added(links, {"rank": _between_ranks(outlook, 0.0)}), exact and outlook.case.ranks == 1
    assert outlook.drawn is not None
    batches = [blocks[0].src_ids for blocks in outlook.drawn.blocks]
    links, remote = remote_links(outlook, outlook.drawn.steps, batches, _cached_rows(outlook))
    scale = outlook.drawn.count / max(1, len(batches))
    found = {link: num_bytes * scale for link, num_bytes in links.items()}
    return added(found, {"rank": _between_ranks(outlook, remote * scale)}), False


def _cached_rows(outlook: Outlook) -> int:
    return 0 if outlook.order is None else tier_rows(outlook.sizes, "host")[0]


def _distributed_seconds(outlook: Outlook) -> Seconds:
    ranks = outlook.case.ranks
    each = Pieces(outlook, max(1, outlook.cores // ranks))
    links = _distributed_links(outlook)[0]
    return _ranked_seconds(outlook, each, links, 1.0, 1.0)


def _ranked_seconds(
    outlook: Outlook, each: Pieces, links: Mapping[str, float], rows_share: float, edges_share: float
) -> Seconds:
    """Returns the seconds of ranks that share a machine: rounds of one batch each, and an exchange that nothing hides."""
    speeds, ranks = outlook.speeds, outlook.case.ranks
    assert speeds is not None
    # Each rank receives its share of what crosses, and works on it while it does.
    moved = links.get("rank", 0.0) / each.count / speeds.rank_rate if ranks > 1 and speeds.rank_rate else 0.0
    calls = speeds.call * (ranks > 1)
    ahead = each.prepare(1) + each.gather(1) * rows_share
    step = each.handed(each.threads) * edges_share  # another thread exchanges rows beside it
    work = ranks * (ahead + moved + each.threads * step)
    # Ranks of a machine read from one disk, those rows that others ask for, too.
    read = ranks * _rows_read_seconds(outlook, links, each.count)
    lanes, rounds = max(1, outlook.case.threads), each.count / ranks
    beside = ((ahead + read) / lanes, moved + calls, step)
    seconds = side_by_side(outlook, rounds, *beside, work=work, waiting=2 * calls)
    return each.named(share=edges_share, exchanging=rounds * (2 * calls + moved)), seconds


def _fresh_distributed_links(outlook: Outlook) -> Links:
    history = expected_history(outlook)
    assert outlook.drawn is not None
    links, remote = remote_links(outlook, history.steps, history.below, _cached_rows(outlook))
    scale = outlook.drawn.count / max(1, len(history.below))
    found = {link: num_bytes * scale for link, num_bytes in links.items()}
    return added(found, history.arena_links, {"rank": _between_ranks(outlook, remote * scale)}), False


def _fresh_distributed_seconds(outlook: Outlook) -> Seconds:
    ranks, history, speeds = outlook.case.ranks, expected_history(outlook), outlook.speeds
    each = Pieces(outlook, max(1, outlook.cores // ranks))
    assert speeds is not None
    links = _fresh_distributed_links(outlook)[0]
    moved = links.get("rank", 0.0) / each.count / speeds.rank_rate if ranks > 1 and speeds.rank_rate else 0.0
    exchanging = moved + 3 * speeds.call * (ranks > 1)
    # Ranks that have fewer cores than threads take turns.
    turns = max(1.0, ranks * each.threads / outlook.cores)
    rounds = each.count / ranks
    read = ranks * _rows_read_seconds(outlook, links, each.count)
    seconds = rounds * (turns * (each.prepare(1) + _behind(each, history, 1) + exchanging) + read)
    return each.named(share=history.edges_share, exchanging=rounds * exchanging), seconds


MINIBATCH = Formula(_minibatch_links, _minibatch_seconds, lanes=_minibatch_lanes)
DISK = Formula(_disk_links, _disk_epoch_seconds)
FACTORED = Formula(_factored_links, _factored_seconds, memory=_role_memory, ranges=_factored_ranges)
FRESH = Formula(_fresh_links, _fresh_seconds, memory=_fresh_memory)
FRESH_FACTORED = Formula(_fresh_links, _fresh_factored_seconds, memory=_role_memory)
FULLGRAPH = Formula(pass_links, pass_seconds, memory=expected_terms)
DISTRIBUTED = Formula(_distributed_links, _distributed_seconds)
FRESH_DISTRIBUTED = Formula(_fresh_distributed_links, _fresh_distributed_seconds)
