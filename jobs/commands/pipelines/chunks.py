"""`graphmill budgets`: the memory of this machine, and what a pipeline takes of it.

`graphmill chunks`: the rows that each schedule of a pipeline's chunks moves, and their cost by equation 4 (HongTu, section 5.3).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphmill.assets.budgets.config import LEVELS, BudgetsConfig, BudgetsExecution, MemoryConfig, budgets_config
from graphmill.assets.budgets.measured import PLACE as MEMORY_PLACE
from graphmill.assets.budgets.measured import measured_bytes, refresh
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.materialize import materialize
from graphmill.assets.chunks.rates import PLACE, measured_rates, parse_rates
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Versions, find_all, preprocessing_steps
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.aligned import aligned_rows, terminal_columns
from graphmill.kernels.chunks.counts import cost
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.kernels.errors import InputError

LINK_NAMES = ("host", "peer", "reuse")


def print_chunks(
    home: Path | None, pipeline: Pipeline, *, rates: str | None, row_bytes: int, again: bool, as_json: bool
) -> None:
    """Prints the volumes and costs of every schedule that was compared, and marks the chosen one.

    Args:
        rates: speeds of the links such as "12GB/s,200GB/s,1.5TB/s"; None for the measured ones of the home.

    Raises:
        InputError: the pipeline has no chunks, they are not built, or the rates are not three speeds.
    """
    if row_bytes < 1:
        raise InputError(f"rows of {row_bytes} bytes", "give --row-bytes as 1 or more, 4 per column of float32")
    found = chunk_costs(home, pipeline, rates, row_bytes, again)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    speeds = ", ".join(f"{name} {found['rates'][name] / 1e9:.1f} GB/s" for name in LINK_NAMES)
    print(f"{found['chunks']} of {pipeline.name}: {found['num_parts']} parts of {found['chunks_per_part']} chunks")
    print(f"links of {found['device']}: {speeds}; one layer of rows of {row_bytes} bytes costs\n")
    rows = [
        [
            f"{'*' if row['schedule'] == found['chosen'] else ' '} {row['schedule']}",
            *(f"{row[name]:,}" for name in ("v_ori", "v_p2p", "v_ru")),
            f"{row['seconds'] * 1e3:.3f} ms",
        ]
        for row in found["schedules"]
    ]
    columns = ["  schedule", "V_ori", "V_+p2p", "V_+ru", "equation 4"]
    for line in aligned_rows(columns, rows, [False, *[True] * 4], room=terminal_columns()):
        print(line)


def chunk_costs(
    home: Path | None, pipeline: Pipeline, rates: str | None, row_bytes: int, again: bool
) -> dict[str, Any]:
    """Returns the numbers that `print_chunks` prints, JSON-ready; raises the same errors."""
    folder = home_folder(home)
    pipeline.require_one_split()
    steps = {step.name: step for step in preprocessing_steps(pipeline, folder)}
    if "chunks" not in steps:
        raise InputError(f"{pipeline.path} has no table [chunks]", "add [partitions] and [chunks]")
    (artifact,) = find_all(Store(home), steps["chunks"], Versions()) or [None]
    if artifact is None:
        problem = f"{pipeline.path}: its chunks are not built in {folder}"
        raise InputError(problem, f"build them first: graphmill build {pipeline.reference}")
    device, speeds = ("the given rates", parse_rates(rates)) if rates else measured_rates(folder, again=again)
    numbers = artifact.summary["numbers"]
    return {
        "chunks": artifact.label,
        "chosen": numbers["schedule"],
        "num_parts": numbers["num_parts"],
        "chunks_per_part": numbers["chunks_per_part"],
        "row_bytes": row_bytes,
        "device": device,
        "measured": None if rates else str(folder / PLACE),
        "rates": dict(zip(LINK_NAMES, speeds.of_rows(1), strict=True)),
        "schedules": [
            row | {"seconds": cost(row["v_ori"], row["v_p2p"], row["v_ru"], speeds.of_rows(row_bytes))}
            for row in numbers["volumes_by_schedule"]
        ],
    }


def print_budgets(home: Path | None, pipeline: Pipeline | None, *, again: bool = False, as_json: bool = False) -> None:
    """Prints the measured memory, and the budgets of a pipeline whose graph is built.

    Args:
        pipeline: the recipe whose budgets are printed; None for the measured memory alone.
        again: measure again first. Budgets of "auto" that are built from then on use it; no model is trained again for it.

    Raises:
        InputError: the graph is not built, or the measurement is damaged.
    """
    folder = home_folder(home)
    how = "measured again" if again else "measured before" if (folder / MEMORY_PLACE).exists() else "measured now"
    memory = refresh(folder) if again else measured_bytes(folder)
    if as_json:
        numbers = None if pipeline is None else dict(_resolved(Store(folder), pipeline).summary["numbers"])
        print(json.dumps({"measured": asdict(memory), "budgets": numbers}, indent=2))
        return
    print(f"{folder / MEMORY_PLACE}: {how}")
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
