"""The memory that a training takes of a device with memory of its own, term by term: a GPU.

A device holds the model with its optimiser, the step's activations, the batches that are prepared, wait and are trained on, the cached rows
of `[memory] device`, and, if it samples, the graph, the sampler's map and its recorded arrays (kernels/sampling/recorded.py). An evaluation
takes its turn with the training; an exact one keeps to `eval_workspace`. Devices of one process that share a GPU have one sum. A technique
with more of its own adds terms to these (`Costs.device`).

The sum is a bound of live tensors, as torch's allocator counts them. What an allocator keeps besides in holes, the driver's own memory and
the machine code of kernels are not in it. Tests compare it with the peak that simulated devices count, for each technique.
"""

from __future__ import annotations

from graphmill.assets.costs.needs import Need, Sizes, Term
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sizes import parse_size
from graphmill.kernels.sampling.recorded import bucket
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.memory import BATCH, PARAMETER_COPIES, evaluation_batches, tier_rows, training_case
from graphmill.trainers.recipe.costs.step import item_bytes, parameter_bytes, step_bytes
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.techniques import find_technique

PRODUCT_BYTES = 64 << 20
"""What the library of matrix products keeps on a GPU."""
RECORDED_BYTES = 40
"""Bytes that a sampler keeps per edge for which a batch has space (kernels/sampling/sample_cuda.py)."""
DEGREES_BYTES, MAP_BYTES = 8, 8
"""Bytes per node on a device that samples: its two degrees, and its entry in the sampler's map."""
TABLE_BYTES = 8
"""Bytes per edge of alias tables."""
BLOCK_COPIES = 2
"""Blocks of a batch that was drawn on the device hold at most twice their bytes, since a cut may leave space behind."""
ROW_COPIES = 4
"""Learnable rows of nodes, their two moments, and their best values."""


def device_need(semantic: ModelConfig, execution: TrainExecution, sizes: Sizes) -> Need | None:
    """Returns the memory of each GPU that a training takes, or None.

    There is none on a CPU, for a model of one's own, whose activations are not known, and for a technique without a formula.
    """
    technique = find_technique(semantic.train.trainer)
    if semantic.train.device == "cpu" or ":" in semantic.train.model or not technique.costs:
        return None
    terms = technique.open_costs().device(training_case(semantic, execution, sizes))
    found = tuple(term for term in terms if term.most)
    return Need(name=f"the GPU of a training by {semantic.train.trainer}", phases=(found,))


def batch_terms(case: Case, models: int = 1, taken: int = 1) -> list[Term]:
    """Returns the terms of a training on mini-batches.

    Args:
        models: number of models that are trained on the device.
        taken: number of batches that trainers have, besides those that wait.
    """
    batches, evaluation = _batches(case, models, taken), parse_size(case.semantic.train.eval_workspace)
    held = sum(term.most for term in batches)
    more = max(0, evaluation - held) if case.semantic.train.eval != "sampled" else 0
    return [
        *(term.times(models) for term in model_terms(case)),
        *batches,
        Term("an exact evaluation", more, "eval_workspace", bound=True),
        *cached_terms(case),
        *_sampler_terms(case),
    ]


def model_terms(case: Case) -> list[Term]:
    """Returns the terms of the parameters, and of rows of nodes that are learnt."""
    train, sizes = case.semantic.train, case.sizes
    values = PARAMETER_COPIES * parameter_bytes(train, sizes.width, case.num_classes)
    rows = ROW_COPIES * sizes.num_nodes * train.hidden * item_bytes(train) * train.learns_rows
    return [
        Term("parameters, gradients, moments", values, "hidden", bound=True),
        Term("learnable rows of nodes", rows, "hidden", bound=True),
        Term("workspace of matrix products", PRODUCT_BYTES, bound=True),
    ]


def cached_terms(case: Case) -> list[Term]:
    """Returns the terms of cached rows, and of the places of nodes' rows, if the training reads budgets."""
    if case.execution.cache == "none":
        return []
    rows, bound = tier_rows(case.sizes, "device")
    places = 4 * case.sizes.num_nodes * (case.execution.topology != "host")
    return [Term("cached rows", rows * case.sizes.row_bytes, "[memory] device", bound), Term("places of rows", places)]


def _batches(case: Case, models: int, taken: int) -> list[Term]:
    train, batch, drawn = case.semantic.train, case.batch, case.execution.topology != "host" and not case.stored
    blocks, rows = case.block_bytes * (BLOCK_COPIES if drawn else 1), batch.inputs * case.row_bytes + case.edge_bytes
    # Those that wait, one in the work of each thread, and the one that is trained on.
    count = max(batch.count, evaluation_batches(case))
    ahead = case.held_ahead(count) + (1 if drawn else case.samplers) + taken
    step = models * step_bytes(train, case.sizes.width, case.num_classes, batch)
    return [
        Term("activations of a step", step, "batch_size or hidden", bound=not batch.exact),
        Term("batches", min(count + taken, ahead) * (rows + blocks), "queue", bound=True),
        # Rows on their way, before their type is that of the computation; ids and slots of a batch.
        Term("a batch that is gathered", rows + 16 * batch.inputs, BATCH, bound=True),
    ]


def _sampler_terms(case: Case) -> list[Term]:
    """Returns the terms of a graph that the device samples from."""
    sizes, where, sampling = case.sizes, case.execution.topology, case.semantic.sampling
    if where == "host" or case.stored or sampling is None:
        return []
    graph = (
        sizes.topology_bytes + sizes.num_edges * (5 + TABLE_BYTES * bool(sampling.inputs)) if where == "device" else 0
    )
    return [
        Term("the graph", graph, "topology", bound=True),
        Term("degrees and the sampler's map", (DEGREES_BYTES + MAP_BYTES) * sizes.num_nodes, "topology"),
        Term("the sampler's arrays", RECORDED_BYTES * _space(case, sampling), "fanouts", bound=True),
    ]


def _space(case: Case, sampling: SamplingConfig) -> int:
    """Returns the edges for which the arrays of a sampler have space: the most that fan-outs draw, or all of the graph's."""
    # Seeds are rounded up to the next of eight numbers per power of two.
    rows, sizes, found = bucket(case.batch.rows[-1]), case.sizes, 0
    for entry in sampling.largest_fanouts:
        fanout = entry if isinstance(entry, int) else sum(entry.values())
        edges = sizes.num_edges if fanout < 0 else rows * fanout
        found, rows = found + edges, min(sizes.num_nodes, rows + edges)
    return found
