"""Peak memory of trainings against the sum that was said before each, per trainer and for two shapes of batch and model.

`python -m graphmill.trainers` trains every table in a process of its own. `run.json` has the sum (`memory_need`), and the peak of
anonymous pages that the process saw of itself, every 20 ms; of ranks, the peaks are added up with what the process that starts them takes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import record
from graphmill.assets.building.child import child_environment
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.costs.memory import LAUNCHER_BYTES
from tests.recipes import recipe

QUICK, FULL = 50_000, 400_000
SHAPES: dict[str, dict[str, Any]] = {
    "narrow rows, wide layers": {"features": 64, "hidden": 256, "batch_size": 512},
    "wide rows, narrow layers": {"features": 512, "hidden": 64, "batch_size": 256},
}
TABLES: dict[str, dict[str, Any]] = {
    "minibatch-mapped": {"cache": "none", "samples": "stored", "features": "mapped"},
    "minibatch-direct": {"cache": "none", "samples": "stored", "features": "direct"},
    "minibatch-cached": {"samples": "stored", "features": "direct"},
    "disk": {"trainer": "disk"},
    "fresh": {"trainer": "fresh", "samples": "stored", "features": "direct"},
    "fresh-packed": {"trainer": "fresh", "samples": "stored", "fresh": {"rows": "packed"}},
    "factored": {
        "trainer": "factored",
        "samples": "stored",
        "accumulate": 2,
        "samplers": 0,
        "factored": {"samplers": 1, "trainers": 1},
    },
    "fullgraph": {"trainer": "fullgraph"},
    "fullgraph-uncut": {"trainer": "fullgraph", "fullgraph": {"mode": "device"}},
    "distributed": {"trainer": "distributed", "distributed": {"ranks": 2}},
}
WORST = 0.15
"""Share by which a peak may exceed its sum before this fails."""


def main(quick: bool) -> None:
    nodes, runs = QUICK if quick else FULL, []
    for shape, sizes in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            path, home = Path(folder) / "memory.toml", Path(folder) / "home"
            path.write_text(pipeline_text(nodes, **sizes))
            called(home, "-c", "from graphmill.jobs.cli import main; main()", "build", str(path))
            for name in TABLES:
                called(home, "-m", "graphmill.trainers", str(path), name, "--quiet")
                row: dict[str, Any] = {"shape": shape, "trainer": name} | found(Store(home), name)
                runs.append(row)
                least, most, peak = (row[key] / 2**20 for key in ("least_bytes", "said_bytes", "peak_bytes"))
                print(f"{shape}, {name}: {least:.0f} to {most:.0f} MiB were said, {peak:.0f} measured: "
                      f"{100 * row['deviation']:+.1f} % of the most")  # fmt: skip
    record("training_memory", {"scale": "quick" if quick else "full", "nodes": nodes, "runs": runs}, ("torch", "numpy"))
    worst = max(runs, key=lambda row: row["deviation"])
    assert worst["deviation"] < WORST, f"{worst['trainer']} took {100 * worst['deviation']:.0f} % more than was said"


def pipeline_text(nodes: int, features: int, hidden: int, batch_size: int) -> str:
    """Returns the recipe of one shape."""
    common = {
        "layers": 2,
        "hidden": hidden,
        "epochs": 2,
        "eval": "sampled",
        "eval_every": 0,
        "queue": "256MiB",
        "samplers": 1,
    }
    return recipe(
        *({"name": name, "trial": name} | common | table for name, table in TABLES.items()),
        graph={
            "source": "rmat",
            "nodes": nodes,
            "edges": 8 * nodes,
            "features": features,
            "classes": 16,
            "labelled": 0.1,
        },
        sampling={"fanouts": [10, 10], "batch_size": batch_size, "reuse": 1},
        samples={},
        hotness={"policy": "presample"},
        memory={"host": "10%", "device": "5%", "disk": "20x"},
        cache_plan={},
        packed={},
        partitions={"parts": 2},
        chunks={},
    )


def called(home: Path, *arguments: str) -> None:
    """Runs a program of this project to its end, in a home."""
    environment = child_environment({"GRAPHMILL_HOME": str(home)})
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def found(store: Store, name: str) -> dict[str, Any]:
    """Returns the sum and the peak of the model of a table."""
    (model,) = (each for each in store.artifacts() if each.stage == "model" and each.config["train"]["trial"] == name)
    run = model.run_record()
    said, ranks = run["memory_need"]["bytes"], run.get("ranks")
    peak = sum(rank["peak_memory_bytes"] for rank in ranks) + LAUNCHER_BYTES if ranks else run["peak_memory_bytes"]
    return {
        "least_bytes": run["memory_need"]["least_bytes"],
        "said_bytes": said,
        "peak_bytes": peak,
        "deviation": round(peak / said - 1, 4),
        "terms": run["memory_need"]["terms"],
    }
