"""One training before it starts: its recipe, the sizes that it meets, and whatever else is known of its course.

`Case` is what every formula gets: those of memory (memory.py), and those of a technique's bytes and seconds (`Costs`, forecast.py). A need
knows the recipe and sizes alone, and adds up bounds. A forecast also has some drawn batches, the order and the counts of hotness, the parts
of nodes, and `Speeds`, the measured seconds of the pieces of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.assets.storage.system.machine import anonymous_bytes, usable_cores
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.sampling.epoch_plan import Plan
from graphmill.kernels.types import Array
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.batch import BatchSizes, DrawnBatches
from graphmill.trainers.recipe.costs.edge_rows import edge_row_bytes, listed_bytes, rows_of_batch
from graphmill.trainers.recipe.costs.step import item_bytes, transposed_layers
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.queue_bytes import most_batches, prepared_in_turn, queue_bounds
from graphmill.trainers.recipe.techniques import find_technique

WAITING_BYTES = 122 << 20
"""The step that waits for the training, and what Dagster and the guard start beside both."""
KERNEL_BYTES = 4 << 20
"""What the kernel keeps for a process beside its pages, tables of pages above all; a control group counts it as used."""


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Measured seconds of the pieces of a batch, on this machine, of one recipe and one graph.

    Attributes:
        step: threads -> seconds of a training step on a mean batch, with its update.
        handed: threads -> the same right after another thread has prepared the batch: its threads wake on cores that were in use, and
            a step of a few milliseconds takes up to 1.7 times as long.
        draw: threads -> seconds of drawing it, with the transposes that the model needs.
        gather: threads -> seconds of gathering its input rows from a mapped table.
        transpose: seconds of its transposes on one thread.
        prune: seconds of pruning it on one thread; 0 if that was not measured.
        layers: threads -> seconds of a forward and a backward pass over all nodes and edges in chunks, scaled from one of them; empty
            likewise.
        whole: threads -> the same in one piece, in which each node is a source once.
        visit: parts -> seconds of a chunk in both passes of all layers apart from its edges and rows; empty likewise.
        edges: mean number of edges of the measured batches, or of the graph if passes over it were measured.
        inputs: mean number of their input rows.
        exact_rows, exact_edges: seconds of an exact evaluation for each input column of a row, and for each summed column of an edge,
            with all threads and everything in memory (`row_elements`, `edge_elements`); 0 if that was not measured.
        compare: seconds of comparing a link with a candidate for its end, on all threads; 0 if that was not measured.
        start: seconds until a training opens its data: the command, and the imports of the process that trains.
        disk_rate: bytes that the disk of the home reads per second in order, past the page cache.
        write_rate: bytes that it writes per second in order; 0 if that was not measured.
        pages_rate: bytes of scattered pages that it reads per second, one request for each; 0 if that was not measured.
        faults_rate: bytes of scattered pages of a mapped file that one thread reads per second if none of them is in memory; 0 likewise.
        copy_rate: bytes that one thread copies per second.
        call: seconds of an exchange of nothing between two processes of this machine.
        rank_rate: bytes that each of them receives per second in an exchange.
    """

    step: Mapping[int, float] = field(default_factory=dict)
    handed: Mapping[int, float] = field(default_factory=dict)
    draw: Mapping[int, float] = field(default_factory=dict)
    gather: Mapping[int, float] = field(default_factory=dict)
    transpose: float = 0.0
    prune: float = 0.0
    layers: Mapping[int, float] = field(default_factory=dict)
    whole: Mapping[int, float] = field(default_factory=dict)
    visit: Mapping[int, float] = field(default_factory=dict)
    edges: float = 0.0
    inputs: float = 0.0
    exact_rows: float = 0.0
    exact_edges: float = 0.0
    compare: float = 0.0
    start: float = 0.0
    disk_rate: float = 0.0
    write_rate: float = 0.0
    pages_rate: float = 0.0
    faults_rate: float = 0.0
    copy_rate: float = 0.0
    call: float = 0.0
    rank_rate: float = 0.0

    def request(self) -> float:
        """Returns the seconds of a request to the disk apart from its bytes."""
        if not self.pages_rate or not self.disk_rate:
            return 0.0
        return max(0.0, PAGE_BYTES / self.pages_rate - PAGE_BYTES / self.disk_rate)

    def at(self, piece: str, threads: int) -> float:
        """Returns the seconds of a piece on a number of threads, by the nearest measured number.

        Args:
            piece: "step", "handed", "draw", "gather", "layers", "whole" or "visit".
            threads: the number; of "visit" the number of parts.
        """
        found: Mapping[int, float] = getattr(self, piece)
        if not found:
            return 0.0
        return found[min(found, key=lambda each: (abs(each - threads), each))]


class Scored(NamedTuple):
    """Counts of an evaluation.

    Attributes:
        parts: numbers of nodes that are scored apart from each other if the evaluation is sampled.
        rows: rows of each layer of an exact evaluation: rows[0] are read from the features, rows[l + 1] are the outputs of layer l.
        in_order: rows of the features that are read in order, wanted or between wanted ones.
        compared: candidates of all links, with which these are compared for their ranks.
    """

    parts: tuple[int, ...]
    rows: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    in_order: float = 0.0
    apart: float = 0.0
    compared: float = 0.0

    def times(self, factor: float) -> Scored:
        """Returns the counts on a graph that is larger by a factor."""
        rows, edges = (tuple(factor * each for each in found) for found in (self.rows, self.edges))
        parts = tuple(round(factor * each) for each in self.parts)
        return Scored(parts, rows, edges, factor * self.in_order, factor * self.apart, factor**2 * self.compared)


@dataclass(frozen=True, kw_only=True)
class CountedVisits:
    """Visits of nodes in a number of batches.

    Attributes:
        order: ids[N], nodes by falling hotness.
        visits: numbers[N], batches that read the node's row.
        layer_visits, layer_inputs: numbers[L-1, N], batches in which layer l has the node, and inputs under it, summed over them.
    """

    num_batches: int
    order: Array
    visits: Array
    layer_visits: Array
    layer_inputs: Array


def _free_bytes() -> int | None:
    """Returns the bytes that are free without this process: it trains, or it ends or waits before another one does."""
    free = free_bytes()
    return None if free is None else free + (anonymous_bytes() or 0) + KERNEL_BYTES


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training, and what is known of it before it starts.

    Attributes:
        sizes: what is known of the graph and of the artifacts that it reads.
        batch: sizes of the largest batch, bounded or of drawn ones.
        ranks: number of processes on this machine that share it.
        plan: the order of batches; None if nothing is sampled, or nothing was drawn.
        drawn: drawn batches; None likewise, and of a user's own sampling function.
        order: ids[N], nodes by falling hotness, if the training caches rows by it or has packed ones; else None.
        cached: whether a cache stands before the table of rows.
        counted: counts of visits by layer, for a history of embeddings; None if they are not known.
        part_of: i32[N], part of each node, for a training by parts; else None.
        row_of: ids[N], row of each node, -1 for none; None if nodes are rows.
        fits: whether the feature table fits into the memory that is free, so that features = "auto" maps it.
        edges_fit: whether the rows of edges do.
        stand_in: whether batches are drawn of a smaller graph than the one that is trained on.
        valid, final: counts of an evaluation between epochs, and of that at the end; None if they were not counted.
        cores: cores that the training may use.
        waiting: bytes of the processes that wait for it.
        free: bytes that are free without this process, None if the system does not say.
        speeds: measured seconds; while pieces are measured the rates of the machine alone; None if nothing was measured.
        shared: key -> result that several formulas need; of this case alone, `replace` starts with none.
    """

    semantic: ModelConfig
    execution: TrainExecution
    sizes: Sizes
    batch: BatchSizes
    ranks: int = 1
    plan: Plan | None = None
    drawn: DrawnBatches | None = None
    order: Array | None = None
    cached: bool = False
    counted: CountedVisits | None = None
    part_of: Array | None = None
    row_of: Array | None = None
    fits: bool = True
    edges_fit: bool = True
    stand_in: bool = False
    exact_evaluation: bool = False
    valid: Scored | None = None
    final: Scored | None = None
    cores: int = 1
    waiting: int = WAITING_BYTES
    free: int | None = field(default_factory=_free_bytes)
    speeds: Speeds | None = None
    shared: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def artifacts(self) -> Mapping[str, Artifact]:
        """The artifacts that exist."""
        return self.sizes.artifacts

    @property
    def settings(self) -> Any:
        """The technique's own settings."""
        return self.semantic.train.own_settings

    @property
    def num_classes(self) -> int:
        """Number of logits, or columns of a row by which links are scored; 2 if the classes are not known."""
        return self.semantic.train.output_width(max(2, self.sizes.num_classes))

    @property
    def feature_place(self) -> str:
        """The place that the feature table is read from: "memory", "mapped" or "direct"."""
        where = self.execution.features
        return where if where != "auto" else "mapped" if self.fits else "direct"

    @property
    def num_evaluations(self) -> int:
        """Number of evaluations between epochs, if the training does not stop early; 0 without validation nodes."""
        train = self.semantic.train
        on_the_way = train.epochs // train.eval_every if train.eval_every else 0
        last = not train.eval_every or train.epochs % train.eval_every > 0
        return (on_the_way + last) * bool(self.sizes.num_valid)

    @property
    def stored(self) -> bool:
        """Whether batches are read instead of drawn."""
        return self.execution.samples == "stored" or find_technique(self.semantic.train.trainer).stored

    @property
    def samplers(self) -> int:
        """Number of threads that sample or read ahead of the step, on each rank: ranks of a machine share its cores."""
        return self.execution.samplers or max(1, usable_cores() // max(1, self.ranks) - 1)

    @property
    def threads(self) -> int:
        """The threads of a trainer; all cores if the table leaves them to the machine."""
        threads = self.semantic.train.threads
        return self.cores if isinstance(threads, str) else threads

    @property
    def may_be_in_turn(self) -> bool:
        """Whether batches are prepared one by one between the steps, if their rows turn out to be at hand."""
        drawn = not self.stored and prepared_in_turn(self.semantic.train, self.execution)
        return drawn and self.ranks == 1 and self.semantic.train.device == "cpu"

    @property
    def in_turn(self) -> bool:
        """Whether all threads prepare each batch just before its step: rows are at hand, and no modelled link is in front of them."""
        at_hand = (self.execution.features == "memory" or self.fits) and self.execution.link_gbps is None
        at_hand = at_hand and (self.edges_fit or not self.semantic.train.edge_features)
        turns = prepared_in_turn(self.semantic.train, self.execution)
        return at_hand and self.ranks == 1 and turns

    @property
    def stores_evaluation(self) -> bool:
        """Whether the batches of an evaluation may be read: they are stored, so that threads read ahead of it."""
        if "samples" in self.artifacts:
            return bool(self.artifacts["samples"].config.get("evaluate"))
        config = self.sizes.configs.get("samples")
        return config is not None and config.evaluate

    @property
    def queue_bytes(self) -> int:
        """Bytes of the run's queue, once it has grown for this batch."""
        return self.shared_bytes(1, self.batch_bytes)

    def shared_bytes(self, parts: int, each: int) -> int:
        """Returns the bytes of one of several queues that share the run's, once it has grown for items of `each` bytes.

        With little memory it grows less. That is not counted, so that more memory never makes a need larger.
        """
        return max(queue_bounds(self.execution.queue)[0] // parts, 2 * each)

    @property
    def row_bytes(self) -> int:
        """Bytes of an input row on the device."""
        return self.sizes.width * item_bytes(self.semantic.train)

    @property
    def block_bytes(self) -> int:
        """Bytes of the blocks of the largest batch."""
        edges = listed_bytes(self.batch, self.sizes) if self.semantic.train.edge_features else 0
        return self.batch.block_bytes(self.sizes.id_bytes, transposed_layers(self.semantic.train)) + edges

    @property
    def edge_bytes(self) -> int:
        """Bytes of the rows of the edges of the largest batch."""
        return rows_of_batch(self.batch, self.sizes) * edge_row_bytes(self.semantic.train, self.sizes)

    @property
    def batch_bytes(self) -> int:
        """Bytes of the largest batch, its blocks, its input rows and the rows of its edges."""
        return self.batch.inputs * self.row_bytes + self.edge_bytes + self.block_bytes

    def held(self, limit: int, each: int, most: int) -> int:
        """Returns how many batches of `each` bytes wait within a bound, at least 1 and at most `most` or those of an epoch."""
        return max(1, min(self.batch.count, most, limit // max(1, each)))

    def held_ahead(self, most: int, lanes: int = 0) -> int:
        """Returns how many whole batches are prepared, wait or are trained on at once, at most `most`; `lanes` gather, 0 for all."""
        bound = most_batches(self.execution.queue, lanes or self.samplers, self.batch_bytes)
        return max(1, min(most, bound, self.queue_bytes // max(1, self.batch_bytes)))

    def with_rows(self, node_ids: Array) -> Array:
        """Returns the nodes that have a row, of ids[n]."""
        return node_ids if self.row_of is None else node_ids[self.row_of[node_ids] >= 0]
