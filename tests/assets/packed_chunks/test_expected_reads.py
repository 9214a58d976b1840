"""Packed rows by expected reads: the chances are those of a drawn history, and a pruned batch reads fewer pages."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.cache_plan.read import open_segment_plan
from graphmill.assets.packed_chunks.expected_reads import read_orders, wanted_rows
from graphmill.assets.samples.read import open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.history.csr2 import prune
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from tests.assets.packed_chunks.packed import build_packed
from tests.assets.packed_chunks.test_packed_chunks import rows_of
from tests.graphs import build_graph
from tests.kernels.graphs import topology
from tests.trainers.graphs import GraphArtifacts

DRAWS = 3000


@pytest.mark.parametrize("seed", range(4))
def test_the_chance_of_a_row_is_that_of_drawn_prunings(seed: int) -> None:
    """On trees: of two layers consumers are independent, and of three nearly."""
    generator, nodes = np.random.default_rng(seed), 121
    tree = topology([[child for child in range(3 * node + 1, 3 * node + 4) if child < nodes] for node in range(nodes)])
    seeds = np.array([0] if seed % 2 else [1, 2, 3], np.int32)
    blocks = Sampler(tree, (3, 3, 3)[: 2 + seed % 2], seed=seed).sample(BatchKey(0, 0, 0), seeds)
    held = [generator.random(nodes).astype(np.float32) for _ in blocks[1:]]
    chance, found = wanted_rows(tuple(blocks), held), np.zeros(blocks[0].num_src)
    for _ in range(DRAWS):
        slots = [
            np.where(generator.random(block.num_src) < held[layer][block.src_ids], 0, -1).astype(np.int32)
            for layer, block in enumerate(blocks[1:])
        ]
        found[prune(blocks, slots).origin] += 1
    error = np.abs(found / DRAWS - chance)
    assert np.median(error) < 0.02 and error.max() < (0.2 if seed % 2 else 0.04) and 0.05 < chance.mean() < 0.95
    assert (wanted_rows(tuple(blocks), []) == 1).all()  # nothing is held


CASES: tuple[dict[str, Any], ...] = (
    {"epochs": 3},
    {"width": 3, "groups": 0, "memory": {"disk": "40x"}},
    {"width": 1500, "groups": 3},  # rows wider than a page
    {"epochs": 2, "evaluate": True},
    {"featureless": 3},
    {"memory": {"device": "30%", "host": "70%"}},  # nothing is left for the disk
    {"epochs": 3, "memory": {"disk": "8x"}, "plan": {"order": "copies", "segment_size": 10}},
)


@pytest.mark.parametrize("case", CASES)
def test_every_row_is_where_its_slot_says_and_as_many_pages_are_taken(tmp_path: Path, case: dict[str, Any]) -> None:
    by_id, by_reads = (build_packed(tmp_path, **case, order=order) for order in ("nodes", "reads"))
    assert by_reads.packed_chunks.verify() == [] and by_id.packed_chunks.version != by_reads.packed_chunks.version
    for number in range(by_id.packed_chunks.summary["numbers"]["num_batches"]):
        (ids, expected), (same, found) = (rows_of(each, number) for each in (by_id, by_reads))
        np.testing.assert_array_equal(same, ids)
        np.testing.assert_array_equal(found, expected)
    for name in ("offsets", "num_bytes", "num_cached", "cache_offsets"):
        left, right = (np.array(each.packed_chunks.array(name)) for each in (by_id, by_reads))
        np.testing.assert_array_equal(left, right)


def test_the_bytes_do_not_depend_on_threads_and_processes(tmp_path: Path) -> None:
    ways: tuple[dict[str, Any], ...] = ({}, {"threads": 2}, {"workers": 2, "threads": 2})
    built = [build_packed(tmp_path / str(number), order="reads", **way) for number, way in enumerate(ways)]
    first, *others = ([each.files for each in (made.packed_chunks, *parts(made))] for made in built)
    assert all(each == first for each in others)


def parts(made: Any) -> list[Any]:
    return [made.packed_chunks.open_part(name) for name in made.packed_chunks.parts]


def test_pruned_batches_read_fewer_pages(tmp_path: Path) -> None:
    """By a history whose rows live for a sixth of an epoch, over epochs whose batches come in other orders."""
    width, nodes = 64, 20_000
    sizes: dict[str, Any] = {"nodes": nodes, "edges": 300_000, "features": width, "classes": 4, "labelled": 0.3}
    skewed: dict[str, Any] = {"a": 0.57, "b": 0.19, "c": 0.19, "train_ratio": 0.8, "valid_ratio": 0.1}
    made = build_graph(Store(tmp_path), config_class("rmat")(**sizes, **skewed))
    graph = GraphArtifacts(made.graph, made.features)
    drawn = SamplingConfig(fanouts=(8, 8), batch_size=40)
    packed = build_packed(tmp_path, graph=graph, sampling=drawn, groups=1, memory={"disk": "200x"}, order="reads")
    samples, plan = open_samples(packed.samples), open_segment_plan(packed.cache_plan)
    orders, generator = read_orders(samples, plan), np.random.default_rng(1)
    of_page, pages, born, step = (
        PAGE_BYTES // (4 * width),
        {"nodes": 0, "reads": 0, "rows": 0},
        np.full(nodes, -1000),
        0,
    )
    for _ in range(3):
        for batch in generator.permutation(len(orders)).tolist():
            blocks, order = samples.record(*samples.place_of(batch)).blocks, orders[batch]
            assert sorted(order.tolist()) == list(range(len(plan.packed(batch))))
            ids, step = blocks[1].src_ids, step + 1
            found = step - born[ids] <= len(orders) // 6
            born[ids[~found & (generator.random(len(ids)) < 0.9)]] = step
            left = prune(blocks, [np.where(found, 0, -1).astype(np.int32)])
            read = np.isin(plan.packed(batch), blocks[0].src_ids[left.origin])
            pages["rows"] += np.count_nonzero(read)
            pages["nodes"] += len(np.unique(np.flatnonzero(read) // of_page))
            pages["reads"] += len(np.unique(np.flatnonzero(read[order]) // of_page))
    assert pages["rows"] / of_page < pages["reads"] < 0.9 * pages["nodes"]
