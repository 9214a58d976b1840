"""Real queues, threads and updates whose stages sleep: what the simulator has to foretell, and the overlap that cores cannot spoil."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.factored import roles
from graphmill.trainers.techniques.factored.replica import Replica
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.factored.simulator.simulate import simulate
from graphmill.trainers.techniques.factored.simulator.workload import Workload
from tests.graphs import build_graph

GRAPH = {"nodes": 1000, "edges": 4000, "features": 8, "classes": 2, "train_ratio": 0.1, "seed": 1}
SAMPLING = SamplingConfig(fanouts=(2, 2), batch_size=5)
UPDATE = 0.001


class Case(NamedTuple):
    """Executors and what they sleep through."""

    samplers: int
    trainers: int
    work: Workload
    switching: bool = True

    @property
    def title(self) -> str:
        """Names the case."""
        work = self.work
        stages = "/".join(
            f"{1000 * each:.0f}" for each in (work.sample, work.extract, work.train, work.standby_extract)
        )
        more = f", {work.group} per update" + (f", staleness {work.staleness}" if work.staleness else "")
        jitter = f", jitter {work.jitter}" if work.jitter else ""
        return f"{self.samplers}S {self.trainers}T {stages} ms{more}{jitter}" + ("" if self.switching else ", fixed")


def cases(slower: float) -> list[Case]:
    """Returns executors that are balanced, bound by samplers, bound by trainers, in groups, stale, switching and alone.

    Args:
        slower: factor of all times.
    """
    unit = slower / 1000

    def work(
        sample: int, extract: int, train: int, standby: int | None = None, group: int = 1, **more: Any
    ) -> Workload:
        return Workload(
            batches=20, sample=sample * unit, extract=extract * unit, train=train * unit, group=group, update=UPDATE,
            standby=None if standby is None else standby * unit, **more,
        )  # fmt: skip

    return [
        Case(1, 1, work(20, 10, 40), switching=False),
        Case(1, 1, work(60, 10, 20), switching=False),
        Case(1, 1, work(20, 50, 30), switching=False),
        Case(1, 3, work(15, 10, 40, group=3), switching=False),
        Case(1, 2, work(10, 10, 40, staleness=1), switching=False),
        Case(1, 4, work(10, 10, 40, group=4, jitter=0.3), switching=False),
        Case(3, 1, work(30, 10, 40, standby=20, group=4)),
        Case(2, 1, work(20, 5, 30, standby=60, group=4)),
        Case(2, 0, work(20, 10, 30, group=2)),
        Case(1, 0, work(20, 10, 30)),
    ]


@contextmanager
def sleeping(work: Workload) -> Iterator[None]:
    """Makes every stage of every batch last as long as the workload says."""
    real = roles.draw_batch, roles.extract_batch, Replica.__call__

    def lasting(call: Callable[..., Any], stage: str, position: Callable[..., int]) -> Callable[..., Any]:
        def lasts(*given: Any) -> Any:
            ends = time.perf_counter() + work.seconds(_stage(stage), position(*given))
            result = call(*given)
            time.sleep(max(0.0, ends - time.perf_counter()))
            return result

        return lasts

    roles.draw_batch = lasting(real[0], "sample", lambda batching, sampler, item, epoch: item.position)
    roles.extract_batch = lasting(real[1], "extract", lambda *given: given[-1].position)
    Replica.__call__ = lasting(real[2], "train", lambda replica, batch: batch.position)
    try:
        yield
    finally:
        roles.draw_batch, roles.extract_batch, Replica.__call__ = real


def _stage(stage: str) -> str:
    stands_in = stage == "extract" and not threading.current_thread().name.startswith("trainer")
    return "standby_extract" if stands_in else stage


def slept_seconds(store: Store, case: Case) -> float:
    """Returns the seconds of an epoch whose stages sleep.

    Args:
        store: has the graph.
        case: the executors and their stages.
    """
    semantic: Any = config_class("sbm")(**GRAPH)
    artifacts, work = build_graph(store, semantic), case.work
    settings = FactoredSettings(
        samplers=case.samplers, trainers=case.trainers, devices=case.samplers + case.trainers, switching=case.switching,
        staleness=work.staleness,
    )  # fmt: skip
    table = TrainTable(name="sleeping", trainer="factored", settings=settings, hidden=4, epochs=1, threads=1,
                       accumulate=work.group)  # fmt: skip
    with sleeping(work):
        (model,) = train_table(store, artifacts.inputs, table, SAMPLING, 0, retrain=True, report=lambda line: None)
    return model.run_record()["epoch_seconds"]["train"][-1]


def compared(slower: float) -> list[dict[str, Any]]:
    """Returns seconds slept and simulated of every case, its times multiplied by `slower`, and prints them."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for case in cases(slower):
            slept = slept_seconds(store, case)
            told = simulate(case.work, case.samplers, case.trainers, switching=case.switching)
            row = {"case": case.title, "slept": round(slept, 3), "simulated": round(told.seconds, 3)}
            found.append(row | {"ratio": round(told.seconds / slept, 3)})
            print(
                f"{case.title:55} slept {slept:7.3f} s, simulated {told.seconds:7.3f} s, ratio {found[-1]['ratio']:.3f}"
            )
    worst = max(abs(row["ratio"] - 1) for row in found)
    print(f"the simulator is within {100 * worst:.1f} % of every run (must: 15 %)")
    return found
