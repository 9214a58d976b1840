"""Evaluations and predictions that a test kills in the middle: `python -m tests.trainers.inference.killed NAME FOLDER ROUNDS`.

What is computed is kept as often as possible, and the process ends itself behind so many rounds of all its ranks, which are threads.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.names.user_code import Reference
from graphmill.assets.storage.store import Store
from graphmill.trainers.inference import exact, kept
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.costs import exact as costs
from graphmill.trainers.techniques.distributed import predict
from tests.recipes import recipe, sbm
from tests.trainers.models.test_own import written
from tests.trainers.models.test_own_pyg import BY_HAND
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import content, parts_inputs, train_parts, train_small

PREDICTED = recipe(
    {"name": "one", "hidden": 8, "epochs": 1},
    {"name": "two", "trainer": "distributed", "hidden": 8, "epochs": 1},
    name="killed",
    graph=sbm(nodes=600, edges=5000, train_ratio=0.5),
    partitions={"method": "random", "parts": 4},
    sampling={"fanouts": [4, 4], "batch_size": 64},
)


def trained(folder: Path, resume: bool, **options: Any) -> dict[str, str]:
    """Returns the content of a model of one process."""
    return content(train_small(folder, resume=resume, epochs=1, **options))


def trained_by_ranks(folder: Path, resume: bool, **options: Any) -> dict[str, str]:
    """Returns the content of a model of two ranks."""
    parts_inputs(folder, 2)  # threads would build it twice
    model, _ = run_threads(2, lambda ranks: train_parts(folder, 2, ranks, resume=resume, epochs=1, **options))
    return content(model)


def own(folder: Path, resume: bool) -> dict[str, str]:
    """Returns the content of a model of a user's module, which exposes no layers."""
    reference = Reference("own_killed:ByHand", written(folder.parent, "own_killed", BY_HAND))
    return trained(folder, resume, eval="exact", model=reference, blocks="pyg")


WAYS: dict[str, Any] = {
    "exact": lambda folder, resume: trained(folder, resume, eval="exact"),
    "sampled": lambda folder, resume: trained(folder, resume, eval="sampled", samplers=2),
    "max": lambda folder, resume: trained(folder, resume, eval="exact", aggregator="max", eval_workspace="16KiB"),
    "own": own,
    "ranks-exact": lambda folder, resume: trained_by_ranks(folder, resume, eval="exact", eval_workspace="16KiB"),
    "ranks-wide": lambda folder, resume: trained_by_ranks(
        folder, resume, eval="exact", eval_workspace="16KiB", model="gin", head="linear", jk="cat"
    ),
    "ranks-sampled": lambda folder, resume: trained_by_ranks(folder, resume, eval="sampled"),
}
"""Name -> function that trains in a folder, and returns the content of the model."""


def predicted(folder: Path, resume: bool) -> list[Any]:
    """Returns the rows of a prediction by one process; the folder has the file `killed.toml` and its home."""
    pipeline, store = load_pipeline(folder / "killed.toml", TrainTable), Store(folder / "home")
    out = folder / "out.parquet"
    predict_table(store, pipeline, "one", out, workspace="4KiB", threads=1)
    return polars.read_parquet(out).rows()


def predicted_by_ranks(folder: Path, resume: bool) -> list[Any]:
    """Returns the rows of the files of two ranks, likewise."""
    pipeline, store = load_pipeline(folder / "killed.toml", TrainTable), Store(folder / "home")
    (model,) = (each for each in store.artifacts() if each.stage == "model" and "partitions" in each.inputs)
    (folder / "parts").mkdir(exist_ok=True)
    order = {
        "home": store.home, "table": "two", "seed": None, "model": model.version, "workspace": "4KiB", "threads": 1,
        "columns": {"probabilities": True}, "folder": str(folder / "parts"),
    }  # fmt: skip
    run_threads(2, lambda ranks: predict._predict(order, pipeline, ranks))
    return [polars.read_parquet(path).rows() for path in sorted((folder / "parts").glob("*.parquet"))]


PREDICTIONS = {"predict": predicted, "ranks-predict": predicted_by_ranks}
"""Name -> function that predicts, and returns all rows."""


def as_often_as_possible(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Lets an inference keep what it has after every range and every batch."""
    patch(costs, "TILE_ROWS", (64, 64))
    patch(exact, "_WHOLE_BATCH", 32)
    patch(kept, "FIRST_SECONDS", 0)
    patch(kept, "SAVING_SHARE", 0)


def main(name: str, folder: str, rounds: int) -> None:
    """Computes until the process has kept so many times."""
    as_often_as_possible()
    done, save = list[int](), kept.RowLog.save_if_due

    def save_and_die(self: kept.RowLog) -> None:
        save(self)
        done.append(1)
        if len(done) == rounds:
            os.kill(os.getpid(), signal.SIGKILL)

    kept.RowLog.save_if_due = save_and_die
    (WAYS | PREDICTIONS)[name](Path(folder), False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
