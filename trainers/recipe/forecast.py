"""The course of a training before it starts: bytes over each link and seconds of an epoch, beside the memory of need.py.

A technique's own formula is in its row of the table (`Technique.forecast`). It gets an `Outlook`: the recipe, some drawn batches, the order
and the counts of hotness, the parts of nodes, and `Speeds`, the measured seconds of the pieces of a batch. Numbers that follow from
artifacts alone, such as those of packed chunks, are exact; others are means over the drawn batches.

Seconds are those of pieces that run side by side. A machine of c cores gives a batch no less time than its longest piece takes, and no less
than a c-th of the work of all pieces; the larger of the two is said. Disks are read beside both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from graphmill.assets.building.needs import Sizes
from graphmill.assets.storage.artifact import Artifact
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.sampling.epoch_plan import Plan
from graphmill.kernels.types import Array
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.drawn import DrawnBatches
from graphmill.trainers.recipe.in_turn import prepared_in_turn
from graphmill.trainers.recipe.need import Case, expected_exact_bytes, training_need
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.recipe.terms import (
    ACTIVATIONS,
    EVALUATION_BATCHES,
    EXACT_EVALUATION,
    KEPT_ROWS,
    LAUNCHER,
    NEXT_BLOCKS,
    RANK_WINDOWS,
    READERS,
    WAITING_BATCHES,
)

SAMPLING, LOADING, COMPUTING, EXCHANGING = "sampling", "loading", "computing", "exchanging"
"""Pieces of an epoch: drawing batches, bringing their rows, the steps, and waiting for other processes."""


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Measured seconds of the pieces of a batch, on this machine, of one recipe and one graph.

    Attributes:
        step: threads -> seconds of a training step on a mean batch, with its update.
        handed: threads -> the same right after another thread has prepared the batch: its threads wake on cores that were in use, and
            a step of a few milliseconds takes up to 1.7 times as long.
        draw: threads -> seconds of drawing it, with the transposes that the model needs.
        gather: threads -> seconds of gathering its input rows from a mapped table.
        transpose: seconds of its transposes on one thread.
        prune: seconds of pruning it on one thread; 0 if that was not measured.
        layers: threads -> seconds of a forward and a backward pass over all nodes and edges in chunks, scaled from one of them; empty
            likewise.
        whole: threads -> the same in one piece, in which each node is a source once.
        visit: parts -> seconds of a chunk in both passes of all layers apart from its edges and rows; empty likewise.
        edges: mean number of edges of the measured batches, or of the graph if passes over it were measured.
        inputs: mean number of their input rows.
        disk_rate: bytes that the disk of the home reads per second in order, past the page cache.
        pages_rate: bytes of scattered pages that it reads per second, one request for each; 0 if that was not measured.
        copy_rate: bytes that one thread copies per second.
        call: seconds of an exchange of nothing between two processes of this machine.
        rank_rate: bytes that each of them receives per second in an exchange.
    """

    step: Mapping[int, float] = field(default_factory=dict)
    handed: Mapping[int, float] = field(default_factory=dict)
    draw: Mapping[int, float] = field(default_factory=dict)
    gather: Mapping[int, float] = field(default_factory=dict)
    transpose: float = 0.0
    prune: float = 0.0
    layers: Mapping[int, float] = field(default_factory=dict)
    whole: Mapping[int, float] = field(default_factory=dict)
    visit: Mapping[int, float] = field(default_factory=dict)
    edges: float = 0.0
    inputs: float = 0.0
    disk_rate: float = 0.0
    pages_rate: float = 0.0
    copy_rate: float = 0.0
    call: float = 0.0
    rank_rate: float = 0.0

    def request(self) -> float:
        """Returns the seconds of a request to the disk apart from its bytes."""
        if not self.pages_rate or not self.disk_rate:
            return 0.0
        return max(0.0, PAGE_BYTES / self.pages_rate - PAGE_BYTES / self.disk_rate)

    def at(self, piece: str, threads: int) -> float:
        """Returns the seconds of a piece on a number of threads, by the nearest measured number.

        Args:
            piece: "step", "handed", "draw", "gather", "layers", "whole" or "visit".
            threads: the number; of "visit" the number of parts.
        """
        found: Mapping[int, float] = getattr(self, piece)
        if not found:
            return 0.0
        return found[min(found, key=lambda each: (abs(each - threads), each))]


@dataclass(frozen=True, kw_only=True)
class CountedVisits:
    """Visits of nodes in a number of batches.

    Attributes:
        num_batches: number of the batches.
        order: ids[N], nodes by falling hotness.
        visits: numbers[N], batches that read the node's row.
        layer_visits, layer_inputs: numbers[L-1, N], batches in which layer l has the node, and inputs under it, summed over them.
    """

    num_batches: int
    order: Array
    visits: Array
    layer_visits: Array
    layer_inputs: Array


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is known of a training before it starts.

    Attributes:
        case: the recipe and the sizes, with the largest drawn batch.
        plan: the order of batches; None if nothing is sampled.
        drawn: drawn batches; None likewise, and of a user's own sampling function.
        order: ids[N], nodes by falling hotness, if the training caches rows by it or has packed ones; else None.
        cached: whether a cache stands before the table of rows.
        counted: counts of visits by layer, for a history of embeddings; None if they are not known.
        part_of: i32[N], part of each node, for a training by parts; else None.
        row_of: ids[N], row of each node, -1 for none; None if nodes are rows.
        fits: whether the feature table fits into the memory that is free, so that features = "auto" maps it.
        stand_in: whether batches are drawn of a smaller graph than the one that is trained on.
        exact_evaluation: whether evaluations are exact.
        cores: cores that the training may use.
        speeds: measured seconds; while pieces are measured the rates of the machine alone; None if nothing was measured.
        shared: key -> result that several formulas need; of this outlook alone.
    """

    case: Case
    plan: Plan | None = None
    drawn: DrawnBatches | None = None
    order: Array | None = None
    cached: bool = False
    counted: CountedVisits | None = None
    part_of: Array | None = None
    row_of: Array | None = None
    fits: bool = True
    stand_in: bool = False
    exact_evaluation: bool = False
    cores: int = 1
    speeds: Speeds | None = None
    # Results that several formulas of one forecast share; `replace` starts with none.
    shared: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def sizes(self) -> Sizes:
        """The sizes of the graph and its features."""
        return self.case.sizes

    @property
    def artifacts(self) -> Mapping[str, Artifact]:
        """The artifacts that exist."""
        return self.case.sizes.artifacts

    @property
    def settings(self) -> Any:
        """The technique's own settings."""
        return self.case.semantic.train.own_settings

    @property
    def threads(self) -> int:
        """The threads of a trainer; all cores if the table leaves them to the machine."""
        threads = self.case.semantic.train.threads
        return self.cores if isinstance(threads, str) else threads

    @property
    def in_turn(self) -> bool:
        """Whether all threads prepare each batch just before its step: rows are at hand, and no cache stands before them."""
        train, execution = self.case.semantic.train, self.case.execution
        at_hand = execution.features == "memory" or self.fits
        return at_hand and not self.cached and self.case.ranks == 1 and prepared_in_turn(train.trainer, execution)

    def with_rows(self, node_ids: Array) -> Array:
        """Returns the nodes that have a row, of ids[n]."""
        return node_ids if self.row_of is None else node_ids[self.row_of[node_ids] >= 0]


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a training is expected to take.

    Attributes:
        memory: memory term -> bytes, of all its processes, without those that wait for it; empty if there is no formula.
        links: link of the ledger -> bytes of an epoch, over all processes.
        ranges: link -> (least, most) bytes of an epoch, for links whose bytes depend on how fast threads turn out to be beside each other.
        exact: whether the bytes follow from artifacts alone.
        pieces: piece -> seconds of an epoch, each on its own; empty if nothing was measured.
        epoch_seconds: seconds of an epoch without its evaluation; None if nothing was measured.
    """

    memory: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    exact: bool = False
    pieces: Mapping[str, float] = field(default_factory=dict)
    epoch_seconds: float | None = None

    @property
    def memory_bytes(self) -> int | None:
        """The sum of `memory`; None if there is no formula."""
        return sum(self.memory.values()) if self.memory else None

    def values(self) -> dict[str, Any]:
        """Returns everything as JSON-ready values."""
        seconds = None if self.epoch_seconds is None else round(self.epoch_seconds, 6)
        return {
            "memory_bytes": self.memory_bytes,
            "bytes_per_epoch": dict(self.links),
            "bytes_range": {link: list(each) for link, each in self.ranges.items()},
            "exact": self.exact,
            "epoch_seconds": seconds,
            "pieces": {name: round(each, 6) for name, each in self.pieces.items()},
        }


class Formula(NamedTuple):
    """The formulas of a technique.

    Attributes:
        links: outlook -> (link -> bytes of an epoch, whether they follow from artifacts alone).
        seconds: outlook with measured speeds -> (piece -> seconds of an epoch, seconds of the epoch).
        memory: (case, term -> bytes by the bounds of its need) -> term -> bytes that are expected; None to leave them.
        lanes: outlook with measured speeds -> (seconds until a further batch is prepared, seconds of a step); None without a queue
            of batches between the two.
        ranges: outlook -> (link -> least and most bytes of an epoch), for links whose bytes depend on timing; None if none do.
    """

    links: Callable[[Outlook], tuple[Mapping[str, float], bool]]
    seconds: Callable[[Outlook], tuple[Mapping[str, float], float]]
    memory: Callable[[Case, Mapping[str, int]], dict[str, int]] | None = None
    lanes: Callable[[Outlook], tuple[float, float]] | None = None
    ranges: Callable[[Outlook], Mapping[str, tuple[float, float]]] | None = None


def forecast(outlook: Outlook) -> Forecast | None:
    """Returns the forecast of a training; None for a technique or a device without a formula, and of an unknown sampler."""
    formula = _formula(outlook)
    if formula is None:
        return None
    links, exact = formula.links(outlook)
    links = {link: round(num_bytes) for link, num_bytes in links.items() if num_bytes >= 0.5}
    unsure = {} if formula.ranges is None else formula.ranges(outlook)
    ranges = {link: (round(least), round(most)) for link, (least, most) in unsure.items() if round(least) < round(most)}
    found = Forecast(memory=expected_memory(outlook), links=links, ranges=ranges, exact=exact)
    if outlook.speeds is None:
        return found
    pieces, seconds = formula.seconds(outlook)
    return replace(found, pieces=pieces, epoch_seconds=seconds)


def has_formula(semantic: ModelConfig) -> bool:
    """Returns whether there are formulas for a technique on its device: of a GPU there are none yet."""
    formula = find_technique(semantic.train.trainer).forecast_function()
    return formula is not None and semantic.train.device == "cpu"


def _formula(outlook: Outlook) -> Formula | None:
    case = outlook.case
    technique = find_technique(case.semantic.train.trainer)
    unknown = not has_formula(case.semantic) or (outlook.drawn is None and not technique.whole_graph)
    empty = outlook.drawn is not None and not outlook.drawn.blocks
    return None if unknown or empty else technique.forecast_function()


def expected_memory(outlook: Outlook) -> dict[str, int]:
    """Returns memory term -> bytes: the terms of the need, but for bounds of which it is known that they are not reached.

    Batches that are prepared in turn do not wait, in an evaluation likewise. Rows that fit are mapped, and no thread reads them past the
    page cache. While the queue is full no rows are kept beside it. It fills by as many batches of an epoch as are prepared before others
    are trained on. An evaluation is exact or sampled. Ranks wait for rows of each other, so that two batches of each wait, and rows of two
    are kept. The process that starts them waits, too.
    """
    case, formula = outlook.case, _formula(outlook)
    # Rows that turn out not to be at hand have threads that work on batches beside the step.
    ahead = case.in_turn and not outlook.in_turn
    execution = replace(case.execution, samplers=case.threads) if ahead else case.execution
    need = training_need(case.semantic, execution, case.sizes, case.ranks, case.batch)
    left_out = {EVALUATION_BATCHES} if outlook.exact_evaluation else {EXACT_EVALUATION}
    if outlook.in_turn:
        left_out |= {NEXT_BLOCKS, WAITING_BATCHES}
    left_out |= {READERS} if outlook.fits and case.execution.features == "auto" else set()
    left_out |= {KEPT_ROWS} if case.ranks == 1 else {LAUNCHER}
    terms = need.memory if need else ()
    found = {term.name: term.most for term in terms if term.most}
    bounds = _expected_bounds(case, found) | ({} if case.ranks > 1 else {WAITING_BATCHES: _filled_bytes(outlook)})
    if outlook.in_turn and not _stores_evaluation(outlook):
        bounds[EVALUATION_BATCHES] = case.batch_bytes
    found = {
        what: min(num_bytes, bounds.get(what, num_bytes)) for what, num_bytes in found.items() if what not in left_out
    }
    return found if formula is None or formula.memory is None or not found else formula.memory(case, found)


def _expected_bounds(case: Case, terms: Mapping[str, int]) -> dict[str, int]:
    """Returns memory term -> bytes that it is expected to take at most; a need allows for more."""
    rows = case.ranks * case.batch.inputs * case.row_bytes
    exact = case.ranks * expected_exact_bytes(case) - terms.get(ACTIVATIONS, 0)
    found = {EXACT_EVALUATION: max(0, exact)}
    return found if case.ranks == 1 else found | {WAITING_BATCHES: 2 * rows, KEPT_ROWS: 2 * rows, RANK_WINDOWS: rows}


def _stores_evaluation(outlook: Outlook) -> bool:
    """Returns whether the batches of an evaluation may be read: they are stored, so that threads read ahead of it."""
    if "samples" in outlook.artifacts:
        return bool(outlook.artifacts["samples"].config.get("evaluate"))
    config = outlook.sizes.configs.get("samples")
    return config is not None and config.evaluate


def _filled_bytes(outlook: Outlook) -> int:
    """Returns the bytes of the batches that wait at the end of an epoch, if a queue could hold them all."""
    formula, case = _formula(outlook), outlook.case
    batches = 0 if outlook.drawn is None else outlook.drawn.count
    if formula is None or formula.lanes is None or outlook.speeds is None:
        return batches * case.batch_bytes
    ahead, step = formula.lanes(outlook)
    return round(batches * case.batch_bytes * max(0.0, 1 - ahead / max(step, 1e-9)))


def side_by_side(outlook: Outlook, num_batches: float, *lanes: float, work: float, waiting: float = 0.0) -> float:
    """Returns the seconds of batches whose pieces run side by side.

    Args:
        outlook: the training.
        num_batches: number of batches.
        lanes: seconds of a batch in each piece, with the threads that it has.
        work: seconds of all pieces of a batch on one thread each.
        waiting: seconds of a batch that nothing hides.
    """
    return num_batches * (max(*lanes, work / max(1, outlook.cores)) + waiting)
