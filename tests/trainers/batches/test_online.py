"""The online source: the same bytes at any number of workers, exact counts, bounded queue, exact restart in an epoch."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.graph.read import Graph
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.batches.batch import Batching, MiniBatch, batch_bytes
from graphmill.trainers.batches.source import OnlineSource
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource, MappedSource, MemorySource
from tests.trainers.graphs import random_graph


def open_online(graph: Graph, features: FeatureSource | None = None, workers: int = 2, **options: Any) -> OnlineSource:
    plan = EpochPlan(np.asarray(graph.train_ids), 32, seed=1, reuse=options.pop("reuse", 0), accumulate=3)
    settings: dict[str, Any] = {"edge_weight": "gcn", "ledger": Ledger(), "queue_bytes": 2**20} | options
    features = features or MemorySource(graph.features)
    batching = Batching(topology=graph.topology, labels=graph.labels, plan=plan, **settings)
    return OnlineSource(batching, features, [Sampler(graph.topology, (4, 3), seed=1) for _ in range(workers)])


def contents(batch: MiniBatch) -> list[Any]:
    """Everything a batch holds, as comparable values."""
    arrays = [batch.seeds, batch.labels, batch.x.numpy()]
    arrays += [getattr(block, f.name) for block in batch.blocks for f in fields(block)]
    head = [batch.key, batch.train_epoch, batch.position, batch.group, batch.group_seeds]
    return head + [a.tobytes() if isinstance(a, np.ndarray) else a for a in arrays]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"))


def test_batches_are_byte_equal_at_any_number_of_workers(graph: Graph) -> None:
    runs = [[contents(b) for b in open_online(graph, workers=n).batches(2)] for n in (1, 2, 8)]
    assert len(runs[0]) == 7 and runs[0] == runs[1] == runs[2]
    assert [c[2] for c in runs[0]] == list(range(7))


def test_every_seed_comes_once_and_rows_are_the_features(graph: Graph) -> None:
    table, seen = np.array(graph.features.open()), []
    for batch in open_online(graph).batches(0):
        seen.append(batch.seeds)
        np.testing.assert_array_equal(batch.x.numpy(), table[batch.input_ids])
        np.testing.assert_array_equal(batch.labels, graph.labels[batch.seeds])
        assert len(np.unique(batch.input_ids)) == len(batch.input_ids)
    assert sorted(np.concatenate(seen)) == sorted(graph.train_ids)


def test_an_epoch_can_start_anywhere(graph: Graph) -> None:
    whole = [contents(b) for b in open_online(graph).batches(1)]
    for start in (0, 3, 6):
        assert [contents(b) for b in open_online(graph).batches(1, start)] == whole[start:]


def test_groups_cover_the_epoch_and_count_their_seeds(graph: Graph) -> None:
    batches = list(open_online(graph).batches(0))
    assert [b.group for b in batches] == [(0, 3), (1, 3), (2, 3), (0, 3), (1, 3), (2, 3), (0, 1)]
    for first in (0, 3, 6):
        members = batches[first : first + 3]
        assert {b.group_seeds for b in members} == {sum(len(b.seeds) for b in members)}


def test_reused_samples_keep_their_key_and_get_new_positions(graph: Graph) -> None:
    source = open_online(graph, reuse=2)
    first, again = list(source.batches(0)), list(source.batches(2))
    by_step = {b.key.step: b for b in again}
    assert {b.key.epoch for b in first + again} == {0}
    assert [b.key.step for b in first] != [b.key.step for b in again]
    for batch in first:
        np.testing.assert_array_equal(batch.input_ids, by_step[batch.key.step].input_ids)
    assert [b.position for b in again] == list(range(7)) and {b.train_epoch for b in again} == {2}


@pytest.mark.parametrize(("kind", "links"), [(MemorySource, ("h2d",)), (MappedSource, ("h2d", "mapped"))])
def test_the_ledger_is_the_sum_of_the_formulas(graph: Graph, kind: type, links: tuple[str, ...]) -> None:
    source = open_online(graph, kind(graph.features))
    batches = list(source.batches(0))
    inputs = sum(len(b.input_ids) for b in batches)
    asked = inputs * graph.features.row_bytes
    moves = source.batching.ledger.rows()["moves"]
    assert [(move["link"], move["requests"], move["asked_bytes"]) for move in moves] == [
        (link, 7, asked) for link in links
    ]
    # Of a mapped file only what was asked for is known; every row crosses to the device.
    assert [move["moved_bytes"] for move in moves] == [0 if link == "mapped" else asked for link in links]
    counts = {(row["name"], row["layer"]): row["n"] for row in source.batching.ledger.rows()["counts"]}
    assert counts["batches", 0] == 7 and counts["seeds", 0] == 200 and counts["inputs", 0] == inputs
    for layer in range(2):
        assert counts["edges", layer] == sum(len(b.blocks[layer].indices) for b in batches)


def test_input_rows_lie_in_memory_that_is_used_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("graphmill.kernels.rows.aligned.aligned_empty", lambda n: made.append(n) or aligned_empty(n))
    source, table = open_online(graph, workers=1, queue_bytes=2**16), np.array(graph.features.open())
    for epoch in range(4):
        for batch in source.batches(epoch):
            del batch
    assert 0 < len(made) < 4 * 7
    # What is still held is not lent again.
    held = [batch for epoch in range(2) for batch in source.batches(epoch)]
    for batch in held:
        np.testing.assert_array_equal(batch.x.numpy(), table[batch.input_ids])


def test_an_abandoned_epoch_leaves_no_thread_and_no_count_of_untaken_batches(graph: Graph) -> None:
    import threading

    before = threading.active_count()
    source = open_online(graph, workers=3)
    for batch in source.batches(0):
        if batch.position == 2:
            break
    assert threading.active_count() == before
    assert {(r["name"], r["n"]) for r in source.batching.ledger.rows()["counts"] if r["name"] == "batches"} == {
        ("batches", 3)
    }


def test_a_queue_that_may_not_grow_refuses_a_batch_that_is_larger(graph: Graph) -> None:
    needed = max(batch_bytes(b, graph.features.width) for b in open_online(graph).batches(0))
    assert len(list(open_online(graph, queue_bytes=needed).batches(0))) == 7
    with pytest.raises(OverBudget, match="lower `batch_size` or `fanouts`"):
        list(open_online(graph, queue_bytes=needed - 1).batches(0))


def test_a_failing_gather_ends_the_epoch_with_its_error(graph: Graph) -> None:
    features = MemorySource(graph.features)

    def broken(*_: Any) -> None:
        raise OSError("the table went away")

    features.gather = broken  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(OSError, match="went away"):
        list(open_online(graph, features, workers=4).batches(0))


def test_mapped_and_memory_features_give_the_same_rows(graph: Graph, tmp_path: Path) -> None:
    memory = [contents(b) for b in open_online(graph, MemorySource(graph.features)).batches(0)]
    assert memory == [contents(b) for b in open_online(graph, MappedSource(graph.features)).batches(0)]


def test_a_batch_turns_into_blocks_of_pyg_with_rows_and_labels(graph: Graph) -> None:
    batch = next(open_online(graph).batches(0))
    first, last = batch.to_pyg()
    assert [each.size for each in (first, last)] == [(b.num_src, b.num_dst) for b in batch.blocks]
    assert first.x is batch.x and last.x is None and first.y is None
    np.testing.assert_array_equal(last.y.numpy(), batch.labels)
    np.testing.assert_array_equal(first.n_id.numpy(), batch.input_ids)
    np.testing.assert_array_equal(last.n_id[: last.size[1]].numpy(), batch.seeds)
    # Local ids of a layer are those of the layer below, as `h[: size[1]]` takes them for.
    np.testing.assert_array_equal(last.n_id.numpy(), first.n_id[: first.size[1]].numpy())
    np.testing.assert_array_equal(last.edge_weight.numpy(), batch.blocks[1].weight)


def test_a_batch_turns_into_dgl_blocks_with_rows_and_labels(graph: Graph) -> None:
    dgl = pytest.importorskip("dgl")
    batch = next(open_online(graph).batches(0))
    blocks = batch.to_dgl()
    assert [(b.num_src_nodes(), b.num_dst_nodes(), b.num_edges()) for b in blocks] == [
        (b.num_src, b.num_dst, b.num_edges) for b in batch.blocks
    ]
    assert blocks[0].srcdata["x"] is batch.x or bool((blocks[0].srcdata["x"] == batch.x).all())
    np.testing.assert_array_equal(blocks[-1].dstdata["y"].numpy(), batch.labels)
    np.testing.assert_array_equal(blocks[0].srcdata[dgl.NID].numpy(), batch.input_ids)
    np.testing.assert_array_equal(blocks[-1].dstdata[dgl.NID].numpy(), batch.seeds)
    np.testing.assert_array_equal(blocks[1].edata["weight"].numpy(), batch.blocks[1].weight)
