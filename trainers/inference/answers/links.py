"""The tables of predictions of a model of links.

Of each node the best ends (`--top K`), by relation that is predicted:

    source      id of the node in the raw data
    relation    name of the relation, in a graph with relations
    rank        from 1, the best
    target      id of the other end: of all nodes that the relation's edges lead to the best, without ends of known edges
    score       f32, what the head gives

Of pairs that a file names (`--pairs FILE`), in its order:

    source, target, relation    as in the file
    score                       f32
    split                       "train", "valid" or "test" if the pair is an edge of that part; null if it is in none

Of neither, the rows of nodes: `node_id` and `embedding`, whose pairs the head scores (trainers/models/links/heads.py).

Memory: the rows of all nodes, 4 N H, the known edges, 16 bytes each, and those of trainers/models/links/best.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.building.stage import Progress
from graphmill.assets.graph.find_nodes import find_nodes
from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.training_edges import candidate_ranges
from graphmill.kernels.errors import InputError, did_you_mean
from graphmill.kernels.links.negatives import Side
from graphmill.kernels.links.splits import PARTS
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.types import Array
from graphmill.trainers.inference.answers.nodes import named_nodes
from graphmill.trainers.models.links.best import best_ends

if TYPE_CHECKING:
    import polars
    from torch import Tensor

    from graphmill.trainers.inference.answers.kinds import Columns
    from graphmill.trainers.models.links.heads import LinkHead

SIDES: tuple[Side, ...] = ("source", "target")
NODES_AT_ONCE = 4096
"""Nodes whose best ends are one frame."""
PAIRS_AT_ONCE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class LinkRequest:
    """What a prediction of links is asked for."""

    # Number of the best ends of each node; 0 for none.
    top: int = 0
    # A Parquet or CSV file with columns source, target and, if several relations are predicted, relation.
    pairs: Path | None = None
    # Names of the relations of the best ends; none for all that are predicted.
    relations: Sequence[str] = ()
    # A file that names the nodes whose best ends are asked for; None for all of them.
    nodes: Path | None = None

    def of_pairs(self, graph: Graph, columns: Columns, types: Sequence[str], evaluation: str) -> bool:
        """Tells whether pairs are asked for, and not the answers for nodes, or of links their rows.

        Args:
            columns, types, evaluation: what else is asked for, as of `graphmill.trainers.inference.predict.predict_table`.

        Raises:
            InputError: a key is for another table.
        """
        if graph.links is None:
            if self.pairs is not None or self.relations:
                raise InputError("--pairs and --relation are for models of a [task] on edges", "leave them out")
            return False
        if graph.links.labels is not None:
            self._require_edges(types, evaluation)
            return True
        if not self.top and self.pairs is None:
            if self.relations:
                raise InputError("--relation is of the best ends of nodes", "give --top K, too")
            return False
        others = {
            "--probabilities": columns.probabilities,
            "--threshold": columns.thresholds,
            "--type": types,
            "--eval sampled": evaluation != "exact",
        }
        if wrong := [key for key, given in others.items() if given]:
            raise InputError(f"{', '.join(wrong)} beside {'--top' if self.top else '--pairs'} of links", "leave it out")
        if self.top and self.pairs is not None:
            raise InputError("--top and --pairs are two tables", "give one of them")
        if self.pairs is not None and (self.nodes is not None or self.relations):
            raise InputError("--nodes and --relation are of --top", "leave them out: the file names pairs")
        return True

    def _require_edges(self, types: Sequence[str], evaluation: str) -> None:
        """Raises InputError for a key of another table than that of labelled edges."""
        others = {
            "--nodes": self.nodes,
            "--relation": self.relations,
            "--type": types,
            "--eval sampled": evaluation != "exact",
        }
        if wrong := [key for key, given in others.items() if given]:
            problem = f"{', '.join(wrong)} of a model that predicts labels of edges"
            raise InputError(problem, "leave it out: all labelled edges are written, or with --pairs those of a file")


@dataclass(kw_only=True)
class LinkAnswers:
    """Makes the tables of a graph's links from the rows of its nodes.

    Attributes:
        nodes: its Parquet file of nodes.
        progress: shows the finished nodes or pairs.
        count: number of rows that were made so far.

    Raises:
        InputError: a relation is not predicted, or the file names what is not there.
    """

    graph: Graph
    nodes: Path
    request: LinkRequest
    progress: Progress
    count: int = 0
    _pairs: Any = field(default=None, repr=False)

    def __post_init__(self):
        links = self.graph.links
        assert links is not None, "a graph of links"
        self.links, self.ranges = links, candidate_ranges(links, self.graph.topology)
        self.triples = Triples(num_nodes=self.graph.topology.num_nodes, reverse_of=links.reverse_of)
        self.chosen = [self._relation(name) for name in self.request.relations] or list(links.predicted)
        if self.request.pairs is not None:
            self._pairs = self._read_pairs(self.request.pairs)

    def frames(self, head: LinkHead, rows: Tensor) -> Iterator[polars.DataFrame]:
        """Yields the table in parts; `rows` is float[N, H], what the model computes of each node."""
        frames = self._best(head, rows) if self.request.top else self._scored(head, rows)
        for frame in frames:
            self.count += len(frame)
            yield frame

    def _relation(self, name: str) -> int:
        """Returns the number of a relation that is predicted."""
        names = [self.graph.relations[number] for number in self.links.predicted] if self.graph.relations else []
        short = [each for each in names if each.split("/")[1:-1] == [name]]  # of source type, name and target type
        if len(short) == 1:
            name = short[0]
        if name not in names:
            there = f"its relations are: {', '.join(names)}" if names else "its edges have no relations: leave it out"
            raise InputError(f"--relation {name} is not predicted", did_you_mean(name, names) or there)
        return self.graph.relations.index(name)

    @cached_property
    def _ids(self) -> polars.Series:
        """The ids of all nodes in the raw data."""
        import polars

        return polars.read_parquet(self.nodes, columns=["original_id"], glob=False)["original_id"]

    def _best(self, head: LinkHead, rows: Tensor) -> Iterator[polars.DataFrame]:
        import polars

        original, side = self._ids, SIDES[1]
        known = KnownEdges(self.triples, self.links.source, self.links.target, self.links.relation)
        sources = [self._sources(number) for number in self.chosen]
        self.progress.start("best ends", sum(map(len, sources)), "nodes")
        for number, nodes in zip(self.chosen, sources, strict=True):
            for low in range(0, len(nodes), NODES_AT_ONCE):
                ends = nodes[low : low + NODES_AT_ONCE]
                kinds = None if self.links.relation is None else np.full(len(ends), number)
                given: dict[str, Any] = {"side": side, "candidates": self.ranges[side][number]}
                found, scores = best_ends(head, rows, ends, kinds, known, count=self.request.top, **given)
                there = found >= 0
                node, place = np.nonzero(there)
                columns = {"source": original.gather(ends[node]), "rank": (place + 1).astype(np.int32)}
                columns |= {"target": original.gather(found[there]), "score": scores[there]}
                frame = polars.DataFrame(columns)
                if self.graph.relations:
                    name = polars.Series("relation", [self.graph.relations[number]]).new_from_index(0, len(frame))
                    frame.insert_column(1, name)
                yield frame
                self.progress.advance(len(ends))
        self.progress.done()

    def _sources(self, number: int) -> Array:
        """Returns i64[n], the nodes whose best ends are asked for, by a relation."""
        low, high = self.ranges["source"][number]
        if self.request.nodes is None:
            return np.arange(low, high)
        return named_nodes(self.request.nodes, self.nodes, [(low, high)])

    def _scored(self, head: LinkHead, rows: Tensor) -> Iterator[polars.DataFrame]:
        import polars
        import torch

        table, source, target, relation = self._pairs
        split = self._splits(source, target, relation)
        names = polars.Series(list(PARTS))
        self.progress.start("scores", len(table), "pairs")
        for low in range(0, len(table), PAIRS_AT_ONCE):
            part = slice(low, low + PAIRS_AT_ONCE)
            ends = (rows[torch.from_numpy(each[part])] for each in (source, target))
            kinds = None if relation is None else torch.from_numpy(relation[part])
            with torch.no_grad():
                scores = head(*ends, kinds).float().numpy()
            places = polars.Series(split[part]).set(polars.Series(split[part] < 0), None)
            more = [polars.Series("score", scores), names.gather(places).alias("split")]
            yield table[part].hstack(more)
            self.progress.advance(len(scores))
        self.progress.done()

    def _splits(self, source: Array, target: Array, relation: Array | None) -> Array:
        """Returns i64[n], the part of the split in which each pair is an edge, -1 if it is none."""
        links = self.triples.links(self.links.source, self.links.target, self.links.relation)
        order = np.argsort(links, kind="stable")
        wanted = self.triples.links(source, target, relation)
        if not len(links):
            return np.full(len(wanted), -1)
        places = order[np.minimum(np.searchsorted(links, wanted, sorter=order), len(links) - 1)]
        return np.where(links[places] == wanted, np.asarray(self.links.split)[places].astype(np.int64), -1)

    def _read_pairs(self, path: Path) -> tuple[polars.DataFrame, Array, Array, Array | None]:
        """Returns the table of a file, and the nodes and relations of its pairs: i64[n] each."""
        import polars

        remedy = "give a .parquet or .csv file with columns source and target, and relation if several are predicted"
        wanted = ["source", "target", *(["relation"] if self.graph.relations and len(self.links.predicted) > 1 else [])]
        try:
            read = {".parquet": polars.read_parquet, ".csv": polars.read_csv}[path.suffix]
            table = read(path, columns=wanted, glob=False)
        except KeyError:
            raise InputError(f"{path} is no file of pairs", remedy) from None
        except (OSError, polars.exceptions.PolarsError) as error:
            raise InputError(f"the pairs in {path} cannot be read: {error}", remedy) from error
        if not len(table):
            raise InputError(f"{path} has no pair", remedy)
        relation = None
        if self.links.relation is not None:
            relation = np.full(len(table), min(self.links.predicted))
            if "relation" in wanted:
                names = [str(each) for each in table["relation"]]
                number = {name: self._relation(name) for name in dict.fromkeys(names)}
                relation = np.array([number[name] for name in names])
        source, target = (self._nodes(path, table, side, relation) for side in SIDES)
        return table, source, target, relation

    def _nodes(self, path: Path, table: polars.DataFrame, side: Side, relation: Array | None) -> Array:
        """Returns i64[n], the nodes of one column of pairs."""
        kinds = np.zeros(len(table), np.int64) if relation is None else relation
        found = find_nodes(self._ids, table[side], kinds, self.ranges[side])
        missing = np.flatnonzero(found < 0)
        if len(missing):
            row = int(missing[0])
            problem = (
                f"{path}, row {row + 1}: the {side} {table[side][row]} is no node that such an edge can have there"
            )
            more = f"; {len(missing):,} such rows" if len(missing) > 1 else ""
            raise InputError(f"{problem}{more}", "give ids of the raw data; `graphmill sql` shows them")
        return found
