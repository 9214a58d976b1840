"""Law 6 for rows from disk: with any bit of the packed chunks wrong, a delivered row is the feature row, or there is an error."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.features.read import open_features
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import open_samples
from graphmill.assets.storage.local.artifact import Artifact, read_artifact
from graphmill.assets.storage.local.read_verified import read_table
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.rows.direct_io import ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.slots import DEVICE, HOST, STAGED, split_slots
from graphmill.trainers.rows.packed_loader import PackedLoader
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.storage.damage import flip

BITS_A_FILE = 4


def wrong_rows(packed: Packed, every: int = 1) -> int:
    """Loads every row of every batch as the trainer does; returns how many differ from the features.

    Args:
        packed: the rows.
        every: loads one input of so many, as for pruned batches.

    Raises:
        InputError: damage was noticed.
    """
    chunks = PackedChunks(read_artifact(packed.packed_chunks.path), packed.cache_plan, packed.samples)
    table, samples = open_features(packed.features), open_samples(packed.samples)
    features = np.asarray(table.open())
    tiers = {DEVICE: read_table(chunks.device_image), HOST: read_table(chunks.host_image)}
    loader = PackedLoader(chunks, table.width, table.dtype, table.row_bytes, BufferPool(), ReadExecution())
    wrong = 0
    try:
        for number in range(chunks.num_batches):
            ids = samples.record(*divmod(number, samples.num_batches)).blocks[0].src_ids
            origin = np.arange(0, len(ids), every, dtype=np.int32)
            staged = loader.load(number, None if every == 1 else origin)
            ids = ids[origin]
            tier, row = split_slots(staged.slots)
            for which, image in (tiers | {STAGED: staged.rows}).items():
                here = tier == which
                wrong += int((image[row[here]] != features[ids[here]]).any(axis=1).sum())
            staged.release()
    finally:
        loader.close()
    return wrong


def content_files(artifact: Artifact) -> list[Path]:
    parts = [artifact.open_part(name) for name in artifact.parts]
    return [each.path / name for each in (artifact, *parts) for name in [*each.files, "manifest.json"]]


def test_no_flipped_bit_becomes_a_wrong_row(tmp_path: Path) -> None:
    packed, draw, noticed = build_packed(tmp_path, width=60), random.Random(0), Counter[str]()
    assert wrong_rows(packed) == 0
    for path in content_files(packed.packed_chunks):
        path.chmod(0o644)
        num_bits = 8 * path.stat().st_size
        for bit in {0, num_bits - 1, *(draw.randrange(num_bits) for _ in range(BITS_A_FILE))}:
            flip(path, bit)
            try:
                assert wrong_rows(packed) == 0, f"bit {bit} of {path.name}"
            except ValueError:  # an InputError, or what `read_artifact` says of a manifest
                noticed[path.name] += 1
            flip(path, bit)
    assert wrong_rows(packed) == 0
    for name in ("chunks.npy", "caches.npy", "device_image.npy", "host_image.npy", "digests.npy", "manifest.json"):
        assert noticed[name] > 0, name


def test_a_flipped_bit_in_a_page_reaches_no_pruned_batch(tmp_path: Path) -> None:
    """Of a chunk that is read by pages, every page is compared with its digest: a wrong row is never delivered."""
    packed, noticed = build_packed(tmp_path, width=60, groups=1), 0
    part = packed.packed_chunks.open_part(next(iter(packed.packed_chunks.parts)))
    assert wrong_rows(packed, every=7) == 0
    for name in ("chunks", "chunk_digests"):
        path = part.file(f"{name}.npy")
        path.chmod(0o644)
        for bit in np.linspace(8 * PAGE_BYTES, 8 * path.stat().st_size - 1, 12).astype(int).tolist():
            flip(path, bit)
            try:
                assert wrong_rows(packed, every=7) == 0, f"bit {bit} of {name}"
            except InputError as error:
                assert "chunk of batch" in error.problem or "chunk_digests.npy is damaged" in error.problem
                noticed += 1
            flip(path, bit)
    assert wrong_rows(packed, every=7) == 0 and noticed >= 12


@pytest.mark.parametrize("name", ["chunks", "caches"])
def test_what_is_read_at_random_is_noticed_wherever_it_is_read(tmp_path: Path, name: str) -> None:
    """Damage in a page that a batch reads is always an error, which names artifact and command."""
    packed = build_packed(tmp_path, width=60)
    part = packed.packed_chunks.open_part(next(iter(packed.packed_chunks.parts)))
    path = part.file(f"{name}.npy")
    path.chmod(0o644)
    num_pages = path.stat().st_size // PAGE_BYTES
    drawn, found = np.unique(np.linspace(1, num_pages - 1, 12).astype(int)).tolist(), 0
    for page in drawn:
        bit = 8 * (PAGE_BYTES * page + 77) + 3
        flip(path, bit)
        try:
            assert wrong_rows(packed) == 0
        except InputError as error:
            assert "packed_chunks/" in error.problem and "graphmill repair packed_chunks.parts" in error.remedy
            found += 1
        flip(path, bit)
    # A cache may have pages that no batch of its segment wants; of a chunk everything is read.
    assert found == len(drawn) if name == "chunks" else found > 0
