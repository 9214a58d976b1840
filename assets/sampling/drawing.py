"""Makes a sampler from a `[sampling]` table and the arrays that it needs, which are mapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from graphmill.assets.sampling.config import MORE_PATHS, Neighbours
from graphmill.assets.sampling.fanouts import Entry, relations_of, resolved
from graphmill.assets.storage.files.arrays import expect_random_reads, mapped_apart
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import read_vector
from graphmill.assets.storage.local.require import require
from graphmill.assets.storage.names.user_code import is_reference, load_reference
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.assets.tasks.lengths import length_size, require_dates
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import AliasTables
from graphmill.kernels.sampling.own_sampling import AnySampler, OwnSampler
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.walk import Walks, WalkSampler
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.temporal.sampler import TemporalSampler
from graphmill.kernels.types import Array, Topology

ARRAYS = ("indptr", "indices", "weights", "edge_types", "edge_ids", "edge_times")
"""Arrays of a topology that samplers read."""
NO_WHOLE = "before = 'seed' gives a node other neighbours below each seed"


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """The way neighbours are drawn, with its opened arrays.

    Attributes:
        neighbours: the keys of `[sampling]`.
        tables: alias tables of weighted sampling, mapped; else None.
        times: f64[N], the times of nodes as seeds, mapped; None unless `before` asks for them, and of a graph whose edges are the seeds.
        relations: names of the graph's relations, in the order of their numbers, which fan-outs may name.
    """

    neighbours: Neighbours
    tables: AliasTables | None = None
    times: Array | None = None
    relations: tuple[str, ...] = ()

    def with_fanouts(self, fanouts: tuple[Entry, ...]) -> Drawing:
        """Returns the same drawing with other fan-outs, one per layer."""
        words: dict[str, Any] = {each.name: getattr(self.neighbours, each.name) for each in fields(Neighbours)}
        words["fanouts"] = fanouts
        return replace(self, neighbours=Neighbours(**words))

    def sampler(self, topology: Topology, *, seed: int, threads: int = 1) -> AnySampler:
        """Returns the sampler of mini-batches: a fused kernel, or one around the user's own function.

        A mapped topology that is larger than the memory for it is mapped once more for the sampler, which reads rows at random;
        passes over the edges in order keep the mapping that reads ahead.

        Raises:
            InputError: the function does not exist, the graph lacks a relation of fanouts, or topology, tables or fanouts are not sound.
        """
        if (apart := _apart(topology)) is None:
            return self._sampler(topology, seed, threads)
        sampler = self._sampler(apart, seed, threads)  # looks through indptr in order, so what comes is said afterwards
        for array in _arrays(apart):
            expect_random_reads(array)
        if isinstance(sampler, Sampler):
            sampler.read_ahead()
        return sampler

    def _sampler(self, topology: Topology, seed: int, threads: int) -> AnySampler:
        how = self.neighbours
        if is_reference(how.method):
            return OwnSampler(topology, how.numbers, load_reference(how.method), seed=seed, name=how.method)
        if how.method == "random_walk":
            return WalkSampler(topology, self.walks(), how.numbers, seed=seed, threads=threads)
        if how.before is not None:
            more: dict[str, Any] = {
                "choose": how.choose,
                "replace": how.replace,
                "tables": self.tables,
                "empty": how.empty_rows,
            }
            more |= {} if how.window is None else {"window": length_size(how.window)}
            fanouts = resolved(how.fanouts, self.relations)
            return TemporalSampler(topology, fanouts, seed=seed, times=self.times, **more)
        if self.tables is not None:
            return WeightedSampler(topology, self.tables, how.numbers, seed=seed, replace=how.replace, threads=threads)
        return Sampler(topology, resolved(how.fanouts, self.relations), seed=seed, replace=how.replace, threads=threads)

    def whole(self, topology: Topology, layers: int, *, threads: int = 1) -> Sampler:
        """Returns the sampler of exact evaluation, whose blocks of `layers` layers hold the whole neighbourhood that it uses.

        That is every neighbour with weight, in its share of the weighted mean; for walks, the nodes that ten times the paths visit most,
        always the same; else, also for users' functions, every neighbour.

        Raises:
            InputError: the topology or the tables are not sound, or neighbours depend on the times of seeds.
        """
        if self.neighbours.before is not None:
            raise InputError(f"{NO_WHOLE}, and this is exact", 'ask for drawn neighbours: eval = "sampled"')
        if self.neighbours.method == "random_walk":
            walks = self.walks(MORE_PATHS)
            return WalkSampler(topology, walks, (self._most_sources,) * layers, seed=0, threads=threads)
        if self.tables is not None:
            return WeightedSampler(topology, self.tables, (-1,) * layers, seed=0, threads=threads)
        return Sampler(topology, (-1,) * layers, seed=0, threads=threads)

    @property
    def most_evaluated(self) -> int | None:
        """Largest number of edges of a node in exact evaluation, None if it is the in-degree."""
        if self.neighbours.method != "random_walk":
            return None
        visits = self.neighbours.paths * MORE_PATHS * self.neighbours.length
        return visits if self._most_sources < 0 else min(self._most_sources, visits)

    @property
    def _most_sources(self) -> int:
        """The largest fanout of walks."""
        return -1 if -1 in self.neighbours.numbers else max(self.neighbours.numbers)

    def walks(self, times: int = 1) -> Walks:
        """Returns the parameters of the walks, with `times` times the paths."""
        how = self.neighbours
        return Walks(paths=how.paths * times, length=how.length, restart=how.restart)


def _arrays(topology: Topology) -> list[Array]:
    """Returns the arrays of a topology that samplers read."""
    return [array for name in ARRAYS if (array := getattr(topology, name)) is not None]


def _apart(topology: Topology) -> Topology | None:
    """Returns another mapping of a mapped topology that is larger than the memory for it, None of any other."""
    if not isinstance(topology.indices, np.memmap) or fits_memory(sum(array.nbytes for array in _arrays(topology))):
        return None
    mapped = {name: array for name in ARRAYS if (array := getattr(topology, name)) is not None}
    return replace(topology, **{name: mapped_apart(array) for name, array in mapped.items()})


def open_drawing(
    neighbours: Neighbours | None, inputs: Mapping[str, Artifact], *, compared: bool = True
) -> Drawing | None:
    """Returns the way neighbours are drawn; None if none are drawn.

    Args:
        inputs: role -> artifact; the tables of weighted sampling are among them.
        compared: whether tables are compared with their digests here; False for readers that compare what they read.

    Raises:
        InputError: the tables are of another graph, or damaged, or fanouts names a relation that the graph lacks.
    """
    if neighbours is None:
        return None
    graph, relations = inputs["graph"], relations_of(inputs["graph"])
    resolved(neighbours.fanouts, relations)
    times = None if neighbours.before is None else _open_times(neighbours, graph)
    tables = None
    if "sampling_tables" in neighbours.inputs:
        tables = open_tables(inputs["sampling_tables"], graph, compared)
    return Drawing(neighbours=neighbours, tables=tables, relations=relations, times=times)


def _open_times(neighbours: Neighbours, graph: Artifact) -> Array | None:
    """Opens the times of nodes; None if edges are the seeds.

    Raises:
        InputError: the graph has no times, or those of edges are no dates and the window is a length.
    """
    of_seeds = [name for name in ("node_times", "link_times") if f"{name}.npy" in graph.files]
    if "edge_times.npy" not in graph.files or not of_seeds:
        problem = f"before = {neighbours.before!r}, and {graph.label} has no times"
        raise InputError(problem, "build it from a pipeline whose [sampling] has `before`")
    require_dates("window", neighbours.window, graph.summary["numbers"]["edge_times"])
    return graph.array("node_times") if "node_times" in of_seeds else None


def open_tables(artifact: Artifact, graph: Artifact, compared: bool = True) -> AliasTables:
    """Opens the alias tables of a graph; the table is mapped, `support` is read and compared with its digest.

    Args:
        compared: whether the table is compared with its digest, too.

    Raises:
        InputError: the tables are of another graph, or lack an array of the stage.
    """
    num_edges = graph.files["indices.npy"]["shape"][0]
    table = {"dtype": "uint32", "ndim": 2, "shape": (num_edges, 2)}
    require(artifact, {"stage": "sampling_tables", "arrays": {"table": table}, "inputs": {"graph": graph}})
    support = read_vector(artifact, "support") if "support.npy" in artifact.files else None
    return AliasTables(table=artifact.array("table", verified=compared), support=support)
