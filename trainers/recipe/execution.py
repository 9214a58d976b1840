"""The keys of a `[[train]]` table that decide how a training is run, and none of its results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import Checked, KeyProblem, gbps_of, size_problem, speed_problem, within
from graphmill.assets.sizes import parse_size
from graphmill.trainers.record.metrics import PROGRAMS


@dataclass(frozen=True, kw_only=True)
class TrainExecution(Checked):
    """How a run is carried out; changing it changes no result."""

    # Threads that sample and gather ahead of the step; 0 = one less than the cores that the process may use, which the ranks of a machine
    # share, at least 1. With 0, at most two cores and rows in memory, all threads prepare each batch just before its step.
    samplers: int = field(default=0, metadata=within(0, 4096))
    # Cache of feature rows: auto = rows are cached if the pipeline has [memory] and [hotness]; none = every row comes from the table.
    cache: Literal["auto", "none"] = "auto"
    # Sampled mini-batches that may wait for the step, in bytes of their blocks and input rows; two batches if these are larger. auto
    # = 1GiB, and beyond 32MiB no more batches than threads prepare at once, and one.
    queue: str = "auto"
    # Place of the features: memory = they are read into memory once; mapped = rows are read through the page cache; direct = past it, for a
    # table that does not fit there; auto = mapped if the table takes at most half of the memory that is free, and leaves what the training
    # still takes, else direct. Of ranks that share a machine all shards count.
    features: Literal["auto", "mapped", "direct", "memory"] = "auto"
    # Place of the learnable rows of nodes (embedding = "node", model = "rows") and of their moments: memory; mapped = files beside the
    # checkpoint, which are read past the page cache if one does not fit; auto = memory if they take at most three quarters of what is free,
    # else mapped if it can be.
    embedding_rows: Literal["auto", "memory", "mapped"] = "auto"
    # Bytes that the device may hold in parameters, activations and inputs; None = no limit.
    workspace: str | None = None
    # Place of the graph for a device with memory of its own: host = the CPU samples for it; device = it samples from its own copy; uva = it
    # samples over the bus. The batches are the same. On the CPU, if devices sample: device = the graph's bytes are booked on each of them.
    topology: Literal["host", "uva", "device"] = "host"
    # Speed of the link between host and device with its unit, "12 GB/s" or "25 Gbit/s", modelled by waiting; None = the machine's own.
    link: str | None = None
    # Origin of the mini-batches: online = sampled while training; stored = read from the `samples` stage, the same batches to the byte.
    samples: Literal["online", "stored"] = "online"
    # Method by which packed rows are read: io_uring and pread bypass the page cache, buffered goes through it.
    io: Literal["io_uring", "pread", "buffered"] = "io_uring"
    # Fallback if `io` is unavailable. "error" refuses to run. The choice is logged once.
    io_fallback: Literal["pread", "buffered", "error"] = "pread"
    # Number of reads that each loader has in flight with io_uring.
    io_depth: int = field(default=32, metadata=within(1, 4096))
    # Largest number of bytes of these reads together.
    io_window: str = "1MiB"
    # Optimiser steps from one checkpoint to the next inside an epoch; 0 = at epoch ends only.
    checkpoint_steps: int = field(default=0, metadata=within(0, 10**9))
    # Programs that receive the numbers of each epoch during the training: "tensorboard", "mlflow".
    metrics_to: tuple[str, ...] = ()

    @property
    def link_gbps(self) -> float | None:
        """The speed of the modelled link in GB/s."""
        return gbps_of(self.link)

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the problems of sizes, speeds and programs."""
        yield from super().problems()
        sizes = {"io_window": self.io_window, "queue": self.queue, "workspace": self.workspace}
        wrong = [
            problem
            for name, size in sizes.items()
            if size is not None and (name, size) != ("queue", "auto")
            for problem in size_problem(name, size)
        ]
        yield from wrong
        yield from speed_problem("link", self.link)
        if not wrong and not 8192 <= parse_size(self.io_window) <= 1 << 30:
            yield KeyProblem("io_window", f"io_window = {self.io_window!r} is not between 8 KiB and 1 GiB")
        if unknown := [name for name in self.metrics_to if name not in PROGRAMS]:
            yield KeyProblem("metrics_to", f"metrics_to names {unknown}; the programs are: {', '.join(PROGRAMS)}")
