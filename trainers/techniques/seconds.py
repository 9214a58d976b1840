"""The seconds of an epoch on mini-batches, and of its evaluation, from the measured pieces of a batch and the bytes that it reads."""

from __future__ import annotations

from collections.abc import Mapping

from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.recipe.costs.course import Case, Scored
from graphmill.trainers.recipe.costs.evaluation import FORWARD, exact_seconds, missing_share
from graphmill.trainers.recipe.costs.forecast import COMPUTING, EXCHANGING, LOADING, SAMPLING
from graphmill.trainers.techniques.row_links import epoch_edges, epoch_inputs, stored_counts, table_links

CHUNK_PASSES, RECORD_COPIES = 2, 2
"""Passes over the rows of a packed chunk, and over the bytes of a stored record: they are read, and compared with their digest."""


class Pieces:
    """Seconds of the pieces of one batch of a training.

    Args:
        case: the training; its speeds are measured.
        trainers: number of trainers that share the cores; None for one that has the threads of the table.

    Attributes:
        count: batches of an epoch.
    """

    def __init__(self, case: Case, trainers: int | None = None):
        assert case.speeds is not None and case.drawn is not None
        self.case, self.speeds, self.count = case, case.speeds, case.drawn.count
        # Edges and rows of the training's own batches over those of the measured ones, which may have been drawn of another graph.
        self._edges = epoch_edges(case) / self.count / max(1.0, self.speeds.edges)
        self._rows = epoch_inputs(case) / self.count / max(1.0, self.speeds.inputs)
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

    def disk(self, links: Mapping[str, float]) -> float:
        """Returns the seconds in which a disk reads the bytes of one batch, from link -> bytes of an epoch."""
        return links.get("disk", 0.0) / self.count / self.speeds.disk_rate if self.speeds.disk_rate else 0.0

    def table_read(self, links: Mapping[str, float]) -> float:
        """Returns the seconds in which a disk reads the rows of one batch from the table: a request for each, of the pages it touches.

        Of a mapped table a thread waits for each page that the page cache cannot hold.
        """
        requests = links.get("disk", 0.0) / self.count / self.touched_bytes
        faults = self._faults(links.get("mapped", 0.0) / self.count)
        return requests * self.speeds.request() + self.disk(links) + faults

    def _faults(self, num_bytes: float) -> float:
        """Returns the seconds of the page faults of a thread that reads rows of a number of bytes from a mapped table."""
        if not num_bytes or not self.speeds.faults_rate:
            return 0.0
        touched = num_bytes / self.case.sizes.row_bytes * self.touched_bytes
        return missing_share(self.case) * touched / self.speeds.faults_rate

    def rows_read(self, links: Mapping[str, float]) -> float:
        """Returns the seconds in which a disk reads the rows of one batch, from packed chunks or from the table, as the settings say."""
        return self.disk(links) if self.case.settings.rows == "packed" else self.table_read(links)

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
    ahead = each.draw(1) + each.gather(1) + each.table_read(table_links(case))
    return batches * max(ahead / case.samplers, forward, (ahead + each.threads * forward) / max(1, case.cores))
