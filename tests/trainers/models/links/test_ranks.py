"""Exact filtered ranks against a comparison with every candidate, one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.trainers.models.layer import initialise
from graphmill.trainers.models.links import ranks
from graphmill.trainers.models.links.heads import link_head
from graphmill.trainers.models.links.ranks import Pairs, link_ranks


def brute_ranks(head, rows, edges, known, ranges, side):
    """The rank of each triple's end, by the scores of single pairs."""
    found = []
    for u, r, v in edges:
        own, others = (v if side == "target" else u), []
        for end in range(*ranges[side][r]):
            pair = (u, end) if side == "target" else (end, v)
            score = head(rows[pair[0]], rows[pair[1]], torch.tensor(r)).item()
            if end == own:
                positive = score
            elif (pair[0], r, pair[1]) not in known:
                others.append(score)
        above, ties = sum(score > positive for score in others), sum(score == positive for score in others)
        found.append(1 + above + ties / 2)
    return found


@st.composite
def graphs(draw):
    """(number of nodes, triples, known triples, reverses, ranges of candidates, rows of small whole numbers, so that scores tie)."""
    num_nodes, kinds = draw(st.integers(2, 9)), draw(st.sampled_from([(0,), (-1,), (1, 0)]))
    node = st.integers(0, num_nodes - 1)
    triple = st.tuples(node, st.integers(0, len(kinds) - 1), node)
    edges, more = draw(st.lists(triple, min_size=1, max_size=8)), draw(st.lists(triple, max_size=10))
    ranges = {}
    for side, place in (("source", 0), ("target", 2)):
        own = [[edge[place] for edge in edges if edge[1] == r] or [0] for r in range(len(kinds))]
        ranges[side] = [(draw(st.integers(0, min(each))), draw(st.integers(max(each) + 1, num_nodes))) for each in own]
    known = {*edges, *more}
    known |= {(v, kinds[r], u) for u, r, v in known if kinds[r] >= 0}
    rows = torch.tensor(draw(st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=9, max_size=9)))
    return num_nodes, edges, known, kinds, ranges, rows.double()


@settings(deadline=None)
@given(
    graphs(), st.sampled_from(["dot", "bilinear", "distmult", "transe", "mlp"]), st.sampled_from(["target", "source"])
)
def test_ranks_are_those_of_every_candidate(graph, name, side):
    num_nodes, edges, known, kinds, ranges, rows = graph
    head = link_head(name, 2, relations=len(kinds)).double()
    for parameter in head.parameters():  # small whole numbers: sums do not round
        torch.nn.init.constant_(parameter, 2.0)
    source, relation, target = np.array(edges, np.int64).T
    filtered = KnownEdges(
        Triples(num_nodes=num_nodes, reverse_of=kinds), *np.array(sorted(known), np.int64)[:, [0, 2, 1]].T
    )
    pairs = Pairs(source=source, target=target, relation=relation, ranges=ranges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "QUERIES", 3)
        patch.setattr(ranks, "CANDIDATES", 8)
        found = link_ranks(head, rows, pairs, filtered, side)
    assert found.tolist() == brute_ranks(head, rows, edges, known, ranges, side)


def random_pairs(num_pairs, num_nodes, seed=0):
    generator = np.random.default_rng(seed)
    ends = {"source": [(0, num_nodes)], "target": [(0, num_nodes)]}
    source, target = generator.integers(0, num_nodes, (2, num_pairs))
    return Pairs(source=source, target=target, relation=None, ranges=ends)


@pytest.mark.parametrize("name", ["dot", "bilinear", "distmult", "mlp"])
def test_ranks_of_several_tiles(name):
    num_nodes, pairs = 2000, random_pairs(450 if name != "mlp" else 20, 2000)
    head = link_head(name, 16, hidden=8)
    initialise(head, 1)
    head, rows = head.double(), torch.randn(num_nodes, 16, generator=torch.Generator().manual_seed(1)).double()
    more = np.random.default_rng(5).integers(0, num_nodes, (2, 4000))
    known = KnownEdges(
        Triples(num_nodes=num_nodes),
        *(np.concatenate([a, b]) for a, b in zip((pairs.source, pairs.target), more, strict=True)),
    )
    with torch.no_grad():
        for side in ("target", "source"):
            found = link_ranks(head, rows, pairs, known, side)
            kept, own = (pairs.source, pairs.target) if side == "target" else (pairs.target, pairs.source)
            for i in range(len(own)):
                ends = rows[kept[i]].expand(num_nodes, -1), rows
                scores = head(*(ends if side == "target" else ends[::-1]))
                every, fixed = np.arange(num_nodes), np.full(num_nodes, kept[i])
                out = known.contains(fixed, every) if side == "target" else known.contains(every, fixed)
                others = scores[torch.from_numpy(~out)]
                assert found[i] == 1 + (others > scores[own[i]]).sum().item()


@pytest.mark.parametrize("num_nodes", [1, 7, 1535, 1536, 1537, 4001])
@pytest.mark.parametrize("columns", [1, 7, 64, 100])
def test_equal_rows_tie_wherever_they_stand(num_nodes, columns):
    row = torch.randn(1, columns, generator=torch.Generator().manual_seed(columns))
    pairs, known = random_pairs(400, num_nodes), KnownEdges(Triples(num_nodes=num_nodes), [], [])
    found = link_ranks(link_head("dot", columns), row.repeat(num_nodes, 1), pairs, known, "target")
    assert (found == (num_nodes + 1) / 2).all()


def test_scores_that_are_not_numbers_have_the_ranks_of_chance():
    pairs, known = random_pairs(5, 101), KnownEdges(Triples(num_nodes=101), [], [])
    rows = torch.full((101, 4), torch.nan)
    assert (link_ranks(link_head("dot", 4), rows, pairs, known, "target") == 51).all()


def test_an_end_that_is_no_candidate_is_refused():
    pairs = Pairs(
        source=np.array([0, 1]), target=np.array([4, 2]), relation=None, ranges={"source": [(0, 5)], "target": [(3, 5)]}
    )
    known = KnownEdges(Triples(num_nodes=5), [], [])
    with pytest.raises(InputError, match="row 1: the target 2 is not among its candidates 3 to 4"):
        link_ranks(link_head("dot", 2), torch.ones(5, 2), pairs, known, "target")
