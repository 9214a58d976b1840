"""The memory that a training will take, term by term, from its recipe and the sizes that are known before it starts.

A technique's own terms are in its row of the table (`Technique.need`). What is common: the process itself, the batches within the queue's
bound, the activations of a step in a heap that is not cut (trainers/devices/malloc.py), the model with its optimiser, the samplers, and an
evaluation. Terms of bounds (a queue that may not fill, fan-outs that may not find as many neighbours) are `at_most`.

docs/log.md compares the sums with measured peaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphmill.assets.building.needs import Need, Sizes, Term
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.machine import usable_cores
from graphmill.assets.storage.user_code import is_reference
from graphmill.kernels.rows.aligned import space_for
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.recipe.batch_sizes import BatchSizes, batch_sizes, whole_batch
from graphmill.trainers.recipe.config import ModelConfig, TrainExecution
from graphmill.trainers.recipe.in_turn import prepared_in_turn
from graphmill.trainers.recipe.queue_bytes import queue_bounds
from graphmill.trainers.recipe.step_bytes import item_bytes, parameter_bytes, step_bytes, transposed_layers
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.recipe.terms import (
    ACTIVATIONS,
    EVALUATION_BATCHES,
    EXACT_EVALUATION,
    KEPT_ROWS,
    NEXT_BLOCKS,
    READERS,
    WAITING_BATCHES,
)

TRAINER_BYTES = 158 << 20
"""Anonymous memory of a process that trains, before it opens data: Python, torch and this project."""
WAITING_BYTES = 122 << 20
"""The step that waits for the training, and what Dagster and the guard start beside both."""
LAUNCHER_BYTES = 40 << 20
"""The process that starts the ranks of a training and waits for them."""
HEAP = 1.12
"""Bytes of a heap over those that are alive in it at once; measured from 0.9 to 1.2 without lists of small blocks (docs/log.md)."""
PRODUCT_BYTES = 16 << 20
"""What the libraries of matrix products and threads keep after the first step."""
PARAMETER_COPIES = 9
"""Copies of the parameters: values, gradients, two moments, the best ones, and what a checkpoint takes while it is written."""
CHECKPOINT_COPIES, ROW_STEP_COPIES = 2, 2
"""Copies of a checkpoint's tensors while it is read (one while it is written); and sums of gradients of rows, divided by the seeds."""
READER_BYTES, WINDOW_BYTES = 2 << 20, 8 << 20
"""What a thread takes that reads rows past the page cache, and that to convert them (trainers/rows/direct.py)."""
BATCH, FANOUTS = "[sampling] batch_size", "[sampling] fanouts"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training whose memory is added up.

    Attributes:
        semantic, execution: the recipe.
        sizes: what is known of the graph and of the artifacts that it reads.
        batch: sizes of the largest batch.
        ranks: number of processes on this machine that share it.
    """

    semantic: ModelConfig
    execution: TrainExecution
    sizes: Sizes
    batch: BatchSizes
    ranks: int = 1

    @property
    def stored(self) -> bool:
        """Whether batches are read instead of drawn."""
        return self.execution.samples == "stored" or find_technique(self.semantic.train.trainer).stored

    @property
    def threads(self) -> int:
        """Number of threads that sample or read ahead of the step, on each rank: ranks of a machine share its cores."""
        return self.execution.samplers or max(1, usable_cores() // max(1, self.ranks) - 1)

    @property
    def in_turn(self) -> bool:
        """Whether batches may be prepared one by one between the steps, if their rows turn out to be at hand."""
        drawn = not self.stored and prepared_in_turn(self.semantic.train.trainer, self.execution)
        return drawn and self.ranks == 1 and self.semantic.train.device == "cpu"

    @property
    def queue_bytes(self) -> int:
        """Bytes of the run's queue, once it has grown for this batch."""
        return self.shared_bytes(1, self.batch_bytes)

    def shared_bytes(self, parts: int, each: int) -> int:
        """Returns the bytes of one of several queues that share the run's, once it has grown for items of `each` bytes."""
        first, most = (bound // parts for bound in queue_bounds(self.execution.queue))
        return max(first, min(most, 2 * each)) if most > first else first

    @property
    def row_bytes(self) -> int:
        """Bytes of an input row on the device."""
        return self.sizes.width * item_bytes(self.semantic.train)

    @property
    def block_bytes(self) -> int:
        """Bytes of the blocks of the largest batch."""
        return self.batch.block_bytes(self.sizes.id_bytes, transposed_layers(self.semantic.train))

    @property
    def batch_bytes(self) -> int:
        """Bytes of the largest batch, its blocks and its input rows."""
        return self.batch.inputs * self.row_bytes + self.block_bytes

    def held(self, limit: int, each: int, most: int) -> int:
        """Returns how many batches of `each` bytes wait within a bound, at least 1 and at most `most` or those of an epoch."""
        return max(1, min(self.batch.count, most, limit // max(1, each)))


def training_need(
    semantic: ModelConfig, execution: TrainExecution, sizes: Sizes, ranks: int = 0, batch: BatchSizes | None = None
) -> Need | None:
    """Returns the need of one training, of all its processes without those that wait for it; None for a technique without a formula.

    Args:
        semantic, execution: the recipe.
        sizes: what is known before it starts.
        ranks: number of processes on this machine that share it; 0 for the table's.
        batch: sizes of the largest batch, if some were drawn; None for those of `sizes`.
    """
    technique = find_technique(semantic.train.trainer)
    terms = technique.need_terms()
    if terms is None or semantic.train.device != "cpu":
        return None
    case = Case(
        semantic=semantic,
        execution=execution,
        sizes=sizes,
        batch=batch or largest_batch(semantic, sizes),
        ranks=ranks or semantic.train.own_settings.ranks,
    )
    return Need(name=f"a training by {technique.name}", phases=((*terms(case), *node_row_terms(case)),))


def largest_batch(semantic: ModelConfig, sizes: Sizes) -> BatchSizes:
    """Returns the sizes of the largest batch: of stored samples, the most that fan-outs can draw, or the whole graph."""
    drawn = None if find_technique(semantic.train.trainer).whole_graph else semantic.sampling
    return whole_batch(semantic.train.layers, sizes) if drawn is None else batch_sizes(drawn, sizes)


def node_row_terms(case: Case) -> list[Term]:
    """Returns the terms of learnable rows of nodes, of all ranks: the rows with their moments, their copies, and their gradients."""
    train, sizes = case.semantic.train, case.sizes
    if train.embedding != "node":
        return []
    row_bytes = train.hidden * item_bytes(train)
    table = max(0, sizes.num_nodes - sizes.num_rows) * row_bytes
    scored = sizes.num_valid > 0
    inputs = min(case.batch.inputs, sizes.num_nodes - sizes.num_rows) * row_bytes
    # Of every batch of a step with what ranks exchange of it, and of their sum.
    copies = train.accumulate * (1 + 2 * (case.ranks > 1)) + ROW_STEP_COPIES
    sure = sizes.exact and "features" in sizes.artifacts
    return [
        Term("rows of nodes and their moments", case.ranks * 3 * table, "hidden", bound=not sure),
        Term(
            "best rows of nodes, and a checkpoint of them",
            case.ranks * (scored + (3 + scored) * CHECKPOINT_COPIES) * table,
            "hidden",
            bound=True,
        ),
        Term("gradients of rows of nodes", case.ranks * copies * inputs, "accumulate", bound=True),
    ]


def waiting_term() -> Term:
    """Returns the term of the processes that wait for a training."""
    return Term("the step that waits for the training", WAITING_BYTES)


def running_bytes(ranks: int) -> int:
    """Returns the bytes of a need that other processes have already when the first rank adds it up."""
    return (ranks - 1) * TRAINER_BYTES + LAUNCHER_BYTES * (ranks > 1)


def process_terms(case: Case, ranks: int = 1) -> list[Term]:
    """Returns the terms of the processes that train, and of what each has of the graph."""
    many = f"{ranks} processes: " if ranks > 1 else ""
    return [
        Term(f"{many}Python, torch and this project", ranks * (TRAINER_BYTES + PRODUCT_BYTES)),
        Term("order of the seeds", ranks * 24 * case.sizes.num_train),
    ]


def model_terms(case: Case, ranks: int = 1, extra_rows: int = 0) -> list[Term]:
    """Returns the terms of a step, of the parameters and of an evaluation.

    Args:
        case: the training.
        ranks: number of processes that each have a model.
        extra_rows: more bytes that a technique keeps during a step.
    """
    train, sizes, sure = (
        case.semantic.train,
        case.sizes,
        case.batch.exact and not is_reference(case.semantic.train.model),
    )
    step = int(HEAP * (step_bytes(train, sizes.width, max(2, sizes.num_classes), case.batch) + extra_rows))
    return [
        Term(ACTIVATIONS, ranks * step, "batch_size or hidden", bound=not sure),
        parameter_term(case, ranks),
        exact_term(case, ranks, beside=step),
    ]


def parameter_term(case: Case, models: int = 1) -> Term:
    """Returns the term of a number of models with their optimisers and a checkpoint."""
    num_bytes = parameter_bytes(case.semantic.train, case.sizes.width, max(2, case.sizes.num_classes))
    return Term("parameters, moments, checkpoint", models * PARAMETER_COPIES * num_bytes, "hidden")


def exact_term(case: Case, ranks: int = 1, beside: int = 0) -> Term:
    """Returns the term of an exact evaluation, above what a step took, which is free again."""
    num_bytes = ranks * max(0, _exact_bytes(case) - beside)
    return Term(EXACT_EVALUATION, num_bytes, "eval_workspace", bound=True)


def _exact_bytes(case: Case) -> int:
    """Returns the most that an exact evaluation takes of its workspace (trainers/inference/exact.py)."""
    train, sizes = case.semantic.train, case.sizes
    if train.eval == "sampled":
        return 0
    share, size = parse_size(train.eval_workspace) // 4, item_bytes(train)
    layers = 2 * min(share, sizes.num_nodes * train.hidden * size)
    wide = max(sizes.width, train.hidden) * size
    return (
        layers + min(2 * share, (sizes.num_edges + sizes.num_nodes) * wide) + sizes.num_nodes * (train.layers + 9) // 8
    )


def expected_exact_bytes(case: Case) -> int:
    """Returns the same for rows that many edges share: a window reads each node's row once, and no more than all nodes have one."""
    train, sizes = case.semantic.train, case.sizes
    rows = sizes.num_nodes * max(sizes.width, train.hidden) * item_bytes(train)
    layers = 2 * min(parse_size(train.eval_workspace) // 4, sizes.num_nodes * train.hidden * item_bytes(train))
    return min(_exact_bytes(case), layers + rows + sizes.num_nodes * (train.layers + 9) // 8)


def sampler_terms(case: Case, ranks: int = 1, samplers: int = 0) -> list[Term]:
    """Returns the term of the samplers: of the training, or of a sampled evaluation alone if batches are stored.

    Args:
        case: the training.
        ranks: number of processes that each have samplers.
        samplers: number of samplers of each, 0 for one per thread.
    """
    nodes, inputs, count = case.sizes.num_nodes, case.batch.inputs, samplers or case.threads
    if case.stored and case.semantic.train.eval == "exact":
        return []
    each = (8 * nodes if nodes <= Sampler.MOST_DIRECT_NODES else 32 * inputs) + case.sizes.id_bytes * inputs
    term = Term(
        f"{count} samplers" if samplers else f"samplers of {count} threads",
        ranks * count * each,
        "samplers",
        bound=nodes > Sampler.MOST_DIRECT_NODES or ranks > 1 or (case.stored and case.semantic.train.eval == "auto"),
    )
    return [term]


def queue_terms(case: Case, ranks: int = 1) -> list[Term]:
    """Returns the terms of batches that are drawn and gathered by threads: those in work, and others that may wait."""
    count = case.held(case.queue_bytes, case.batch_bytes, case.batch.count)
    each = space_for(case.batch.inputs * case.row_bytes) + case.block_bytes
    busy = min(count, 1 if case.in_turn else 1 + case.threads)
    return [
        Term("batches in work", ranks * busy * each, BATCH, bound=not case.batch.exact),
        Term(NEXT_BLOCKS, ranks * case.threads * case.block_bytes, "samplers", bound=True),
        Term(WAITING_BATCHES, ranks * (count - busy) * each, "queue", bound=True),
        _kept_term(ranks * min(case.queue_bytes // 2, count * space_for(case.batch.inputs * case.row_bytes))),
    ]


def _kept_term(num_bytes: int) -> Term:
    """Returns the term of input rows that came back and are too small for the next batches (trainers/batches/source.py)."""
    return Term(KEPT_ROWS, num_bytes, "queue", bound=True)


def evaluation_terms(case: Case, inputs_bytes: int) -> list[Term]:
    """Returns the term of a sampled evaluation, whose batches are drawn within the whole queue whatever the training's are.

    Args:
        case: the training.
        inputs_bytes: buffers of input rows that the training has, which the evaluation takes first.
    """
    sizes = case.sizes
    if case.semantic.train.eval == "exact" or case.semantic.sampling is None:
        return []
    most = max(1, -(-max(sizes.num_valid, sizes.num_test) // case.semantic.sampling.batch_size))
    count = case.held(case.queue_bytes, case.batch_bytes, most)
    inputs = count * space_for(case.batch.inputs * case.row_bytes)
    more = inputs + count * case.block_bytes - inputs_bytes
    return [
        Term(EVALUATION_BATCHES, max(0, more), "queue", bound=True),
        _kept_term(min(case.queue_bytes // 2, inputs)),
    ]


def row_terms(case: Case) -> list[Term]:
    """Returns the terms of the source of rows: the table in memory, or readers past the page cache."""
    sizes, where = case.sizes, case.execution.features
    if where == "memory":
        return [Term("features in memory", sizes.feature_bytes, "features")]
    if where == "mapped":
        return []
    converted = sizes.width * 4 != sizes.row_bytes
    threads = case.threads + 1
    num_bytes = threads * (READER_BYTES + WINDOW_BYTES * converted)
    return [Term(READERS, num_bytes, "samplers", bound=where == "auto")]


def tier_terms(case: Case, slots: int = 4) -> list[Term]:
    """Returns the terms of cached rows on the device and the host, and of the nodes' slots; none without a cache.

    Args:
        case: the training.
        slots: bytes per node of the lists that say where rows are.
    """
    found, sizes = [], case.sizes
    # Beside a table in memory the host caches nothing; packed rows are none of that table.
    in_memory = slots and case.execution.features == "memory"
    for name in ("device",) if in_memory else ("device", "host"):
        rows, at_most = tier_rows(sizes, name)
        found.append(Term(f"rows in the {name} cache", rows * sizes.row_bytes, f"[memory] {name}", bound=at_most))
    if slots and any(term.most for term in found):
        found.append(Term("slots of nodes", slots * sizes.num_nodes))
    return found


def tier_rows(sizes: Sizes, level: str) -> tuple[int, bool]:
    """Returns (rows of a cached level, whether they are a bound), by the budgets; 0 without budgets.

    Args:
        sizes: what is known.
        level: "device" or "host".
    """
    if "budgets" in sizes.artifacts:
        numbers = sizes.artifacts["budgets"].summary["numbers"]
        # The device's "auto" is lowered by what a step turns out to take (trainers/training/probe_step.py).
        return int(numbers[f"{level}_rows"]), level in numbers["automatic"]
    config = sizes.configs.get("budgets")
    if config is None or not sizes.row_bytes:
        return 0, False
    size = getattr(config.memory, level)
    automatic = size == "auto"
    return min(
        sizes.num_rows, (sizes.feature_bytes if automatic else parse_size(size, sizes.feature_bytes)) // sizes.row_bytes
    ), automatic
