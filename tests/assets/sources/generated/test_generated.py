"""R-MAT and block-model graphs: the same bytes at any thread count, and features that need the neighbours."""

import numpy as np
import pytest

from graphmill.assets.sources.registry import config_class
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config


def make(folder, source, threads=1, **keys):
    config = config_class(source)(**{"nodes": 3000, "edges": 24000, "features": 16} | keys)
    return build_config(folder, config, threads=threads)


@pytest.mark.parametrize("source", ["rmat", "sbm", "citation"])
def test_byte_equal_at_any_thread_count(tmp_path, source):
    made = [make(tmp_path / str(threads), source, threads) for threads in (1, 2, 8)]
    assert len({built.versions for built in made}) == 1
    for stage in ("graph", "features"):
        one, two, eight = (getattr(built, stage) for built in made)
        assert one.files == two.files == eight.files
        assert one.summary == two.summary == eight.summary
    assert made[0].verify() == []


@pytest.mark.parametrize("source", ["rmat", "sbm", "citation"])
@pytest.mark.parametrize("keys", [{}, {"undirected": False, "duplicates": "keep", "self_loops": "keep"}], ids=str)
@pytest.mark.parametrize(
    ("name", "value"), [("HELD_EDGES", 23_999), ("memory_bytes", lambda: 1 << 20)], ids=["many", "memory"]
)
def test_edges_that_are_sorted_out_of_core_give_the_same_graph(tmp_path, monkeypatch, source, keys, name, value):
    config = config_class(source)(nodes=3000, edges=24_000)
    held = make(tmp_path / "held", source, **keys)
    assert config.survey().scratch_bytes == 0
    for each, patched in ((name, value), ("BATCH_EDGES", 5_000), ("SORT_BYTES", 200_000)):
        monkeypatch.setattr(f"graphmill.assets.sources.generated.generators.{each}", patched)
    assert config.survey().scratch_bytes > 0, "edges are sorted out of core"
    spooled = make(tmp_path / "spooled", source, **keys)
    assert spooled.versions == held.versions
    assert spooled.graph.files == held.graph.files and spooled.graph.summary == held.graph.summary


def test_hidden_classes_leave_the_edges_and_the_features(tmp_path):
    whole, some = make(tmp_path / "whole", "rmat"), make(tmp_path / "some", "rmat", labelled=0.1)
    assert some.features.version == whole.features.version and some.graph.version != whole.graph.version
    np.testing.assert_array_equal(some.opened.topology.indices, whole.opened.topology.indices)
    labels, classes = np.asarray(some.opened.labels), np.asarray(whole.opened.labels)
    known = labels >= 0
    assert 250 < known.sum() < 350 and (labels[known] == classes[known]).all()
    members = np.concatenate([getattr(some.opened, f"{name}_ids") for name in ("train", "valid", "test")])
    assert sorted(members.tolist()) == np.flatnonzero(known).tolist()
    assert make(tmp_path / "whole", "rmat", labelled=1.0).reused == (True, True), "the default enters no version"


@pytest.mark.parametrize("source", ["rmat", "sbm", "citation"])
def test_neighbours_say_more_than_the_row(tmp_path, source):
    built = make(tmp_path, source)
    graph, x = built.opened, np.asarray(built.table.open())
    labels = np.asarray(graph.labels)
    indptr, indices = graph.topology.indptr, graph.topology.indices
    target = np.repeat(np.arange(len(labels)), np.diff(indptr))
    mean = np.zeros_like(x)
    np.add.at(mean, target, x[indices])
    mean /= np.maximum(np.diff(indptr), 1)[:, None]

    def accuracy(rows):
        centres = np.stack([rows[graph.train_ids][labels[graph.train_ids] == c].mean(axis=0) for c in range(8)])
        distance = ((rows[graph.test_ids][:, None] - centres) ** 2).sum(axis=2)
        return (distance.argmin(axis=1) == labels[graph.test_ids]).mean()

    own, both = accuracy(x), accuracy(np.concatenate([x, 3 * mean], axis=1))
    assert 0.2 < own < 0.6
    assert both > own + 0.1


@pytest.mark.parametrize(
    ("keys", "reused"),
    [
        ({}, (True, True)),
        ({"seed": 1}, (False, False)),
        ({"nodes": 2999}, (False, False)),
        ({"classes": 7}, (False, False)),
        ({"noise": 1.0}, (True, False)),
        ({"features": 17}, (True, False)),
        ({"normalize": "row"}, (True, False)),
        ({"a": 0.4}, (False, True)),
        ({"edges": 23999}, (False, True)),
        ({"train_ratio": 0.5}, (False, True)),
        ({"undirected": False}, (False, True)),
    ],
)
def test_every_key_changes_the_version_of_what_it_decides(tmp_path, keys, reused):
    make(tmp_path, "rmat")
    assert make(tmp_path, "rmat", **keys).reused == reused


def test_normalised_rows_have_unit_sum(tmp_path):
    table = make(tmp_path, "sbm", normalize="row").table.open()
    assert np.allclose(np.abs(table).sum(axis=1), 1, atol=1e-5)


def test_homophily_follows_p_in(tmp_path):
    numbers = make(tmp_path, "sbm", p_in=0.9).numbers
    assert abs(numbers["homophily_ratio"] - 0.9) < 0.01
    assert numbers["num_nodes"] == 3000 and sum(numbers["class_counts"]) == 3000


@pytest.mark.parametrize(
    ("source", "keys", "message"),
    [
        ("rmat", {"nodes": 0}, "nodes = 0"),
        ("rmat", {"edges": 0}, "edges = 0"),
        ("rmat", {"features": 0}, "features = 0"),
        ("rmat", {"classes": 3001}, "classes = 3001"),
        ("rmat", {"noise": -1.0}, "noise = -1.0"),
        ("rmat", {"labelled": 1.1}, "labelled = 1.1"),
        ("rmat", {"a": 0.9}, "a = 0.9, b = 0.1, c = 0.1"),
        ("sbm", {"p_in": 1.5}, "p_in = 1.5"),
        ("sbm", {"train_ratio": 0.9, "valid_ratio": 0.2}, "train_ratio = 0.9"),
        ("sbm", {"duplicates": "merged"}, "did you mean 'merge'"),
        ("sbm", {"normalize": "column"}, "normalize = 'column'"),
        ("sbm", {"seed": -1}, "seed = -1"),
        ("rmta", {}, "did you mean 'rmat'"),
    ],
)
def test_impossible_configurations(tmp_path, source, keys, message):
    with pytest.raises(InputError, match=message):
        make(tmp_path, source, **keys)
