"""Finds the rows of each batch in packed chunks.

The index is read whole and verified; the images of the static tiers are verified by their readers. Chunks and pages of segment caches are
read at random and have digests of their own, which come with each `ChunkPlace`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphmill.assets.cache_plan.read import wanted_counts
from graphmill.assets.samples.read import StoredOrder
from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import read_vector
from graphmill.assets.storage.local.require import require
from graphmill.assets.storage.names.manifest import address_of, repair_remedy
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.types import Array


class Extent(NamedTuple):
    """A range of a file."""

    path: Path
    offset: int
    num_bytes: int


class ChunkPlace(NamedTuple):
    """The chunk of one batch.

    Attributes:
        number: number of the batch, by epoch and step.
        extent: range of the whole chunk: slots, places, rows.
        page_digests: u64[pages], XXH64 of each of its pages; mapped.
        num_inputs, num_cached, num_packed: numbers of rows that the batch needs, of its inputs or of its edges, and of those in its
            segment's cache and in the chunk.
        cache: range of the segment's disk cache.
        cache_digests: u64[pages], XXH64 of each of its pages; mapped.
    """

    number: int
    extent: Extent
    digest: int
    page_digests: Array
    num_inputs: int
    num_cached: int
    num_packed: int
    cache: Extent
    cache_digests: Array

    def sections(self, row_bytes: int) -> tuple[slice, slice, slice]:
        """Returns the bytes of the chunk that hold slots, places and rows, without their padding."""
        places = int(padded_bytes(4 * self.num_inputs))
        rows = places + int(padded_bytes(4 * self.num_cached))
        return (
            slice(0, 4 * self.num_inputs),
            slice(places, places + 4 * self.num_cached),
            slice(rows, rows + self.num_packed * row_bytes),
        )


class _Files(NamedTuple):
    """The files of one part of an artifact, and the digests of their pages, mapped."""

    chunks: Path
    caches: Path
    chunk_digests: Array
    cache_digests: Array

    @staticmethod
    def of(part: Artifact) -> _Files:
        """Opens the files of a part."""
        chunks, caches = (part.file(f"{name}.npy", verified=False) for name in ("chunks", "caches"))
        return _Files(chunks, caches, part.array("chunk_digests"), part.array("cache_digests"))


class PackedChunks:
    """The packed chunks of all stored batches.

    Args:
        parts: parts of the graph whose batches are read, the only ones whose files are opened; None for all batches.

    Attributes:
        device_image, host_image: [rows, F], rows of the static tiers.

    Raises:
        InputError: an artifact is of another stage or belongs to other artifacts, or a part is missing or damaged.
    """

    def __init__(self, artifact: Artifact, plan: Artifact, samples: Artifact, parts: Collection[int] | None = None):
        index = {
            name: {"dtype": "int64", "ndim": 1} for name in ("offsets", "num_bytes", "num_cached", "cache_offsets")
        }
        index |= {"part_of": {"dtype": "int32", "ndim": 1}, "digests": {"dtype": "uint64", "ndim": 1}}
        inputs = {"cache_plan": plan.version, "samples": samples.version}
        require(artifact, {"stage": "packed_chunks", "arrays": index})
        others = [role for role, version in inputs.items() if artifact.inputs[role]["version"] != version]
        if others:
            problem = f"{artifact.label} was packed from another {' and '.join(others)}"
            raise InputError(problem, "run `graphmill run PIPELINE`: what is missing is built")
        self.artifact = artifact
        self._index = {name: read_vector(artifact, name) for name in (*index, "cache_bytes")}
        self._num_inputs = wanted_counts(plan, samples)
        self._segment_of, self._num_packed = read_vector(plan, "segment_of"), np.diff(read_vector(plan, "packed_ptr"))
        self._order, names = StoredOrder.of(samples), list(artifact.parts)
        opened = {number: artifact.open_part(names[number]) for number in self._needed(parts)}
        self._files = {number: _Files.of(part) for number, part in opened.items()}
        self.device_image, self.host_image = (opened[0].table(f"{tier}_image") for tier in ("device", "host"))

    def _needed(self, parts: Collection[int] | None) -> list[int]:
        """Returns the numbers of the artifacts that are opened; the first one has the static tiers."""
        part_of = self._index["part_of"]
        blocks = [self._order.blocks[part] for part in parts] if parts is not None else [(0, len(part_of))]
        return sorted({0, *(int(each) for first, last in blocks for each in np.unique(part_of[first:last]))})

    @property
    def num_batches(self) -> int:
        """Number B of all stored batches."""
        return len(self._index["offsets"])

    def number(self, epoch: int, step: int) -> int:
        """Returns the number of a batch among all, by its stored epoch and its step."""
        return self._order.number(epoch, step)

    def place(self, number: int) -> ChunkPlace:
        """Returns the place of the chunk of a batch, by its number among all."""
        names = ("part_of", "offsets", "num_bytes", "num_cached", "digests")
        part, start, size, num_cached, digest = (int(self._index[name][number]) for name in names)
        segment, files = int(self._segment_of[number]), self._files[part]
        cache_start, cache_size = (int(self._index[name][segment]) for name in ("cache_offsets", "cache_bytes"))
        page, cache_page = ((offset - DATA_OFFSET) // PAGE_BYTES for offset in (start, cache_start))
        return ChunkPlace(
            number=number,
            extent=Extent(files.chunks, start, size),
            digest=digest,
            page_digests=files.chunk_digests[page : page + size // PAGE_BYTES],
            num_inputs=int(self._num_inputs[number]),
            num_cached=num_cached,
            num_packed=int(self._num_packed[number]),
            cache=Extent(files.caches, cache_start, cache_size),
            cache_digests=files.cache_digests[cache_page : cache_page + cache_size // PAGE_BYTES],
        )


def staging_capacity(place: ChunkPlace, row_bytes: int) -> int:
    """Returns the bytes of a buffer that holds a chunk and, behind its packed rows, the cached ones; whole pages."""
    *_, rows = place.sections(row_bytes)
    return int(padded_bytes(max(place.extent.num_bytes, rows.stop + place.num_cached * row_bytes)))


def damaged(artifact: Artifact, file: Extent, what: str) -> InputError:
    """Returns the error of a chunk or cache that cannot be trusted; `what` names it and its damage."""
    problem = f"{artifact.label}: {what} ({file.path}, from byte {file.offset})"
    return InputError(problem, repair_remedy(address_of(file.path.parent)))
