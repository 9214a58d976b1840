"""Where the rows of each batch are in packed chunks, for whoever reads them; needs NumPy only."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from assets.artifact import Artifact
from assets.needs import require
from kernels.errors import InputError
from kernels.pages import padded_bytes


class Extent(NamedTuple):
    """A range of a file."""

    path: Path
    offset: int
    num_bytes: int


class ChunkPlace(NamedTuple):
    """One batch's chunk.

    Attributes:
        number: of the batch, by epoch and step.
        extent: the whole chunk: addresses, places, rows.
        digest: xxh3-64 of it.
        num_inputs, num_cached, num_packed: inputs of the batch, and of these what is in its segment's cache and in the chunk.
        cache: the segment's disk cache.
    """

    number: int
    extent: Extent
    digest: int
    num_inputs: int
    num_cached: int
    num_packed: int
    cache: Extent

    def sections(self, row_bytes: int) -> tuple[slice, slice, slice]:
        """Returns the bytes of the chunk that hold addresses, places and rows, without their padding.

        Args:
            row_bytes: of one row.
        """
        places = int(padded_bytes(4 * self.num_inputs))
        rows = places + int(padded_bytes(4 * self.num_cached))
        return (
            slice(0, 4 * self.num_inputs),
            slice(places, places + 4 * self.num_cached),
            slice(rows, rows + self.num_packed * row_bytes),
        )


class Chunks:
    """The packed chunks of all batches of K epochs.

    Args:
        artifact: of the `packed_chunks` stage.
        plan: the `cache_plan` it was made from.
        samples: the `samples` it was made from.

    Attributes:
        device_image, host_image: [rows, F] of the static tiers, mapped.

    Raises:
        InputError: an artifact is of another stage, belongs to others, or a part is missing or damaged.
    """

    def __init__(self, artifact: Artifact, plan: Artifact, samples: Artifact):
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
        self._part_of, self._offsets = np.array(artifact.array("part_of")), np.array(artifact.array("offsets"))
        self._num_bytes, self._digests = np.array(artifact.array("num_bytes")), np.array(artifact.array("digests"))
        self._num_cached, self._num_inputs = (
            np.array(artifact.array("num_cached")),
            np.array(samples.array("num_inputs")),
        )
        self._num_packed = np.diff(plan.array("packed_ptr"))
        self._segment_of = np.array(plan.array("segment_of"))
        self._cache_offsets, self._cache_bytes = artifact.array("cache_offsets"), artifact.array("cache_bytes")
        parts = [artifact.open_part(name) for name in artifact.parts]
        self._chunk_files, self._cache_files = (
            [part.file(f"{name}.npy") for part in parts] for name in ("chunks", "caches")
        )
        self.device_image, self.host_image = (parts[0].array(f"{tier}_image") for tier in ("device", "host"))

    @property
    def num_batches(self) -> int:
        """B, of all epochs."""
        return len(self._offsets)

    def place(self, number: int) -> ChunkPlace:
        """Returns where the rows of a batch are.

        Args:
            number: epoch * batches an epoch + step.
        """
        part, segment = int(self._part_of[number]), int(self._segment_of[number])
        cache = Extent(self._cache_files[part], int(self._cache_offsets[segment]), int(self._cache_bytes[segment]))
        extent = Extent(self._chunk_files[part], int(self._offsets[number]), int(self._num_bytes[number]))
        return ChunkPlace(
            number=number,
            extent=extent,
            digest=int(self._digests[number]),
            num_inputs=int(self._num_inputs[number]),
            num_cached=int(self._num_cached[number]),
            num_packed=int(self._num_packed[number]),
            cache=cache,
        )


def staging_capacity(place: ChunkPlace, row_bytes: int) -> int:
    """Returns the bytes of a buffer that holds a chunk and, behind its packed rows, the cached ones; whole pages."""
    *_, rows = place.sections(row_bytes)
    return int(padded_bytes(max(place.extent.num_bytes, rows.stop + place.num_cached * row_bytes)))


def damaged(artifact: Artifact, place: ChunkPlace, what: str) -> InputError:
    """Returns the error of a chunk that cannot be trusted."""
    path = place.extent.path
    return InputError(
        f"{artifact.label}: the chunk of batch {place.number} ({path}, byte {place.extent.offset}) {what}",
        f"remove the folder {path.parent}, then run `graphmill run PIPELINE`: it will be packed again",
    )
