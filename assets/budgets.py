"""The budgets stage: how many bytes of features each level of the memory may hold.

The `[memory]` table says it as a size, a share of the feature bytes ("10%", "5x") or "auto". "auto" is resolved here, once, from what was
measured into the home (assets/measured.py):

    host      half of the memory; less the device's share where the device is logical; less the largest `queue` + `eval_workspace`
    device    a quarter of the memory for a logical device; less the largest `workspace` that a train table declares
    disk      half of what was free on the disk of the home

never below 0. Trainers of this version compute on the CPU, so the device is a logical one: a part of the same memory that is held to its
size. The trainer lowers a device budget of "auto" further where one simulated step shows that training needs more (trainers/simulate.py).

The artifact has no arrays: it is the numbers of its summary, with the arithmetic in words. A recipe without "auto" has the same version on
every machine.
The disk budget bounds what `cache_plan` lays out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.measured import Memory, measured_digest, measured_memory
from assets.needs import require
from assets.sizes import format_bytes, parse_size
from assets.stage import Check, Progress, Summary, stage_version
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.artifact import Artifact
    from assets.writer import Writer

AUTO = "auto"
LEVELS = ("device", "host", "disk")
BUDGET_CHECKS = ("device and host fit the memory",)
"""What the stage tests; the UI lists checks before they have run."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """The `[memory]` table: feature bytes that each level may hold; a size, a share of all feature bytes, or "auto"."""

    device: int | str = AUTO
    # Rows beside the model, reached without crossing the link.
    host: int | str = AUTO
    # Rows in main memory.
    disk: int | str = AUTO
    # What stages may write besides the graph's own features.

    def __post_init__(self) -> None:
        """Checks that each is a size."""
        for name in LEVELS:
            value = getattr(self, name)
            if value != AUTO:
                try:
                    parse_size(value, 0)
                except InputError as error:
                    remedy = 'write "auto", a size such as "2GiB", or a share of the features such as "10%" or "5x"'
                    raise InputError(f"{name} = {value!r}: {error.problem}", remedy) from error


@dataclass(frozen=True, kw_only=True)
class BudgetsConfig:
    """The whole recipe of budgets besides the graph."""

    memory: MemoryConfig
    # What the pipeline file says.
    device_work_bytes: int = 0
    # The largest declared working set of a device; 0 where its budget is no "auto".
    host_work_bytes: int = 0
    # The same for the host.

    @property
    def automatic(self) -> tuple[str, ...]:
        """The levels that are resolved from what was measured."""
        return tuple(name for name in LEVELS if getattr(self.memory, name) == AUTO)


@dataclass(frozen=True, kw_only=True)
class BudgetsExecution:
    """Nothing can be set."""


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """Resolved budgets.

    Attributes:
        device_bytes, host_bytes, disk_bytes: of features.
        automatic: the levels that said "auto".
        device_total_bytes: what the logical device has for features and work together; None where its budget was given.
    """

    device_bytes: int
    host_bytes: int
    disk_bytes: int
    automatic: tuple[str, ...] = ()
    device_total_bytes: int | None = None


class BudgetsStage:
    """Resolves budgets.

    Args:
        home: where measured numbers are, None for the default home.
    """

    name = "budgets"
    code_version = 1
    Semantic = BudgetsConfig
    Execution = BudgetsExecution

    def __init__(self, home: Path | None = None):
        self.home = home

    def inputs(self, semantic: BudgetsConfig) -> Mapping[str, str]:
        """Shares are of the graph's features."""
        return {"graph": "graph"}

    def raw(self, semantic: BudgetsConfig) -> Mapping[str, str]:
        """Returns the digest of what was measured, where an "auto" needs it."""
        return {"measured": measured_digest(self.home)} if semantic.automatic else {}

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: BudgetsConfig,
        execution: BudgetsExecution,
        writer: Writer,
        progress: Progress,
    ) -> Summary:
        """Does the arithmetic.

        Raises:
            InputError: the numbers were measured again meanwhile.
        """
        table = inputs["graph"].table("features")
        memory = measured_memory(self.home) if semantic.automatic else None
        if stage_version(self, semantic, inputs) != writer.version:
            raise InputError("the memory was measured again while the budgets were resolved", "build again")
        resolved = [_resolve(name, semantic, table.num_rows * table.row_bytes, memory) for name in LEVELS]
        numbers: dict[str, Any] = {"feature_bytes": table.num_rows * table.row_bytes, "row_bytes": table.row_bytes}
        left = table.num_rows
        for name, (num_bytes, words) in zip(LEVELS, resolved, strict=True):
            numbers |= {f"{name}_bytes": num_bytes, name: f"{words} = {format_bytes(num_bytes)}"}
            if name != "disk":
                rows = min(left, num_bytes // table.row_bytes if table.row_bytes else left)
                numbers |= {f"{name}_rows": rows, f"{name}_share": f"{rows:,} of {table.num_rows:,} rows"}
                left -= rows
        numbers |= {"automatic": list(semantic.automatic)}
        if memory is not None:
            numbers |= {"device_total_bytes": _device_total(memory), "memory_bytes": memory.memory_bytes}
        return Summary(numbers=numbers, checks=[_fits(numbers, memory)])


def budgets_config(memory: MemoryConfig, tables: tuple[Any, ...]) -> BudgetsConfig:
    """Returns the recipe of a pipeline's budgets.

    Args:
        memory: its `[memory]` table.
        tables: its train tables; their `workspace`, `queue` and `eval_workspace` are the declared working sets.
    """
    assert not any(isinstance(table, Mapping) for table in tables), "read the pipeline with the train tables' schema"
    config = BudgetsConfig(memory=memory)
    if "device" in config.automatic:
        config = replace(config, device_work_bytes=max((_declared(t, "workspace") for t in tables), default=0))
    if "host" in config.automatic:
        host = max((_declared(t, "queue") + _declared(t, "eval_workspace") for t in tables), default=0)
        config = replace(config, host_work_bytes=host)
    return config


def open_budgets(artifact: Artifact) -> Budgets:
    """Returns the numbers of a budgets artifact.

    Raises:
        InputError: it is of another stage.
    """
    require(artifact, {"stage": BudgetsStage.name})
    numbers = artifact.summary["numbers"]
    names = ("device_bytes", "host_bytes", "disk_bytes", "device_total_bytes")
    automatic = tuple(numbers["automatic"])
    found = {name: numbers[name] for name in names if name in numbers}
    return Budgets(automatic=automatic, **found)


def _declared(table: Any, key: str) -> int:
    size = getattr(table, key, None)
    return parse_size(size) if size is not None else 0


def _device_total(memory: Memory) -> int:
    return memory.memory_bytes // 4


def _resolve(name: str, semantic: BudgetsConfig, feature_bytes: int, memory: Memory | None) -> tuple[int, str]:
    """Returns the bytes of a level and how they came about."""
    size = getattr(semantic.memory, name)
    if size != AUTO:
        shared = isinstance(size, str) and size.strip()[-1:] in ("%", "x")
        words = f"{size} of {format_bytes(feature_bytes)} of features" if shared else f"{size} given"
        return parse_size(size, feature_bytes), words
    assert memory is not None
    if name == "disk":
        return memory.disk_bytes // 2, f"auto: half of {format_bytes(memory.disk_bytes)} that were free"
    device, whole = _device_total(memory), format_bytes(memory.memory_bytes)
    if name == "device":
        work = semantic.device_work_bytes
        words = f"auto: a quarter of {whole} for the logical device, less {format_bytes(work)} of workspace"
        return max(0, device - work), words
    work = semantic.host_work_bytes
    words = f"auto: half of {whole}, less {format_bytes(device)} of the logical device, less {format_bytes(work)} of queue and evaluation"
    return max(0, memory.memory_bytes // 2 - device - work), words


def _fits(numbers: Mapping[str, Any], memory: Memory | None) -> Check:
    """Tests that what would be held is in the memory; nothing is known where nothing was measured."""
    held = (numbers["device_rows"] + numbers["host_rows"]) * numbers["row_bytes"]
    whole = memory.memory_bytes if memory else None
    detail = f"{format_bytes(held)} of rows" + (f" in {format_bytes(whole)}" if whole is not None else "")
    return Check(name=BUDGET_CHECKS[0], passed=whole is None or held <= whole, detail=detail)
