"""Negatives: pairs that are not edges, which the loss compares with the edges of a batch.

A negative keeps one end of an edge and draws the other one. The random stream is one of its own, keyed as neighbours are:

    key      (seed, stream 8, stream of the batch, epoch, step, number of the edge)
    draw     attempt * k + j of that key, for negative j of k
    place    bounded(draw, sum of masses), and the candidate that has it

So a batch has the same negatives on any thread and after a resume. Candidates have integer masses: 1 each, or round(256 d^(3/4)) of a
node with d edges (Mikolov et al.: Distributed Representations of Words and Phrases, 2013, section 2.2), found in the running sum of
masses. Roots are those of IEEE, which are the same everywhere.

An edge is not a negative of itself, and known edges are left out on request: they are drawn again, up to 15 times. What is then missing is
drawn from the candidates that remain, exactly in proportion to their masses, which reads them all. So the distribution is that of
repeated draws until one is allowed.

In a batch: candidates are the ends of the batch's other edges of the same relation, as often as they occur, so no node is added to the
batch. An edge for which the batch has no candidate takes the other candidates, attempt 17 to 33.

Cost: one draw, one search of log2(candidates) steps if masses differ, and one of log2(known edges) if these are left out, per negative and
attempt. Memory: 8 bytes per candidate if masses differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.links.triples import KnownEdges
from graphmill.kernels.rng import absorb_ids, bounded, bounded_each, draws, key
from graphmill.kernels.types import Array, BatchKey, Stream

ATTEMPTS = 16
"""Draws of a negative before the candidates are read."""

Side = Literal["target", "source"]
MASS_UNIT = 256


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The nodes that a negative's end is drawn from, at least one, with their masses.

    Attributes:
        first: id of the first node, if the nodes are a range of ids.
        ids: ids[n], the nodes, if they are not.
        ends: i64[n], running sum of the masses; None if each has the mass 1.
        total: sum of the masses.
    """

    total: int
    first: int = 0
    ids: Array | None = None
    ends: Array | None = None

    @property
    def count(self) -> int:
        """Number of the nodes that can be drawn."""
        return self.total if self.ends is None else int(np.count_nonzero(np.diff(self.ends, prepend=0)))

    def pick(self, masses: Array) -> Array:
        """Returns i64[k]: the nodes that have the places u64[k] of the sum of masses."""
        places = masses.astype(np.int64)
        if self.ends is not None:
            places = np.searchsorted(self.ends, places, "right")
        return places + self.first if self.ids is None else self.ids[places].astype(np.int64)

    def every(self) -> tuple[Array, Array]:
        """Returns (i64[n] nodes, i64[n] masses) of all candidates."""
        count = self.total if self.ends is None else len(self.ends)
        masses = np.ones(count, np.int64) if self.ends is None else np.diff(self.ends, prepend=0)
        return self.pick(np.arange(count)) if self.ends is None else np.arange(count) + self.first, masses


def uniform_candidates(low: int, high: int) -> Candidates:
    """Returns the nodes low to high - 1, each as likely as another."""
    return Candidates(total=high - low, first=low)


def degree_candidates(low: int, degrees: Array) -> Candidates:
    """Returns nodes in proportion to d^(3/4); one without edges is never drawn.

    Args:
        low: id of the first node.
        degrees: int[n], number of edges of the nodes low to low + n - 1.

    Raises:
        InputError: no node has an edge.
    """
    root = np.sqrt(degrees.astype(np.float64))
    ends = np.cumsum(np.rint(root * np.sqrt(root) * MASS_UNIT).astype(np.int64))
    if not len(ends) or ends[-1] == 0:
        raise InputError("negatives by degree, and no candidate has an edge", "draw uniform negatives")
    return Candidates(total=int(ends[-1]), first=low, ends=ends)


@dataclass(frozen=True, kw_only=True)
class DrawnNegatives:
    """Negatives that are drawn at random.

    Attributes:
        per_positive: number of negatives of an edge, k.
        sides: ends that are drawn, in turn: both, or one of them.
        candidates: side -> the candidates of each relation; one entry if edges have no relations.
        in_batch: whether the ends of the batch's other edges come first.
        known: edges that are left out; None for only the edge itself.
    """

    seed: int
    per_positive: int
    candidates: dict[Side, Sequence[Candidates]]
    sides: tuple[Side, ...] = ("target",)
    in_batch: bool = False
    known: KnownEdges | None = None

    def __post_init__(self):
        if self.per_positive < 1:
            raise InputError(f"{self.per_positive} negatives per edge", "give 1 or more")
        for side in self.sides:
            empty = [relation for relation, each in enumerate(self.candidates[side]) if each.total < 1]
            if empty:
                raise InputError(f"relation {empty[0]} has no candidate {side} for negatives", "leave it out")

    def draw(
        self, batch: BatchKey, edges: Array, source: Array, target: Array, relation: Array | None
    ) -> tuple[Array, Array]:
        """Returns (sources ids[p, k], targets ids[p, k]) of the negatives of each edge.

        Args:
            edges: i64[p], numbers of the batch's edges.
            source, target: ids[p], their ends; relation: u8[p] or None.

        Raises:
            InputError: all candidates of an edge are known.
        """
        words = absorb_ids(key(self.seed, Stream.NEGATIVES, batch.stream, batch.epoch, batch.step), edges)
        of = np.zeros(len(edges), np.int64) if relation is None else relation
        made = {
            "source": np.repeat(source[:, None], self.per_positive, 1),
            "target": np.repeat(target[:, None], self.per_positive, 1),
        }
        for turn, side in enumerate(self.sides):
            columns = np.arange(turn, self.per_positive, len(self.sides))
            ends = {"source": source, "target": target}
            for each in np.unique(of):
                rows = np.flatnonzero(of == each)
                request = _Request(
                    words=np.repeat(words[rows], len(columns)),
                    columns=np.tile(columns, len(rows)),
                    per_positive=self.per_positive,
                    side=side,
                    own=np.repeat(ends[side][rows], len(columns)),
                    other=np.repeat(ends["source" if side == "target" else "target"][rows], len(columns)),
                    relation=None if relation is None else int(each),
                    known=self.known,
                )
                drawn = self._drawn(request, self.candidates[side][int(each)], ends[side][rows])
                made[side][np.ix_(rows, columns)] = drawn.reshape(len(rows), len(columns))
        return made["source"], made["target"]

    def _drawn(self, request: "_Request", candidates: Candidates, in_batch: Array) -> Array:
        """Returns i64[m], the drawn ends of one relation and side; `in_batch` are those of the batch's edges."""
        pools = [Candidates(total=len(in_batch), ids=in_batch), candidates] if self.in_batch else [candidates]
        found, left = np.empty(len(request.words), np.int64), np.arange(len(request.words))
        for number, pool in enumerate(pools):
            found[left], refused = request.drawn(pool, left, number * (ATTEMPTS + 1))
            left = left[refused]
        if len(left):
            raise request.refused(int(left[0]))
        return found


@dataclass(frozen=True, kw_only=True)
class _Request:
    """The negatives of one relation and side that are to be drawn, m of them.

    Attributes:
        words: u64[m], keys; columns: i64[m], number of the negative of its edge.
        own: ids[m], the edge's end that is replaced; other: ids[m], the end that stays.
    """

    words: Array
    columns: Array
    per_positive: int
    side: Side
    own: Array
    other: Array
    relation: int | None
    known: KnownEdges | None

    def drawn(self, candidates: Candidates, places: Array, first: int) -> tuple[Array, Array]:
        """Returns i64[k], ends for places i64[k] of the request from attempt `first` on, and bool[k], whether no candidate was allowed."""
        found, left = np.empty(len(places), np.int64), np.arange(len(places))
        for attempt in range(first, first + ATTEMPTS):
            bits = draws(self.words[places[left]], attempt * self.per_positive + self.columns[places[left]])
            found[left] = candidates.pick(bounded_each(bits, candidates.total))
            left = left[self.refuses(found[left], places[left])]
            if not len(left):
                break
        refused = np.zeros(len(places), bool)
        for place in left:
            end = self.exact(int(places[place]), candidates, first + ATTEMPTS)
            refused[place] = end is None
            found[place] = -1 if end is None else end
        return found, refused

    def exact(self, place: int, candidates: Candidates, attempt: int) -> int | None:
        """Returns one end, drawn among the candidates that are allowed for a place; None if there are none."""
        nodes, masses = candidates.every()
        ends = np.cumsum(np.where(self.refuses(nodes, np.full(len(nodes), place)), 0, masses))
        if ends[-1] == 0:
            return None
        bits = int(draws(int(self.words[place]), attempt * self.per_positive + int(self.columns[place])))
        return int(nodes[np.searchsorted(ends, bounded(bits, int(ends[-1])), "right")])

    def refuses(self, found: Array, places: Array) -> Array:
        """Returns bool[k], whether ends are not those of negatives at these places: the edge's own, or of a known edge."""
        refused = found == self.own[places]
        if self.known is None:
            return refused
        relation = None if self.relation is None else np.full(len(found), self.relation)
        other = self.other[places]
        pair = (other, found) if self.side == "target" else (found, other)
        return refused | self.known.contains(*pair, relation)

    def refused(self, place: int) -> InputError:
        """Returns the error that a place has no candidate."""
        kept = "source" if self.side == "target" else "target"
        named = "" if self.relation is None else f" of relation {self.relation}"
        problem = f"every candidate {self.side} makes a known edge{named} with the {kept} {self.other[place]}"
        return InputError(f"{problem}: there is no negative", "keep known edges among the negatives")
