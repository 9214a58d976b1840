"""What a training takes of the machines that share it, by trainer: memory, disk, bytes between them, and the seconds of an epoch.

One process trains on each machine. Its batches have the most rows and edges that the fan-outs allow, unless `distinct` says which share of
the input rows differ. A row of another machine is taken to be needed as often as one of the own (as with random parts), and a cached one as
often as any other, so that bytes between machines are bounds: good parts and a good ranking need fewer.

An epoch takes the longest of three things that go on side by side: computing and sampling on all cores, reading the disk, and exchanging
rows; behind it the gradients of each step, which nothing hides. The topology is mapped. If memory does not hold it beside what the process
has, a node that is sampled costs two pages of the disk for the share of it that memory lacks. Evaluations are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.pipeline.needs import StepNeed
from graphmill.assets.samples.stage import SAMPLES
from graphmill.jobs.scaling.cluster import MEASURED_CORES, Machines, cached_bytes
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.memory import largest_batch
from graphmill.trainers.recipe.costs.step import item_bytes, layer_widths
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.techniques.distributed.costs import ModelSize, gradient_bytes, model_size, request_bytes
from graphmill.trainers.techniques.fullgraph.costs import block_bytes, host_bytes
from graphmill.trainers.techniques.fullgraph.memory import BLOCKS, KEPT_BLOCKS_SHARE, ROWS, layer_shapes

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
        memory_bytes: anonymous memory of each at its peak, a bound.
        mapped_bytes: bytes of each that it reads in any order, through the page cache.
        disk_bytes: bytes of artifacts on the disk of each.
        network_bytes: kind -> bytes that all machines receive from each other in an epoch.
        seconds: what an epoch does -> seconds of each machine: cores, disk, exchange, gradients.
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
        case: its recipe, the sizes of the graph and of a batch, and the number of machines that share it as ranks.
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
    def memory(self) -> int:
        """Anonymous memory of each machine, whose process is one of the ranks."""
        assert self.step.need is not None
        return ceil(self.step.need.memory_bytes / self.case.ranks)

    @property
    def epoch_inputs(self) -> int:
        """Input rows of the batches of an epoch."""
        return self.case.batch.inputs * self.case.batch.count

    @property
    def uncached(self) -> float:
        """Share of rows that a cache of a machine's memory lacks, if all are needed equally often."""
        sizes = self.case.sizes
        return 1 - min(1.0, cached_bytes(self.machines, sizes.row_bytes) / max(1, sizes.feature_bytes))

    def cores_seconds(self, *, sampled: bool) -> float:
        """Returns the seconds in which a machine computes, and samples, its share of an epoch."""
        case, machines = self.case, self.machines
        seconds = step_flops(case) / (machines.cores * machines.core_flops)
        if sampled:
            assert SAMPLES.speed is not None
            seconds += sum(case.batch.edges) * MEASURED_CORES / (SAMPLES.speed.per_second * machines.cores)
        return seconds * case.batch.count / case.ranks

    def pages(self, rows: float, held_bytes: int) -> float:
        """Returns the pages that a machine reads in an epoch: of a topology that memory does not hold, and of rows.

        Args:
            held_bytes: bytes of the table or shards that they are taken from; none is read if memory holds these beside all else.
        """
        left, batch = self.machines.memory_bytes - self.memory, self.case.batch
        missing = 1 - min(1.0, max(0, left) / self.case.sizes.topology_bytes)
        of_topology = PAGES_OF_A_NODE * sum(batch.rows[1:]) * batch.count / self.case.ranks * missing
        fits = held_bytes + self.case.sizes.topology_bytes <= left
        return of_topology + (0 if fits else rows * (1 + self.case.sizes.row_bytes // PAGE_BYTES))

    def stored_seconds(self) -> float:
        """Returns the seconds of reading stored batches and packed rows, if every batch has its rows in one piece."""
        num_bytes = self.stored["samples"] + self.epoch_inputs * self.case.sizes.row_bytes
        return num_bytes / self.case.ranks / self.machines.disk_rate

    def gradients(self) -> tuple[int, float]:
        """Returns the bytes of gradients that all ranks receive in an epoch, and the seconds of one rank."""
        ranks, machines = self.case.ranks, self.machines
        steps = ceil(self.case.batch.count / ranks)
        num_bytes = gradient_bytes(self.model, ranks * steps, ranks)
        return num_bytes, num_bytes / ranks / machines.network_rate + steps * machines.latency

    def cost(
        self,
        artifacts: Sequence[str],
        *,
        cores: float,
        disk: float,
        exchange: float = 0.0,
        gradients: float = 0.0,
        network: Mapping[str, int] | None = None,
        mapped: int = 0,
        own_bytes: int = 0,
    ) -> TrainerCost:
        """Returns a cost from its seconds; `artifacts` are whole on every machine, and `own_bytes` are those of its own parts."""
        return TrainerCost(
            name=self.step.name,
            machines=self.case.ranks,
            memory_bytes=self.memory,
            mapped_bytes=mapped,
            disk_bytes=sum(self.stored[name] for name in artifacts) + own_bytes,
            network_bytes=network or {},
            seconds={"cores": cores, "disk": disk, "exchange": exchange, "gradients": gradients},
            epochs=self.case.semantic.train.epochs,
        )


def trainer_costs(
    found: Sequence[StepNeed], machines: Machines, sizes: Sizes, distinct: float = 1.0
) -> list[TrainerCost]:
    """Returns the costs of the trainings among some steps.

    Args:
        distinct: share of the input rows of a batch's bound that differ.
    """
    stored = {each.name: each.need.stored for each in found if each.need}
    configs = {each.name: each.step.configs[0] for each in found}
    costs = []
    for each in found:
        config = each.step.configs[0]
        if isinstance(config, ModelConfig) and each.need is not None:
            case = _case(config, replace(sizes, configs=configs), machines, distinct)
            costs.append(COSTS[each.name](Setting(step=each, case=case, machines=machines, stored=stored)))
    return costs


def _case(semantic: ModelConfig, sizes: Sizes, machines: Machines, distinct: float) -> Case:
    technique, batch = find_technique(semantic.train.trainer), largest_batch(semantic, sizes)
    if not technique.whole_graph:
        batch = batch._replace(rows=(ceil(batch.inputs * distinct), *batch.rows[1:]))
    ranks = machines.count if technique.by_parts else 1
    return Case(semantic=semantic, execution=TrainExecution(), sizes=sizes, batch=batch, ranks=ranks)


def step_flops(case: Case) -> float:
    """Returns the operations of one training step of GraphSAGE: products of maps, and sums over edges."""
    total, batch = 0.0, case.batch
    for layer, (wide, out) in enumerate(layer_widths(case.semantic.train, case.sizes.width, case.num_classes)):
        products = batch.rows[layer + 1] * 2 * wide * out
        total += products * (BOTH if layer else FIRST) + EDGE_FLOPS * batch.edges[layer] * wide
    return total


def _minibatch(setting: Setting) -> TrainerCost:
    pages = setting.pages(setting.epoch_inputs * setting.uncached, setting.case.sizes.feature_bytes)
    return setting.cost(
        ("graph", "features"),
        cores=setting.cores_seconds(sampled=True),
        disk=pages / setting.machines.pages_rate,
        mapped=setting.case.sizes.topology_bytes,
    )


def _disk(setting: Setting) -> TrainerCost:
    return setting.cost(
        ("graph", "features", "samples", "cache_plan", "packed_chunks"),
        cores=setting.cores_seconds(sampled=False),
        disk=setting.stored_seconds(),
    )


def _exchanged(setting: Setting) -> TrainerCost:
    machines, sizes, ranks = setting.machines, setting.case.sizes, setting.case.ranks
    needed, steps = setting.epoch_inputs, ceil(setting.case.batch.count / ranks)
    remote, share = ceil(needed * (ranks - 1) / ranks * setting.uncached), sizes.feature_bytes // ranks
    of_gradients, gradient_seconds = setting.gradients()
    network = {"feature": remote * sizes.row_bytes, "gradient": of_gradients}
    network["ids"] = request_bytes(remote, ranks * steps, ranks, sizes.row_bytes, ranks)
    moved = (network["feature"] + network["ids"]) / ranks
    return setting.cost(
        ("graph", "partitions"),
        cores=setting.cores_seconds(sampled=True),
        disk=setting.pages(needed / ranks * setting.uncached, share) / machines.pages_rate,
        exchange=moved / machines.network_rate + 2 * steps * machines.latency,
        gradients=gradient_seconds,
        network=network,
        mapped=setting.case.sizes.topology_bytes,
        own_bytes=share,
    )


def _packed(setting: Setting) -> TrainerCost:
    of_gradients, gradient_seconds = setting.gradients()
    own = setting.stored["samples"] + setting.stored["packed_chunks"] + setting.case.sizes.feature_bytes
    return setting.cost(
        ("graph", "partitions", "cache_plan"),
        cores=setting.cores_seconds(sampled=False),
        disk=setting.stored_seconds(),
        gradients=gradient_seconds,
        network={"gradient": of_gradients},
        own_bytes=own // setting.case.ranks,
    )


def _fullgraph(setting: Setting) -> TrainerCost:
    case, machines, chunks = setting.case, setting.machines, setting.stored["chunks"]
    sizes, train, ranks, nodes = case.sizes, case.semantic.train, case.ranks, case.sizes.num_nodes
    steps = sizes.configs["chunks"].table.chunks_per_part
    # Each edge brings another row to its chunk, up to all nodes.
    rows = ranks * steps * min(nodes, ceil((sizes.num_edges + nodes) / (ranks * steps)))
    crossing = ceil(rows * (ranks - 1) / ranks)
    shapes = layer_shapes(train, sizes.width, case.num_classes)
    neighbours = sum(crossing * shape.read * item_bytes(train) for shape in shapes[1:])
    parameters = ranks * (ranks - 1) * steps * setting.model.num_bytes
    flops = step_flops(case)
    memory = _fullgraph_memory(setting)
    fits = memory + chunks // ranks <= machines.memory_bytes
    found = setting.cost(
        ("graph", "features", "partitions", "chunks"),
        cores=flops / (machines.cores * machines.core_flops * ranks),
        disk=0.0 if fits else 2 * chunks * train.layers / ranks / machines.disk_rate,
        exchange=2 * neighbours / ranks / machines.network_rate,
        gradients=parameters / ranks / machines.network_rate + 2 * train.layers * steps * machines.latency,
        network={"neighbour": neighbours, "gradient": neighbours, "parameter": parameters},
    )
    return replace(found, memory_bytes=memory)


def _fullgraph_memory(setting: Setting) -> int:
    """Returns the memory of one rank: rows between layers are in it, which the formula puts into files if they are many here."""
    need, ranks, sizes = setting.step.need, setting.case.ranks, setting.case.sizes
    assert need is not None
    rest = sum(term.most for term in need.memory if term.name not in (ROWS, BLOCKS))
    blocks = block_bytes(setting.case, sizes.num_nodes, sizes.num_edges, sizes.num_edges + sizes.num_nodes)
    kept = min(blocks // ranks, setting.machines.memory_bytes // KEPT_BLOCKS_SHARE)
    return ceil((rest + host_bytes(setting.case)) / ranks) + kept


COSTS: Mapping[str, Callable[[Setting], TrainerCost]] = {
    "minibatch": _minibatch,
    "disk": _disk,
    "distributed": _exchanged,
    "distributed_packed": _packed,
    "fresh_distributed": _exchanged,
    "fullgraph": _fullgraph,
}
"""Name of a training (cluster.py) -> its formula. Embeddings of `fresh-distributed` spare rows, how many only a training tells."""
