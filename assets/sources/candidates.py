"""Candidates that links are ranked among, as the files of a source give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphmill.kernels.links.negatives import Side
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class EndCandidates:
    """Ends that stand in the place of a link's own one, each link with its own candidates.

    Attributes:
        source, target: i64[n] global, the links in any direction; relation: u8[n], or None if edges have no relations.
        starts, ends: side -> i64[n + 1] and i64[k] global: the candidates of row i are `ends[side][starts[side][i] : starts[side][i + 1]]`.
        place: function row -> its place in words, for errors.
        complete: whether the rows are all links of a part, each once, and a link's own end is among its candidates. Otherwise links
            that the graph does not hold out are left out, and of several rows of one link the first is taken.
    """

    source: Array
    target: Array
    relation: Array | None
    starts: Mapping[Side, Array]
    ends: Mapping[Side, Array]
    place: Callable[[int], str]
    complete: bool = False


@dataclass(frozen=True, kw_only=True)
class SharedPairs:
    """Pairs that all links of a part are compared with.

    Attributes:
        pairs: i64[m, 2] global; part: 1 valid, 2 test.
    """

    pairs: Array
    part: int


Given = EndCandidates | SharedPairs
