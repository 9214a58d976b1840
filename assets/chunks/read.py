"""Reading stored steps of a full-graph pass: one sequential read per step and device, checked against its digest.

It needs only NumPy and xxhash.
"""

import numpy as np

from graphmill.assets.chunks.record import decode
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.storage.files.records import damaged_record, read_record
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.require import require
from graphmill.kernels.chunks.counts import COLUMNS, StepCounts
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, ChunkStep


class StoredChunks:
    """The steps of a full-graph pass over m parts; several threads may read at once.

    Attributes:
        num_parts, chunks_per_part: m devices and n steps.
        self_term: whether destinations are read with their neighbours.
        counts: rows and edges of each step; `counts.v_ori`, `.v_p2p`, `.v_ru` are the totals.
        num_distinct: number of nodes that some chunk needs.
        schedule: i32[m, n], chunk of part i that comes in step j.
        asked_schedule: the key `schedule` of the table: "identity", "hongtu" or "best".
    """

    def __init__(self, artifact: Artifact):
        arrays = {
            "steps": {"dtype": "uint8", "ndim": 1},
            "bounds": {"dtype": "int64", "ndim": 1},
            "digests": {"dtype": "uint64", "ndim": 1},
            "counts": {"dtype": "int64", "shape": (None, None, len(COLUMNS))},
            "schedule": {"dtype": "int32", "ndim": 2},
        }
        require(artifact, {"stage": "chunks", "arrays": arrays})
        self.artifact = artifact
        self.bounds, self.digests = np.array(artifact.array("bounds")), np.array(artifact.array("digests"))
        self.counts = StepCounts.of(np.array(artifact.array("counts")))
        self.schedule = np.array(artifact.array("schedule"))
        self.num_parts, self.chunks_per_part = (int(length) for length in self.schedule.shape)
        numbers = artifact.summary["numbers"]
        self.num_nodes, self.num_distinct = int(numbers["num_nodes"]), int(numbers["num_distinct"])
        self.self_term = bool(artifact.config["table"]["self_term"])
        self.asked_schedule = artifact.config["table"]["schedule"]
        self._path = artifact.file("steps.npy", verified=False)  # each record has a digest

    @property
    def node_ids(self) -> Array:
        """ids[N], mapped: the nodes, part by part and chunk by chunk, in the order that was cut."""
        return self.artifact.array("node_ids")

    def nodes_of(self, part: int) -> Array:
        """Returns the node ids of a part."""
        first, last = (int(self.artifact.array("chunk_ptr")[(part + i) * self.chunks_per_part]) for i in (0, 1))
        return self.node_ids[first:last]

    def step(self, part: int, step: int) -> ChunkStep:
        """Returns the work of device `part` in a step; raises InputError if the step does not exist, or its bytes are damaged."""
        record = self.bytes(part, step)
        try:
            found = decode(record)
        except InputError as error:
            raise self._damaged(part, step, error.problem) from error
        if (found.part, found.step) != (part, step):
            raise self._damaged(part, step, f"it is step {found.step} of part {found.part}")
        return found

    def bytes(self, part: int, step: int) -> Array:
        """Returns u8[n]: the record of a step, n a multiple of 4,096; see assets/chunks/record.py.

        Raises:
            InputError: the step does not exist, its file is cut short, or its bytes do not match their digest.
        """
        place = self._place(part, step)
        low, high = (int(bound) for bound in self.bounds[place : place + 2])
        return read_record(self._path, low, high - low, int(self.digests[place]), lambda: self._name(part, step))

    def record_bytes(self, part: int, step: int) -> int:
        """Returns the number of bytes of a step's record."""
        place = self._place(part, step)
        return int(self.bounds[place + 1] - self.bounds[place])

    def _place(self, part: int, step: int) -> int:
        if not (0 <= part < self.num_parts and 0 <= step < self.chunks_per_part):
            have = f"{self.num_parts} parts of {self.chunks_per_part} chunks"
            problem = f"step {step} of part {part} is not in {self.artifact.label}, which has {have}"
            raise InputError(problem, "set `parts` in [partitions] or `chunks_per_part` in [chunks], and build again")
        return step * self.num_parts + part

    def _name(self, part: int, step: int) -> str:
        return f"step {step} of part {part} of {self.artifact.label}"

    def _damaged(self, part: int, step: int, problem: str) -> InputError:
        return damaged_record(self._path, self._name(part, step), problem)


open_chunks = StoredChunks


def cut_of(sizes: Sizes) -> tuple[int, int]:
    """Returns (number of parts, chunks of each) of built chunks, else by the tables; (1, 1) without any."""
    if "chunks" in sizes.artifacts:
        parts, each = sizes.artifacts["chunks"].array("schedule").shape
        return parts, each
    config = sizes.configs.get("chunks")
    return number_of_parts(sizes), 1 if config is None else config.table.chunks_per_part


def number_of_parts(sizes: Sizes) -> int:
    """Returns the number of parts of the partitions that a step reads, 1 if it reads none."""
    if "partitions" in sizes.artifacts:
        return int(sizes.artifacts["partitions"].config["parts"])
    config = sizes.configs.get("partitions")
    return 1 if config is None else config.parts
