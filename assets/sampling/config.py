"""The `[sampling]` table of a pipeline file: how mini-batches are sampled."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from graphmill.assets.building.keys import Checked, KeyProblem, size_problem, within
from graphmill.assets.sampling.fanouts import Entry, by_relation, fanout_problems, spelled
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.tasks.lengths import length_problem
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import EmptyRows
from graphmill.kernels.sampling.walk import MOST_VISITS, walk_problems

METHODS = ("uniform", "weighted", "random_walk")
DEGREES = ("in_degree", "out_degree")
"""Columns that every graph has."""
MOST_STORED = 10**6
"""Most epochs whose samples may be stored: each is a part of an artifact at least."""
MORE_PATHS = 10
"""Factor on the number of paths in exact evaluation of walks."""
OF_NODES = re.compile(r"node:(?!\d{10,}\Z)[A-Za-z0-9_-]+")
"""Weights of nodes; no table has a column whose number has ten digits."""
LATER: dict[str, Any] = {"hashed": "unless default"}
UNHASHED: dict[str, Any] = {"hashed": False}
LEAST_MEMORY = 64 << 20
"""The least memory for sequential passes."""


def weight_table(weights: str) -> str | None:
    """Returns the name of the feature table that the key `weights` means, "" for the main one; None if no feature table has them."""
    column = weights.partition(":")[2]
    if column in ("", *DEGREES):
        return None
    return "" if column.isdigit() else column


def width_mistake(weights: str, width: int) -> InputError | None:
    """Returns the mistake of the key `weights` if a feature table of `width` columns lacks the one that it names; None without."""
    column, given = weights.partition(":")[2], f'weights = "{weights}"'
    if not column.isdigit():
        if width == 1:
            return None
        problem = f"{given}, but that feature table has {width} columns"
        return InputError(problem, f"give [features.{column}] one column")
    if int(column) < width:
        return None
    problem = f"{given}, but the main feature table has the columns 0 to {width - 1}"
    return InputError(problem, "give the number of one of them, or name a feature table of one column")


@dataclass(frozen=True, kw_only=True)
class Neighbours(Checked):
    """How a node's neighbours are drawn; all of it is hashed."""

    # how a node's neighbours are drawn: uniform = each set of k equally likely; weighted = in proportion to `weights`; random_walk = the
    # nodes that short walks visit most; or your own "module:function"
    method: Literal["uniform", "weighted", "random_walk"] | str = "uniform"
    # number of neighbours that a node draws, one per layer, from the seeds outwards; -1 = all of them. An entry may be a table of
    # relation -> number, "*" being each other relation (assets/sampling/fanouts.py)
    fanouts: tuple[int | dict[str, int], ...]
    # with replacement: a node with neighbours draws exactly its fan-out, repeats included (uniform and weighted)
    replace: bool = field(default=False, metadata=LATER)
    # weighted: "edge" = the graph's edge weights; "node:COLUMN" = the weight of the edge's source, COLUMN being in_degree, out_degree, the
    # name of a feature table of one column ([features.COLUMN]), or the number of a column of the main feature table
    weights: str = field(default="edge", metadata=LATER)
    # weighted: result for a node whose neighbours all have the weight 0: error, uniform (as if all were equal), none (no neighbours)
    empty_rows: EmptyRows = field(default="error", metadata=LATER)
    # random_walk: number of paths that start at a node
    paths: int = field(default=4, metadata=LATER)
    # random_walk: number of steps per path
    length: int = field(default=3, metadata=LATER)
    # random_walk: probability that a path returns to its start before a step, above 0 and up to 1
    restart: float = field(default=0.5, metadata=LATER)
    # [task] kind = "links": draw of the pairs that an edge is compared with, which keep one of its ends and draw the other one: uniform =
    # each node equally likely; degree = in proportion to its number of edges to the power of 3/4; in_batch = the ends of the batch's
    # other edges, so that no node is added to the batch
    negatives: Literal["uniform", "degree", "in_batch"] = field(default="uniform", metadata=LATER)
    # [task] kind = "links": number of these pairs per edge; those of even number draw the target, the others the source
    per_positive: int = field(default=1, metadata=within(1, 1_000, hashed="unless default"))
    # [task] kind = "links": whether these pairs may be edges of the training split
    known_negatives: bool = field(default=False, metadata=LATER)

    # "seed" = a node's neighbours are those of edges that are earlier than the time of the seed above it, at every depth (uniform and
    # weighted). A node that stands below seeds of several times is computed as of each of them
    before: Literal["seed"] | None = field(default=None, metadata=LATER)
    # before: most time by which an edge is older than the seed, a number in the unit of the times; of dates a length such as "7d", with
    # the units s, min, h, d, w. None for no bound
    window: float | str | None = field(default=None, metadata=LATER)
    # before: which of these edges are drawn: uniform = each set of k equally likely; recent = the k latest
    choose: Literal["uniform", "recent"] = field(default="uniform", metadata=LATER)

    # how `samples` and `hotness` read the edges: sequential = passes in the order of the nodes, each for many batches; mapped = row by row,
    # at random; auto = sequential if the topology does not fit into half of the free memory. The batches are the same
    topology: Literal["auto", "sequential", "mapped"] = field(default="auto", metadata=UNHASHED)
    # memory of sequential passes, at least 64 MiB, beside the largest batch of each thread: more of it makes fewer passes. No more than
    # half of what is free is taken
    memory_limit: int | str = field(default="2GiB", metadata=UNHASHED)

    remedy = "for example: fanouts = [10, 5], batch_size = 1024, reuse = 0"

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the values outside their ranges, and keys that do not fit the method."""
        if self.method not in METHODS and not is_reference(self.method):
            yield KeyProblem("method", f"method = {self.method!r} is neither {', '.join(METHODS)} nor module:function")
        yield from fanout_problems(self.fanouts, "fanouts")
        if self.by_relation and self.method != "uniform":
            text = f"fanouts = {spelled(self.fanouts)} has numbers per relation, which are for method = 'uniform', not for {self.method!r}"
            yield KeyProblem("fanouts method", text)
        if self.weights != "edge" and not OF_NODES.fullmatch(self.weights):
            yield KeyProblem("weights", f'weights = {self.weights!r} is neither "edge" nor "node:COLUMN"')
        yield from self._walk_problems()
        yield from self._unused()
        yield from self._time_problems()
        yield from self._pass_problems()

    def _pass_problems(self) -> Iterator[KeyProblem]:
        """Yields the problems of sequential passes."""
        if self.topology == "sequential" and (reason := self.without_passes()):
            yield KeyProblem("topology", f"topology = 'sequential' is not for {reason}: leave it out")
        yield from size_problem("memory_limit", self.memory_limit, least=LEAST_MEMORY)

    def without_passes(self) -> str:
        """Returns the reason why no pass over the edges in order can draw the neighbours, "" if one can."""
        if self.method == "random_walk":
            return "method = 'random_walk': each step of a walk begins where the one before ended"
        if self.method not in METHODS:
            return f"method = {self.method!r}: your own function reads the topology itself"
        return "" if self.before is None else "before = 'seed': what a node draws depends on the seed above it"

    def _time_problems(self) -> Iterator[KeyProblem]:
        """Yields the problems of times."""
        if problem := length_problem("window", self.window):
            yield KeyProblem("window", problem)
        if self.before is None:
            for name, value in (("window", self.window), ("choose", self.choose if self.choose != "uniform" else None)):
                if value is not None:
                    yield KeyProblem(name, f"{name} = {value!r} is for before = 'seed': set it, or leave {name} out")
        elif self.method not in ("uniform", "weighted"):
            text = f"before = {self.before!r} is for method = 'uniform' or 'weighted', not for {self.method!r}"
            yield KeyProblem("before method", text)
        elif self.choose == "recent" and self.method == "weighted":
            text = "method = 'weighted' draws edges by their weights, and choose = 'recent' draws none: leave one of them out"
            yield KeyProblem("method choose", text)
        elif self.method == "weighted" and self.weights.partition(":")[2] in DEGREES:
            text = f"weights = {self.weights!r} counts edges later than a seed too, which before = {self.before!r} leaves out"
            yield KeyProblem("weights before", f'{text}: set weights = "edge", or name a feature table')
        elif self.choose == "recent" and self.replace:
            text = "replace = True takes edges several times, and choose = 'recent' draws none: leave one of them out"
            yield KeyProblem("replace choose", text)

    def _walk_problems(self) -> Iterator[KeyProblem]:
        """Yields the problems of the walks, those of an exact evaluation included."""
        found, most = walk_problems(self.paths, self.length, self.restart), MOST_VISITS // MORE_PATHS
        yield from (KeyProblem(text.partition(" ")[0], text) for text in found)
        if not found and self.paths * self.length > most:
            yield KeyProblem(
                "paths length",
                f"paths * length = {self.paths * self.length} visits are more than {most:,}: an exact evaluation takes "
                f"{MORE_PATHS} times as many, and at most {MOST_VISITS:,}",
            )

    def _unused(self) -> Iterator[KeyProblem]:
        """Yields keys that have no meaning for the method."""
        of = {
            "replace": ("uniform", "weighted"),
            **dict.fromkeys(("weights", "empty_rows"), ("weighted",)),
            **dict.fromkeys(("paths", "length", "restart"), ("random_walk",)),
        }
        for name, methods in of.items():
            value, default = getattr(self, name), self.__dataclass_fields__[name].default
            if value != default and self.method not in methods:
                needed = " or ".join(map(repr, methods))
                yield KeyProblem(
                    f"{name} method", f"{name} = {value!r} is for method = {needed}, not for {self.method!r}"
                )

    @property
    def by_relation(self) -> bool:
        """Whether a layer has fan-outs per relation."""
        return by_relation(self.fanouts)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fan-outs, none of which is per relation."""
        assert not self.by_relation
        return tuple(entry for entry in self.fanouts if not isinstance(entry, dict))

    @property
    def feature_table(self) -> str | None:
        """Name of the feature table with the weights, "" for the main one; None if no feature table has them."""
        return weight_table(self.weights) if self.method == "weighted" else None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Stages besides the graph whose artifacts decide the drawn neighbours."""
        return ("sampling_tables",) if self.method == "weighted" else ()


@dataclass(frozen=True, kw_only=True)
class FanoutStep:
    """Fan-outs from an epoch on."""

    # first training epoch with these fan-outs, counted from 1
    epoch: int
    # number of neighbours that a node draws, as in `fanouts`
    fanouts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Neighbours):
    """The `[sampling]` table; all of it is hashed."""

    # largest number of seeds per mini-batch; n seeds are cut into ceil(n / batch_size) nearly equal batches
    batch_size: int = field(default=1024, metadata=within(1))
    # K: training epoch e uses the samples of sampling epoch e mod K; 0 = every epoch draws its own
    reuse: int = field(default=0, metadata=within(0, MOST_STORED))
    # seed of the batches and of their neighbours, for trainings of several seeds on the same batches; not given = the seed of each training
    sampling_seed: int | None = field(default=None, metadata=within(0, hashed="unless default"))
    # other fan-outs from some epochs on, for trainers that sample while they train: a list of { epoch = E, fanouts = [...] }
    schedule: tuple[FanoutStep, ...] = field(default=(), metadata={"hashed": "unless default"})

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the values outside their ranges."""
        yield from super().problems()
        for step in self.schedule:
            yield from fanout_problems(step.fanouts, "schedule")
        epochs = [1, *(step.epoch for step in self.schedule)]
        if any(later <= earlier for earlier, later in pairwise(epochs)):
            yield KeyProblem("schedule", f"schedule has the epochs {epochs[1:]}, which do not ascend from 2")
        if any(len(step.fanouts) != len(self.fanouts) for step in self.schedule):
            text = f"schedule has fanouts of other lengths than fanouts = {spelled(self.fanouts)}"
            yield KeyProblem("schedule fanouts", text)
        if self.schedule and self.by_relation:
            text = f"schedule changes fan-outs, but fanouts = {spelled(self.fanouts)} has numbers per relation: leave one of them out"
            yield KeyProblem("schedule fanouts", text)
        if self.schedule and self.reuse:
            text = f"schedule changes fan-outs, but reuse = {self.reuse} takes the samples of earlier epochs again"
            yield KeyProblem("schedule reuse", text)

    def seed_of(self, seed: int) -> int:
        """Returns the seed of the batches and of their neighbours; `seed` is that of the training or of the pipeline."""
        return seed if self.sampling_seed is None else self.sampling_seed

    def without_weights(self) -> str:
        """Returns the reason why messages cannot be multiplied by the weights of drawn edges, "" if they can."""
        if self.method == "weighted" and self.weights == "edge":
            return 'method = "weighted" draws neighbours by these weights already, which would count twice'
        if self.method == "random_walk":
            return 'method = "random_walk" draws nodes that walks visit, and no edges with weights'
        return (
            "" if self.method in METHODS else f"method = {self.method!r} says itself what the weights of its edges are"
        )

    def without_relations(self) -> str:
        """Returns the reason why drawn edges have no relations, "" if they have those of the graph."""
        if self.method == "random_walk":
            return 'method = "random_walk" draws nodes that walks visit, which have none'
        if self.method in METHODS:
            return ""
        return f"method = {self.method!r} draws by your own function, whose edges have none"

    @property
    def largest_fanouts(self) -> tuple[Entry, ...]:
        """The largest fan-outs of the schedule, layer by layer."""
        if not self.schedule:
            return self.fanouts
        lists: list[tuple[Any, ...]] = [self.fanouts, *(step.fanouts for step in self.schedule)]
        return tuple(-1 if -1 in layer else max(layer) for layer in zip(*lists, strict=True))

    def fanouts_at(self, epoch: int) -> tuple[Entry, ...]:
        """Returns the fan-outs of a training epoch, counted from 0."""
        begun = [step.fanouts for step in self.schedule if step.epoch <= epoch + 1]
        return begun[-1] if begun else self.fanouts
