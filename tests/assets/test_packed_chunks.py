"""Packed chunks: every row of every batch where its address says, the same bytes however they are built, and no damage goes unseen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.artifact import Artifact
from assets.graph import open_graph
from assets.packed_chunks import PACKED_CHUNKS, PackedConfig, PackedExecution
from assets.packing import Addresses, deal
from assets.stage import ChecksFailedError, Silent, materialize
from assets.store import Store
from assets.stored_chunks import Chunks
from assets.stored_samples import open_samples
from assets.table_ranges import read_ranges
from kernels.errors import InputError
from kernels.pack import PackLists, pack_range
from kernels.pages import PAGE_BYTES
from kernels.slots import DEVICE, ELSEWHERE, HOST, STAGED, unpack
from tests.assets.packed import Packed, build_packed
from tests.assets.sampled import contents
from tests.trainers.graphs import random_graph_artifact

CASES: tuple[dict[str, Any], ...] = (
    {},
    {"width": 3, "groups": 0, "memory": {"disk": "40x"}},
    {"width": 1500, "groups": 3},  # rows wider than a page
    {"memory": {"device": "0", "host": "0"}},
    {"memory": {"device": "30%", "host": "70%"}},  # nothing is left for the disk
    {"memory": {"disk": "100x"}},  # everything is packed
    {"epochs": 3, "plan": {"order": "minhash"}},
    {"plan": {"segment_size": 7}},  # one segment
)


def rows_of(packed: Packed, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The input ids of a batch, and their rows as the addresses find them, read without any kernel."""
    chunks, table = Chunks(packed.packed_chunks, packed.cache_plan, packed.samples), open_graph(packed.graph).features
    samples, row_bytes = open_samples(packed.samples), table.row_bytes
    node_ids = samples.record(*divmod(number, samples.num_batches)).blocks[0].src_ids
    place = chunks.place(number)
    with open(place.extent.path, "rb") as file:
        file.seek(place.extent.offset)
        chunk = np.frombuffer(file.read(place.extent.num_bytes), np.uint8)
    assert place.extent.offset % PAGE_BYTES == 0 and len(chunk) == place.extent.num_bytes
    addresses, places, rows = (chunk[section] for section in place.sections(row_bytes))
    cache = np.fromfile(place.cache.path, np.uint8, place.cache.num_bytes, offset=place.cache.offset)
    wanted = places.view(np.int32)
    assert (np.diff(wanted) > 0).all()
    cached = [cache[row * row_bytes : (row + 1) * row_bytes] for row in wanted]
    staged = np.concatenate([rows, *cached]).reshape(-1, row_bytes)
    tiers = {DEVICE: chunks.device_image, HOST: chunks.host_image, STAGED: staged}
    tier, row = unpack(addresses.view(np.int32))
    found = np.zeros((len(node_ids), row_bytes), np.uint8)
    for number, image in tiers.items():
        here = tier == number
        found[here] = np.ascontiguousarray(image).view(np.uint8).reshape(len(image), row_bytes)[row[here]]
    assert set(tier.tolist()) <= set(tiers)
    return node_ids, found


@pytest.mark.parametrize("case", CASES)
def test_every_row_of_every_batch_is_the_feature_row(tmp_path: Path, case: dict[str, Any]) -> None:
    packed = build_packed(tmp_path, **case)
    table = np.array(open_graph(packed.graph).features.open())
    numbers = packed.packed_chunks.summary["numbers"]
    assert numbers["num_batches"] == 7 * case.get("epochs", 1)
    for number in range(numbers["num_batches"]):
        node_ids, found = rows_of(packed, number)
        np.testing.assert_array_equal(found, table[node_ids].view(np.uint8).reshape(len(node_ids), -1))
    assert packed.packed_chunks.verify() == []


def test_the_bytes_do_not_depend_on_how_they_are_built(tmp_path: Path) -> None:
    built = [
        build_packed(tmp_path / f"home-{number}", **how).packed_chunks
        for number, how in enumerate(({}, {"threads": 2}, {"workers": 2, "threads": 2}))
    ]
    assert len(built[0].parts) == 2
    first = list(contents(built[0]).values())
    assert all(list(contents(each).values()) == first for each in built[1:])


def test_a_batch_of_other_samples_is_refused() -> None:
    slot = np.full(10, ELSEWHERE, np.int32)
    addresses = Addresses(slot)
    addresses.enter(np.array([7, 2]))
    slots, places = addresses.of(np.array([2, 9, 7, 4]), np.array([4, 9]))
    assert unpack(slots)[1].tolist() == [3, 1, 2, 0] and places.tolist() == [0, 1]
    for packed in ([4], [4, 8], [3, 4, 9], []):
        with pytest.raises(InputError, match="rows packed"):
            addresses.of(np.array([2, 9, 7, 4]), np.array(packed, np.int64))
    addresses.enter(np.array([9]))  # what the segment before cached is forgotten
    assert addresses.of(np.array([2, 9]), np.array([2]))[1].tolist() == [0]


@pytest.mark.parametrize("width", [1, 3, 300, 1500])
@pytest.mark.parametrize("range_bytes", [1, 1 << 20, 3 << 20])
def test_ranges_are_the_table(tmp_path: Path, width: int, range_bytes: int) -> None:
    graph = random_graph_artifact(tmp_path, num_nodes=1400, width=width)
    table = open_graph(graph).features
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
    graph = random_graph_artifact(tmp_path, width=300)
    damage(graph.file("features.npy"), 300_000)
    with pytest.raises(InputError, match="do not match their digest"):
        build_packed(tmp_path, graph=graph)


def test_a_row_at_the_wrong_place_fails_the_check_of_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(rows: np.ndarray, first_row: int, lists: PackLists, out: np.ndarray, threads: int = 1) -> int:
        return pack_range(rows[::-1].copy(), first_row, lists, out, threads)

    monkeypatch.setattr("assets.packing.pack_range", careless)
    with pytest.raises(ChecksFailedError, match="rows are the features"):
        build_packed(tmp_path)
    assert not [each for each in Store(tmp_path).artifacts() if each.stage.startswith("packed_chunks")]


def test_a_plan_of_a_larger_graph_is_noticed(tmp_path: Path) -> None:
    table = open_graph(random_graph_artifact(tmp_path, width=4)).features
    lists = PackLists(ptr=np.array([0, 2]), ids=np.array([1, table.num_rows]), offsets=np.array([0]))
    with pytest.raises(InputError, match="feature table does not have"):
        deal(table, 1 << 20, [(lists, np.zeros(64, np.uint8))], 1, Silent())


def test_chunks_of_another_plan_are_refused(tmp_path: Path) -> None:
    one, other = (build_packed(tmp_path, memory={"disk": disk}) for disk in ("2x", "100x"))
    with pytest.raises(InputError, match="packed from another cache_plan"):
        Chunks(one.packed_chunks, other.cache_plan, one.samples)


def test_values_out_of_range_are_refused(tmp_path: Path) -> None:
    for wrong in ({"workers": 0}, {"threads": 0}, {"memory": "1MiB"}):
        with pytest.raises(InputError):
            PackedExecution(**wrong)
    with pytest.raises(InputError):
        PackedConfig(groups=-1)
    bare = random_graph_artifact(tmp_path, width=0)
    with pytest.raises(InputError, match="no features to pack"):
        PACKED_CHUNKS.parts({"graph": bare, "cache_plan": bare}, PackedConfig())


def test_a_second_build_is_reused_and_lost_parts_are_packed_again(tmp_path: Path) -> None:
    packed = build_packed(tmp_path)
    inputs: dict[str, Artifact] = packed._asdict()
    chunks = inputs.pop("packed_chunks")
    store, execution = Store(tmp_path), PackedExecution(memory="4MiB")
    assert materialize(store, PACKED_CHUNKS, PackedConfig(groups=2), execution, inputs).reused
    before = contents(chunks)
    part = chunks.open_part(next(iter(chunks.parts)))
    for path in sorted(part.path.iterdir()):
        path.unlink()
    part.path.rmdir()
    again = materialize(store, PACKED_CHUNKS, PackedConfig(groups=2), execution, inputs)
    assert contents(again) == before
