"""The seconds of an exact evaluation, and the memory that a training leaves for pages of files.

A layer reads each row once, in order (trainers/inference/exact.py). So the bytes that are read are counted, and the rest is the measured
seconds of an input column of a row and of a summed column of an edge. Rows are read ahead while others are computed with. Rows of a layer's
nodes that exceed their share of the workspace go to a file and come back; the page cache spares the disk what it holds of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.course import Case, Scored
from graphmill.trainers.recipe.costs.memory import WAITING_BYTES, memory_terms
from graphmill.trainers.recipe.costs.step import item_bytes, layer_widths

SUMMED_SHARE, ROWS_SHARE = 2, 8
"""Divisors of the workspace: for what a layer sums, and for each other set of rows of all nodes."""
FORWARD = 1 / 3
"""Share of a step that its forward pass takes: a backward pass has two products for each of the forward one."""
SPILLED_COPIES = 2
"""Copies of rows that go to a file and come back, whatever the page cache holds of them."""


def row_elements(train: TrainConfig, width: int, num_classes: int, rows: Sequence[float]) -> float:
    """Returns the input columns that an exact evaluation reads of all rows, over all layers.

    Args:
        width: columns of the features.
        num_classes: number of logits.
        rows: rows of each layer, as in `Scored`.
    """
    widths = [wide for wide, _ in layer_widths(train, width, num_classes)]
    return sum(wide * count for wide, count in zip(widths, rows, strict=False)) + train.projects * width * rows[0]


def edge_elements(train: TrainConfig, width: int, num_classes: int, edges: Sequence[float]) -> float:
    """Returns the columns that an exact evaluation sums of all edges; arguments as of `row_elements`, with edges of each layer."""
    widths = layer_widths(train, width, num_classes)
    return sum(_summed(train, *each) * count for each, count in zip(widths, edges, strict=True))


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
    if "page_bytes" not in case.shared:
        # Speeds decide how many batches wait, and pages how fast rows come: here all waiting ones are counted.
        held = sum(term.expected for term in memory_terms(replace(case, speeds=None)))
        case.shared["page_bytes"] = max(0, memory_bytes() - WAITING_BYTES - held)
    return case.shared["page_bytes"]


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
    """Returns the seconds in which rows of layers are written to files and read again, as far as the page cache does not hold them."""
    speeds, workspace = case.speeds, min(parse_size(case.semantic.train.eval_workspace), page_bytes(case) // 2)
    num_bytes = spilled_bytes(case, scored, workspace)
    assert speeds is not None
    if not num_bytes or not (speeds.disk_rate and speeds.copy_rate):
        return 0.0
    lost = max(0.0, 1 - (page_bytes(case) - workspace) / num_bytes)
    written = 1 / speeds.write_rate if speeds.write_rate else 0.0
    return num_bytes * (lost * (written + 1 / speeds.disk_rate) + SPILLED_COPIES / speeds.copy_rate)


def spilled_bytes(case: Case, scored: Scored, workspace: int) -> float:
    """Returns the bytes of layers' rows that an exact evaluation writes to files, and reads again, within a workspace."""
    train, found = case.semantic.train, 0.0
    widths = layer_widths(train, case.sizes.width, case.num_classes)
    for number, (wide, out) in enumerate(widths):
        sources, results = scored.rows[number : number + 2]
        columns = _summed(train, wide, out)
        maps, copied = columns < wide, number == 0 and not case.fits
        summed = item_bytes(train) * columns * (maps or copied) * sources
        # Of rows that are summed in blocks of columns the sums are in a file, too.
        own = maps and train.model in ("sage", "gin")
        others = (columns * (summed > workspace // SUMMED_SHARE), out * own, out * (number + 1 < len(widths)))
        sets = (item_bytes(train) * each * results for each in others)
        found += summed * (summed > workspace // SUMMED_SHARE)
        found += sum(each for each in sets if each > workspace // ROWS_SHARE)
    return found


def _summed(train: TrainConfig, wide: int, out: int) -> int:
    """Returns the columns of the rows that a layer sums: it maps rows first if that narrows them."""
    if train.model == "gat":
        return out
    mapped = train.model in ("sage", "gcn", "gin") and train.aggregator != "max"
    return min(wide, out) if mapped else wide
