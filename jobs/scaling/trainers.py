"""What a training takes of the machines that share it, by trainer: memory, disk, bytes between them, and the seconds of an epoch.

One process trains on each machine. Its batches have the most rows and edges that the fan-outs allow, unless `distinct` says which share of
the input rows differ. A row of another machine is taken to be needed as often as one of the own (as with random parts), and a cached one as
often as any other, so that bytes between machines are bounds: good parts and a good ranking need fewer.

An epoch takes the longest of three things that go on side by side: computing and sampling on all cores, reading the disk, and exchanging
rows; behind it the gradients of each step, which nothing hides. The topology is mapped. If memory does not hold it beside what the process
has, a node that is sampled costs two pages of the disk for the share of it that memory lacks. Evaluations are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from graphmill.assets.building.needs import Sizes
from graphmill.assets.pipeline.needs import StepNeed
from graphmill.assets.samples.stage import SAMPLES
from graphmill.jobs.scaling.cluster import Machines, cached_bytes
from graphmill.jobs.scaling.stages import MEASURED_CORES
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.types import id_dtype
from graphmill.trainers.recipe.batch_sizes import BatchSizes, batch_sizes
from graphmill.trainers.recipe.config import ModelConfig, TrainExecution
from graphmill.trainers.recipe.course import Case
from graphmill.trainers.recipe.step_bytes import item_bytes, layer_widths
from graphmill.trainers.techniques.distributed.volumes import ModelSize, gradient_bytes, model_size, request_bytes
from graphmill.trainers.techniques.fullgraph.costs import BLOCKS, ROWS, block_bytes, host_bytes
from graphmill.trainers.techniques.fullgraph.memory import KEPT_BLOCKS_SHARE, layer_shapes

PAGES_OF_A_NODE = 2
"""Pages that sampling the neighbours of a node reads: of `indptr`, and of `indices`."""
FORWARD, BOTH, FIRST = 2, 6, 4
"""Operations per product of a step: of a forward pass, of both passes, and of both in a first layer, whose inputs need no gradient."""
EDGE_FLOPS = 4
"""What aggregating one column over one edge counts in both passes, in operations of a matrix product: it waits for memory."""


@dataclass(frozen=True, kw_only=True)
class TrainerCost:
    """What one training takes.

    Attributes:
        name: its train table.
        machines: number of machines that share it.
        memory_bytes: anonymous memory of each at its peak, a bound.
        mapped_bytes: bytes of each that it reads in any order, through the page cache.
        disk_bytes: bytes of artifacts on the disk of each.
        network_bytes: kind -> bytes that all machines receive from each other in an epoch.
        seconds: what an epoch does -> seconds of each machine: cores, disk, exchange, gradients.
        epochs: number of epochs.
    """

    name: str
    machines: int
    memory_bytes: int
    mapped_bytes: int
    disk_bytes: int
    network_bytes: Mapping[str, int]
    seconds: Mapping[str, float]
    epochs: int

    @property
    def epoch_seconds(self) -> float:
        """Seconds of an epoch."""
        beside = max(self.seconds[name] for name in ("cores", "disk", "exchange"))
        return beside + self.seconds["gradients"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One training on paper.

    Attributes:
        step: its step, with its need.
        case: its recipe, the sizes of the graph and of a batch.
        machines: the machines.
        stored: step -> bytes that it stores.
    """

    step: StepNeed
    case: Case
    machines: Machines
    stored: Mapping[str, int]

    @property
    def model(self) -> ModelSize:
        """The size of its parameters."""
        return model_size(self.case.semantic.train, self.case.sizes.width, self.case.num_classes)

    @property
    def topology_bytes(self) -> int:
        """Bytes of the topology that is mapped."""
        return topology_bytes(self.case.sizes)

    def memory(self, ranks: int) -> int:
        """Returns the anonymous memory of one machine, whose process is one of some ranks."""
        assert self.step.need is not None
        return ceil(self.step.need.memory_bytes / ranks)


def trainer_costs(
    found: Sequence[StepNeed], machines: Machines, sizes: Sizes, distinct: float = 1.0
) -> list[TrainerCost]:
    """Returns the costs of the trainings among some steps.

    Args:
        found: needs of all steps of a pipeline.
        machines: the machines.
        sizes: sizes of its graph.
        distinct: share of the input rows of a batch's bound that differ.
    """
    stored = {each.name: each.need.stored for each in found if each.need}
    configs = {each.name: each.step.configs[0] for each in found}
    costs = []
    for each in found:
        config = each.step.configs[0]
        if isinstance(config, ModelConfig) and each.need is not None:
            case = _case(config, replace(sizes, configs=configs), distinct)
            costs.append(COSTS[each.name](Setting(step=each, case=case, machines=machines, stored=stored)))
    return costs


def _case(semantic: ModelConfig, sizes: Sizes, distinct: float) -> Case:
    assert semantic.sampling is not None
    found = batch_sizes(semantic.sampling, sizes)
    batch = found._replace(rows=(ceil(found.rows[0] * distinct), *found.rows[1:]))
    return Case(semantic=semantic, execution=TrainExecution(), sizes=sizes, batch=batch)


def topology_bytes(sizes: Sizes) -> int:
    """Returns the bytes of the topology that sampling maps: starts, and sources."""
    return 8 * (sizes.num_nodes + 1) + id_dtype(sizes.num_nodes).itemsize * sizes.num_edges


def step_flops(semantic: ModelConfig, width: int, classes: int, batch: BatchSizes) -> float:
    """Returns the operations of one training step of GraphSAGE: products of maps, and sums over edges.

    Args:
        semantic: the recipe.
        width, classes: columns of the features and of the logits.
        batch: sizes of the batch.
    """
    total = 0.0
    for layer, (wide, out) in enumerate(layer_widths(semantic.train, width, classes)):
        products = batch.rows[layer + 1] * 2 * wide * out
        total += products * (BOTH if layer else FIRST) + EDGE_FLOPS * batch.edges[layer] * wide
    return total


def _cores_seconds(setting: Setting, ranks: int, *, sampled: bool) -> float:
    """Returns the seconds in which one of some ranks computes, and samples, its share of an epoch."""
    batch, machines = setting.case.batch, setting.machines
    flops = step_flops(setting.case.semantic, setting.case.sizes.width, setting.case.num_classes, batch)
    seconds = flops / (machines.cores * machines.core_flops)
    if sampled:
        assert SAMPLES.speed is not None
        seconds += sum(batch.edges) * MEASURED_CORES / (SAMPLES.speed.per_second * machines.cores)
    return seconds * batch.count / ranks


def _sampling_pages(setting: Setting, ranks: int) -> float:
    """Returns the pages that sampling reads of a topology that memory does not hold, of one rank in an epoch."""
    left = setting.machines.memory_bytes - setting.memory(ranks)
    missing = 1 - min(1.0, max(0, left) / setting.topology_bytes)
    return PAGES_OF_A_NODE * sum(setting.case.batch.rows[1:]) * setting.case.batch.count / ranks * missing


def _row_pages(setting: Setting, rows: float, held_bytes: int, beside: int) -> float:
    """Returns the pages of rows that one rank reads; 0 if memory holds all that they are taken from.

    Args:
        setting: the training.
        rows: number of rows.
        held_bytes: bytes of the table or shards that they are taken from.
        beside: bytes of memory that are taken.
    """
    fits = held_bytes + beside <= setting.machines.memory_bytes
    return 0 if fits else rows * (1 + setting.case.sizes.row_bytes // PAGE_BYTES)


def _uncached(setting: Setting) -> float:
    """Returns the share of rows that a cache of a machine's memory lacks, if all are needed equally often."""
    cached = cached_bytes(setting.machines, setting.case.sizes.row_bytes)
    return 1 - min(1.0, cached / max(1, setting.case.sizes.feature_bytes))


def _minibatch(setting: Setting) -> TrainerCost:
    batch, sizes, machines = setting.case.batch, setting.case.sizes, setting.machines
    beside = setting.memory(1) + setting.topology_bytes
    rows = batch.inputs * batch.count * _uncached(setting)
    pages = _sampling_pages(setting, 1) + _row_pages(setting, rows, sizes.feature_bytes, beside)
    seconds = {
        "cores": _cores_seconds(setting, 1, sampled=True),
        "disk": pages / machines.pages_rate,
        "exchange": 0.0,
        "gradients": 0.0,
    }
    return _cost(setting, 1, setting.topology_bytes, ("graph", "features"), {}, seconds)


def _disk(setting: Setting) -> TrainerCost:
    seconds = {
        "cores": _cores_seconds(setting, 1, sampled=False),
        "disk": _stored_epoch_bytes(setting) / setting.machines.disk_rate,
        "exchange": 0.0,
        "gradients": 0.0,
    }
    return _cost(setting, 1, 0, ("graph", "features", "samples", "cache_plan", "packed_chunks"), {}, seconds)


def _stored_epoch_bytes(setting: Setting) -> float:
    """Returns the bytes that an epoch reads of stored batches and packed rows, if every batch has its rows in one piece."""
    packed = setting.case.batch.inputs * setting.case.batch.count * setting.case.sizes.row_bytes
    return setting.stored["samples"] + packed


def _gradients(setting: Setting, ranks: int) -> tuple[int, float]:
    """Returns the bytes of gradients that all ranks receive in an epoch, and the seconds of one rank."""
    batches = ranks * ceil(setting.case.batch.count / ranks)
    num_bytes, machines = gradient_bytes(setting.model, batches, ranks), setting.machines
    steps = batches // ranks
    return num_bytes, num_bytes / ranks / machines.network_rate + steps * machines.latency


def _exchanged(setting: Setting) -> TrainerCost:
    machines, batch, sizes = setting.machines, setting.case.batch, setting.case.sizes
    ranks = machines.count
    needed = batch.inputs * batch.count
    remote = ceil(needed * (ranks - 1) / ranks * _uncached(setting))
    calls = ranks * ceil(batch.count / ranks)
    of_gradients, gradient_seconds = _gradients(setting, ranks)
    network = {"feature": remote * sizes.row_bytes, "gradient": of_gradients}
    network["ids"] = request_bytes(remote, calls, ranks, sizes.row_bytes, ranks)
    share, beside = sizes.feature_bytes // ranks, setting.memory(ranks) + setting.topology_bytes
    pages = _sampling_pages(setting, ranks) + _row_pages(setting, needed / ranks * _uncached(setting), share, beside)
    moved = (network["feature"] + network["ids"]) / ranks
    seconds = {
        "cores": _cores_seconds(setting, ranks, sampled=True),
        "disk": pages / machines.pages_rate,
        "exchange": moved / machines.network_rate + 2 * calls / ranks * machines.latency,
        "gradients": gradient_seconds,
    }
    return _cost(setting, ranks, setting.topology_bytes, ("graph", "partitions"), network, seconds, share)


def _packed(setting: Setting) -> TrainerCost:
    ranks = setting.machines.count
    of_gradients, gradient_seconds = _gradients(setting, ranks)
    seconds = {
        "cores": _cores_seconds(setting, ranks, sampled=False),
        "disk": _stored_epoch_bytes(setting) / ranks / setting.machines.disk_rate,
        "exchange": 0.0,
        "gradients": gradient_seconds,
    }
    own = sum(setting.stored[name] for name in ("samples", "packed_chunks")) + setting.case.sizes.feature_bytes
    shared = ("graph", "partitions", "cache_plan")
    return _cost(setting, ranks, 0, shared, {"gradient": of_gradients}, seconds, own // ranks)


def _fullgraph(setting: Setting) -> TrainerCost:
    machines, sizes, train = setting.machines, setting.case.sizes, setting.case.semantic.train
    ranks, nodes, steps = machines.count, sizes.num_nodes, _chunk_steps(setting)
    shapes = layer_shapes(train, sizes.width, setting.case.num_classes)
    # Each edge brings another row to its chunk, up to all nodes.
    rows = ranks * steps * min(nodes, ceil((sizes.num_edges + nodes) / (ranks * steps)))
    crossing = ceil(rows * (ranks - 1) / ranks)
    neighbours = sum(crossing * shape.read * item_bytes(train) for shape in shapes[1:])
    network = {"neighbour": neighbours, "gradient": neighbours}
    network["parameter"] = ranks * (ranks - 1) * steps * setting.model.num_bytes
    whole = BatchSizes(count=1, rows=(nodes,) * (train.layers + 1), edges=(sizes.num_edges,) * train.layers)
    flops = step_flops(setting.case.semantic, sizes.width, setting.case.num_classes, whole)
    passes = 2 * setting.stored["chunks"] * train.layers / ranks
    memory = _fullgraph_memory(setting)
    fits = memory + setting.stored["chunks"] // ranks <= machines.memory_bytes
    seconds = {
        "cores": flops / (machines.cores * machines.core_flops * ranks),
        "disk": 0.0 if fits else passes / machines.disk_rate,
        "exchange": 2 * neighbours / ranks / machines.network_rate,
        "gradients": network["parameter"] / ranks / machines.network_rate + 2 * train.layers * steps * machines.latency,
    }
    found = _cost(setting, ranks, 0, ("graph", "features", "partitions", "chunks"), network, seconds)
    return replace(found, memory_bytes=memory)


def _chunk_steps(setting: Setting) -> int:
    return setting.case.sizes.configs["chunks"].table.chunks_per_part


def _fullgraph_memory(setting: Setting) -> int:
    """Returns the memory of one rank: rows between layers are in it, which the formula puts into files if they are many here."""
    need, ranks, sizes = setting.step.need, setting.machines.count, setting.case.sizes
    assert need is not None
    rest = sum(term.most for term in need.memory if term.name not in (ROWS, BLOCKS))
    blocks = block_bytes(setting.case, sizes.num_nodes, sizes.num_edges, sizes.num_edges + sizes.num_nodes)
    kept = min(blocks // ranks, setting.machines.memory_bytes // KEPT_BLOCKS_SHARE)
    return ceil((rest + host_bytes(setting.case)) / ranks) + kept


def _cost(
    setting: Setting,
    ranks: int,
    mapped: int,
    artifacts: Sequence[str],
    network: Mapping[str, int],
    seconds: Mapping[str, float],
    own_bytes: int = 0,
) -> TrainerCost:
    """Returns a cost; `artifacts` are whole on every machine, and `own_bytes` are those of its own parts."""
    return TrainerCost(
        name=setting.step.name,
        machines=ranks,
        memory_bytes=setting.memory(ranks),
        mapped_bytes=mapped,
        disk_bytes=sum(setting.stored[name] for name in artifacts) + own_bytes,
        network_bytes=network,
        seconds=seconds,
        epochs=setting.case.semantic.train.epochs,
    )


COSTS: Mapping[str, Callable[[Setting], TrainerCost]] = {
    "minibatch": _minibatch,
    "disk": _disk,
    "distributed": _exchanged,
    "distributed_packed": _packed,
    "fresh_distributed": _exchanged,
    "fullgraph": _fullgraph,
}
"""Name of a training (cluster.py) -> its formula. Embeddings of `fresh-distributed` spare rows, how many only a training tells."""
