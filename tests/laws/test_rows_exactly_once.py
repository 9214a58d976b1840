"""Laws 3 and 4 for cached rows: each needed row comes once, from one tier, byte-equal; no tier holds more than its budget, 0 included."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.building.stage import Summary
from graphmill.assets.features.read import open_features
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import open_samples
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.store import Store
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.placement import place_bytes
from graphmill.kernels.rows.slots import DEVICE, HOST, STAGED, split_slots
from graphmill.kernels.types import BatchKey
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.inference.windows import InPlaceRows, StreamedRows, input_rows
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import CachedSource, PackedRows
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.rows.packed_loader import loader_reading
from graphmill.trainers.rows.source import MappedSource, RowIds
from graphmill.trainers.training.open_rows import open_rows
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.storage.tiny_artifacts import numbers_of
from tests.trainers.graphs import GraphArtifacts, attributed, random_graph_artifacts
from tests.trainers.rows.caches import cache_inputs
from tests.trainers.runs import SAMPLING, TABLE, content, train_packed, train_small

NUM_NODES, ROW_BYTES = 400, 48
TABLE_BYTES = NUM_NODES * ROW_BYTES
budgets = st.one_of(st.just(0), st.just(TABLE_BYTES), st.integers(0, TABLE_BYTES + 100))


KINDS = [{"featureless": 0, "dtype": "float32"}, {"featureless": 3, "dtype": "float32"}]
KINDS += [{"featureless": 7, "dtype": "float16"}, {"featureless": 2, "dtype": "uint16"}]
KINDS += [{"featureless": 1, "dtype": "float32"}]
"""Tables: all nodes have rows; a third, a seventh, half or all of them have none. "uint16" holds bfloat16."""

TYPED = {"featureless": 0, "dtype": "float16"}
"""A table of three node types with 12, 5 and no columns."""


@pytest.fixture(scope="module", params=[*KINDS, TYPED], ids=lambda kind: f"{kind['dtype']}, 1 in {kind['featureless']}")
def artifacts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GraphArtifacts:
    with attributed() if request.param is TYPED else nullcontext():
        return random_graph_artifacts(tmp_path_factory.mktemp("home"), **request.param)


def expected_rows(table: FeatureTable, ids: np.ndarray) -> np.ndarray:
    """The rows f32[n, F] that nodes should get, by a way of its own: byte for byte, zeros without features."""
    rows = np.array(table.open())
    if table.dtype == "uint16":
        rows = torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16).float().numpy()
    place = np.arange(table.num_nodes) if table.row_of is None else np.asarray(table.row_of)
    whole = np.zeros((table.num_nodes, table.width), np.float32)
    whole[place >= 0] = rows[place[place >= 0]].astype(np.float32)
    return whole[ids]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    budgets,
    budgets,
    st.sampled_from(["mapped", "memory", "direct"]),
    st.sampled_from([1 << 29, 1]),
    st.lists(st.integers(0, NUM_NODES - 1), max_size=200),
)
def test_rows_come_once_from_one_tier_within_budgets(
    artifacts: GraphArtifacts,
    seed: int,
    device_bytes: int,
    host_bytes: int,
    where: str,
    max_rows: int,
    needed: list[int],
) -> None:
    table = artifacts.open().features
    order, row_bytes = np.random.default_rng(seed).permutation(NUM_NODES), table.row_bytes
    placement = place_bytes(order, row_bytes, device_bytes, host_bytes, table.row_of)
    device = LogicalDevice(cache_bytes=device_bytes)
    source = CachedSource(table, open_source(table, where), placement, device, max_rows)
    ids, ledger = np.array(needed, np.int32), Ledger()
    out = torch.full((len(ids), 12), torch.nan)
    source.gather(RowIds(ids), out, ledger)

    assert out.numpy().tobytes() == expected_rows(table, ids).tobytes()
    assert device.peak.get("cache", 0) <= device_bytes and source.host_bytes <= host_bytes
    counted = {row["name"]: row["n"] for row in ledger.rows()["counts"]}
    tier = split_slots(placement.slot[ids])[0]
    assert counted["hits_device"] == (tier == DEVICE).sum() and counted["hits_host"] == (tier == HOST).sum()
    assert sum(counted.values()) == len(ids)
    assert counted.get("without_features", 0) == (table.rows_of(ids) < 0).sum()
    assert ledger.moved_bytes("d2d") == counted["hits_device"] * row_bytes
    assert ledger.moved_bytes("h2d") == (counted["hits_host"] + counted["misses"]) * row_bytes
    if where == "direct":  # the file is read, not the array
        return
    # Nobody can take a row that is not there: a table of other bytes behind the cache leaves the cached rows as they were.
    source.behind.rows = np.zeros_like(np.asarray(table.open()))
    source.gather(RowIds(ids), out, Ledger())
    cached = tier >= 0
    np.testing.assert_array_equal(out.numpy()[cached], expected_rows(table, ids)[cached])
    assert not out.numpy()[~cached].any()


@pytest.mark.parametrize("where", ["mapped", "memory", "direct"])
def test_a_table_without_a_cache_gives_each_row_once(artifacts: GraphArtifacts, where: str) -> None:
    table = artifacts.open().features
    ids, ledger = np.random.default_rng(0).integers(0, NUM_NODES, 300).astype(np.int32), Ledger()
    out = torch.full((300, 12), torch.nan)
    open_source(table, where, threads=2).gather(RowIds(ids), out, ledger)
    assert out.numpy().tobytes() == expected_rows(table, ids).tobytes()
    has_row = int((table.rows_of(ids) >= 0).sum())
    assert ledger.moved_bytes("h2d") == has_row * table.row_bytes


def test_exact_inference_reads_the_same_rows_by_windows(
    artifacts: GraphArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = artifacts.open().features
    monkeypatch.setattr("graphmill.trainers.inference.windows.WINDOW_BYTES", 10 * table.row_bytes)
    ids = np.random.default_rng(0).integers(0, NUM_NODES, 300)
    for fits in (True, False):
        monkeypatch.setattr("graphmill.trainers.inference.windows.fits_memory", lambda num_bytes, fits=fits: fits)
        rows = input_rows(MappedSource(table), memory_bytes=0)
        lie_as_read = fits and table.dtype == "float32" and table.row_of is None
        assert isinstance(rows, InPlaceRows if lie_as_read else StreamedRows) or not table.num_rows
        assert rows.gather(ids, 2).numpy().tobytes() == expected_rows(table, ids).tobytes()
        assert rows.read(37, 301).numpy().tobytes() == expected_rows(table, np.arange(37, 301)).tobytes()


@pytest.fixture(scope="module")
def packed_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Packed]:
    """Returns the packed rows of a table of `KINDS`, by its number."""
    return cache(lambda number: build_packed(tmp_path_factory.mktemp("packed"), **KINDS[number]))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind['dtype']}, 1 in {kind['featureless']}")
@pytest.mark.parametrize("order", ["filled", "copies"])
def test_packed_rows_come_once_from_four_levels(tmp_path: Path, kind: dict, order: str) -> None:
    packed = build_packed(tmp_path, epochs=2, plan={"order": order}, **kind)
    table, samples = open_features(packed.features), open_samples(packed.samples)
    chunks = PackedChunks(packed.packed_chunks, packed.cache_plan, packed.samples)
    rows = PackedRows(
        chunks,
        table,
        device=LogicalDevice(),
        reading=loader_reading(method="buffered"),
    )
    sums = {"hits_device": 0, "hits_host": 0, "hits_packed": 0, "hits_disk_cache": 0, "without_features": 0}
    for number in range(samples.num_epochs * samples.num_batches):
        epoch, step = divmod(number, samples.num_batches)
        blocks, ledger = samples.batch(epoch, step)[1], Ledger()
        ids = np.asarray(blocks[0].src_ids)
        out = torch.full((len(ids), table.width), torch.nan)
        staged = rows.stage(BatchKey(0, epoch, step))
        rows.gather(RowIds(ids, staged=staged), out, ledger)
        assert out.numpy().tobytes() == expected_rows(table, ids).tobytes()
        counted = {row["name"]: row["n"] for row in ledger.rows()["counts"]}
        assert sum(counted.values()) == len(ids)
        assert counted.get("without_features", 0) == (table.rows_of(ids) < 0).sum()
        for name in sums:
            sums[name] += counted.get(name, 0)
        staged.release()
    rows.close()
    hits = [sums[name] > 0 for name in sums if name != "without_features"]
    assert all(hits) if table.num_rows else not any(hits)
    assert (sums["without_features"] > 0) == (kind["featureless"] > 0)
    held = packed.packed_chunks.summary["numbers"]
    assert held["packed_rows"] == sums["hits_packed"] and held["row_bytes"] == table.row_bytes


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind['dtype']}, 1 in {kind['featureless']}")
def test_rows_of_pruned_batches_come_once_and_whole_pages_are_booked(
    packed_of: Callable[[int], Packed], kind: dict
) -> None:
    packed = packed_of(KINDS.index(kind))
    table, samples = open_features(packed.features), open_samples(packed.samples)
    chunks, rng = PackedChunks(packed.packed_chunks, packed.cache_plan, packed.samples), np.random.default_rng(0)
    rows = PackedRows(
        chunks,
        table,
        device=LogicalDevice(),
        reading=loader_reading(method="buffered"),
    )
    for number, share in enumerate((0.0, 0.02, 0.3, 0.9, 1.0)):
        step = number % samples.num_batches
        ids, ledger = np.asarray(samples.batch(0, step)[1][0].src_ids), Ledger()
        origin = np.flatnonzero(rng.random(len(ids)) < share).astype(np.int32)
        out = torch.full((len(origin), table.width), torch.nan)
        staged = rows.stage(BatchKey(0, 0, step), origin)
        rows.gather(RowIds(ids[origin], staged=staged), out, ledger)
        assert out.numpy().tobytes() == expected_rows(table, ids[origin]).tobytes()
        assert sum(row["n"] for row in ledger.rows()["counts"]) == len(origin)
        place, whole = chunks.place(step), rows.stage(BatchKey(0, 0, step))
        tier, row = split_slots(whole.slots[origin])
        packed_rows = row[(tier == STAGED) & (row < place.num_packed)]
        least = PAGE_BYTES * (pages(origin, 4) + pages(packed_rows, table.row_bytes))
        cached = (tier == STAGED).sum() - len(packed_rows)
        assert (
            least + 2 * PAGE_BYTES * (cached > 0) <= ledger.moved_bytes("disk")
            if cached
            else ledger.moved_bytes("disk") == least
        )
        whole.release()
        staged.release()
    rows.close()


def pages(rows: np.ndarray, row_bytes: int) -> int:
    """How many pages some rows of a table touch."""
    return len(
        {
            page
            for row in rows.tolist()
            for page in range(row * row_bytes // PAGE_BYTES, -(-(row + 1) * row_bytes // PAGE_BYTES))
        }
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The content of the model of rows without a cache."""
    return content(train_small(tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize(
    "memory",
    [
        {"device": 0, "host": 0},
        {"device": "100%", "host": 0},
        {"device": 0, "host": "100%"},
        {"device": "3%", "host": "7%", "seed": 1},
        {"device": "3%", "host": "7%", "seed": 2},
        {"device": "40%", "host": "1GiB", "seed": 3},
    ],
)
def test_losses_are_bit_equal_with_any_placement(tmp_path: Path, plain: dict[str, str], memory: dict) -> None:
    cached = train_small(tmp_path / "cached", memory=memory, samplers=3)
    for name in ("weights.safetensors", "metrics.jsonl"):
        assert content(cached)[name] == plain[name]
    record = cached.run_record()["cache"]
    assert record["device_rows"] * ROW_BYTES <= record["device_budget_bytes"]
    assert record["host_rows"] * ROW_BYTES <= record["host_budget_bytes"]
    assert cached.run_record()["peak_bytes"].get("cache", 0) == record["device_rows"] * ROW_BYTES


def test_the_budget_of_a_run_is_the_stage_s(tmp_path: Path) -> None:
    from graphmill.kernels.sampling.epoch_plan import EpochPlan
    from graphmill.trainers.loop.executor import Run
    from graphmill.trainers.recipe.config import ModelConfig

    artifacts = random_graph_artifacts(tmp_path)
    graph, table = artifacts.open(), TrainTable(**TABLE)
    semantic = ModelConfig(seed=5, train=table.config, sampling=SAMPLING)
    plan = EpochPlan(np.array(graph.train_ids), SAMPLING.batch_size, seed=5)
    for device, host in ((0, 0), (48 * 7, 48 * 11 + 47), ("50%", "25%")):
        cache = cache_inputs(tmp_path, artifacts, device=device, host=host, disk=0)
        run = Run(graph=graph, inputs={}, reads=cache, semantic=semantic, execution=table.execution)
        run.plan = plan
        made = open_rows(run, graph.features)
        rows = [200, 100] if device == "50%" else [device // 48, host // 48]
        assert [made.record["device_rows"], made.record["host_rows"]] == rows


@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: f"{kind['dtype']}, 1 in {kind['featureless']}")
def test_weights_are_bit_equal_from_disk_online_and_with_rows_of_zeros(
    tmp_path: Path, packed_of: Callable[[int], Packed], kind: dict
) -> None:
    packed = packed_of(KINDS.index(kind))
    disk = content(train_packed(packed, tmp_path / "disk", "disk", epochs=2))
    online = content(train_packed(packed, tmp_path / "online", "minibatch", epochs=2))
    zeros = packed._replace(features=with_rows_of_zeros(tmp_path / "zeros", open_features(packed.features)))
    explicit = content(train_packed(zeros, tmp_path / "explicit", "minibatch", epochs=2))
    for name in ("weights.safetensors", "metrics.jsonl"):
        assert disk[name] == online[name] == explicit[name]


def with_rows_of_zeros(home: Path, table: FeatureTable) -> Artifact:
    """The same features as a table with a row for each node."""
    assert table.row_of is not None
    whole = np.zeros((table.num_nodes, table.width), table.dtype)
    whole[np.asarray(table.row_of) >= 0] = table.open()
    with Store(home).writer("features", "0" * 64) as writer:
        writer.save("rows", whole)
        return writer.publish({}, {}, Summary(numbers=numbers_of("features", {"rows": whole})), {})
