"""The memory that a training will take, term by term: what techniques have in common. A technique's own terms are in its costs.

Common are the process itself, the batches within the queue's bound, the activations of a step in a heap that is not cut
(trainers/devices/malloc.py), the model with its optimiser, the samplers, and an evaluation. Terms of bounds (a queue that may not fill,
fan-outs that may not find as many neighbours) say so, and with what is known of the case what is expected instead:

- Batches that are prepared in turn do not wait, in an evaluation likewise. Rows that fit are mapped, and no thread reads them past the page
  cache. An evaluation is exact or sampled.
- The queue fills by as many batches of an epoch as are prepared before others are trained on. Buffers that come back are lent again.
- Ranks wait for rows of each other, so that two batches of each wait. The process that starts them waits, too.

docs/log.md compares the sums with measured peaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphmill.assets.costs.needs import Need, Sizes, Term, sizes_of
from graphmill.assets.samples.costs import sampler_bytes
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.assets.storage.system.machine import anonymous_bytes, memory_bytes, usable_cores
from graphmill.kernels.rows.aligned import space_for
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.batch import BatchSizes, batch_sizes, drawn_bound, whole_batch
from graphmill.trainers.recipe.costs.course import WAITING_BYTES, Case
from graphmill.trainers.recipe.costs.edge_rows import SORTED_BYTES, edge_row_bytes, host_rows
from graphmill.trainers.recipe.costs.exact import (
    LEAST_WORKSPACE,
    PAGES_BYTES,
    exact_bytes,
    link_terms,
    most_exact_bytes,
    sums_where_they_are,
)
from graphmill.trainers.recipe.costs.node_rows import node_row_terms, row_file_bytes
from graphmill.trainers.recipe.costs.step import parameter_bytes, step_bytes
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.queue_bytes import SHARING
from graphmill.trainers.recipe.techniques import find_technique

TRAINER_BYTES = 158 << 20
"""Anonymous memory of a process that trains, before it opens data: Python, torch and this project."""
LAUNCHER_BYTES = 40 << 20
"""The process that starts the ranks of a training and waits for them."""
HEAP = 1.12
"""Bytes of a heap over those that are alive in it at once; measured from 0.9 to 1.2 without lists of small blocks (docs/log.md)."""
PRODUCT_BYTES = 16 << 20
"""What the libraries of matrix products and threads keep after the first step."""
PARAMETER_COPIES = 9
"""Copies of the parameters: values, gradients, two moments, the best ones, and what a checkpoint takes while it is written."""
READER_BYTES, WINDOW_BYTES = 2 << 20, 8 << 20
"""What a thread takes that reads rows past the page cache, and that to convert them (trainers/rows/direct.py)."""
BATCH = "[sampling] batch_size"
EXACT, SAMPLED, STEP = "an exact evaluation", "batches of an evaluation that wait", "activations of a step"
"""Terms of an evaluation; with `eval = "auto"` a training has one of the two."""


def training_need(semantic: ModelConfig, execution: TrainExecution, sizes: Sizes, ranks: int = 0) -> Need | None:
    """Returns the need of one training, of all its processes without those that wait for it; None for a technique without a formula.

    Args:
        ranks: number of processes on this machine that share it; 0 for the table's.
    """
    technique = find_technique(semantic.train.trainer)
    if not technique.costs or semantic.train.device != "cpu":
        return None
    case = training_case(semantic, execution, sizes, ranks)
    there = sizes.exact and sizes.configs.keys() <= sizes.artifacts.keys()
    phases, scratch = (tuple(memory_terms(case)),), row_file_bytes(case)
    return Need(name=f"a training by {technique.name}", phases=phases, scratch=scratch, decided=there)


def training_case(semantic: ModelConfig, execution: TrainExecution, sizes: Sizes, ranks: int = 0) -> Case:
    """Returns the case of a training with its largest batch; arguments as `training_need`."""
    return Case(
        semantic=semantic,
        execution=execution,
        sizes=sizes,
        batch=largest_batch(semantic, sizes),
        ranks=ranks or semantic.train.own_settings.ranks,
        cores=usable_cores(),
    )


def prediction_need(ranks: int) -> Need:
    """Returns the need of a prediction by a number of processes; its rows stay within half of the memory that is free when it begins."""
    return Need(name="a prediction", phases=((_process_term(ranks),),))


def bytes_to_come(
    semantic: ModelConfig, execution: TrainExecution, artifacts: Mapping[str, Artifact], held: Sequence[int]
) -> int:
    """Returns the most bytes that a training on some artifacts is still to take; 0 if that is not known.

    Args:
        held: bytes that each of its processes on this machine has.
    """
    sizes = sizes_of(artifacts)
    need = None if sizes is None else training_need(semantic, execution, sizes, len(held))
    return 0 if need is None else max(0, need.memory_bytes - sum(held))


def tables_fit(case: Case) -> tuple[bool, bool]:
    """Returns whether the table of the nodes, and that of the edges, are mapped beside what the training takes, if left to the machine."""
    need, sizes = 0, case.sizes
    if find_technique(case.semantic.train.trainer).costs and case.semantic.train.device == "cpu":
        need = max(0, sum(term.most for term in memory_terms(case)) - (anonymous_bytes() or 0))
    edges = fits_memory(sizes.edge_bytes, need)
    mapped = sizes.edge_bytes * (edges and case.semantic.train.edge_features)
    return fits_memory(sizes.feature_bytes, need + mapped), edges


def memory_terms(case: Case) -> list[Term]:
    """Returns the terms of a training by a technique that has costs, of all its processes without those that wait for it."""
    own = find_technique(case.semantic.train.trainer).open_costs().memory(case)
    found = [*own, *node_row_terms(case), *link_terms(case), *edge_terms(case)]
    ways = [term for term in found if term.name in (EXACT, SAMPLED)]
    if len(ways) > 1 and case.semantic.train.eval == "auto":
        less = min(ways, key=lambda term: term.most)  # a training has one of the two
        found[found.index(less)] = replace(less, most=0, likely=less.expected)
    return [_within_memory(case, found, term) if term.name == EXACT and term.most else term for term in found]


def _within_memory(case: Case, found: Sequence[Term], exact: Term) -> Term:
    """Returns the term of an exact evaluation, which takes no more than the machine has free beside the other terms if it can."""
    if not sums_where_they_are(case):
        return exact
    step = sum(term.most for term in found if term.name == STEP)
    others = sum(term.most for term in found if term.name not in (EXACT, SAMPLED, STEP))
    least = max(0, exact_bytes(case, min(LEAST_WORKSPACE, parse_size(case.semantic.train.eval_workspace))) - step)
    enough = min(exact.most, least)
    most = max(enough, min(exact.most, memory_bytes() - case.waiting - others - step))
    return replace(exact, most=most, likely=min(exact.expected, most), enough=enough)


def largest_batch(semantic: ModelConfig, sizes: Sizes) -> BatchSizes:
    """Returns the sizes of the largest batch: of stored samples, the most that the sampler draws, or the whole graph."""
    drawn = None if find_technique(semantic.train.trainer).whole_graph else semantic.sampling
    if drawn is None:
        return whole_batch(semantic.train.layers, sizes)
    found = batch_sizes(drawn, sizes)
    return found if found.exact else drawn_bound(drawn, sizes, found)


def edge_terms(case: Case) -> list[Term]:
    """Returns the terms of rows of edges besides those of batches: readers, the order of a batch's edges, and rows on the host."""
    train, sizes = case.semantic.train, case.sizes
    if not train.edge_features:
        return []
    each = READER_BYTES + WINDOW_BYTES * (edge_row_bytes(train, sizes) != sizes.edge_row_bytes)
    # Those of the samplers, and one of an evaluation.
    readers = (case.samplers + 1) * each
    batch = 0 if find_technique(train.trainer).whole_graph else sum(case.batch.edges)
    places = case.samplers * SORTED_BYTES * batch
    host, sure = host_rows(sizes)
    found = (
        Term("readers of rows of edges", readers, "samplers", True, likely=0 if case.edges_fit else readers),
        Term("places of edges while they are found", places, BATCH, bound=True),
        Term("rows of edges in the host cache", host * sizes.edge_row_bytes, "[memory] edge_host", bound=not sure),
    )
    return [term.times(case.ranks) for term in found]


def waiting_term() -> Term:
    """Returns the term of the processes that wait for a training."""
    return Term("the step that waits for the training", WAITING_BYTES)


def running_bytes(ranks: int) -> int:
    """Returns the bytes of a need that other processes have already when the first rank adds it up."""
    return (ranks - 1) * TRAINER_BYTES + LAUNCHER_BYTES * (ranks > 1)


def process_terms(case: Case) -> list[Term]:
    """Returns the terms of the processes that train, of the one that starts several, and of what each has of the graph."""
    ranks = case.ranks
    launcher = [Term("the process that starts the ranks", LAUNCHER_BYTES, likely=0)] if ranks > 1 else []
    return [
        *launcher,
        _process_term(ranks),
        Term("order of the seeds", ranks * 24 * case.sizes.num_train),
        Term("pages of libraries and of mapped files", PAGES_BYTES, bound=True, likely=0),
    ]


def _process_term(ranks: int) -> Term:
    many = f"{ranks} processes: " if ranks > 1 else ""
    return Term(f"{many}Python, torch and this project", ranks * (TRAINER_BYTES + PRODUCT_BYTES))


def model_terms(case: Case, models: int = 1, extra_rows: int = 0) -> list[Term]:
    """Returns the terms of a step, of the parameters and of an exact evaluation, above what the step took, which is free again.

    Args:
        extra_rows: more bytes that a technique keeps during a step.
    """
    train = case.semantic.train
    step = models * int(HEAP * (step_bytes(train, case.sizes.width, case.num_classes, case.batch) + extra_rows))
    sure = case.batch.exact and not is_reference(train.model)
    exact = 0 if train.eval == "sampled" else max(0, case.ranks * most_exact_bytes(case) - step)
    return [
        Term(STEP, step, "batch_size or hidden", bound=not sure),
        parameter_term(case, models),
        Term(EXACT, exact, "eval_workspace", bound=True, likely=exact if case.exact_evaluation else 0),
    ]


def parameter_term(case: Case, models: int = 1) -> Term:
    """Returns the term of a number of models with their optimisers and a checkpoint."""
    num_bytes = parameter_bytes(case.semantic.train, case.sizes.width, case.num_classes)
    return Term("parameters, moments, checkpoint", models * PARAMETER_COPIES * num_bytes, "hidden")


def sampler_terms(case: Case, samplers: int = 0) -> list[Term]:
    """Returns the term of the samplers: of the training, or of a sampled evaluation alone if batches are stored.

    Args:
        samplers: number of samplers of each rank, 0 for one per thread.
    """
    ranks, evaluation = case.ranks, case.semantic.train.eval
    if case.stored and evaluation == "exact":
        return []
    name = f"{samplers} samplers" if samplers else f"samplers of {case.samplers} threads"
    num_bytes = ranks * (samplers or case.samplers) * sampler_bytes(case.sizes, case.batch.inputs)
    # Ranks that are bound to cores have other numbers, and "auto" may evaluate exactly.
    unsure = ranks > 1 or (case.stored and evaluation == "auto")
    return [Term(name, num_bytes, "samplers", bound=unsure or case.sizes.num_nodes > Sampler.MOST_DIRECT_NODES)]


def queue_terms(case: Case, waiting: float = 1.0, lanes: int = 0) -> list[Term]:
    """Returns the terms of batches that are drawn and gathered by threads: those in work, and others that may wait.

    Args:
        lanes: number of threads that gather; 0 for all that sample.
        waiting: share of an epoch's batches that are expected to wait at its end, of a training without ranks.
    """
    ranks, inputs = case.ranks, case.batch.inputs * case.row_bytes
    count, lanes = case.held_ahead(case.batch.count, lanes), lanes or case.samplers
    each, ahead = space_for(inputs) + space_for(case.edge_bytes) + case.block_bytes, min(count, 1 + lanes)
    # Rows that turn out not to be at hand have threads that work on batches beside the step.
    busy, expected = (
        1 if in_turn else ahead for in_turn in (case.may_be_in_turn, case.may_be_in_turn and case.in_turn)
    )
    if case.in_turn:
        filled = 0
    elif ranks > 1:
        filled = 2 * ranks * inputs
    else:
        filled = round((0 if case.drawn is None else case.drawn.count) * case.batch_bytes * waiting)
    blocks = ranks * case.samplers * case.block_bytes
    return [
        Term("batches in work", ranks * busy * each, BATCH, not case.batch.exact, likely=ranks * expected * each),
        Term("blocks of the next batches", blocks, "samplers", bound=True, likely=0 if case.in_turn else blocks),
        Term(
            "batches that wait",
            ranks * (count - busy) * each,
            "queue",
            bound=True,
            likely=min(ranks * (count - expected) * each, filled),
        ),
    ]


def evaluation_terms(case: Case, inputs_bytes: int) -> list[Term]:
    """Returns the term of a sampled evaluation, whose batches are drawn within the whole queue whatever the training's are.

    Args:
        inputs_bytes: buffers of input rows that the training has, which the evaluation takes first.
    """
    if not (most := evaluation_batches(case)):
        return []
    count = case.held_ahead(most)
    each = space_for(case.batch.inputs * case.row_bytes) + space_for(case.edge_bytes) + case.block_bytes
    more = max(0, count * each - inputs_bytes)
    one = case.in_turn and not case.stores_evaluation
    expected = 0 if case.exact_evaluation else min(more, case.batch_bytes) if one else more
    return [Term(SAMPLED, more, "queue", bound=True, likely=expected), shared_term(case, most)]


def evaluation_batches(case: Case) -> int:
    """Returns the batches of the largest split that a sampled evaluation scores; 0 without one."""
    sizes, train = case.sizes, case.semantic.train
    if train.eval == "exact" or case.semantic.sampling is None:
        return 0
    splits = {"train": sizes.num_train, "valid": sizes.num_valid, "test": sizes.num_test}
    largest = max(splits[split] for split in train.scored_splits(*splits.values()))
    return max(1, -(-largest // case.semantic.sampling.batch_size))


def shared_term(case: Case, count: int) -> Term:
    """Returns the term of the rows that batches of a sampled evaluation share (trainers/rows/shared.py)."""
    sizes, direct = case.sizes, case.execution.features in ("auto", "direct")
    cached = case.execution.cache != "none" and {"hotness", "budgets"} <= {*sizes.artifacts, *sizes.configs}
    read = count * case.batch.inputs * max(PAGE_BYTES, sizes.row_bytes)
    pays = direct and not cached and count >= SHARING and read >= 2 * sizes.feature_bytes
    only = case.execution.features == "direct"
    # Left to the machine, rows are read directly where half of the free memory does not hold the file.
    held = sizes.feature_bytes if only else sizes.feature_bytes // 2
    # A row is shared that so many batches read.
    held = min(held, count * case.batch.inputs // SHARING * sizes.row_bytes)
    most = min(parse_size(case.semantic.train.eval_workspace) // 2, held) if pays else 0
    sure = only and not case.exact_evaluation
    return Term("rows that batches of an evaluation share", most, "eval_workspace", True, likely=most if sure else 0)


def row_terms(case: Case) -> list[Term]:
    """Returns the terms of the source of rows: the table in memory, or readers past the page cache."""
    sizes, where = case.sizes, case.execution.features
    if where == "memory":
        return [Term("features in memory", sizes.feature_bytes, "features")]
    if where == "mapped":
        return []
    each = READER_BYTES + WINDOW_BYTES * (sizes.width * 4 != sizes.row_bytes)
    num_bytes, unsure = (case.samplers + 1) * each, where == "auto"
    return [Term("readers of rows", num_bytes, "samplers", unsure, likely=0 if unsure and case.fits else num_bytes)]


def source_terms(case: Case, *, packed: bool = False) -> list[Term]:
    """Returns the terms of the source of rows: the table with the caches before it, or the static tiers of packed rows."""
    return tier_terms(case, 0) if packed else [*row_terms(case), *tier_terms(case)]


def tier_terms(case: Case, slots: int = 4) -> list[Term]:
    """Returns the terms of cached rows on the device and the host, and of the nodes' slots; none without a cache.

    Args:
        slots: bytes per node of the lists that say where rows are.
    """
    found = []
    # Beside a table in memory the host caches nothing; packed rows are none of that table.
    in_memory = slots and case.execution.features == "memory"
    for name in ("device",) if in_memory else ("device", "host"):
        rows, bound = tier_rows(case.sizes, name)
        found.append(Term(f"rows in the {name} cache", rows * case.sizes.row_bytes, f"[memory] {name}", bound))
    if slots and any(term.most for term in found):
        found.append(Term("slots of nodes", slots * case.sizes.num_nodes))
    return found


def tier_rows(sizes: Sizes, level: str) -> tuple[int, bool]:
    """Returns (rows of the cached level "device" or "host", whether they are a bound), by the budgets; 0 without budgets."""
    if "budgets" in sizes.artifacts:
        numbers = sizes.artifacts["budgets"].summary["numbers"]
        # The device's "auto" is lowered by what a step turns out to take (trainers/loop/device_room.py).
        return int(numbers[f"{level}_rows"]), level in numbers["automatic"]
    config = sizes.configs.get("budgets")
    if config is None or not sizes.row_bytes:
        return 0, False
    size = getattr(config.memory, level)
    automatic = size == "auto"
    held = sizes.feature_bytes if automatic else parse_size(size, sizes.feature_bytes)
    return min(sizes.num_rows, held // sizes.row_bytes), automatic
