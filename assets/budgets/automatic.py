"""The bytes of "auto": what the device and the host may hold, from measured numbers and declared work."""

from typing import NamedTuple

from graphmill.assets.budgets.config import BudgetsConfig
from graphmill.assets.budgets.measured import MachineBytes
from graphmill.assets.sizes import format_bytes


class DeviceBudget(NamedTuple):
    """The budget of a device.

    Attributes:
        num_bytes: bytes of rows.
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
