"""The best ends of nodes are those of a sort of all scores."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.trainers.models.links import best
from graphmill.trainers.models.links.best import best_ends
from graphmill.trainers.models.links.heads import link_head


@settings(deadline=None, max_examples=60)
@given(
    st.integers(2, 12), st.integers(1, 5), st.integers(0, 99), st.sampled_from(["dot", "bilinear", "distmult", "transe", "mlp"]),
    st.sampled_from(["target", "source"]), st.integers(1, 4), st.integers(1, 4),
)  # fmt: skip
def test_best_ends_are_those_of_a_sort(num_nodes, count, seed, name, side, queries, candidates):
    draw = np.random.default_rng(seed)
    head = link_head(name, 2, relations=2).double()
    for parameter in head.parameters():
        torch.nn.init.constant_(parameter, 2.0)
    rows = torch.from_numpy(draw.integers(-2, 3, (num_nodes, 2)).astype(np.float64))  # small whole numbers: scores tie
    rows[draw.integers(num_nodes)] = draw.choice([np.nan, 0.0])
    ends, relation = draw.integers(0, num_nodes, 5), draw.integers(0, 2, 5)
    triples = Triples(num_nodes=num_nodes, reverse_of=(-1, 1))
    known = KnownEdges(triples, *draw.integers(0, num_nodes, (2, 8)), draw.integers(0, 2, 8))
    low, high = sorted(draw.choice(num_nodes + 1, 2, replace=False).tolist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best, "QUERIES", queries)
        patch.setattr(best, "CANDIDATES", candidates)
        found, scores = best_ends(head, rows, ends, relation, known, side=side, candidates=(low, high), count=count)
    for row, (end, kind) in enumerate(zip(ends, relation, strict=True)):
        pairs = [(end, other) if side == "target" else (other, end) for other in range(low, high)]
        of_end = [head(rows[u], rows[v], torch.tensor(kind)).item() for u, v in pairs]
        open_ones = [
            (np.isnan(score), -score, other)
            for other, score, (u, v) in zip(range(low, high), of_end, pairs, strict=True)
            if other != end and not known.contains(np.array([u]), np.array([v]), np.array([kind]))[0]
        ]
        expected = [
            other for _, _, other in sorted(open_ones, key=lambda each: (each[0], 0 if each[0] else each[1], each[2]))
        ]
        assert found[row].tolist() == (expected + [-1] * count)[:count]
        by_end = dict(zip(range(low, high), of_end, strict=True))
        np.testing.assert_allclose(scores[row], [by_end.get(other, np.nan) for other in found[row].tolist()])
