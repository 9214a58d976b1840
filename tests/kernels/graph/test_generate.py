"""Generated graphs are functions of their seed, have the structure they promise, at any thread count."""

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.kernels.graph import generate
from graphmill.kernels.graph.csc import build_csc


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 1000, 1024, 100_003])
def test_rmat_equals_its_reference(num_nodes):
    edges = generate.rmat_edges(num_nodes, 3000, seed=3, scramble=False, threads=2)
    for mine, expected in zip(edges, generate.rmat_edges_reference(num_nodes, 3000, seed=3), strict=True):
        assert mine.dtype == np.int32 and mine.tolist() == expected.tolist()


@pytest.mark.parametrize(("num_nodes", "num_edges", "classes"), [(1, 5, 1), (2, 9, 2), (100, 1000, 7), (100, 37, 100)])
@pytest.mark.parametrize(("p_in", "p_copy"), [(0.7, 0.5), (0.0, 1.0), (1.0, 0.0)])
def test_citations_equal_their_reference(num_nodes, num_edges, classes, p_in, p_copy):
    arguments = num_nodes, num_edges, classes, p_in, p_copy, 3
    edges = generate.citation_edges(*arguments, scramble=False, threads=2)
    for mine, expected in zip(edges, generate.citation_edges_reference(*arguments), strict=True):
        assert mine.dtype == np.int32 and mine.tolist() == expected.tolist()
    assert (edges[1] <= edges[0]).all() and (edges[1] < edges[0])[edges[0] > 0].all()


def test_citations_prefer_their_class_and_what_is_cited():
    def cited(p_copy):
        src, dst = generate.citation_edges(20_000, 160_000, 20, 0.8, p_copy, seed=2)
        return src, dst, np.bincount(dst, minlength=20_000)

    labels = generate.citation_labels(20_000, 20, seed=2)
    src, dst, plain = cited(0.0)
    assert abs((labels[src] == labels[dst]).mean() - (0.8 + 0.2 / 20)) < 0.01
    assert plain.max() < cited(0.5)[2].max() / 3
    assert np.bincount(labels).tolist() == [1000] * 20 and np.bincount(src).max() == 8


def test_everything_has_the_same_bytes_at_any_thread_count():
    def made(threads):
        labels = generate.sbm_labels(3001, 5, seed=1, threads=threads)
        out = np.empty((3001, 13), np.float32)
        yield from generate.rmat_edges(3001, 50000, seed=1, threads=threads)
        yield from generate.sbm_edges(3001, 50000, 5, 0.7, seed=1, threads=threads)
        yield from generate.citation_edges(3001, 50000, 5, 0.7, 0.5, seed=1, threads=threads)
        yield generate.citation_labels(3001, 5, seed=1, threads=threads)
        yield labels
        yield generate.class_features(labels, 13, 1, 0.5, out, threads=threads)

    first = [array.tobytes() for array in made(1)]
    assert first == [array.tobytes() for array in made(2)] == [array.tobytes() for array in made(8)]


@pytest.mark.parametrize("make", ["rmat", "sbm", "citation"])
def test_ranges_of_edges_are_parts_of_the_whole(make):
    arguments = {"rmat": (999, 20_000), "sbm": (999, 20_000, 7, 0.6), "citation": (999, 20_000, 7, 0.6, 0.4)}[make]
    function = getattr(generate, f"{make}_edges")
    whole = function(*arguments, seed=3)
    parts = [function(*arguments, seed=3, lo=lo, hi=hi, threads=2) for lo, hi in ((0, 1), (1, 17_000), (17_000, None))]
    for end in (0, 1):
        assert np.concatenate([part[end] for part in parts]).tobytes() == whole[end].tobytes()
    assert len(function(*arguments, seed=3, lo=5, hi=5)[0]) == 0
    for lo, hi in ((-1, 2), (3, 2), (0, 20_001)):
        with pytest.raises(InputError, match="a range of the graph's edges"):
            function(*arguments, seed=3, lo=lo, hi=hi)


@pytest.mark.parametrize("num_nodes", [1, 2, 5, 64, 1000])
def test_scrambling_renames_the_ranks(num_nodes):
    # The same edges under other names: a bijection keeps equal ends equal and different ends different.
    plain = np.concatenate(generate.rmat_edges(num_nodes, 20000, 2, scramble=False))
    names = np.concatenate(generate.rmat_edges(num_nodes, 20000, 2))
    pairs = set(zip(plain.tolist(), names.tolist(), strict=True))
    assert len(pairs) == len(set(plain.tolist())) == len(set(names.tolist()))
    labels = [generate.rmat_labels(num_nodes, min(4, num_nodes), 2, scramble) for scramble in (False, True)]
    assert all(labels[0][rank] == labels[1][name] for rank, name in pairs)


def test_rmat_is_skewed_as_its_quadrants_say():
    num_nodes = 1 << 12
    src, dst = generate.rmat_edges(num_nodes, 200_000, 5, scramble=False)
    half = num_nodes // 2
    quadrants = np.bincount(2 * (src >= half) + (dst >= half), minlength=4) / 200_000
    np.testing.assert_allclose(quadrants, (0.57, 0.19, 0.19, 0.05), atol=0.005)
    names = generate.rmat_edges(num_nodes, 200_000, 5)
    csc = build_csc(*names, num_nodes, undirected=True, duplicates="merge", self_loops="drop")
    assert csc.in_degree.max() > 20 * np.median(csc.in_degree)
    labels = generate.rmat_labels(num_nodes, 4, 5)
    assert 0.3 < (labels[names[0]] == labels[names[1]]).mean() < 0.5  # (a + d)^2 = 0.384


@pytest.mark.parametrize("p_in", [0.0, 0.3, 0.9, 1.0])
def test_sbm_has_the_promised_homophily(p_in):
    labels = generate.sbm_labels(1001, 7, seed=4)
    src, dst = generate.sbm_edges(1001, 100_000, 7, p_in, seed=4)
    assert abs((labels[src] == labels[dst]).mean() - p_in) < 0.008
    sizes = np.bincount(labels)
    assert sizes.sum() == 1001 and sizes.max() - sizes.min() <= 1
    reached = np.bincount(dst, minlength=1001)
    assert ((reached - 100_000 / 1001) ** 2 / (100_000 / 1001)).sum() < 1001 + 5 * np.sqrt(2 * 1001)


def test_one_class_and_seeds():
    src, dst = generate.sbm_edges(10, 100, 1, 0.0, seed=0)
    assert max(src.max(), dst.max()) < 10
    assert not np.array_equal(generate.sbm_edges(10, 100, 1, 0.0, seed=1)[0], src)
    assert not np.array_equal(generate.rmat_edges(10, 100, seed=1)[0], generate.rmat_edges(10, 100, seed=0)[0])


@pytest.mark.parametrize("noise", [0.0, 1.0, 60.0])
def test_features_equal_their_reference_range_by_range(noise):
    labels = np.array([0, 2, -1, 1, 2, 0, 7], np.int32)
    out = np.full((7, 9), np.nan, np.float32)
    for lo in range(0, 7, 3):
        hi = min(7, lo + 3)
        generate.class_features(labels, 9, 5, noise, out[lo:hi], lo, hi)
    np.testing.assert_array_equal(out, generate.class_features_reference(labels, 9, 5, noise))
    assert (out * 65536 == np.round(out.astype(np.float64) * 65536)).all()
    if noise == 0:
        assert (out[2] == 0).all() and (out[0] == out[5]).all() and not (out[0] == out[1]).any()


def test_features_have_the_stated_spread():
    labels = np.arange(3000, dtype=np.int32) % 30
    out = generate.class_features(labels, 20, 1, 2.0, np.empty((3000, 20), np.float32))
    within = out - np.stack([out[labels == c].mean(axis=0) for c in range(30)])[labels]
    assert abs(within.std() - 2 * 0.816) < 0.03


def test_impossible_requests_are_refused():
    out = np.empty((3, 2), np.float32)
    labels = np.zeros(3, np.int32)
    for call in (
        lambda: generate.rmat_edges(0, 5, 0),
        lambda: generate.rmat_edges(5, -1, 0),
        lambda: generate.rmat_edges(5, 5, 0, (0.5, 0.5, 0.5, 0.5)),
        lambda: generate.rmat_edges(5, 5, 0, (1.5, -0.5, 0, 0)),
        lambda: generate.sbm_edges(5, 5, 6, 0.5, 0),
        lambda: generate.sbm_edges(5, 5, 2, 1.5, 0),
        lambda: generate.sbm_labels(5, 0, 0),
        lambda: generate.citation_edges(5, 5, 6, 0.5, 0.5, 0),
        lambda: generate.citation_edges(5, 5, 2, 0.5, 1.5, 0),
        lambda: generate.citation_labels(5, 0, 0),
        lambda: generate.class_features(labels, 2, 0, 61, out),
        lambda: generate.class_features(labels, 2, 0, 1, out[:2], 2, 4),
        lambda: generate.class_features(labels, 3, 0, 1, out),
    ):
        with pytest.raises(InputError, match="remedy"):
            call()


def test_no_edges_and_no_nodes():
    assert [len(ends) for ends in generate.rmat_edges(0, 0, 0)] == [0, 0]
    assert len(generate.rmat_labels(0, 1, 0)) == 0
