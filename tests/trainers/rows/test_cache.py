"""Rows of a cached source come from the tier that the placement says, and the ledger counts exactly that."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.graph.read import Graph
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.placement import Placement, place_rows
from graphmill.kernels.rows.slots import split_slots
from graphmill.trainers.devices.link import Link
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import CACHE, OverBudget
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import CachedSource
from graphmill.trainers.rows.source import LinkedSource, MappedSource, MemorySource, RowIds
from tests.trainers.batches.test_online import contents, open_online
from tests.trainers.graphs import random_graph

ROW = 48


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"))


def some_placement(device_rows: int = 60, host_rows: int = 90) -> Placement:
    return place_rows(np.random.default_rng(3).permutation(400), device_rows, host_rows)


def open_cache(graph: Graph, placement: Placement, kind: type = MappedSource, **options: Any) -> CachedSource:
    return CachedSource(graph.features, kind(graph.features), placement, LogicalDevice(), **options)


def lines(ledger: Ledger) -> dict[str, tuple[int, int]]:
    return {row["link"]: (row["asked_bytes"], row["moved_bytes"]) for row in ledger.rows()["moves"]}


def counts(ledger: Ledger) -> dict[str, int]:
    return {row["name"]: row["n"] for row in ledger.rows()["counts"] if row["name"][:4] in ("hits", "miss")}


@pytest.mark.parametrize("kind", [MappedSource, MemorySource])
@pytest.mark.parametrize("max_rows", [1 << 29, 399])
def test_rows_and_ledger_follow_the_placement(graph: Graph, kind: type, max_rows: int) -> None:
    """A table of more rows than slots address is staged: same rows, same bytes."""
    placement = some_placement()
    source, ledger = open_cache(graph, placement, kind, max_rows=max_rows), Ledger()
    ids = np.random.default_rng(4).permutation(400)[:250]
    out = torch.empty(250, 12)
    source.gather(RowIds(ids), out, ledger)
    np.testing.assert_array_equal(out.numpy(), graph.features.open()[ids])
    tier = split_slots(placement.slot[ids])[0]
    device, host, behind = (int((tier == each).sum()) for each in (0, 1, -2))
    assert min(device, host, behind) > 0
    assert counts(ledger) == {"hits_device": device, "hits_host": host, "misses": behind}
    expected = {"d2d": (device * ROW,) * 2, "h2d": ((host + behind) * ROW,) * 2}
    assert lines(ledger) == (expected | {"mapped": (behind * ROW, 0)} if kind is MappedSource else expected)


def test_marks_are_what_gather_reads(graph: Graph) -> None:
    source = open_cache(graph, some_placement())
    ids = np.array([3, 3, 399, 0])
    slots, marked, unmarked = np.empty(4, np.int32), torch.empty(4, 12), torch.empty(4, 12)
    source.mark(ids, slots)
    source.gather(RowIds(ids, slots), marked, Ledger())
    source.gather(RowIds(ids), unmarked, Ledger())
    assert torch.equal(marked, unmarked)


def test_a_device_budget_bounds_the_device_image(graph: Graph) -> None:
    device = LogicalDevice(cache_bytes=60 * ROW)
    source = CachedSource(graph.features, MappedSource(graph.features), some_placement(60), device)
    assert device.peak == {"cache": 60 * ROW, "total": 60 * ROW} and device.live_bytes == 0
    with pytest.raises(OverBudget, match=r"cache on device 0 \(cache 2,880\) asks for 48 .*\n.*raise `device`"):
        device.alloc((1, 12), np.dtype(np.float32), CACHE)
    del source
    assert device.alloc((60, 12), np.dtype(np.float32), CACHE).shape == (60, 12)
    with pytest.raises(OverBudget):
        CachedSource(graph.features, MappedSource(graph.features), some_placement(61), LogicalDevice(cache_bytes=2880))


def test_a_damaged_table_does_not_fill_a_cache(tmp_path: Path) -> None:
    graph = random_graph(tmp_path)
    data = bytearray(graph.features.path.read_bytes())
    data[-1] ^= 1
    graph.features.path.write_bytes(data)
    with pytest.raises(InputError, match="is damaged"):
        open_cache(graph, some_placement())


def test_batches_are_byte_equal_with_any_cache_and_link(graph: Graph) -> None:
    plain = [contents(batch) for batch in open_online(graph).batches(1)]
    placement = some_placement()
    link = Link(1.0, clock=lambda: 0, sleep=lambda ns: None)
    cached = [
        open_cache(graph, placement),
        open_cache(graph, placement, MemorySource),
        open_cache(graph, placement, max_rows=1),
        LinkedSource(open_cache(graph, placement), link),
    ]
    for source in cached:
        online = open_online(graph, source, workers=3)
        batches = list(online.batches(1))
        assert [contents(batch) for batch in batches] == plain
        assert all(batch.slots is not None and len(batch.slots) == len(batch.input_ids) for batch in batches)
    assert link.charged_bytes == online.batching.ledger.moved_bytes("h2d") > 0
