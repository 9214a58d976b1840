"""`graphmill budgets`: the measured memory, the budgets of a pipeline, and measuring again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from graphmill.assets.budgets.config import LEVELS, BudgetsConfig, BudgetsExecution, MemoryConfig, budgets_config
from graphmill.assets.budgets.measured import PLACE, measured_bytes, refresh
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.materialize import materialize
from graphmill.assets.pipeline.data_steps import preprocessing_steps
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Versions, find_all
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.store import Store
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.kernels.errors import InputError


def print_budgets(home: Path | None, pipeline: Pipeline | None, *, again: bool = False, as_json: bool = False) -> None:
    """Prints the measured memory, and the budgets of a pipeline whose graph is built.

    Args:
        home: the home folder, None for the default one.
        pipeline: the recipe whose budgets are printed; None for the measured memory alone.
        again: measure again first. Budgets of "auto" that are built from then on use it; no model is trained again for it.

    Raises:
        InputError: the graph is not built, or the measurement is damaged.
    """
    folder = home_folder(home)
    how = "measured again" if again else "measured before" if (folder / PLACE).exists() else "measured now"
    memory = refresh(folder) if again else measured_bytes(folder)
    if as_json:
        numbers = None if pipeline is None else dict(_resolved(Store(folder), pipeline).summary["numbers"])
        print(json.dumps({"measured": asdict(memory), "budgets": numbers}, indent=2))
        return
    print(f"{folder / PLACE}: {how}")
    gpu = "" if memory.device_bytes is None else f", free on the GPU {format_bytes(memory.device_bytes)}"
    print(f"  memory {format_bytes(memory.memory_bytes)}, free disk {format_bytes(memory.disk_bytes)}{gpu}")
    if memory.device_bytes is None and num_gpus():
        print("  the GPU was not there when these were measured: --refresh measures it, too")
    if pipeline is not None:
        _print_resolved(Store(folder), pipeline)


def _resolved(store: Store, pipeline: Pipeline) -> Artifact:
    """Returns the budgets of a pipeline, which are built if they are missing."""
    steps = {step.name: step for step in preprocessing_steps(pipeline, store.home)}
    (features,) = find_all(store, steps[pipeline.step_of("features")], Versions()) or [None]
    if features is None:
        problem = f"{pipeline.path}: its features are not built in {store.home}, so shares of them have no size"
        raise InputError(problem, f"build it first: graphmill build {pipeline.reference}")
    config: BudgetsConfig = budgets_config(pipeline.table("memory") or MemoryConfig(), pipeline.train)
    return materialize(store, BudgetsStage(store.home), config, BudgetsExecution(), {"features": features})


def _print_resolved(store: Store, pipeline: Pipeline) -> None:
    artifact = _resolved(store, pipeline)
    numbers = artifact.summary["numbers"]
    print(f"{artifact.label} of {pipeline.name}: {format_bytes(numbers['feature_bytes'])} of features")
    for name in LEVELS:
        share = f", {numbers[f'{name}_share']}" if f"{name}_share" in numbers else ""
        print(f"  {name:6} {numbers[name]}{share}")
