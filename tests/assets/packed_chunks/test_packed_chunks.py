"""Packed chunks: every row of every batch where its slot says, the same bytes however they are built, and no damage goes unseen."""

import errno
import os
import shutil
import tracemalloc
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import ChecksFailedError, Silent
from graphmill.assets.cache_plan.read import open_segment_plan
from graphmill.assets.features.read import open_features
from graphmill.assets.packed_chunks.build_group import CachedNodes, input_slots
from graphmill.assets.packed_chunks.config import PackedConfig, PackedExecution
from graphmill.assets.packed_chunks.distribute import BufferSizes, RowDistributor, distribute
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.packed_chunks.reorder import Reorderer
from graphmill.assets.packed_chunks.stage import PACKED_CHUNKS
from graphmill.assets.samples.read import open_samples
from graphmill.assets.storage.files.read_ranges import read_ranges
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import read_table
from graphmill.assets.storage.store import Store
from graphmill.kernels import warn_once
from graphmill.kernels.disk_cache.pack import pack_range
from graphmill.kernels.disk_cache.segments import SegmentPlan
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, page_digests_reference
from graphmill.kernels.rows.slots import DEVICE, ELSEWHERE, HOST, NO_FEATURES, STAGED, split_slots
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.samples.sampled import contents
from tests.trainers.graphs import GraphArtifacts, random_graph_artifacts

CASES: tuple[dict[str, Any], ...] = (
    {},
    {"width": 3, "groups": 0, "memory": {"disk": "40x"}},
    {"width": 1500, "groups": 3},  # rows wider than a page
    {"memory": {"device": "0", "host": "0"}},
    {"memory": {"device": "30%", "host": "70%"}},  # nothing is left for the disk
    {"memory": {"disk": "100x"}},  # everything is packed
    {"epochs": 3, "plan": {"order": "minhash"}},
    {"plan": {"segment_size": 7}},  # one segment
    {"epochs": 3, "width": 128, "memory": {"disk": "6x"}, "plan": {"order": "copies"}},
    {"epochs": 3, "memory": {"disk": "8x"}, "plan": {"order": "copies", "segment_size": 10}},
)


def rows_of(packed: Packed, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The input ids of a batch, and their rows as its slots find them, read without any kernel."""
    chunks, table = (
        PackedChunks(packed.packed_chunks, packed.cache_plan, packed.samples),
        open_features(packed.features),
    )
    samples, row_bytes = open_samples(packed.samples), table.row_bytes
    node_ids = samples.record(*samples.place_of(number)).blocks[0].src_ids
    place = chunks.place(number)
    with open(place.extent.path, "rb") as file:
        file.seek(place.extent.offset)
        chunk = np.frombuffer(file.read(place.extent.num_bytes), np.uint8)
    assert place.extent.offset % PAGE_BYTES == 0 and len(chunk) == place.extent.num_bytes
    slots, places, rows = (chunk[section] for section in place.sections(row_bytes))
    cache = np.fromfile(place.cache.path, np.uint8, place.cache.num_bytes, offset=place.cache.offset)
    np.testing.assert_array_equal(place.cache_digests, page_digests_reference(cache))
    wanted = places.view(np.int32)
    assert (np.diff(wanted) > 0).all()
    cached = [cache[row * row_bytes : (row + 1) * row_bytes] for row in wanted]
    staged = np.concatenate([rows, *cached]).reshape(-1, row_bytes)
    tiers = {DEVICE: read_table(chunks.device_image), HOST: read_table(chunks.host_image), STAGED: staged}
    tier, row = split_slots(slots.view(np.int32))
    found = np.zeros((len(node_ids), row_bytes), np.uint8)
    for number, image in tiers.items():
        here = tier == number
        found[here] = np.ascontiguousarray(image).view(np.uint8).reshape(len(image), row_bytes)[row[here]]
    assert set(tier.tolist()) <= {*tiers, NO_FEATURES}
    return node_ids, found


@pytest.mark.parametrize("case", CASES)
def test_every_row_of_every_batch_is_the_feature_row(tmp_path: Path, case: dict[str, Any]) -> None:
    packed = build_packed(tmp_path, **case)
    table = np.array(open_features(packed.features).open())
    numbers = packed.packed_chunks.summary["numbers"]
    assert numbers["num_batches"] == 7 * case.get("epochs", 1)
    for number in range(numbers["num_batches"]):
        node_ids, found = rows_of(packed, number)
        np.testing.assert_array_equal(found, table[node_ids].view(np.uint8).reshape(len(node_ids), -1))
    assert packed.packed_chunks.verify() == []
    if packed.cache_plan.summary["numbers"]["order"] == "copies":
        plan = open_segment_plan(packed.cache_plan)
        caches = np.split(plan.cache_ids, plan.cache_ptr[1:-1])
        assert sum(len(ids) - len(np.unique(ids)) for ids in caches) > 100  # there are copies


def test_checks_and_picture_have_the_numbers_of_what_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr("graphmill.assets.figures.tiers.packing_figure", lambda path, *given: drawn.append(given))
    packed = build_packed(tmp_path)
    made, plan = packed.packed_chunks, packed.cache_plan.summary["numbers"]
    numbers, found = made.summary["numbers"], {check["name"]: check["numbers"] for check in made.summary["checks"]}
    assert found["one chunk a batch"] == {"chunks": 7, "batches": 7}
    assert found["chunks begin on pages"] == {
        "chunks off the pages": 0,
        "allowed off the pages": 0,
        "page, bytes": 4096,
    }
    rows, images = found["rows are the features"], numbers["device_rows"] + numbers["host_rows"]
    assert rows["rows"] == numbers["packed_rows"] + numbers["cached_rows"] + images
    assert 0 < rows["rows compared"] <= rows["rows"] and rows["rows that differ"] == 0
    space, reads = drawn[0]
    names = ("packed rows", "disk caches", "addresses and padding")
    assert sum(space[name] for name in names) == numbers["chunk_bytes"] + numbers["cache_bytes"]
    assert space["packed rows"] == numbers["packed_rows"] * numbers["row_bytes"]
    assert space["full packing"] == plan["full_packing_bytes"] and space["budget"] == plan["disk_budget_bytes"]
    read = sum(int(reads[name].sum()) for name in names)
    assert read == numbers["chunk_bytes"] + plan["num_pages"] * PAGE_BYTES
    assert reads["disk caches"].tolist() == (np.asarray(packed.cache_plan.array("pages")) * PAGE_BYTES).tolist()


@pytest.mark.usefixtures("drawn")
def test_a_picture_is_drawn_by_default(tmp_path: Path) -> None:
    made = build_packed(tmp_path).packed_chunks
    (figure,) = made.summary["figures"].values()
    assert 1000 < made.file(figure).stat().st_size < 100_000 and made.verify() == []


def test_the_bytes_do_not_depend_on_how_they_are_built(tmp_path: Path) -> None:
    built = [
        build_packed(tmp_path / f"home-{number}", **how).packed_chunks
        for number, how in enumerate(({}, {"threads": 2}, {"workers": 2, "threads": 2}))
    ]
    assert len(built[0].parts) == 2
    first = list(contents(built[0]).values())
    assert all(list(contents(each).values()) == first for each in built[1:])


def test_a_batch_of_other_samples_is_refused() -> None:
    input_ids, cache = np.array([2, 9, 7, 4]), np.array([7, 3, 4, 1, 9, 7, 2, 7])  # three copies of 7

    def reads(*rows: int) -> CachedNodes:
        return CachedNodes.of(cache, np.array(rows, np.int32))

    def found(packed_ids: list[int], cached: CachedNodes | None = None) -> tuple[list[int], list[int]]:
        slots, ids = np.full(4, ELSEWHERE, np.int32), np.array(packed_ids, np.int64)
        slots, places = input_slots(slots, input_ids, ids, cached or reads(0, 6))
        return split_slots(slots)[1].tolist(), places.tolist()

    assert found([4, 9]) == ([3, 1, 2, 0], [0, 6])
    assert found([4, 9], reads(6, 5)) == ([3, 1, 2, 0], [5, 6])
    assert found([2, 4, 7, 9], reads()) == ([0, 3, 2, 1], [])
    assert found([], reads(7, 2, 6, 4)) == ([2, 1, 3, 0], [2, 4, 6, 7])
    for packed in ([4], [4, 8], [3, 4, 9], [2, 4, 9], []):  # 2 is in the cache already
        with pytest.raises(InputError, match="from disk"):
            found(packed)


def test_a_plan_that_counts_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = SegmentPlan.group

    def wrong(plan: SegmentPlan, low: int, high: int) -> SegmentPlan:
        part = right(plan, low, high)
        ids = part.cache(0)
        unwanted = ~np.isin(ids, ids[part.cached(0)]) & ~np.isin(ids, part.packed(0))
        members = np.insert(part.members, part.member_ptr[1], np.flatnonzero(unwanted)[0])
        return replace(part, member_ptr=part.member_ptr + (np.arange(len(part.member_ptr)) > 0), members=members)

    monkeypatch.setattr(SegmentPlan, "group", wrong)
    with pytest.raises(InputError, match="the plan expects others"):
        build_packed(tmp_path, plan={"segment_size": 3}, memory={"disk": "10x"})


@pytest.mark.parametrize("width", [1, 3, 300, 1500])
@pytest.mark.parametrize("range_bytes", [1, 1 << 20, 3 << 20])
def test_ranges_are_the_table(tmp_path: Path, width: int, range_bytes: int) -> None:
    graph = random_graph_artifacts(tmp_path, num_nodes=1400, width=width)
    table = graph.open().features
    rows, following = [], 0
    for first_row, part in read_ranges(table, range_bytes):
        assert first_row == following
        rows.append(part.copy())
        following += len(part)
    expected = np.array(table.open()).view(np.uint8).reshape(table.num_rows, -1)
    np.testing.assert_array_equal(np.concatenate(rows), expected)


def damage(path: Path, byte: int) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(byte)
        value = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([value ^ 4]))


def test_a_flipped_bit_in_the_features_is_found_before_it_is_packed(tmp_path: Path) -> None:
    graph = random_graph_artifacts(tmp_path, width=300)
    damage(graph.features.file("rows.npy"), 300_000)
    with pytest.raises(InputError, match="do not match their digest"):
        build_packed(tmp_path, graph=graph)


def test_a_flipped_bit_in_row_of_is_found_before_anything_is_planned_or_packed(tmp_path: Path) -> None:
    graph = random_graph_artifacts(tmp_path, width=300, featureless=3)
    damage(graph.features.file("row_of.npy"), 5000)
    with pytest.raises(InputError, match="row_of"):
        build_packed(tmp_path, graph=graph)


def test_a_row_at_the_wrong_place_fails_the_check_of_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(rows: np.ndarray, *more: Any) -> bool:
        return pack_range(rows[::-1].copy(), *more)

    monkeypatch.setattr("graphmill.assets.packed_chunks.distribute.pack_range", careless)
    with pytest.raises(ChecksFailedError, match="rows are the features"):
        build_packed(tmp_path)
    assert not [each for each in Store(tmp_path).artifacts() if each.stage.startswith("packed_chunks")]


class Kept:
    """A list that is kept in memory."""

    head_bytes, keeps_all = 0, True

    def __init__(self, ids: np.ndarray):
        self.ids = ids

    def write(self, data: np.ndarray) -> None:
        raise AssertionError("the buffer takes all of it")

    def finish(self, buffer: np.ndarray, used: int) -> None:
        self.content = buffer[:used]


def test_a_plan_of_a_larger_graph_is_noticed(tmp_path: Path) -> None:
    table = random_graph_artifacts(tmp_path, width=4).open().features
    for last, fits in ((table.num_rows - 1, True), (table.num_rows, False)):
        distributor = RowDistributor([Kept(np.array([1, last]))], table.row_bytes, 0)
        with nullcontext() if fits else pytest.raises(InputError, match="feature table does not have"):
            distribute(table, distributor, 1 << 20, 1, Silent())


def pack_again(home: Path, packed: Packed, **how: Any) -> Artifact:
    """Removes chunks and builds them once more."""
    for part in packed.packed_chunks.parts:
        shutil.rmtree(packed.packed_chunks.open_part(part).path)
    shutil.rmtree(packed.packed_chunks.path)
    return build_packed(home, graph=GraphArtifacts(packed.graph, packed.features), **how).packed_chunks


SMALL_SEGMENTS: dict[str, Any] = {"groups": 1, "plan": {"segment_size": 2}, "memory": {"host": "40%", "disk": "10x"}}
"""Four segments with caches, and a large image."""


def test_what_memory_holds_does_not_change_a_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From spans that stay in memory to spans of a few rows that are read back, and buffers of one page."""
    packed = build_packed(tmp_path, width=301, **SMALL_SEGMENTS)
    first, kept, add = contents(packed.packed_chunks), list[bool](), Reorderer.add

    def counted(self: Reorderer, *region: Any) -> None:
        add(self, *region)
        kept.extend(span.keeps_all for span in self.spans)

    monkeypatch.setattr(Reorderer, "add", counted)
    for number, sizes in enumerate(((1, 1, 0), (1, 1 << 20, 1 << 17), (1 << 20, 1 << 16, 1 << 30))):
        monkeypatch.setattr(BufferSizes, "of", staticmethod(lambda _, sizes=sizes: BufferSizes(*sizes)))
        kept.clear()
        again = pack_again(tmp_path, packed, threads=1 + number, width=301, **SMALL_SEGMENTS)
        assert contents(again) == first
        assert set(kept) == {0: {False}, 1: {False, True}, 2: {True}}[number]


def test_packing_stays_within_its_memory(tmp_path: Path) -> None:
    """Features and chunks are many times larger than what NumPy holds while they are packed."""
    packed = build_packed(tmp_path, width=16384, **SMALL_SEGMENTS)
    table, numbers = open_features(packed.features), packed.packed_chunks.summary["numbers"]
    assert table.num_rows * table.row_bytes + numbers["chunk_bytes"] + numbers["cache_bytes"] > 50 << 20
    tracemalloc.start()
    try:
        pack_again(tmp_path, packed, width=16384, **SMALL_SEGMENTS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20  # the 4 MiB that it was given, 1 MiB for ranges of whole blocks, and pieces of small spans


def test_without_direct_io_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = build_packed(tmp_path)
    direct, opened = contents(packed.packed_chunks), os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return opened(path, flags, *more, **named)

    warn_once.forget()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.warns(RuntimeWarning, match="has no O_DIRECT") as warned:
        assert contents(pack_again(tmp_path, packed)) == direct
    said = [str(each.message).partition("; ")[2] for each in warned]
    assert set(said) == {"writing through the page cache", "reading through the page cache"}


def test_chunks_of_another_plan_are_refused(tmp_path: Path) -> None:
    one, other = (build_packed(tmp_path, memory={"disk": disk}) for disk in ("2x", "100x"))
    with pytest.raises(InputError, match="packed from another cache_plan"):
        PackedChunks(one.packed_chunks, other.cache_plan, one.samples)


def test_values_out_of_range_are_refused(tmp_path: Path) -> None:
    for wrong in ({"workers": 0}, {"threads": 0}, {"memory": "1MiB"}):
        with pytest.raises(InputError):
            PackedExecution(**wrong)
    with pytest.raises(InputError):
        PackedConfig(groups=-1)
    bare = random_graph_artifacts(tmp_path, width=0)
    with pytest.raises(InputError, match="no features to pack"):
        PACKED_CHUNKS.parts({"features": bare.features, "cache_plan": bare.graph}, PackedConfig())


def test_a_plan_for_other_features_is_refused(tmp_path: Path) -> None:
    """Both are about the same nodes, but the plan knows of other nodes without a row."""
    packed = build_packed(tmp_path, featureless=3)
    others = random_graph_artifacts(tmp_path, width=300).features
    inputs = {"features": others, "samples": packed.samples, "cache_plan": packed.cache_plan}
    execution = PackedExecution(threads=1, memory="4MiB")
    with pytest.raises(InputError, match=r"cache_plan/.* is not what is needed here:\n  input features: stored"):
        materialize(Store(tmp_path), PACKED_CHUNKS, PackedConfig(), execution, inputs)


def test_a_second_build_is_reused_and_lost_parts_are_packed_again(tmp_path: Path) -> None:
    packed = build_packed(tmp_path)
    inputs: dict[str, Artifact] = packed._asdict()
    chunks = inputs.pop("packed_chunks")
    del inputs["graph"]
    store, execution = Store(tmp_path), PackedExecution(memory="4MiB")
    assert materialize(store, PACKED_CHUNKS, PackedConfig(groups=2), execution, inputs).reused
    before = contents(chunks)
    part = chunks.open_part(next(iter(chunks.parts)))
    for path in sorted(part.path.iterdir()):
        path.unlink()
    part.path.rmdir()
    again = materialize(store, PACKED_CHUNKS, PackedConfig(groups=2), execution, inputs)
    assert contents(again) == before
