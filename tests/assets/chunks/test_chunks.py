"""Stored chunks: what brute force says, the same bytes every time, damage found, odd graphs right."""

import numpy as np
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.chunks import build as lists
from graphmill.assets.chunks.config import ChunksTable, chunks_config
from graphmill.assets.chunks.costs import chunks_need
from graphmill.assets.chunks.read import open_chunks
from graphmill.assets.chunks.stage import CHUNKS
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.graph.read import open_graph
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.chunks.counts import cost
from graphmill.kernels.errors import InputError
from tests.assets.partitions.test_partitions import build as build_parts
from tests.assets.partitions.test_partitions import graph_of
from tests.trainers.techniques.fullgraph.made_steps import MadeSteps


@pytest.fixture(scope="module")
def sbm(tmp_path_factory):
    config = config_class("sbm")(nodes=600, edges=4000, classes=6, p_in=0.9, features=2, seed=1)
    return materialize(Store(tmp_path_factory.mktemp("home")), GRAPH, config, Threads(threads=1), {})


def build(graph, home, parts=2, chunks=4, method="random", threads=1, **table):
    inputs = {"graph": graph, "partitions": build_parts(graph, home, method, parts)}
    config = chunks_config(ChunksTable(chunks_per_part=chunks, **table), 3)
    return materialize(Store(home), CHUNKS, config, Threads(threads=threads), inputs)


def brute(graph, artifact):
    """The same chunks in the same order by set arithmetic."""
    opened = open_chunks(artifact)
    chunk_of = np.empty(opened.num_nodes, int)
    for i in range(opened.num_parts):
        for j in range(opened.chunks_per_part):
            chunk_of[opened.step(i, j).dst_ids] = i * opened.chunks_per_part + j
    return opened, MadeSteps(open_graph(graph).topology, chunk_of, opened.num_parts, opened.chunks_per_part)


@pytest.mark.parametrize("schedule", ["identity", "hongtu", "best"])
@pytest.mark.parametrize(("parts", "chunks"), [(1, 6), (3, 4), (4, 1)])
def test_steps_are_those_of_set_arithmetic(tmp_path, sbm, schedule, parts, chunks):
    artifact = build(sbm, tmp_path, parts, chunks, schedule=schedule)
    opened, made = brute(sbm, artifact)
    assert (opened.counts.v_ori, opened.counts.v_p2p, opened.counts.v_ru) == (made.v_ori, made.v_p2p, made.v_ru)
    assert opened.num_distinct == len(set().union(*made.unions)) and all(
        c["passed"] for c in artifact.summary["checks"]
    )
    for i in range(parts):
        for j in range(chunks):
            step, wanted = opened.step(i, j), made.step(i, j)
            assert step.load_ids.tolist() == wanted.load_ids.tolist()
            assert step.block.src_ids[step.load_rows].tolist() == step.load_ids.tolist()
            ends = step.block.src_ids[step.block.indices]
            assert ends.tolist() == wanted.block.src_ids[wanted.block.indices].tolist()
            assert [(p, len(mine)) for p, _, mine in step.fetch] == [(p, len(mine)) for p, _, mine in wanted.fetch]
            for peer, theirs, mine in step.fetch:
                there = opened.step(peer, j).block.src_ids
                assert there[theirs].tolist() == step.block.src_ids[mine].tolist()


@pytest.mark.parametrize("order", ["id", "rcm", "metis"])
def test_the_schedule_is_never_worse_and_the_bytes_are_equal(tmp_path, sbm, order):
    one, two = (build(sbm, tmp_path / str(t), 4, 8, threads=t, order=order) for t in (1, 2))
    assert {name: f["digest"] for name, f in one.files.items()} == {name: f["digest"] for name, f in two.files.items()}
    numbers = one.summary["numbers"]
    by_schedule = {row["schedule"]: row for row in numbers["volumes_by_schedule"]}
    assert numbers["v_ru"] <= min(by_schedule["identity"]["v_ru"], by_schedule["hongtu"]["v_ru"])
    chosen = by_schedule[numbers["schedule"]]
    assert [chosen[name] for name in ("v_ori", "v_p2p", "v_ru")] == [numbers[n] for n in ("v_ori", "v_p2p", "v_ru")]
    curve = numbers["replication_by_chunks"]
    assert [row["chunks"] for row in curve] == [4 << k for k in range(8)]  # up to 512 in all (Table 3)
    assert next(row["replication"] for row in curve if row["chunks"] == 4 * 8) == round(numbers["replication"], 4)


@pytest.mark.parametrize(("parts", "chunks", "self_term"), [(4, 8, True), (3, 5, False), (1, 4, True), (8, 100, True)])
@pytest.mark.parametrize("threads", [1, 2])
def test_sets_that_do_not_fit_come_from_lists_in_ranges_of_nodes(
    tmp_path, sbm, monkeypatch, parts, chunks, self_term, threads
):
    """The artifact has the bytes of the one whose sets are held, also where there are more chunks than nodes."""
    held = build(sbm, tmp_path / "held", parts, chunks, self_term=self_term)
    monkeypatch.setattr(lists, "free_bytes", lambda: 0)
    monkeypatch.setattr(lists, "LISTS_BYTES", memory := 4 * parts * chunks)  # bits of a few nodes
    sorted_at_once = []
    sort = lists.sort_edges
    monkeypatch.setattr(lists, "sort_edges", lambda *given: sorted_at_once.append(given[2]) or sort(*given))
    listed = build(sbm, tmp_path / "listed", parts, chunks, threads=threads, self_term=self_term)
    assert sorted_at_once == [memory]
    assert listed.version == held.version and listed.files == held.files and listed.summary == held.summary
    assert not list(listed.path.parent.parent.glob(".staging/*"))


def test_ten_billion_nodes_take_the_lists_and_no_bit_for_each_chunk():
    configs = {"partitions": PartitionsConfig(method="ldg", parts=64, seed=0)}
    sizes = Sizes(num_nodes=10**10, num_edges=10**11, configs=configs)
    need = chunks_need(chunks_config(ChunksTable(chunks_per_part=512), 0), Threads(threads=8), sizes)
    assert need.memory_bytes > 70 << 40 and need.required_bytes < 240 << 30
    assert need.least_bytes <= need.required_bytes and need.scratch > 3 << 40


def test_given_speeds_decide_the_schedule_and_the_page_names_the_one_of_rows(tmp_path, sbm):
    plain, timed = build(sbm, tmp_path, 4, 8), build(sbm, tmp_path, 4, 8, rates="10GB/s,1GB/s,100GB/s")
    numbers = timed.summary["numbers"]
    assert plain.version != timed.version and all(check["passed"] for check in timed.summary["checks"])
    speeds, found = (10e9, 1e9, 100e9), {row["schedule"]: row for row in numbers["volumes_by_schedule"]}
    seconds = {name: cost(row["v_ori"], row["v_p2p"], row["v_ru"], speeds) for name, row in found.items()}
    assert numbers["byte_nanoseconds"] == pytest.approx(1e9 * min(seconds.values()))
    assert numbers["byte_nanoseconds"] < numbers["byte_nanoseconds_of_fewest_rows"]
    assert found[numbers["schedule_of_fewest_rows"]]["v_ru"] <= plain.summary["numbers"]["v_ru"] < numbers["v_ru"]
    assert "byte_nanoseconds" not in plain.summary["numbers"]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"rates": "fast"}, "are not three speeds above 0"),
        ({"rates": "1GB/s,1GB/s,1GB/s", "schedule": "identity"}, "'identity' chooses nothing"),
    ],
)
def test_speeds_that_are_none_or_choose_nothing_are_refused(table, problem):
    with pytest.raises(InputError, match=problem):
        ChunksTable(**table)


def test_sub_parts_of_a_shuffled_graph_need_fewer_copies(tmp_path, sbm):
    by_id, by_metis = (
        build(sbm, tmp_path, 1, 6, order=order).summary["numbers"]["replication"] for order in ("id", "metis")
    )
    assert by_metis < 0.85 * by_id


@pytest.mark.parametrize(
    ("edges", "num_nodes", "parts", "chunks"),
    [
        ([(0, 1)], 9, 2, 3), ([(0, 1)], 3, 8, 4), ([(0, 0), (0, 0), (1, 0), (1, 0), (2, 2)], 6, 3, 2),
        ([(v, 0) for v in range(1, 60)], 60, 4, 3), ([(v, v + 1) for v in range(50)], 51, 1, 1),
    ],
    ids=["isolated", "more parts than nodes", "duplicates and self-loops", "hub", "one part, one chunk"],
)  # fmt: skip
def test_odd_graphs_have_steps(tmp_path, edges, num_nodes, parts, chunks):
    graph = graph_of(tmp_path, edges, num_nodes)
    artifact = build(graph, tmp_path, parts, chunks)
    opened, made = brute(graph, artifact)
    assert (opened.counts.v_ori, opened.counts.v_p2p, opened.counts.v_ru) == (made.v_ori, made.v_p2p, made.v_ru)
    assert int(opened.counts.destinations.sum()) == num_nodes


def test_a_flipped_bit_is_found_and_wrong_numbers_are_refused(tmp_path, sbm):
    artifact = build(sbm, tmp_path)
    path = artifact.file("steps.npy")
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    opened = open_chunks(artifact)
    with pytest.raises(InputError, match="do not match their digest"):
        for i in range(2):
            for j in range(4):
                opened.step(i, j)
    with pytest.raises(InputError, match="step 9 of part 0 is not in"):
        opened.step(0, 9)
    with pytest.raises(InputError, match="chunks_per_part = 0"):
        ChunksTable(chunks_per_part=0)
