"""The `[memory]` table, and the configuration that the budgets stage hashes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from graphmill.assets.building.keys import Checked, KeyProblem, size_problem
from graphmill.assets.sizes import LONGEST_TEXT, parse_size
from graphmill.kernels.cuda.driver import num_gpus

AUTO = "auto"
AUTO_QUEUE = "1GiB"
"""The bytes for which a train table's `queue = "auto"` counts: its first size (trainers/batches/flow.py)."""
LEVELS = ("device", "host", "disk")
EDGE_LEVELS = ("edge_host", "edge_disk")
"""Keys about rows of edges, which the plan of these hashes (assets/cache_plan/config.py) and the budgets do not."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Checked):
    """The `[memory]` table: feature bytes that each level may hold; a size, a share of all feature bytes, or "auto"."""

    # bytes of feature rows in the memory of the device, beside the model
    device: int | str = AUTO
    # bytes of feature rows in main memory
    host: int | str = AUTO
    # bytes that stages may write to disk besides the graph's own features
    disk: int | str = AUTO
    # bytes of rows of edges in main memory, in front of those that are packed; a size, or a share of all bytes of such rows
    edge_host: int | str = field(default=0, metadata={"hashed": False})
    # bytes of packed rows of edges and of their disk caches, which `disk` does not count; likewise. None packs none of them
    edge_disk: int | str | None = field(default=None, metadata={"hashed": False})

    remedy = ""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the values that are not sizes."""
        if self.edge_host != 0 and self.edge_disk is None:
            text = f"edge_host = {self.edge_host!r} is for packed rows of edges, and edge_disk is not given"
            yield KeyProblem("edge_host", f'{text}: give it as well, such as "4x", or leave both out')
        for name in (*LEVELS, *EDGE_LEVELS):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, str) and value.strip().isdecimal() and len(value) <= LONGEST_TEXT and int(value) > 0:
                text = f'{name} = "{value}" has no unit: as it stands it is {int(value):,} bytes'
                how = f'write "{value}GiB", "{value}%" of the features, or for bytes {value} without quotes'
                yield KeyProblem(name, f"{text}; {how}")
            elif not name.endswith("disk") and (more := _more_than_all(value)):
                text = f"{name} = {value!r} is {more} of the features, and there are no more than all of them"
                yield KeyProblem(name, f'{text}; write at most "100%", or a size such as "2GiB"')
            elif value != AUTO or name in EDGE_LEVELS:
                share = '"10%" or "5x"' if name.endswith("disk") else '"10%"'
                auto = "" if name in EDGE_LEVELS else '"auto", '
                how = f'write {auto}a size such as "2GiB", or a share of the features such as {share}'
                yield from size_problem(name, value, how, whole=0)


@dataclass(frozen=True, kw_only=True)
class CudaWork:
    """The working sets that tables with `device = "cuda"` declare."""

    # largest `workspace`; None if a table declares none
    step_bytes: int | None
    # largest `queue`
    queue_bytes: int
    # largest `eval_workspace`
    evaluation_bytes: int
    # whether other tables train on the CPU, so that the budget is for both kinds of device
    shared: bool


@dataclass(frozen=True, kw_only=True)
class BudgetsConfig:
    """The configuration that the stage hashes besides the graph."""

    # the `[memory]` table of the pipeline file
    memory: MemoryConfig
    # largest working set of a device that a train table declares; 0 if the budget of the device is not "auto"
    device_work_bytes: int = 0
    # the same for the host
    host_work_bytes: int = 0
    # work on a GPU; None if nothing is "auto" on device and host, if no table trains on a GPU, or without a GPU
    cuda: CudaWork | None = field(default=None, metadata={"hashed": "unless default"})

    @property
    def automatic(self) -> tuple[str, ...]:
        """The levels that are resolved from measured numbers."""
        return tuple(name for name in LEVELS if getattr(self.memory, name) == AUTO)


@dataclass(frozen=True, kw_only=True)
class BudgetsExecution:
    """This stage has no settings."""


def budgets_config(memory: MemoryConfig, tables: tuple[Any, ...]) -> BudgetsConfig:
    """Returns the configuration that the budgets stage of a pipeline hashes.

    Args:
        tables: the train tables of the pipeline file; their `workspace`, `queue` and `eval_workspace` are the declared working sets.
    """
    assert not any(isinstance(table, Mapping) for table in tables), "read the pipeline with the train tables' schema"
    config = BudgetsConfig(memory=memory)
    if "device" in config.automatic:
        config = replace(config, device_work_bytes=max((_declared(t, "workspace") for t in tables), default=0))
    if "host" in config.automatic:
        host = max((_declared(t, "queue") + _declared(t, "eval_workspace") for t in tables), default=0)
        config = replace(config, host_work_bytes=host)
    if {"device", "host"} & {*config.automatic}:
        config = replace(config, cuda=_cuda_work(tables))
    return config


def _cuda_work(tables: tuple[Any, ...]) -> CudaWork | None:
    on_gpu = [table for table in tables if getattr(table, "device", "cpu") != "cpu"]
    if not on_gpu or not num_gpus():
        return None
    undeclared = any(table.workspace is None for table in on_gpu)
    return CudaWork(
        step_bytes=None if undeclared else max(_declared(table, "workspace") for table in on_gpu),
        queue_bytes=max(_declared(table, "queue") for table in on_gpu),
        evaluation_bytes=max(_declared(table, "eval_workspace") for table in on_gpu),
        shared=len(on_gpu) < len(tables),
    )


def _declared(table: Any, key: str) -> int:
    size = getattr(table, key, None)
    return parse_size(AUTO_QUEUE if size == AUTO else size) if size is not None else 0


def _more_than_all(value: int | str) -> str:
    """Returns a share of the features as it is written if it is more than all of them, else ""."""
    text = value.strip() if isinstance(value, str) else ""
    share = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|x)", text)
    return text if share and float(share[1]) > {"%": 100, "x": 1}[share[2]] else ""
