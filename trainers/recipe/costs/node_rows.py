"""What learnable rows of nodes take of memory and disk: with moments and copies in memory, or in files (trainers/models/rows/)."""

from __future__ import annotations

from graphmill.assets.costs.needs import Term
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.direct_io import ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.step import item_bytes
from graphmill.trainers.recipe.file_rules import AFTER_START
from graphmill.trainers.recipe.techniques import find_technique

ROW_STEP_COPIES = 2
"""Sums of gradients of rows, divided by the seeds."""
STATE_COPIES = 4
"""Copies of the byte per row that says where it is, besides those of a checkpoint: its own, and while a checkpoint is made of it."""
RECORD_COPIES = 3
"""Copies of the records of a step's rows while they are read or written, of a row and two moments each."""
RECENT_BYTES, READING = 64 << 20, ReadExecution(depth=128, range_pages=8, fallback="buffered")
"""Records of rows in files that stay in memory, and how files are read and written that do not fit there."""
ROWS = "rows of nodes and their moments"
CHECKPOINT_COPIES = 2
"""Copies of a checkpoint's tensors while it is read; one while it is written."""
MOST_SHARE = 0.75
"""Share of the free memory that rows of nodes may take before they go to files."""
ON_GPU = 'keeps rows on the host, and a GPU has its own: set device = "cpu"'


def node_row_terms(case: Case) -> list[Term]:
    """Returns the terms of learnable rows of nodes, of all ranks: the rows with their moments, their copies, and their gradients."""
    if not case.semantic.train.learns_rows:
        return []
    train, sizes = case.semantic.train, case.sizes
    row_bytes, learnt, alone = train.hidden * item_bytes(train), _learnt(case), train.model == "rows"
    inputs = min(case.batch.rows[-1] if alone else case.batch.inputs, learnt) * row_bytes
    # Of every batch of a step with what ranks exchange of it, and of their sum.
    copies = train.accumulate * (1 + 2 * (case.ranks > 1)) + ROW_STEP_COPIES
    sure = sizes.exact and "features" in sizes.artifacts
    of_files = (STATE_COPIES + CHECKPOINT_COPIES) * learnt
    recent = min(3 * learnt * row_bytes, RECENT_BYTES) + READING.depth * READING.range_pages * PAGE_BYTES
    if in_files(case):
        each = [
            Term("states of the rows of nodes in files", of_files, bound=not sure),
            Term("records of a step", 3 * RECORD_COPIES * inputs, "hidden", bound=True),
            Term("records that were read or written last, or are on the way", recent, bound=True),
        ]
    else:
        table, copied = rows_memory(learnt * row_bytes, scored=sizes.num_valid > 0)
        least = None if case.execution.embedding_rows == "memory" or _without_files(case) else of_files
        copied_least = None if least is None else 3 * RECORD_COPIES * inputs + recent
        name = "best rows of nodes, and a checkpoint of them"
        each = [
            Term(ROWS, table, "hidden", bound=not sure, enough=least),
            Term(name, copied, "hidden", bound=True, enough=copied_least),
        ]
    each.append(Term("gradients of rows of nodes", copies * inputs, "accumulate", bound=True))
    return [term.times(case.ranks) for term in each]


def row_file_bytes(case: Case) -> int:
    """Returns the most bytes of disk that files of rows of nodes take: three records per row, and one if only one checkpoint is written."""
    if not case.semantic.train.learns_rows or not in_files(case):
        return 0
    train = case.semantic.train
    once = train.epochs == 1 and not case.execution.checkpoint_steps
    return (1 if once else 3) * 3 * _learnt(case) * train.hidden * item_bytes(train)


def in_files(case: Case) -> bool:
    """Returns whether the rows of nodes of a training are in files."""
    table_bytes = _learnt(case) * case.semantic.train.hidden * item_bytes(case.semantic.train)
    num_bytes = sum(rows_memory(table_bytes, scored=case.sizes.num_valid > 0))
    why = _without_files(case)
    return not why and rows_in_files(case.execution.embedding_rows, num_bytes, case.free, why)


def _without_files(case: Case) -> str:
    return without_row_files(case.semantic.train, case.ranks, start=bool(case.semantic.train.start))


def _learnt(case: Case) -> int:
    """Returns the number of rows of nodes that are learnt."""
    sizes = case.sizes
    return max(0, sizes.num_nodes - (0 if case.semantic.train.model == "rows" else sizes.num_rows))


def without_row_files(train: TrainConfig, ranks: int, *, start: bool) -> str:
    """Returns the reason why a training on the CPU keeps no rows of nodes in files, with a remedy; "" if it can.

    Args:
        ranks: processes that share it.
        start: whether its weights begin as those of another model.
    """
    if find_technique(train.trainer).whole_graph:
        return f'reads the rows of a batch, and trainer = "{train.trainer}" those of all nodes: remove the key'
    if ranks > 1:
        return f"is for one process, and each of {ranks:,} ranks has all rows in memory: remove one of them"
    return AFTER_START if start else ""


def rows_memory(table_bytes: int, *, scored: bool) -> tuple[int, int]:
    """Returns the bytes of rows in memory with their moments, and those of their copies: the best ones, and a checkpoint.

    Args:
        table_bytes: bytes of the rows alone.
        scored: whether there are validation scores, by which the best ones are kept.
    """
    return 3 * table_bytes, (scored + (3 + scored) * CHECKPOINT_COPIES) * table_bytes


def rows_in_files(where: str, num_bytes: int, free: int | None, why: str) -> bool:
    """Returns whether rows of nodes are in files.

    Args:
        where: `embedding_rows`.
        num_bytes: bytes of the rows in memory, with their copies.
        free: bytes that are free, None if the system does not say.
        why: the reason why they cannot be in files, with a remedy; "" if they can.

    Raises:
        InputError: files were asked for by name, and cannot be.
    """
    if where == "mapped" and why:
        said, _, remedy = why.rpartition(": ")
        raise InputError(f'embedding_rows = "mapped" {said}', remedy)
    return where == "mapped" or (where == "auto" and not why and free is not None and num_bytes > free * MOST_SHARE)
