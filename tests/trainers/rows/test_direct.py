"""Direct reads of a table: the rows of the mapping, pages compared as they come, and the choice between ways of reading."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphmill.assets.graph.read import Graph
from graphmill.assets.storage.files.digests import page_digests_of
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.direct_io import ReadExecution
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows import direct
from graphmill.trainers.rows.direct import DirectSource
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.rows.source import MappedSource, RowIds
from tests.trainers.graphs import random_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"))


def gathered(source, ids: np.ndarray, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, Ledger]:
    out, ledger = torch.full((len(ids), source.width), torch.nan, dtype=dtype), Ledger()
    source.gather(RowIds(ids), out, ledger)
    return out, ledger


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["io_uring", "pread", "buffered"])
def test_rows_are_those_of_the_mapping_at_any_window(graph, monkeypatch, dtype, method):
    monkeypatch.setattr(direct, "WINDOW_BYTES", 5 * graph.features.row_bytes)
    source = DirectSource(graph.features, 2, ReadExecution(method=method, fallback="buffered"))
    ids = np.random.default_rng(0).integers(0, 400, 333)
    mapped, direct_rows = gathered(MappedSource(graph.features), ids, dtype)[0], gathered(source, ids, dtype)
    assert direct_rows[0].numpy().tobytes() == mapped.numpy().tobytes()
    rows = {row["link"]: row for row in direct_rows[1].rows()["moves"]}
    assert rows["disk"]["asked_bytes"] == rows["h2d"]["moved_bytes"] == 333 * graph.features.row_bytes
    assert rows["disk"]["moved_bytes"] % 4096 == 0 and "mapped" not in rows


def test_each_page_is_moved_once(graph):
    """400 rows of 48 bytes are five pages, whatever the order in which they are asked for."""
    ids = np.random.default_rng(1).permutation(400)
    (row,) = [row for row in gathered(DirectSource(graph.features), ids)[1].rows()["moves"] if row["link"] == "disk"]
    assert row["moved_bytes"] == 5 * 4096 and row["requests"] == 1


def test_threads_have_readers_of_their_own(graph):
    source, ids = DirectSource(graph.features), np.random.default_rng(2).integers(0, 400, (8, 200))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: gathered(source, each)[0], ids))
    for each, rows in zip(ids, found, strict=True):
        np.testing.assert_array_equal(rows.numpy(), graph.features.open()[each])


def copied(table: FeatureTable, tmp_path) -> FeatureTable:
    path = tmp_path / "store" / "features" / "0123456789abcdef" / "rows.npy"
    path.parent.mkdir(parents=True)
    path.write_bytes(table.path.read_bytes())
    return replace(table, path=path)


def test_a_damaged_page_is_found_when_it_is_read_and_not_before(graph, tmp_path):
    table = copied(graph.features, tmp_path)
    content = bytearray(table.path.read_bytes())
    content[table.offset + 2 * 4096 + 7] ^= 1
    table.path.write_bytes(content)
    source = DirectSource(table)
    sound = np.arange(4096 // 48)
    np.testing.assert_array_equal(gathered(source, sound)[0].numpy(), graph.features.open()[sound])
    with pytest.raises(InputError, match=r"rows.npy is damaged: .*byte 12288 does not match") as raised:
        gathered(source, np.arange(160, 240))
    assert "graphmill repair" in raised.value.remedy
    with pytest.raises(InputError, match="is damaged"):  # without digests of pages the whole file is compared first
        DirectSource(replace(table, page_digest=None))


def test_digests_of_pages_are_computed_where_an_artifact_has_none(graph, tmp_path):
    table = copied(graph.features, tmp_path)
    np.testing.assert_array_equal(table.page_digest, page_digests_of(table.path, table.offset))
    source = DirectSource(replace(table, page_digest=None))
    np.testing.assert_array_equal(gathered(source, np.arange(400))[0].numpy(), graph.features.open())


@pytest.mark.parametrize(
    ("free", "kind"), [(None, MappedSource), (400 * 48 * 2, MappedSource), (400 * 48 * 2 - 1, DirectSource)]
)
def test_auto_is_direct_for_a_table_of_more_than_half_the_free_memory(graph, monkeypatch, free, kind):
    monkeypatch.setattr("graphmill.assets.storage.system.control_group.free_bytes", lambda: free)
    assert type(open_source(graph.features, "auto")) is kind


def test_auto_goes_through_the_page_cache_where_no_direct_read_is_to_be_had(graph, monkeypatch):
    def refuse(*arguments):
        raise InputError("the file system has no O_DIRECT", "")

    monkeypatch.setattr("graphmill.assets.storage.system.control_group.free_bytes", lambda: 0)
    monkeypatch.setattr("graphmill.trainers.rows.open.DirectSource", refuse)
    with pytest.warns(RuntimeWarning, match="through the page cache, which is slow"):
        assert type(open_source(graph.features, "auto")) is MappedSource
