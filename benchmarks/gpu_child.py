"""Trains one table of a pipeline, and counts in each epoch what its device did: a child process of `python -m benchmarks gpu_trainers`.

It is `python -m graphmill.trainers PIPELINE NAME`, with counters around each epoch. The first epoch compiles kernels, grows the allocator's
memory and records launches, so it is no measurement. The last one is traced by CUPTI, which takes time; seconds are those of the epochs
between them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_trace
from benchmarks.gpu_trace import Counted
from graphmill.assets.building.child import begin_as_trainings
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.trainers.__main__ import main as train
from graphmill.trainers.loop.loop import Loop
from graphmill.trainers.recipe.config import TrainTable, find_table, model_configs
from graphmill.trainers.recipe.inputs import find_table_inputs

IN_PLACE, IN_PLACE_WHOLE = ("feature",), ("feature", "neighbour", "gradient", "checkpoint", "output", "logit")
"""Kinds of a ledger's lines that a kernel reads over the bus instead of copying them: of batches, and of passes over the whole graph."""


class SimulatedMeter:
    """Counts on the simulated accelerators, which count by themselves."""

    def epoch(self, last: bool) -> AbstractContextManager[list[Counted]]:
        """Counts what the block does; the result is behind it in the list."""
        return self._counted()

    @contextmanager
    def _counted(self) -> Iterator[list[Counted]]:
        from tests import accelerator

        found: list[Counted] = []
        before = accelerator.counts()
        yield found
        crossed = accelerator.counts().since(before)
        copied = {"h2d": crossed.h2d_bytes, "d2h": crossed.d2h_bytes, "d2d": crossed.d2d_bytes}
        found.append(Counted(waits=crossed.waits, launches=crossed.launches, copied=copied))


class CudaMeter:
    """Counts on a GPU: the bus in each epoch, if the GPU counts it, and everything else in the last one."""

    def epoch(self, last: bool) -> AbstractContextManager[list[Counted]]:
        """Counts what the block does; the result is behind it in the list."""
        return gpu_trace.traced() if last else self._bus()

    @contextmanager
    def _bus(self) -> Iterator[list[Counted]]:
        found: list[Counted] = []
        before = gpu_trace.bus_bytes()
        yield found
        after = gpu_trace.bus_bytes()
        crossed = {} if before is None or after is None else {link: after[link] - before[link] for link in after}
        found.append(Counted(bus=crossed))


class Watch:
    """The epochs of a training, each with what was booked and what was counted.

    Args:
        meter: counts what the device does.
    """

    def __init__(self, meter: SimulatedMeter | CudaMeter):
        self.meter, self.epochs, self._train = meter, list[dict[str, Any]](), Loop._train_epoch

    def train(self, loop: Loop) -> int | None:
        """Trains an epoch of a loop."""
        before, last = _booked(loop), loop.state.epoch + 1 == loop.config.epochs
        with self.meter.epoch(last) as found:
            started = time.perf_counter()
            ended = self._train(loop)
            seconds = time.perf_counter() - started
        after, (counted,) = _booked(loop), found
        booked = {
            name: {link: n - before[name].get(link, 0) for link, n in sums.items()} for name, sums in after.items()
        }
        self.epochs.append({"seconds": seconds, "batches": loop.plan.num_batches, **booked, **asdict(counted)})
        return ended


def _booked(loop: Loop) -> dict[str, dict[str, int]]:
    """Returns the bytes by link that are booked so far: all of batches, and those that were copied, besides batches as well."""
    found, rows = {"ledger": loop.ledger.bytes_by_link(), "booked": {"h2d": 0, "d2h": 0}}, loop.ledger.rows()["moves"]
    in_place = IN_PLACE_WHOLE if loop.config.trainer == "fullgraph" else IN_PLACE
    own = [row for row in rows if row["link"] != "h2d" or row["kind"] not in in_place]
    for row in (*own, *loop.device.traffic.rows()["moves"]):
        if row["link"] in found["booked"]:
            found["booked"][row["link"]] += row["moved_bytes"]
    return found


def planned(path: Path, name: str, store: Store, versions: dict[str, str]) -> int | None:
    """Returns the bytes that a table's training takes of its device at most, as the plan says."""
    from graphmill.assets.costs.needs import sizes_of
    from graphmill.trainers.recipe.costs.device import device_need

    pipeline = load_pipeline(path, TrainTable)
    table = find_table(pipeline, name)
    found = find_table_inputs(pipeline, table, store, versions)
    config, *_ = model_configs(table, pipeline.sampling_of(table), pipeline.seed)
    sizes = sizes_of({**found.inputs, **found.reads})
    need = None if sizes is None else device_need(config, table.execution, sizes)
    return None if need is None else need.memory_bytes


@contextmanager
def _place(kind: str) -> Iterator[None]:
    """Makes `device = "cuda"` mean one simulated accelerator, if that is asked for."""
    if kind == "cuda":
        yield
        return
    from tests.accelerator.backend import seeing, standing_in

    with standing_in(), seeing(0):
        yield


def main() -> None:
    """Trains the table that the command line names, and prints what was found as JSON, in one line."""
    path, name, home, kind = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    versions = dict(each.split("=") for each in sys.argv[5:])
    before = {model.version for model in Store(home).artifacts("model")}
    watch = Watch(SimulatedMeter() if kind == "simulated" else CudaMeter())

    def counted(loop: Loop) -> int | None:
        return watch.train(loop)

    with _place(kind), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_train_epoch", counted)
        inputs = [part for stage, version in versions.items() for part in ("--input", f"{stage}={version}")]
        code = train([str(path), name, "--home", str(home), "--quiet", *inputs])
        assert code == 0, f"{name} ended with exit code {code}"
        (model,) = (each for each in Store(home).artifacts("model") if each.version not in before)
        found = {
            "weights": model.files["weights.safetensors"]["digest"],
            "planned_bytes": planned(path, name, Store(home), versions),
        }
    run = model.run_record()
    print(json.dumps({"epochs": watch.epochs, "peak_bytes": run["peak_bytes"]["total"], **found}), flush=True)


if __name__ == "__main__":
    begin_as_trainings()
    main()
