"""Batches drawn by passes over the edges: the bytes of those in memory, each touched block read once per pass, faults before work."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.building.keys import ConfigError
from graphmill.assets.building.stage import Silent, Summary
from graphmill.assets.graph.read import open_graph
from graphmill.assets.sampling import edge_windows
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import Drawing, open_drawing
from graphmill.assets.sampling.passes import granted_bytes
from graphmill.assets.sampling.sequential import SequentialDraws
from graphmill.assets.storage.files.digests import BLOCK_BYTES
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.types import BatchKey, Stream
from tests.assets.storage.damage import flip
from tests.assets.storage.tiny_artifacts import numbers_of
from tests.trainers.graphs import random_topology

FIELDS = ("start", "end", "indices", "src_ids", "weight", "share", "edge_type", "edge_id")


def published(home, stage, arrays, numbers=None, inputs=None):
    version = version_of(stage, 0, {"n": np.random.default_rng().integers(1 << 62)}, {}, {})
    with Store(home).writer(stage, version) as writer:
        for name, values in arrays.items():
            writer.save(name, values)
        return writer.publish({}, inputs or {}, Summary(numbers=numbers_of(stage, arrays) | (numbers or {})), {})


def graph_of(home, topology):
    """A graph artifact with a topology, of whose nodes a few are seeds."""
    names = ("indptr", "indices", "in_degree", "out_degree", "weights", "edge_types", "edge_ids")
    arrays = {name: getattr(topology, name) for name in names if getattr(topology, name) is not None}
    count, ids = topology.num_nodes, topology.indices.dtype
    arrays |= {"labels": np.zeros(count, np.int32), "train_ids": np.arange(count // 2, dtype=ids)}
    arrays |= {"valid_ids": np.zeros(0, ids), "test_ids": np.zeros(0, ids)}
    kinds = 0 if topology.edge_types is None else int(topology.edge_types.max(initial=0)) + 1
    numbers = {"num_nodes": count, "num_edges": topology.num_edges, "class_names": ["a"]}
    numbers |= {**({"edge_types": [f"r{n}" for n in range(kinds)]} if kinds else {})}
    return published(home, "graph", arrays, numbers)


@st.composite
def graphs(draw):
    """A topology with whatever samplers read of edges, drawn or not."""
    nodes, relations = draw(st.integers(2, 60)), draw(st.integers(0, 3))
    made = random_topology(
        nodes, draw(st.integers(0, 400)), draw(st.integers(0, 9)), relations=relations, weights=draw(st.booleans())
    )
    ids = np.random.default_rng(0).permutation(made.num_edges).astype(np.int64) if draw(st.booleans()) else None
    return replace(made, edge_ids=ids)


@st.composite
def cases(draw):
    topology = draw(graphs())
    method = draw(st.sampled_from(["uniform", "weighted"]))
    number = st.sampled_from([-1, 1, 2, 5])
    layers = draw(st.integers(1, 3))
    if topology.edge_types is not None and method == "uniform" and draw(st.booleans()):
        kinds = int(topology.edge_types.max(initial=0)) + 1
        entry = st.fixed_dictionaries({"r0": st.sampled_from([0, 2])} if kinds > 1 else {})
        fanouts = tuple(
            draw(st.one_of(number, entry.map(lambda given: given | {"*": 3}), st.just({"*": -1})))
            for _ in range(layers)
        )
    else:
        fanouts = tuple(draw(number) for _ in range(layers))
    how = {"method": method, "fanouts": fanouts, "replace": draw(st.booleans()), "batch_size": 8}
    how |= (
        {"weights": "node:in_degree", "empty_rows": draw(st.sampled_from(["uniform", "none"]))}
        if method == "weighted"
        else {}
    )
    seeds = st.lists(st.integers(0, topology.num_nodes - 1), unique=True, max_size=topology.num_nodes)
    batches = draw(st.lists(seeds, min_size=1, max_size=6))
    return topology, how, batches


def keyed(batches, dtype=np.int32):
    return [(BatchKey(Stream.TRAIN, 0, step), np.array(seeds, dtype)) for step, seeds in enumerate(batches)]


def drawn(home, graph, how, batches, threads=1, **more):
    """The blocks of batches by passes, and what these took."""
    drawing, inputs = opened(home, graph, how)
    folder = home / "spills"
    folder.mkdir()
    try:
        given = {"seed": 3, "folder": folder, "threads": threads, "edges": True} | more
        with SequentialDraws(drawing, inputs, **given) as draws:
            draws.draw(batches, Silent())
            sampler = draws.samplers()[-1]
            return [sampler.sample(key, seeds) for key, seeds in batches], draws.facts()
    finally:
        shutil.rmtree(folder)


def opened(home, graph, how):
    config, inputs = SamplingConfig(**how), {"graph": graph}
    if config.method == "weighted":
        topology = open_graph(graph).topology
        tables = build_alias(topology, np.arange(topology.num_nodes) % 3.0, of_nodes=True, empty=config.empty_rows)
        arrays = {"table": tables.table} | ({} if tables.support is None else {"support": tables.support})
        inputs["sampling_tables"] = published(home, "sampling_tables", arrays, inputs={"graph": graph})
    drawing = open_drawing(config, inputs)
    assert drawing is not None
    return drawing, inputs


def assert_same(found, expected):
    for left, right in zip(found, expected, strict=True):
        assert len(left) == len(right)
        for one, two in zip(left, right, strict=True):
            assert (one.num_dst, one.num_src) == (two.num_dst, two.num_src)
            for name in FIELDS:
                a, b = getattr(one, name), getattr(two, name)
                assert (a is None) == (b is None), name
                assert a is None or (a.dtype == b.dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes()), name


@settings(max_examples=40, deadline=None)
@given(
    case=cases(),
    threads=st.sampled_from([1, 2]),
    memory=st.sampled_from([1 << 14, 1 << 20]),
    nodes=st.sampled_from([7, 64]),
)
def test_batches_are_those_of_memory(tmp_path_factory, case, threads, memory, nodes):
    """For any group size, number of windows and of threads."""
    topology, how, batches = case
    home = tmp_path_factory.mktemp("home")
    graph, batches = graph_of(home, topology), keyed(batches)
    drawing, _ = opened(home, graph, how)
    sampler = drawing.sampler(open_graph(graph).topology, seed=3)
    expected = [sampler.sample(key, seeds, transpose="none", edge_ids=True) for key, seeds in batches]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_windows, "RANGE_NODES", nodes)
        found, facts = drawn(home, graph, how, batches, threads, memory_bytes=memory)
    assert_same(found, expected)
    assert facts["passes"] == sum(facts["groups_by_layer"])
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A graph of several blocks per array."""
    home = tmp_path_factory.mktemp("large")
    return home, graph_of(home, random_topology(300_000, 2_500_000, 1))


def touched(graph, frontiers):
    """The bytes of the blocks that hold a row of a node, or its ends."""
    indptr, total = np.asarray(open_graph(graph).topology.indptr), 0
    nodes = np.unique(np.concatenate(frontiers))
    for name, low, high, size in (("indptr", nodes, nodes + 2, 8), ("indices", indptr[nodes], indptr[nodes + 1], 4)):
        file_bytes, blocks = graph.files[f"{name}.npy"]["bytes"], set()
        for begin, end in zip((4096 + low * size).tolist(), (4096 + high * size).tolist(), strict=True):
            blocks |= set(range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES))) if end > begin else set()
        total += sum(min(BLOCK_BYTES, file_bytes - block * BLOCK_BYTES) for block in blocks)
    return total


@pytest.mark.parametrize("memory", [64 << 20, 1 << 20])
def test_a_pass_reads_each_touched_block_once(large, memory):
    """Of a few nodes near each other as of many; a window border does not read its block again."""
    home, graph = large
    draw = np.random.default_rng(2)
    batches = keyed([1000 * n + np.sort(draw.choice(900, 40, False)) for n in range(3)])
    how = {"fanouts": (4, 3), "batch_size": 64}
    found, facts = drawn(home, graph, how, batches, memory_bytes=memory)
    sampler = Drawing(neighbours=SamplingConfig(**how)).sampler(open_graph(graph).topology, seed=3)
    assert_same(found, [sampler.sample(key, seeds, transpose="none") for key, seeds in batches])
    assert facts["groups_by_layer"] == [1, 1]
    seeds = [blocks[-1].dst_ids for blocks in found]
    expected = touched(graph, seeds) + touched(graph, [blocks[0].dst_ids for blocks in found])
    assert facts["topology_read_bytes"] == expected
    assert touched(graph, seeds) < graph.files["indices.npy"]["bytes"] // 2


def test_small_groups_make_more_passes(large, monkeypatch):
    home, graph = large
    monkeypatch.setattr("graphmill.assets.sampling.sequential.window_bytes", lambda limit: 1 << 20)
    batches = keyed(np.random.default_rng(3).permutation(300_000)[:4000].reshape(20, 200))
    how = {"fanouts": (4, 3), "batch_size": 200}
    one, few = drawn(home, graph, how, batches, memory_bytes=64 << 20)
    two, many = drawn(home, graph, how, batches, threads=2, memory_bytes=40_000)
    assert_same(one, two)
    assert few["groups_by_layer"] == [1, 1] and many["groups_by_layer"][1] > 2


def test_faults_are_told_before_a_pass(large, monkeypatch):
    home, graph = large
    batches, how = keyed([range(5000)]), {"fanouts": (4, 3), "batch_size": 5000}
    reads = []
    monkeypatch.setattr(edge_windows.EdgeWindows, "windows", lambda self, asked_in: reads.append(1))
    with pytest.raises(InputError, match=r"the longest row of graph/\w+ takes \d+ B, and memory_limit leaves 25 B"):
        drawn(home, graph, how, batches, memory_bytes=100)
    with pytest.raises(InputError, match=r"nodes of a batch take 19.5 KiB in a layer, and memory_limit leaves 4.9 KiB"):
        drawn(home, graph, how, batches, memory_bytes=10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match=r"drawn edges of a pass take up to .*, and 1000 B of disk are free"):
        drawn(home, graph, how, batches)
    assert not reads


def test_a_flipped_bit_is_found_when_its_block_is_read(tmp_path):
    graph = graph_of(tmp_path, random_topology(300_000, 2_500_000, 1))
    batches, how = keyed([[5, 299_000]]), {"fanouts": (2,), "batch_size": 2}
    drawn(tmp_path, graph, how, batches)
    path, untouched = graph.path / "indices.npy", 5 * BLOCK_BYTES
    flip(path, 8 * untouched)
    drawn(tmp_path, graph, how, batches)  # a block without an asked row
    flip(path, 8 * 4100)
    with pytest.raises(InputError, match=r"indices.npy is damaged: bytes 0 to 1048575 do not match their digest"):
        drawn(tmp_path, graph, how, batches)
    flip(path, 8 * 4100)
    flip(graph.path / "indptr.npy", 8 * 4100)
    with pytest.raises(InputError, match=r"indptr.npy is damaged: bytes 0 to 1048575"):
        drawn(tmp_path, graph, how, batches)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"method": "random_walk"}, "each step of a walk begins where the one before ended"),
        ({"method": "own:function"}, "your own function reads the topology itself"),
        ({"before": "seed"}, "what a node draws depends on the seed above it"),
    ],
)
def test_what_no_pass_can_draw_is_refused_with_the_reason(more, reason):
    with pytest.raises(ConfigError, match=reason):
        SamplingConfig(fanouts=(2,), topology="sequential", **more)
    assert SamplingConfig(fanouts=(2,), **more).without_passes()


def test_files_of_another_graph_are_refused(tmp_path, monkeypatch):
    """Before a pass if tables are of another graph, or a file has another size; else by the first block that is read."""
    batches, how, passes = keyed([[5, 200]]), {"fanouts": (2,), "batch_size": 2}, []
    rename, file = np.random.default_rng(0).permutation(300), "indices.npy"
    mine, other, longer = (
        graph_of(tmp_path, random_topology(300, edges, 9, renamed))
        for edges, renamed in ((2500, None), (2500, rename), (3500, None))
    )
    assert mine.files[file]["bytes"] == other.files[file]["bytes"]
    weighted = SamplingConfig(**how, method="weighted", weights="node:in_degree")
    drawn(tmp_path, mine, how, batches)
    windows = edge_windows.EdgeWindows.windows
    monkeypatch.setattr(edge_windows.EdgeWindows, "windows", lambda *given: passes.append(1) or windows(*given))
    table = np.zeros((mine.files[file]["shape"][0], 2), np.uint32)
    tables = published(tmp_path, "sampling_tables", {"table": table}, inputs={"graph": other})
    with pytest.raises(InputError, match=r"is not what is needed here(?s:.*)input graph"):
        open_drawing(weighted, {"graph": mine, "sampling_tables": tables})
    (mine.path / file).write_bytes((longer.path / file).read_bytes())
    with pytest.raises(InputError, match=r"indices.npy is damaged: it has \d+ bytes instead of \d+"):
        drawn(tmp_path, mine, how, batches)
    assert not passes
    (mine.path / file).write_bytes((other.path / file).read_bytes())
    with pytest.raises(InputError, match=r"indices.npy is damaged: bytes 0 to \d+ do not match their digest"):
        drawn(tmp_path, mine, how, batches)


def test_memory_of_passes_is_at_most_half_of_what_is_free(monkeypatch):
    how = SamplingConfig(fanouts=(2,), memory_limit="1GiB")
    for free, granted in ((None, 1 << 30), (4 << 30, 1 << 30), (1 << 30, 1 << 29), (1 << 20, 64 << 20)):
        monkeypatch.setattr("graphmill.assets.sampling.passes.free_bytes", lambda free=free: free)
        assert granted_bytes(how) == granted


def test_a_limit_that_is_too_small_is_refused():
    with pytest.raises(ConfigError, match=r"memory_limit = 1MiB is less than 64\.0 MiB"):
        SamplingConfig(fanouts=(2,), memory_limit="1MiB")
