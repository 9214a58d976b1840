"""What trainings on mini-batches take whose rows come from a table, from caches or from stored batches; without torch.

Bytes over links are those of drawn batches. Seconds of an epoch and of its evaluation follow from these bytes and the measured pieces of a
batch. `MINIBATCH` is what a training by `minibatch` takes.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from graphmill.assets.costs.needs import Term
from graphmill.assets.samples.read import open_samples
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes, touched_pages
from graphmill.kernels.types import Array
from graphmill.trainers.batches.stored import batch_uses
from graphmill.trainers.recipe.costs.course import Case, Scored
from graphmill.trainers.recipe.costs.forecast import (
    COMPUTING,
    EXCHANGING,
    FORWARD,
    LOADING,
    SAMPLING,
    Costs,
    Seconds,
    exact_seconds,
    missing_share,
)
from graphmill.trainers.recipe.costs.memory import (
    model_terms,
    process_terms,
    queue_terms,
    sampler_terms,
    source_terms,
    tier_rows,
)

BEHIND, DEVICE, HOST = 0, 1, 2
"""Places of a row: the table, the device's cache, the host's cache."""


class StoredCounts(NamedTuple):
    """Counts of a training's stored batches per epoch, and bytes of their records."""

    inputs: float
    edges: float
    num_bytes: float


def stored_counts(case: Case) -> StoredCounts | None:
    """Returns the counts of a training's stored batches; None if they are drawn, or not stored yet."""
    artifact, plan = case.artifacts.get("samples"), case.plan
    if artifact is None or plan is None or not case.stored:
        return None
    samples, epochs = open_samples(artifact, parts=()), case.semantic.train.epochs
    times = batch_uses(plan, epochs, samples) / epochs
    edges = np.asarray(samples.num_edges).sum(axis=1)
    totals = (np.asarray(each) * times for each in (samples.num_inputs, edges, samples.num_bytes))
    return StoredCounts(*(float(total.sum()) for total in totals))


def epoch_inputs(case: Case) -> float:
    """Returns the number of input rows of an epoch, before anything is pruned: exact of stored batches, else by the drawn ones."""
    stored = stored_counts(case)
    return stored.inputs if stored else _drawn(case).inputs * _drawn(case).count


def epoch_edges(case: Case) -> float:
    """Returns the number of edges of an epoch, likewise."""
    stored = stored_counts(case)
    return stored.edges if stored else _drawn(case).edges * _drawn(case).count


def table_links(case: Case, device_rows: int | None = None) -> dict[str, float]:
    """Returns link -> bytes of an epoch's input rows, from the table and the caches before it, and of the rows of its edges.

    Arguments as in `placed`.
    """
    drawn = _drawn(case)
    found = rows_links(case, (blocks[0].src_ids for blocks in drawn.blocks), device_rows)
    scale = epoch_inputs(case) / max(1.0, drawn.inputs * len(drawn.blocks))
    return added({link: num_bytes * scale for link, num_bytes in found.items()}, edge_links(case))


def edge_links(case: Case) -> dict[str, float]:
    """Returns link -> bytes of an epoch's rows of edges from their table; {} without any."""
    if not case.semantic.train.edge_features:
        return {}
    if "edge links" not in case.shared:
        case.shared["edge links"] = _edge_links(case)
    return case.shared["edge links"]


def _edge_links(case: Case) -> dict[str, float]:
    drawn, row_bytes = _drawn(case), case.sizes.edge_row_bytes
    batches, scale = _edges_of(case), epoch_edges(case) / max(1.0, drawn.edges * len(drawn.blocks))
    crossed = float(sum(map(len, batches)) * row_bytes)
    if case.edges_fit:
        found = {"mapped": crossed}
    elif case.stand_in:  # rows of a smaller graph share pages that those of the whole one do not
        found = {"disk": sum(map(len, batches)) * float(padded_bytes(row_bytes))}
    else:
        found = {"disk": float(sum(pages_of(ids, row_bytes) for ids in batches))}
    return {link: num_bytes * scale for link, num_bytes in (found | {"h2d": crossed}).items()}


def epoch_edge_rows(case: Case) -> float:
    """Returns the number of rows of edges of an epoch, each once a batch; 0 without any."""
    if not case.semantic.train.edge_features:
        return 0.0
    drawn, batches = _drawn(case), _edges_of(case)
    return sum(map(len, batches)) * epoch_edges(case) / max(1.0, drawn.edges * len(batches))


def _edges_of(case: Case) -> list[Array]:
    """Returns ids[U] of the rows of edges of each drawn batch; of edges without ids as many as there are edges."""
    if "edges" not in case.shared:
        found = []
        for blocks in _drawn(case).blocks:
            ids = [block.edge_id for block in blocks if block.edge_id is not None]
            whole = np.arange(min(sum(len(block.indices) for block in blocks), case.sizes.num_edge_rows))
            found.append(np.unique(np.concatenate(ids)) if len(ids) == len(blocks) else whole)
        case.shared["edges"] = found
    return case.shared["edges"]


def rows_links(case: Case, batches: Iterable[Array], device_rows: int | None = None) -> dict[str, float]:
    """Returns link -> bytes of rows of batches, ids[n] each, from the table and the caches before it; `device_rows` as in `placed`."""
    tier, row_bytes, where = placed(case, device_rows), case.sizes.row_bytes, case.feature_place
    found: dict[str, float] = {"disk": 0.0, "mapped": 0.0, "h2d": 0.0, "d2d": 0.0}
    for node_ids in map(case.with_rows, batches):
        behind = node_ids if tier is None else node_ids[tier[node_ids] == BEHIND]
        on_device = 0 if tier is None else int(np.count_nonzero(tier[node_ids] == DEVICE))
        found["h2d"] += (len(node_ids) - on_device) * row_bytes
        found["d2d"] += on_device * row_bytes
        if where == "mapped":
            found["mapped"] += len(behind) * row_bytes
        elif where == "direct":
            rows = behind if case.row_of is None else case.row_of[behind]
            # Rows of a smaller graph share pages that those of the whole one do not.
            found["disk"] += len(rows) * padded_bytes(row_bytes) if case.stand_in else pages_of(rows, row_bytes)
    return found


def placed(case: Case, device_rows: int | None = None) -> Array | None:
    """Returns u8[N], the place of each node's row; None if nothing is cached.

    Args:
        device_rows: rows of a device that has fewer of them than the budget says, whose other rows come from the table; None = all.
    """
    if case.order is None:
        return None
    tier = by_hotness(case)
    if case.execution.features == "memory":
        tier[tier == HOST] = BEHIND
    if device_rows is not None:
        fewer = case.with_rows(np.asarray(case.order))[:device_rows]
        tier[tier == DEVICE] = BEHIND
        tier[fewer] = DEVICE
    return tier


def by_hotness(case: Case) -> Array:
    """Returns u8[N], the place of each node's row if the hottest ones fill the device's cache and the next ones the host's."""
    device, host = (tier_rows(case.sizes, level)[0] for level in ("device", "host"))
    hottest = case.with_rows(np.asarray(case.order))
    found = np.full(case.sizes.num_nodes, BEHIND, np.uint8)
    found[hottest[:device]], found[hottest[device : device + host]] = DEVICE, HOST
    return found


def added(*parts: Mapping[str, float]) -> dict[str, float]:
    """Returns the sums of several counts by link."""
    found: dict[str, float] = {}
    for part in parts:
        for link, num_bytes in part.items():
            found[link] = found.get(link, 0.0) + num_bytes
    return found


def _drawn(case: Case):
    assert case.drawn is not None, "the technique samples"
    return case.drawn


def pages_of(rows: Array, row_bytes: int) -> int:
    """Returns the bytes of the distinct pages in which rows ids[n] of a table lie."""
    pages, _ = touched_pages([0, len(rows)], rows, int(rows.max(initial=-1)) + 1, row_bytes)
    return int(pages[0]) * PAGE_BYTES


CHUNK_PASSES, RECORD_COPIES = 2, 2
"""Passes over the rows of a packed chunk, and over the bytes of a stored record: they are read, and compared with their digest."""


class Pieces:
    """Seconds of the pieces of one batch of a training.

    Args:
        trainers: number of trainers that share the cores; None for one that has the threads of the table.
    """

    def __init__(self, case: Case, trainers: int | None = None):
        assert case.speeds is not None and case.drawn is not None
        self.case, self.speeds, self.count = case, case.speeds, case.drawn.count
        # Edges and rows of the training's own batches over those of the measured ones, which may have been drawn of another graph.
        self._edges = epoch_edges(case) / self.count / max(1.0, self.speeds.edges)
        self._rows = epoch_inputs(case) / self.count / max(1.0, self.speeds.inputs)
        # Rows of edges are gathered as rows of nodes are, byte for byte.
        of_node = max(1.0, self.speeds.inputs * case.sizes.row_bytes)
        self._edge_rows = epoch_edge_rows(case) / self.count * case.sizes.edge_row_bytes / of_node
        self.threads = case.threads if trainers is None else max(1, case.cores // max(1, trainers))

    def prepare(self, threads: int) -> float:
        """Returns the seconds of drawing a batch, or of reading a stored one, on some threads."""
        if not self.case.stored:
            return self.draw(threads)
        stored = stored_counts(self.case)
        num_bytes = stored.num_bytes / self.count if stored else 4 * epoch_edges(self.case) / self.count
        return RECORD_COPIES * num_bytes / self.speeds.copy_rate + self.speeds.transpose * self._edges

    def draw(self, threads: int) -> float:
        """Returns the seconds of drawing a batch on some threads."""
        return self.speeds.at("draw", threads) * self._edges

    def gather(self, threads: int) -> float:
        """Returns the seconds of gathering its rows, and those of its edges, on some threads."""
        return self.speeds.at("gather", threads) * (self._rows + self._edge_rows)

    def gather_edges(self, threads: int) -> float:
        """Returns the seconds of gathering the rows of its edges on some threads."""
        return self.speeds.at("gather", threads) * self._edge_rows

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

    def disk(self, links: Mapping[str, float]) -> float:
        """Returns the seconds in which a disk reads the bytes of one batch, from link -> bytes of an epoch."""
        return links.get("disk", 0.0) / self.count / self.speeds.disk_rate if self.speeds.disk_rate else 0.0

    def table_read(self, links: Mapping[str, float]) -> float:
        """Returns the seconds in which a disk reads the rows of one batch from the table: a request for each, of the pages it touches.

        Of a mapped table a thread waits for each page that the page cache cannot hold. Rows of edges are mapped only if they fit.
        """
        edges = edge_links(self.case)
        own = {link: links.get(link, 0.0) - edges.get(link, 0.0) for link in ("disk", "mapped")}
        requests = own["disk"] / self.count / self.touched_bytes
        faults = self._faults(own["mapped"] / self.count)
        return requests * self.speeds.request() + self.disk(own) + faults + self.edges_read()

    def edges_read(self) -> float:
        """Returns the seconds in which a disk reads the rows of the edges of one batch from their table: a request for each."""
        read = edge_links(self.case).get("disk", 0.0)
        requests = read / self.count / (PAGE_BYTES + self.case.sizes.edge_row_bytes - 1)
        return requests * self.speeds.request() + self.disk({"disk": read})

    def _faults(self, num_bytes: float) -> float:
        """Returns the seconds of the page faults of a thread that reads rows of a number of bytes from a mapped table."""
        if not num_bytes or not self.speeds.faults_rate:
            return 0.0
        touched = num_bytes / self.case.sizes.row_bytes * self.touched_bytes
        return missing_share(self.case) * touched / self.speeds.faults_rate

    def rows_read(self, links: Mapping[str, float]) -> float:
        """Returns the seconds in which a disk reads the rows of one batch, from packed chunks or from the table, as the settings say."""
        return self.disk(links) if self.case.settings.rows == "packed" else self.table_read(links)

    def crossing(self, links: Mapping[str, float]) -> float:
        """Returns the seconds in which a modelled link carries the rows of one batch to the device; 0 without one."""
        gbps = self.case.execution.link_gbps
        return links.get("h2d", 0.0) / self.count / (gbps * 1e9) if gbps else 0.0

    @property
    def touched_bytes(self) -> int:
        """Mean bytes of the pages that a row touches, wherever it begins."""
        return PAGE_BYTES + self.case.sizes.row_bytes - 1

    def named(self, *, share: float = 1.0, exchanging: float = 0.0) -> dict[str, float]:
        """Returns piece -> seconds of an epoch, each on its own, of a training whose steps take a share of a batch."""
        return {
            SAMPLING: self.count * self.prepare(1),
            LOADING: self.count * self.gather(1) * share,
            COMPUTING: self.count * self.step(self.threads) * share,
            EXCHANGING: exchanging,
        }

    def in_turn(self, behind: float) -> float:
        """Returns the seconds of an epoch whose batches all cores draw just before their step; `behind` are those of a drawn batch."""
        return self.count * (self.prepare(self.case.cores) + behind)

    def side_by_side(self, *lanes: float, work: float, ranks: int = 1, waiting: float = 0.0) -> float:
        """Returns the seconds of an epoch whose pieces run side by side.

        Args:
            lanes: seconds of a batch in each piece, with the threads that it has.
            work: seconds of all pieces of a batch on one thread each.
            ranks: batches that are trained on at once, by as many ranks.
            waiting: seconds of a batch that nothing hides.
        """
        return self.count / ranks * (max(*lanes, work / max(1, self.case.cores)) + waiting)


def evaluated(case: Case, scored: Scored) -> float:
    """Returns the seconds of an evaluation: an exact one, or a forward pass of drawn batches, whose rows come from the table."""
    if case.exact_evaluation:
        return exact_seconds(case, scored)
    each, sampling = Pieces(case), case.semantic.sampling
    assert sampling is not None
    batches = sum(-(-nodes // sampling.batch_size) for nodes in scored.parts)
    forward = FORWARD * each.step(each.threads)
    if case.in_turn:
        return batches * (each.draw(case.cores) + each.gather(case.cores) + forward)
    links = table_links(case)
    ahead = each.draw(1) + max(each.gather(1) + each.table_read(links), each.crossing(links))
    return batches * max(ahead / case.samplers, forward, (ahead + each.threads * forward) / max(1, case.cores))


def _memory(case: Case) -> list[Term]:
    waiting = 1.0
    if case.speeds is not None and case.drawn is not None:
        *ahead, step = _lanes(Pieces(case))
        waiting = max(0.0, 1 - max(ahead) / max(step, 1e-9))
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
        return each.named(), each.in_turn(each.gather(case.cores) + each.step(each.threads))
    work = each.prepare(1) + each.gather(1) + each.step_work
    return each.named(), each.side_by_side(*_lanes(each), work=work)


def _lanes(each: Pieces) -> tuple[float, float, float]:
    """Returns the seconds until a further batch is prepared, those of its link, which all threads share, and those of a step."""
    links = table_links(each.case)
    crossing = each.crossing(links)
    # Copying counts towards the transfer (trainers/devices/link.py).
    ahead = each.prepare(1) + max(each.gather(1) + each.table_read(links), crossing)
    return ahead / each.case.samplers, crossing, each.step(each.threads)


MINIBATCH = Costs(memory=_memory, links=lambda case: (table_links(case), False), seconds=_seconds, evaluated=evaluated)
