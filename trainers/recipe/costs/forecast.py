"""What a training is expected to take: memory, bytes over each link, seconds of an epoch, and those of an exact evaluation.

A technique's formulas are in its `Costs`, which its row of the table names. Numbers that follow from artifacts alone, such as those of
packed chunks, are exact; others are means over the drawn batches of a `Case`.

Seconds are those of pieces that run side by side. A machine of c cores gives a batch no less time than its longest piece takes, and no less
than a c-th of the work of all pieces; the larger of the two is said. Disks are read beside both.

A layer of an exact evaluation reads each row once, in order (trainers/inference/exact.py). So the bytes that are read are counted, and the
rest is the measured seconds of an input column of a row and of a summed column of an edge. Rows are read ahead while others are computed
with. Rows of a layer's nodes that exceed their share of the workspace go to a file and come back, and what is summed in blocks of columns
passes over the edges once for each; the page cache spares the disk what it holds of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import Any

from graphmill.assets.costs.needs import Term
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from graphmill.trainers.recipe.costs.course import Case, Scored
from graphmill.trainers.recipe.costs.device import batch_terms
from graphmill.trainers.recipe.costs.exact import PAGES_BYTES, exact_bytes, fitting_workspace
from graphmill.trainers.recipe.costs.memory import EXACT, STEP, memory_terms
from graphmill.trainers.recipe.costs.step import item_bytes, layer_widths
from graphmill.trainers.recipe.techniques import find_technique

SAMPLING, LOADING, COMPUTING, EXCHANGING = "sampling", "loading", "computing", "exchanging"
"""Pieces of an epoch: drawing batches, bringing their rows, the steps, and waiting for other processes."""

RANK_START = 0.45
"""Share of the seconds of a start that another rank's imports take, on one of the cores that all ranks share."""
Links = tuple[Mapping[str, float], bool]
Seconds = tuple[Mapping[str, float], float]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The formulas of a technique."""

    # Case -> terms of the memory of all its processes, without those that wait for it.
    memory: Callable[[Case], Sequence[Term]]
    # Case -> (link -> bytes of an epoch, whether they follow from artifacts alone).
    links: Callable[[Case], Links]
    # Case with measured speeds -> (piece -> seconds of an epoch, seconds of the epoch).
    seconds: Callable[[Case], Seconds]
    # Case with measured speeds, counts of an evaluation -> its seconds.
    evaluated: Callable[[Case, Scored], float]
    # Case -> (link -> least and most bytes of an epoch), for links whose bytes depend on timing; None if none do.
    ranges: Callable[[Case], Mapping[str, tuple[float, float]]] | None = None
    # Case -> terms of the memory of a device that has its own.
    device: Callable[[Case], Sequence[Term]] = batch_terms


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a training is expected to take."""

    # Name of a term -> bytes, of all its processes, without those that wait for it; empty if there is no formula.
    memory: Mapping[str, int] = field(default_factory=dict)
    # Link of the ledger -> bytes of an epoch, over all processes.
    links: Mapping[str, int] = field(default_factory=dict)
    # Link -> (least, most) bytes of an epoch, for links whose bytes depend on how fast threads turn out to be beside each other.
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Whether the bytes follow from artifacts alone.
    exact: bool = False
    # Piece -> seconds of an epoch, each on its own; empty if nothing was measured.
    pieces: Mapping[str, float] = field(default_factory=dict)
    # Seconds of an epoch without its evaluation; None if nothing was measured.
    epoch_seconds: float | None = None
    # Seconds until its first batch: processes, and reading what stays in memory from a disk; 0 likewise.
    start_seconds: float = 0.0
    # Seconds of the evaluations between all epochs; 0 if they were not counted.
    evaluation_seconds: float = 0.0
    # Seconds of the scores at the end; 0 likewise.
    scores_seconds: float = 0.0

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
            **self._once(),
            "pieces": {name: round(each, 6) for name, each in self.pieces.items()},
        }

    def _once(self) -> dict[str, float]:
        """Returns name -> seconds of what a training takes once, as far as they were measured."""
        names = ("start_seconds", "evaluation_seconds", "scores_seconds")
        return {name: round(each, 6) for name in names if (each := getattr(self, name))}


def forecast(case: Case) -> Forecast | None:
    """Returns the forecast of a training; None for a technique or a device without a formula, and of an unknown sampler."""
    technique = find_technique(case.semantic.train.trainer)
    unknown = not has_formula(case.semantic) or (case.drawn is None and not technique.whole_graph)
    if unknown or (case.drawn is not None and not case.drawn.blocks):
        return None
    costs: Costs = technique.open_costs()
    links, exact = costs.links(case)
    links = {link: round(num_bytes) for link, num_bytes in links.items() if num_bytes >= 0.5}
    unsure = {} if costs.ranges is None else costs.ranges(case)
    ranges = {link: (round(least), round(most)) for link, (least, most) in unsure.items() if round(least) < round(most)}
    found = Forecast(memory=expected_memory(case), links=links, ranges=ranges, exact=exact)
    if case.speeds is None:
        return found
    pieces, seconds = costs.seconds(case)
    return replace(
        found,
        pieces=pieces,
        epoch_seconds=seconds,
        start_seconds=case.speeds.start * (1 + RANK_START * (case.ranks - 1) / case.cores) + cold_seconds(case),
        evaluation_seconds=case.num_evaluations * _evaluated(costs, case, case.valid),
        scores_seconds=_evaluated(costs, case, case.final),
    )


def _evaluated(costs: Costs, case: Case, scored: Scored | None) -> float:
    """Returns the seconds of an evaluation, of links with their ranks; 0 if its counts are not known."""
    assert case.speeds is not None
    return costs.evaluated(case, scored) + case.speeds.compare * scored.compared if scored else 0.0


def has_formula(semantic: ModelConfig) -> bool:
    """Returns whether there are formulas for a technique on its device: of a GPU there are none yet."""
    return bool(find_technique(semantic.train.trainer).costs) and semantic.train.device == "cpu"


def expected_memory(case: Case) -> dict[str, int]:
    """Returns name of a term -> bytes that it is expected to take, of a technique with formulas."""
    return {term.name: term.expected for term in memory_terms(case) if term.expected}


SUMMED_SHARE, ROWS_SHARE = 2, 8
"""Divisors of the workspace: for what a layer sums, and for each other set of rows of all nodes."""
FORWARD = 1 / 3
"""Share of a step that its forward pass takes: a backward pass has two products for each of the forward one."""
SPILLED_COPIES = 2
"""Copies of rows that go to a file and come back, whatever the page cache holds of them."""


def row_elements(train: TrainConfig, width: int, num_classes: int, rows: Sequence[float]) -> float:
    """Returns the input columns that an exact evaluation reads of all rows, over all layers, whose rows are as in `Scored`."""
    widths = [wide for wide, _ in layer_widths(train, width, num_classes)]
    return sum(wide * count for wide, count in zip(widths, rows, strict=False)) + train.projects * width * rows[0]


def edge_elements(train: TrainConfig, width: int, num_classes: int, edges: Sequence[float]) -> float:
    """Returns the columns that an exact evaluation sums of all edges; arguments as of `row_elements`, with edges of each layer."""
    widths = layer_widths(train, width, num_classes)
    return sum(summed_columns(train, *each) * count for each, count in zip(widths, edges, strict=True))


def exact_seconds(case: Case, scored: Scored) -> float:
    """Returns the seconds of an exact evaluation in one process, on all threads."""
    speeds, train = case.speeds, case.semantic.train
    assert speeds is not None
    sizes = (train, case.sizes.width, case.num_classes)
    rows, edges = row_elements(*sizes, scored.rows), edge_elements(*sizes, scored.edges)
    read = 0.0 if case.fits or case.feature_place == "memory" else features_seconds(case, scored)
    return max(rows * speeds.exact_rows, read) + edges * speeds.exact_edges + _spilled_seconds(case, scored)


def features_seconds(case: Case, scored: Scored) -> float:
    """Returns the seconds in which a disk reads the features of an exact evaluation."""
    speeds, row_bytes = case.speeds, case.sizes.row_bytes
    if speeds is None or not speeds.disk_rate:
        return 0.0
    apart = scored.apart * (PAGE_BYTES + row_bytes)
    return (scored.in_order * row_bytes + apart) / speeds.disk_rate + scored.apart * speeds.request()


def page_bytes(case: Case) -> int:
    """Returns the memory of the machine, or of its limit, that a training leaves for pages of files."""
    return max(0, memory_bytes() - case.waiting - sum(_held(case).values()))


def _held(case: Case) -> Mapping[str, int]:
    """Returns name of a term -> bytes that it is expected to take, before speeds are known."""
    if "held" not in case.shared:
        # Speeds decide how many batches wait, and pages how fast rows come: here all waiting ones are counted.
        case.shared["held"] = expected_memory(replace(case, speeds=None))
    return case.shared["held"]


def missing_share(case: Case) -> float:
    """Returns the share of the feature file that the page cache cannot hold beside the training, by which mapped rows miss it.

    What other processes have left in the page cache does not count: it is gone when the memory is needed.
    """
    return max(0.0, 1 - page_bytes(case) / max(1, case.sizes.feature_bytes))


def cold_seconds(case: Case) -> float:
    """Returns the seconds in which a disk reads files that stay in memory, once: the topology, and rows that are not read directly."""
    speeds = case.speeds
    if speeds is None or not speeds.disk_rate:
        return 0.0
    rows = 0 if case.feature_place == "direct" else case.sizes.feature_bytes
    return (case.sizes.topology_bytes + rows) / speeds.disk_rate


def _spilled_seconds(case: Case, scored: Scored) -> float:
    """Returns the seconds of rows that go to files and come back, and of the topology in each pass, as far as the page cache lacks them."""
    speeds, held, most = case.speeds, _held(case), parse_size(case.semantic.train.eval_workspace)
    assert speeds is not None
    if not (speeds.disk_rate and speeds.copy_rate):
        return 0.0
    free = page_bytes(case) + held.get(EXACT, 0) + held.get(STEP, 0) - PAGES_BYTES
    needs = partial(exact_bytes, case, rows=[round(each) for each in scored.rows])
    workspace = fitting_workspace(needs, most, free)
    (spilled, passes), topology = spilled_bytes(case, scored, workspace), case.sizes.topology_bytes
    lost = min(1.0, max(0.0, 1 - (free - needs(workspace)) / max(1.0, spilled + topology)))
    written = spilled / speeds.write_rate if speeds.write_rate else 0.0
    again = written + (spilled + passes * topology) / speeds.disk_rate
    return lost * again + SPILLED_COPIES * spilled / speeds.copy_rate


def spilled_bytes(case: Case, scored: Scored, workspace: int) -> tuple[float, int]:
    """Returns the bytes of rows that an exact evaluation writes to files and reads again, and its passes over the edges of all layers."""
    train, found, passes = case.semantic.train, 0.0, 0
    widths = layer_widths(train, case.sizes.width, case.num_classes)
    for number, (wide, out) in enumerate(widths):
        sources, results = scored.rows[number : number + 2]
        columns = summed_columns(train, wide, out)
        maps, copied = columns < wide, number == 0 and not case.fits
        summed = item_bytes(train) * columns * (maps or copied) * sources
        # Of rows that are summed in blocks of columns the sums are in a file, too.
        own = maps and train.model in ("sage", "gin")
        others = (columns * (summed > workspace // SUMMED_SHARE), out * own, out * (number + 1 < len(widths)))
        sets = (item_bytes(train) * each * results for each in others)
        found += summed * (summed > workspace // SUMMED_SHARE)
        found += sum(each for each in sets if each > workspace // ROWS_SHARE)
        passes += min(columns, max(1, ceil(summed / max(1, workspace // SUMMED_SHARE))))
    return found, passes


def summed_columns(train: TrainConfig, wide: int, out: int) -> int:
    """Returns the columns of the rows that a layer sums: it maps rows first if that narrows them."""
    if train.model == "gat":
        return out
    mapped = train.model in ("sage", "gcn", "gin") and train.aggregator != "max"
    return min(wide, out) if mapped else wide
