"""Generated papers, authors and institutions: sizes, the same bytes at any cut and thread count, and edges that follow classes."""

import numpy as np
import pytest

from graphmill.assets.features.read import NodeTypes, node_types
from graphmill.assets.sources.generated import typed_citation
from graphmill.assets.sources.registry import config_class
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config

PAPERS, AUTHORS, INSTITUTIONS = 1496, 1496, 8


def make(folder, threads=1, **keys):
    config = config_class("typed_citation")(**{"nodes": 3000, "edges": 24000, "features": 16} | keys)
    return build_config(folder, config, threads=threads)


def edges_of(topology):
    """(source, destination, relation) of each stored edge."""
    dst = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    return np.asarray(topology.indices), dst, np.asarray(topology.edge_types)


def test_types_and_relations_have_their_sizes(tmp_path):
    built = make(tmp_path, duplicates="keep", self_loops="keep")
    graph = built.opened
    starts = (0, PAPERS, PAPERS + AUTHORS, 3000)
    assert node_types(graph.topology, built.table) == NodeTypes(starts=starts, columns=(16, 0, 0))
    assert built.table.num_rows == PAPERS and built.table.dtype == "float16"
    assert (np.asarray(graph.labels)[PAPERS:] == -1).all() and (np.asarray(graph.labels)[:PAPERS] >= 0).all()
    names = ["paper/cites/paper", "author/writes/paper", "author/affiliated_with/institution"]
    assert list(graph.relations) == [*names, *(f"reverse of {name}" for name in names)]
    src, dst, kind = edges_of(graph.topology)
    counts = np.bincount(kind)
    assert counts[1] == counts[4] == 24_000 - 18_019 - 619 and counts[2] == counts[5] == 619
    loops = ((src == dst) & (kind == 0)).sum()  # citations of itself have no reverse
    assert counts[0] == 18_019 and counts[3] == 18_019 - loops
    of_type = np.searchsorted(starts, np.arange(3000), side="right") - 1
    for relation, (source, target) in enumerate([(0, 0), (1, 0), (1, 2), (0, 0), (0, 1), (2, 1)]):
        assert (of_type[src[kind == relation]] == source).all() and (of_type[dst[kind == relation]] == target).all()


def test_the_same_bytes_at_any_number_of_threads_and_cut_of_the_edges(tmp_path, monkeypatch):
    made = [make(tmp_path / str(threads), threads) for threads in (1, 3)]
    monkeypatch.setattr(typed_citation, "BATCH_EDGES", 1000)
    made.append(make(tmp_path / "cut"))
    for stage in ("graph", "features"):
        assert len({str(getattr(built, stage).files) for built in made}) == 1


@pytest.mark.parametrize(("p_in", "low", "high"), [(1.0, 1.0, 1.0), (0.6, 0.6, 0.7), (0.0, 0.09, 0.17)])
def test_edges_stay_in_a_class_as_often_as_is_said(tmp_path, p_in, low, high):
    """Authors are of the class of their number: papers that they write, and their institutions, mostly are, too."""
    graph = make(tmp_path, p_in=p_in, duplicates="keep", undirected=False).opened
    src, dst, kind = edges_of(graph.topology)
    paper, author = dst[kind == 1], src[kind == 1] - PAPERS
    assert low <= (np.asarray(graph.labels)[paper] == author % 8).mean() <= high
    author, institution = src[kind == 2] - PAPERS, dst[kind == 2] - PAPERS - AUTHORS
    assert low - 0.03 <= (author % 8 == institution % 8).mean() <= high + 0.03


def test_hidden_classes_leave_the_edges(tmp_path):
    whole, some = make(tmp_path / "whole"), make(tmp_path / "some", labelled=0.1)
    np.testing.assert_array_equal(some.opened.topology.indices, whole.opened.topology.indices)
    labels, classes = np.asarray(some.opened.labels), np.asarray(whole.opened.labels)
    known = labels >= 0
    assert 100 < known.sum() < 200 and (labels[known] == classes[known]).all()
    assert some.features.version == whole.features.version


def test_every_type_needs_a_node_of_each_class():
    with pytest.raises(InputError, match="nodes = 10 makes 5 papers and classes = 8"):
        config_class("typed_citation")(nodes=10, edges=10)
