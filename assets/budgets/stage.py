"""The budgets stage: from shares and sizes to bytes, of "auto" from measured numbers and declared work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphmill.assets.budgets.config import AUTO, LEVELS, BudgetsConfig, BudgetsExecution, MemoryConfig, budgets_config
from graphmill.assets.budgets.measured import MachineBytes, measured_bytes, measured_digest
from graphmill.assets.building.materialize import stage_version
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Stage, Summary
from graphmill.assets.costs.needs import DRAWING, Need
from graphmill.assets.features.read import open_features
from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.kernels.errors import InputError

FITS = "device and host fit the memory"


def _headline(artifacts: Sequence[Artifact]) -> str:
    numbers = artifacts[0].summary["numbers"]
    levels = ", ".join(f"{level} {format_bytes(numbers[f'{level}_bytes'])}" for level in ("device", "host", "disk"))
    return f"**{levels}** for {format_bytes(numbers['feature_bytes'])} of features"


BUDGETS_PAGE = Page(
    about="How many bytes of feature rows the device, the host memory and the disk cache may hold. "
    'Caches and plans keep to these sizes, and "auto" is resolved here once, so a later run on a busier machine gets the same. '
    "Look at the rows that fit into each level, and at the arithmetic behind each size.",
    docs="docs/stages/budgets.md",
    headline=_headline,
    first=("device_bytes", "host_bytes", "disk_bytes", "device_rows", "host_rows", "feature_bytes"),
    kinds=frozenset({"json"}),
)

MEASURED_PAGE = Page(
    about="What was measured on this machine into the home: its memory, and the free space of its disk. "
    'Budgets of "auto" are computed from these numbers, so that they are the same from run to run. '
    "Observe this asset after the numbers were measured again, and see whether budgets are marked as stale.",
    docs="docs/stages/budgets.md",
    kinds=frozenset({"json"}),
)


class BudgetsStage(Stage):
    """Resolves budgets."""

    page = BUDGETS_PAGE
    external_page = MEASURED_PAGE
    name = "budgets"
    code_version = 1
    table = "memory"
    Table = MemoryConfig
    Semantic = BudgetsConfig
    Execution = BudgetsExecution
    need = staticmethod(lambda semantic, execution, sizes: Need(name="budgets", phases=((DRAWING,),)))
    reads_stages = ("features",)  # a budget may be a share of their bytes
    says: Mapping[str, str] = {
        "device and host fit the memory": "The rows that the device and the host would hold fit the memory of "
        "the machine, or the given budgets where it was not measured."
    }
    of_one_feature_table = True

    def __init__(self, home: Path | None = None):
        self.home = home

    def at(self, home: Path | None) -> BudgetsStage:
        """Returns the stage that uses the measured numbers of a home."""
        return BudgetsStage(home)

    def wanted(self, pipeline: Any) -> BudgetsConfig | None:
        """Returns budgets as [memory] gives them, or "auto" if only [hotness] asks for a cache."""
        memory = pipeline.table("memory")
        if memory is None and pipeline.table("hotness") is not None and pipeline.train:
            memory = MemoryConfig()
        return None if memory is None else budgets_config(memory, pipeline.train)

    def external(self, semantic: BudgetsConfig) -> str:
        """Names the asset of the measured numbers if a level is "auto"."""
        return "measured" if semantic.automatic else ""

    def raw(self, semantic: BudgetsConfig) -> Mapping[str, str]:
        """Returns the digest of the measured numbers if an "auto" needs them."""
        return {"measured": measured_digest(self.home)} if semantic.automatic else {}

    def build(self, building: Building[BudgetsConfig, BudgetsExecution]) -> Summary:
        """Computes the bytes of each level; raises InputError if the numbers were measured again during the build."""
        inputs, semantic, writer = building.inputs, building.semantic, building.writer
        table = open_features(inputs["features"])
        memory = measured_bytes(self.home) if semantic.automatic else None
        if stage_version(self, semantic, inputs) != writer.version:
            raise InputError("the memory was measured again while the budgets were resolved", "build again")
        resolved = [_resolve(name, semantic, table.num_bytes, memory) for name in LEVELS]
        numbers: dict[str, Any] = {"feature_bytes": table.num_bytes, "row_bytes": table.row_bytes}
        left = table.num_rows
        for name, (num_bytes, words) in zip(LEVELS, resolved, strict=True):
            numbers |= {f"{name}_bytes": num_bytes, name: f"{words} = {format_bytes(num_bytes)}"}
            if name != "disk":
                rows = min(left, num_bytes // table.row_bytes if table.row_bytes else left)
                numbers |= {f"{name}_rows": rows, f"{name}_share": f"{rows:,} of {table.num_rows:,} rows"}
                left -= rows
        numbers |= {"automatic": list(semantic.automatic)}
        if memory is not None:
            numbers |= {"device_total_bytes": logical_bytes(memory), "memory_bytes": memory.memory_bytes}
        figures = _draw(numbers, semantic, memory, writer)
        gpu_bytes = memory.device_bytes or 0 if memory and _on_gpu(semantic, memory) else 0
        return Summary(numbers=numbers, checks=[_fits(numbers, memory, gpu_bytes)], figures=figures)


BUDGETS = BudgetsStage()
"""The stage with the numbers of the default home."""


def _resolve(name: str, semantic: BudgetsConfig, feature_bytes: int, memory: MachineBytes | None) -> tuple[int, str]:
    """Returns the bytes of a level, and their computation in words."""
    size = getattr(semantic.memory, name)
    if size != AUTO:
        shared = isinstance(size, str) and size.strip()[-1:] in ("%", "x")
        words = f"{size} of {format_bytes(feature_bytes)} of features" if shared else f"{size} given"
        return parse_size(size, feature_bytes), words
    assert memory is not None
    if name == "disk":
        return memory.disk_bytes // 2, f"auto: half of {format_bytes(memory.disk_bytes)} that were free"
    if name == "device":
        return device_budget(semantic, memory)[:2]
    return host_budget(semantic, memory)


def _draw(
    numbers: Mapping[str, Any], semantic: BudgetsConfig, memory: MachineBytes | None, writer: Writer
) -> dict[str, str]:
    from graphmill.assets.figures.budgets import Level, budget_bars

    row_bytes, features = numbers["row_bytes"], numbers["feature_bytes"]
    held = {name: numbers[f"{name}_rows"] * row_bytes for name in ("device", "host")}
    rows = [("rows on the device", held["device"]), ("rows on the host", held["host"])]
    levels = [Level("features", [*rows, ("rows in the feature file alone", features - sum(held.values()))])]
    for name in ("device", "host", "disk"):
        automatic, budget = name in semantic.automatic and memory is not None, numbers[f"{name}_bytes"]
        if name == "disk":
            parts = [("packed rows", budget)]
            whole = memory.disk_bytes if automatic and memory else budget
        else:
            parts = [(f"rows on the {name}", held[name]), ("budget that no row needs", budget - held[name])]
            whole = budget
        if automatic and memory and name == "device":
            found = device_budget(semantic, memory)
            whole = found.whole_bytes
            parts.append(("work of the training", found.work_bytes))
        if automatic and memory and name == "host":
            whole, device = memory.memory_bytes, 0 if _on_gpu(semantic, memory) else logical_bytes(memory)
            parts += [
                ("work of the training", min(semantic.host_work_bytes, whole - device - budget)),
                ("the logical device", device),
            ]
        parts.append(("not given to graphmill", whole - sum(size for _, size in parts)))
        levels.append(Level(f"{name}\n{'auto' if automatic else getattr(semantic.memory, name)}", parts))
    title = f"{format_bytes(features)} of features, and what each level of the memory may hold of them"
    budget_bars(writer.path("budgets.png"), levels, title)
    return {"memory by level": "budgets.png"}


def _on_gpu(semantic: BudgetsConfig, memory: MachineBytes) -> bool:
    """Tells whether the rows of the device lie in a GPU's memory, and not in the host's."""
    return semantic.cuda is not None and not semantic.cuda.shared and memory.device_bytes is not None


def _fits(numbers: Mapping[str, Any], memory: MachineBytes | None, gpu_bytes: int) -> Check:
    """Tests that the rows of device and host fit the memory, with that of a GPU, or the given budgets if nothing was measured."""
    rows = numbers["device_rows"] + numbers["host_rows"]
    held = rows * numbers["row_bytes"]
    bound = memory.memory_bytes + gpu_bytes if memory else numbers["device_bytes"] + numbers["host_bytes"]
    given = "the two given budgets; the memory of the machine was not asked for"
    of_what = ("the memories of machine and GPU" if gpu_bytes else "the machine's memory") if memory else given
    return Check(
        name=FITS,
        passed=held <= bound,
        detail=f"{format_bytes(held)} of rows ({rows:,} of {numbers['row_bytes']:,} bytes) in {format_bytes(bound)} of {of_what}",
        numbers={"rows held on device and host, bytes": held, "memory, bytes" if memory else "budgets, bytes": bound},
    )


class DeviceBudget(NamedTuple):
    """The budget of a device.

    Attributes:
        whole_bytes, work_bytes: bytes of the device, and what of them the work of a training takes.
    """

    num_bytes: int
    words: str
    whole_bytes: int
    work_bytes: int


def logical_bytes(memory: MachineBytes) -> int:
    """Returns the bytes of a logical device: a quarter of the memory."""
    return memory.memory_bytes // 4


def device_budget(semantic: BudgetsConfig, memory: MachineBytes) -> DeviceBudget:
    """Returns the budget of the GPU, or of a logical device without one; of pipelines that train on both the lesser one."""
    logical, cuda = _logical_budget(semantic, memory), semantic.cuda
    if cuda is None:
        return logical
    if memory.device_bytes is None:
        return logical._replace(words=f"{logical.words}, since no GPU was measured (graphmill budgets --refresh)")
    gpu = _gpu_budget(semantic, memory.device_bytes)
    if cuda.shared and logical.num_bytes < gpu.num_bytes:
        return logical._replace(words=f"{logical.words}, since some tables train on the CPU")
    return gpu


def host_budget(semantic: BudgetsConfig, memory: MachineBytes) -> tuple[int, str]:
    """Returns the bytes of rows on the host, and their computation in words."""
    device, work, cuda = logical_bytes(memory), semantic.host_work_bytes, semantic.cuda
    words = f"auto: half of {format_bytes(memory.memory_bytes)}"
    if cuda is not None and not cuda.shared and memory.device_bytes is not None:
        device = 0  # a GPU has memory of its own
    else:
        words += f", less {format_bytes(device)} of the logical device"
    return max(
        0, memory.memory_bytes // 2 - device - work
    ), f"{words}, less {format_bytes(work)} of queue and evaluation"


def _logical_budget(semantic: BudgetsConfig, memory: MachineBytes) -> DeviceBudget:
    whole, work = logical_bytes(memory), semantic.device_work_bytes
    words = f"auto: a quarter of {format_bytes(memory.memory_bytes)} for the logical device, less {format_bytes(work)} of workspace"
    return DeviceBudget(max(0, whole - work), words, whole, min(work, whole))


def _gpu_budget(semantic: BudgetsConfig, free_bytes: int) -> DeviceBudget:
    """Returns the rest of a GPU's free bytes beside a training, or an evaluation if it takes more: the two take turns.

    A step that declares no `workspace` counts as an eighth. A sixteenth stays free, for the context and the fragmentation of allocators.
    """
    cuda = semantic.cuda
    assert cuda is not None
    step = free_bytes // 8 if cuda.step_bytes is None else cuda.step_bytes
    work, what = max((step + cuda.queue_bytes, "step and queue"), (cuda.evaluation_bytes, "evaluation"))
    words = f"auto: {format_bytes(free_bytes)} that were free on the GPU, less a sixteenth, less {format_bytes(work)} of {what}"
    left = free_bytes - free_bytes // 16
    return DeviceBudget(max(0, left - work), words, free_bytes, min(work, left))
