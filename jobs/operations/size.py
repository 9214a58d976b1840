"""How big the work of a pipeline is: which steps get processes of their own or a slot of the pool `memory`, and what is asked about first.

Everything is judged by the pipeline file and the sizes of the files that it names, without opening one, because Dagster asks whenever it
loads the definitions. The bytes of samples and packed chunks are an upper bound.

A work is asked about that would take more than a week, or far more than this machine's memory. The estimate is a lower bound. It finds
slips of the keyboard, such as an epoch count or a graph with three zeros too many; it does not predict the work. Only the command line
asks; runs of the web UI and of schedules begin.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from math import ceil
from operator import mul

import click

from graphmill.assets.costs.needs import COMMAND, Need, Sizes
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.bounds import batch_bound
from graphmill.assets.sampling.fanouts import least_drawn
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.generated import generators
from graphmill.assets.storage.names.patterns import bytes_named
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.kernels.errors import InputError

BIG_EDGES = 20_000_000
BIG_FILE_BYTES = 256 << 20
BIG_BUILD_BYTES = 2 << 30
LEAST_EDGE_BYTES = 16
"""Bytes of an edge in a file of arrays; a file of n bytes has at most n / 16 nodes that matter."""
LIGHT = ("budgets",)
"""Stages whose work takes little memory on every graph."""


def is_big(pipeline: Pipeline) -> bool:
    """Tells whether a step that builds should have a process of its own: graph, files, samples or packed chunks are large."""
    edges = getattr(pipeline.graph, "edges", 0)
    if isinstance(edges, int) and edges >= BIG_EDGES:
        return True
    return raw_bytes(pipeline) >= BIG_FILE_BYTES or built_bytes(pipeline) >= BIG_BUILD_BYTES


def has_processes(pipeline: Pipeline, builds: bool) -> bool:
    """Tells whether a command gives each step a process: a training has one of its own, for which the command itself can wait.

    Args:
        builds: whether data are built, and not models alone.
    """
    return builds and is_big(pipeline)


def waited_for(pipeline: Pipeline, need: Need | None, builds: bool) -> Need | None:
    """Returns the need of a step, with the command that waits for it if steps have processes (`has_processes`)."""
    return need.beside(COMMAND) if need is not None and has_processes(pipeline, builds) else need


def takes_memory(pipeline: Pipeline, stage: str) -> bool:
    """Tells whether a stage's step takes a slot of the pool `memory`: big stages run one at a time, so that two do not share the memory."""
    return stage not in LIGHT and is_big(pipeline)


def raw_bytes(pipeline: Pipeline) -> int:
    """Returns the bytes of all files that a pipeline reads from outside: those of a folder or a pattern added up."""
    tables = pipeline.tables.get("features")
    named = [] if tables is None else [tables, *getattr(tables, "named", {}).values(), getattr(tables, "main", None)]
    return bytes_named(pipeline.graph, *named)


def file_sizes(pipeline: Pipeline) -> Sizes:
    """Returns the most that the pipeline file alone tells of a graph: that of a generator, or as much as its files have bytes for."""
    graph, most = pipeline.graph, raw_bytes(pipeline) // LEAST_EDGE_BYTES
    found = {name: getattr(graph, name, 0) for name in ("nodes", "edges", "features")}
    nodes, edges, width = (each if isinstance(each, int) else 0 for each in found.values())
    return Sizes(
        num_nodes=nodes or most,
        num_edges=edges * (1 + bool(getattr(graph, "undirected", False))) or most,
        num_train=max(1, int(nodes * getattr(graph, "train_ratio", 1.0))) if nodes else most,
        width=width,
        row_bytes=4 * width,
    )


def built_bytes(pipeline: Pipeline) -> int:
    """Returns an upper bound of the bytes of samples and packed chunks of all sample sets; every node counts as a seed."""
    return sum(map(_built_bytes, pipeline.by_sample_set))


def _built_bytes(pipeline: Pipeline) -> int:
    samples, sampling, sizes = pipeline.table("samples"), pipeline.sampling, file_sizes(pipeline)
    if samples is None or sampling is None or not sizes.num_nodes:
        return 0
    batch = min(sizes.num_nodes, sampling.batch_size)
    bound = batch_bound(sampling, batch, sizes)
    packed = bound.inputs * sizes.row_bytes * (pipeline.table("packed") is not None)
    epochs = (samples.epochs or sampling.reuse or 1) + samples.evaluate
    return epochs * ceil(sizes.num_nodes / batch) * (bound.record_bytes + packed)


MOST_SECONDS = timedelta(weeks=1).total_seconds()
MOST_MEMORIES = 16
"""Factor on the machine's memory above which the bytes that a work stores are asked about."""
STEP_SECONDS, EDGES_PER_SECOND = 0.0005, 1e9
"""Seconds of an optimiser step, and neighbours drawn and read per second: faster than any machine."""


@dataclass(frozen=True, kw_only=True)
class WorkEstimate:
    """The least that a pipeline takes: bytes of its graph and features in the store, and seconds of training."""

    stored_bytes: int
    seconds: float

    def problems(self, memory: int) -> list[str]:
        """Returns the numbers that are large enough to ask about, in words."""
        found = []
        if self.seconds > MOST_SECONDS:
            found.append(f"the trainings take at least {self.seconds / 86400:,.0f} days")
        if self.stored_bytes > MOST_MEMORIES * memory:
            times = self.stored_bytes / memory
            found.append(
                f"graph and features take about {format_bytes(self.stored_bytes)}, {times:,.0f} times the memory of this machine"
            )
        return found


def ask_about(pipeline: Pipeline, *, trains: bool, yes: bool) -> None:
    """Asks whether a large work is meant; returns if it is, or if the work is not large.

    Raises:
        InputError: the work is large, and no terminal is there to answer.
        click.Abort: the answer was no.
    """
    problems = [] if yes else least_work(pipeline, trains=trains).problems(memory_bytes())
    if not problems:
        return
    text = "; ".join(problems)
    if not sys.stdin.isatty():
        raise InputError(text, "give --yes if it is meant, or lower the numbers; graphmill inspect says what data take")
    click.confirm(f"{text}. Go on?", abort=True, err=True)


def least_work(pipeline: Pipeline, *, trains: bool) -> WorkEstimate:
    """Returns the least that a pipeline takes."""
    config, sizes, stored = pipeline.graph, Sizes(num_nodes=0, num_edges=0, num_train=1), raw_bytes(pipeline)
    if isinstance(config, generators.GeneratedConfig):
        # A bound for graphs with types, too; of files nothing is known for certain but their bytes.
        sizes, stored = file_sizes(pipeline), generators.GeneratedConfig.survey(config).stored_bytes
    return WorkEstimate(stored_bytes=stored, seconds=_training_seconds(pipeline, sizes) if trains else 0.0)


def _training_seconds(pipeline: Pipeline, sizes: Sizes) -> float:
    """Returns the least seconds of all trainings on a graph of these sizes; 0 edges if they are unknown."""
    edges, seeds, total = sizes.num_edges, sizes.num_train, 0.0
    for table in pipeline.train:
        sampling = pipeline.sampling_of(table)
        models = max(1, len(table.seeds)) * max(1, len(pipeline.splits))
        if table.technique.whole_graph or sampling is None:
            per_epoch = max(STEP_SECONDS, edges * table.layers / EDGES_PER_SECOND)
        else:
            fanouts = table.fanouts or sampling.fanouts
            drawn = sum(accumulate((max(least_drawn(fanout), 1) for fanout in fanouts), mul))
            # A batch draws each edge of a layer once at most.
            per_batch = min(sampling.batch_size * drawn, edges * len(fanouts))
            per_epoch = ceil(seeds / sampling.batch_size) * max(STEP_SECONDS, per_batch / EDGES_PER_SECOND)
        # The early stop may end it sooner; the question is about the numbers as written.
        total += models * table.epochs * per_epoch
    return total
