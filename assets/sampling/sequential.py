"""Neighbour sampling of many batches by passes over a topology that is larger than the memory.

Draws are keyed by (seed, stream, epoch, step, layer, node), so a node's neighbours may be drawn in any order. Layer by layer from the seeds
outwards, the nodes of a group of batches are sorted, and one ascending pass over the compressed columns answers all of them
(assets/sampling/edge_windows.py): large direct reads in place of a page per row, and no block without an asked row. What is drawn is
written to disk (assets/sampling/spill.py). Then the batches are put together one at a time, their nodes are renamed as in memory
(kernels/sampling/sample_layer.py), and the new sources belong to the nodes of the next layer. The blocks have the bytes of `Sampler` and
`WeightedSampler`, whatever the groups are.

A group takes the batches whose nodes fit into half of `memory_limit`; a quarter is for windows, and a quarter for drawn edges that are not
written. So a layer of a group is one pass, and reads the topology at most once.

Source: after AGNES (KDD 2026), which answers a thousand batches per pass by blocks of storage, but draws by block, so that batches depend
on the layout. External sorting of requests is the textbook way.

Memory: `memory_limit`, and per thread the largest batch: its drawn edges twice, 16 bytes per edge of its largest layer and 32 per input;
the longest row, if it is longer than a window, twice. Disk, of all batches: the bytes of the largest count per node and layer, those of the
largest id per edge, and what else blocks have per edge. Not for walks, whose steps depend on each other, for users' functions, and for
neighbours as of times.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphmill.assets.building.ordered import in_order
from graphmill.assets.building.stage import Progress
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sampling.edge_windows import EdgeWindows, Window
from graphmill.assets.sampling.fanouts import resolved
from graphmill.assets.sampling.passes import EDGE_ARRAYS, FACTS, granted_bytes, window_bytes
from graphmill.assets.sampling.spill import Spill, SpillColumn
from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.relations import most_of_row
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.sampling.sample_layer import LayerSampler, Renamer
from graphmill.kernels.types import Array, BatchKey, Block


class Frontier(NamedTuple):
    """A batch of a group: its number, its key, and ids[n], the nodes of a layer, ascending."""

    number: int
    key: BatchKey
    nodes: Array


class SequentialDraws:
    """Draws batches by passes; a context, in which `samplers` give the batches.

    Args:
        inputs: role -> artifact: the graph, and tables for weighted sampling.
        folder: scratch folder for the drawn edges.
        memory_bytes: bytes of the nodes of a group and of windows; None for what the drawing's `memory_limit` grants.
        edges: whether blocks have the weights, types and ids of edges that the graph has.

    Attributes:
        passes: number of passes over the topology.
        groups: number of groups of batches of each layer, from the seeds outwards.
    """

    def __init__(
        self,
        drawing: Drawing,
        inputs: Mapping[str, Artifact],
        *,
        seed: int,
        folder: Path,
        threads: int,
        edges: bool,
        memory_bytes: int | None = None,
    ):
        how, graph = drawing.neighbours, inputs["graph"]
        limit = granted_bytes(how) if memory_bytes is None else memory_bytes
        self.fanouts, self.threads, self.folder = resolved(how.fanouts, drawing.relations), threads, folder
        self._degrees = graph.array("in_degree")
        self._longest = int(self._degrees.max(initial=0))
        self._most_bytes, self._held_bytes = limit // 2, limit // 4 // len(self.fanouts)
        less = limit < parse_size(how.memory_limit)
        self._remedy = "give the process more memory" if less else "raise memory_limit in [sampling]"
        self._layers = [
            LayerSampler(fanout, layer, seed=seed, replace=how.replace)
            for layer, fanout in zip(reversed(range(len(self.fanouts))), self.fanouts, strict=True)
        ]
        names = [name for name in EDGE_ARRAYS if edges and f"{name}.npy" in graph.files]
        by_relation = any(not isinstance(fanout, int) for fanout in self.fanouts)
        read = sorted({*names, *(("edge_types",) if by_relation else ())})
        tables = inputs.get("sampling_tables") if drawing.tables is not None else None
        support = drawing.tables.support if drawing.tables is not None else None
        self.windows = EdgeWindows(graph, read, tables=tables, support=support, window_bytes=window_bytes(limit))
        self._require_rows(graph, limit // 4)
        self._id_type = np.dtype(graph.files["indices.npy"]["dtype"])
        self._names, self._weighted, self._replaces = names, tables is not None, how.replace
        self._spills: list[Spill] = []
        self._numbers: dict[tuple[BatchKey, bytes], int] = {}
        self.passes, self.groups, self._seconds = 0, [0] * len(self.fanouts), 0.0
        self._spilled_bytes, self._spill_read_bytes = 0, 0  # of spills that are closed

    def __enter__(self) -> SequentialDraws:
        return self

    def __exit__(self, *_: object) -> None:
        self.windows.close()
        self._close_spills()

    def draw(self, batches: Sequence[tuple[BatchKey, Array]], progress: Progress) -> None:
        """Draws the neighbours of all layers.

        Args:
            batches: key and seeds ids[b] of each batch; equal ones are drawn once. Those that were drawn before are forgotten.

        Raises:
            InputError: the graph is damaged, the memory limit is too small for a batch, or the disk is too small for the drawn edges.
        """
        self._close_spills()
        named = {self._name(*batch): batch for batch in batches}
        self._numbers, batches = {name: number for number, name in enumerate(named)}, list(named.values())
        for place in range(len(self.fanouts)):
            path = self.folder / f"layer-{place}"
            self._spills.append(Spill(path, len(batches), *self._columns(place), self._held_bytes))
            for group in self._grouped(place, batches):
                self._require_disk(place, group)
                self._pass(place, group, progress)
            self._spills[place].finish()

    def facts(self) -> dict[str, Any]:
        """Returns the numbers of passes and groups so far, their seconds, bytes that they read and spilled, and those read of spills."""
        spilled = self._spilled_bytes + sum(each.num_bytes for each in self._spills)
        read_back = self._spill_read_bytes + sum(each.read_bytes for each in self._spills)
        found = self.passes, self.groups, round(self._seconds, 3), self.windows.read_bytes, spilled, read_back
        return dict(zip(FACTS, found, strict=True))

    def samplers(self) -> list[SpilledSampler]:
        """Returns a sampler of the drawn batches for each thread."""
        return [SpilledSampler(self) for _ in range(self.threads)]

    def blocks(self, renamer: Renamer, key: BatchKey, seeds: Array, layers: int) -> tuple[list[Block], Array]:
        """Returns the blocks of the first layers of a batch, from the seeds outwards, and ids[n], all of its nodes so far."""
        number, nodes, blocks = self._numbers[self._name(key, seeds)], np.asarray(seeds, self._id_type), list[Block]()
        renamer.begin(nodes)
        for spill in self._spills[:layers]:
            counts, edges = spill.read(number)
            block, places = renamer.block(counts, edges.pop("sources"), np.argsort(nodes))
            for name, values in edges.items():
                setattr(block, name, values[places])
            blocks.append(block)
            nodes = block.src_ids
        return blocks, nodes

    def renamer(self) -> Renamer:
        """Returns a renamer for one thread."""
        return Renamer(self.windows.num_nodes, self._id_type)

    def _name(self, key: BatchKey, seeds: Array) -> tuple[BatchKey, bytes]:
        """Returns what names a batch: those of validation and test nodes have the same keys."""
        return key, np.asarray(seeds, self._id_type).tobytes()

    def _close_spills(self) -> None:
        """Gives the space of the drawn edges back."""
        for each in self._spills:
            self._spilled_bytes += each.num_bytes
            self._spill_read_bytes += each.read_bytes
            each.close()
        self._spills = []

    def _columns(self, place: int) -> tuple[SpillColumn, dict[str, SpillColumn]]:
        """Returns the column of the counts of a layer, and name -> column of what is kept per drawn edge."""
        most = most_of_row(self.fanouts[place])
        columns = {"sources": SpillColumn.of(self._id_type, self.windows.num_nodes - 1)}
        columns |= {EDGE_ARRAYS[name]: SpillColumn.of(self.windows.type_of(name)) for name in self._names}
        columns |= {"share": SpillColumn.of(np.dtype(np.float32))} if self._weighted else {}
        return SpillColumn.of(np.dtype(np.int32), self._longest if most < 0 else most), columns

    def _grouped(self, place: int, batches: Sequence[tuple[BatchKey, Array]]) -> Iterator[list[Frontier]]:
        """Yields the groups of a layer; the nodes of the batches of one group are in memory."""
        group, size = list[Frontier](), 0
        for asked in in_order([self._asker(place) for _ in range(self.threads)], batches):
            if asked.nodes.nbytes > self._most_bytes:
                problem = (
                    f"the nodes of a batch take {format_bytes(asked.nodes.nbytes)} in a layer, and memory_limit leaves "
                )
                raise InputError(problem + format_bytes(self._most_bytes), self._remedy)
            if size + asked.nodes.nbytes > self._most_bytes:
                yield group
                group, size = [], 0
            group.append(asked)
            size += asked.nodes.nbytes
        if group:
            yield group

    def _asker(self, place: int) -> Callable[[tuple[BatchKey, Array]], Frontier]:
        """Returns the function from a batch to the nodes whose neighbours it asks for in a layer."""
        renamer = self.renamer()

        def ask(batch: tuple[BatchKey, Array]) -> Frontier:
            key, seeds = batch
            _, nodes = self.blocks(renamer, key, seeds, place)
            return Frontier(self._numbers[self._name(key, seeds)], key, np.sort(nodes))

        return ask

    def _pass(self, place: int, group: Sequence[Frontier], progress: Progress) -> None:
        """Answers a group by one pass over the topology."""
        progress.note(f"layer {place + 1} of {len(self.fanouts)}, pass {self.groups[place] + 1}")
        self.passes, self.groups[place] = self.passes + 1, self.groups[place] + 1

        def asked_in(low: int, high: int) -> Array:
            marks = np.zeros(high - low, bool)
            for asked in group:
                marks[_between(asked.nodes, low, high) - low] = True
            return marks

        started = time.perf_counter()
        with ThreadPoolExecutor(self.threads) as pool:
            for window in self.windows.windows(asked_in):
                list(pool.map(lambda asked, window=window: self._answer(place, asked, window), group))
                progress.advance(0)  # a cancelled run is noticed here
        self._seconds += time.perf_counter() - started

    def _answer(self, place: int, asked: Frontier, window: Window) -> None:
        """Draws the neighbours of those nodes of a batch that are in a window."""
        nodes = _between(asked.nodes, window.low, window.high)
        if not len(nodes):
            return
        drawn = self._layers[place].draw(window.rows, asked.key, nodes, positions=bool(self._names))
        edges = [drawn.sources]
        if drawn.position is not None:
            places = drawn.position - window.rows.first_edge
            edges += [window.edges[name][places] for name in self._names]
        if drawn.share is not None:
            edges.append(drawn.share)
        self._spills[place].append(asked.number, drawn.counts, edges)

    def _require_rows(self, graph: Artifact, left: int) -> None:
        """Refuses a graph one of whose rows takes more than is left for a window."""
        most = self._longest * self.windows.edge_bytes
        if most > left:
            self.windows.close()
            problem = f"the longest row of {graph.label} takes {format_bytes(most)}, and memory_limit leaves {format_bytes(left)}"
            raise InputError(problem, self._remedy)

    def _require_disk(self, place: int, group: Iterable[Frontier]) -> None:
        """Refuses a pass whose drawn edges do not fit on the disk."""
        counts, columns = self._columns(place)
        edge_bytes, needed = sum(each.num_bytes for each in columns.values()), 0
        most, free = most_of_row(self.fanouts[place]), shutil.disk_usage(self.folder).free
        if most >= 0 and (counts.num_bytes + edge_bytes * most) * sum(len(asked.nodes) for asked in group) <= free:
            return  # without a look at the degrees
        for asked in group:
            degrees = self._degrees[asked.nodes]
            drawn = degrees if most < 0 else np.minimum(degrees, most)
            edges = most * np.count_nonzero(degrees) if self._replaces and most >= 0 else drawn.sum(dtype=np.int64)
            needed += counts.num_bytes * len(degrees) + edge_bytes * int(edges)
        if needed > free:
            problem = f"the drawn edges of a pass take up to {format_bytes(needed)}, and {format_bytes(free)} of disk are free"
            raise InputError(problem, "free disk space, or draw fewer batches: lower `epochs` or `reuse`")


def _between(nodes: Array, low: int, high: int) -> Array:
    """Returns those of ascending nodes that are in low to high - 1."""
    # Numbers of another type would have all nodes converted.
    first, last = np.searchsorted(nodes, np.array([low, high], nodes.dtype))
    return nodes[first:last]


class SpilledSampler:
    """Gives batches that were drawn by passes, as `Sampler` does; one thread uses it at a time."""

    def __init__(self, draws: SequentialDraws):
        self._draws, self._renamer = draws, draws.renamer()

    def sample(self, batch: BatchKey, seeds: Array, *, transpose: Transposes = "none") -> tuple[Block, ...]:
        """Returns the blocks under the seeds with which the batch was drawn, without transposes."""
        assert transpose == "none", "stored and counted batches have no transposes"
        draws = self._draws
        blocks, nodes = draws.blocks(self._renamer, batch, seeds, len(draws.fanouts))
        for block in blocks:
            block.src_ids = nodes[: block.num_src]
        return tuple(reversed(blocks))
