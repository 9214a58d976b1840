"""What users do in a furnished house after a file of it was damaged: the commands that read it, and what each has to answer.

An answer is made of plain values that are the same in every sound house. After the damage it has to be the same, or one message. A command
that only shows may say less: a number that cannot be read any more is left out, never replaced by another.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.filesystem import release_lock, take_lock
from graphmill.jobs.commands.machine.ui import only_one
from graphmill.kernels.errors import InputError
from graphmill.trainers.__main__ import main as train
from tests.adversary.house import TRAINED, WAITING, contents, digests, heard, models, said

Reader = Callable[[Path, Path], Any]
"""(grounds, house) -> its answer."""


def build(grounds: Path, house: Path) -> Any:
    """Builds by a run of Dagster; the budgets, which the measured memory decides, anew."""
    shutil.rmtree(house / "home" / "store" / "budgets", ignore_errors=True)
    said(grounds, house, "build", "RECIPE")
    return contents(grounds, house)


def resume(grounds: Path, house: Path) -> Any:
    """Goes on from the checkpoint of the training that was broken off."""
    return models(grounds, house / "home", WAITING, resume=True)


def longer(grounds: Path, house: Path) -> Any:
    """Goes on from the checkpoint of the training that ended, with more epochs."""
    return models(grounds, house / "home", TRAINED, f"train.{TRAINED}.epochs=4")


def status(grounds: Path, house: Path) -> Any:
    """Which versions a run would build, and from where it would go on."""
    rows = json.loads(said(grounds, house, "status", "RECIPE", "--json"))
    return {f"{row['step']} {row['version']}": row["checkpoint"] for row in rows}


def leaderboard(grounds: Path, house: Path) -> Any:
    """Scores and costs."""
    return json.loads(said(grounds, house, "leaderboard", "RECIPE", "--json"))


def report(grounds: Path, house: Path) -> Any:
    """What has changed since the last report; a record that is damaged counts as none."""
    page = said(grounds, house, "report", "RECIPE", "--out", "-")
    return "Nothing has changed since" in page


def sql(grounds: Path, house: Path) -> Any:
    """Facts that manifests, records of runs and files of scores hold."""
    query = "SELECT version, pipeline, train_table, seed, valid, test, best_epoch, started, seconds FROM models"
    return json.loads(said(grounds, house, "sql", query, "--format", "json"))


def look_over(grounds: Path, house: Path) -> Any:
    """Commands that look at all that is there. What they say of damage differs; that they end well is what counts."""
    whole = [("ls",), ("verify",), ("repair", "--dry-run"), ("gc", "--dry-run", "--keep", "1")]
    for words in (*whole, ("show", f"RECIPE/{TRAINED}"), ("inspect", "RECIPE"), ("validate", "RECIPE")):
        try:
            said(grounds, house, *words)
        except InputError:
            continue


def prune(grounds: Path, house: Path) -> Any:
    """Lists runs of the history."""
    said(grounds, house, "prune-runs", "--older", "0min", "--dry-run")
    said(grounds, house, "gc", "--runs", "0min", "--dry-run")


def budgets(grounds: Path, house: Path) -> Any:
    """Shows the measured memory, and the budgets that follow from it."""
    return said(grounds, house, "budgets", "RECIPE")


def chunks(grounds: Path, house: Path) -> Any:
    """Shows the measured speeds of links, and the seconds that follow from them."""
    return json.loads(said(grounds, house, "chunks", "RECIPE", "--json"))


def doctor(grounds: Path, house: Path) -> Any:
    """Shows the speeds that were measured before."""
    found = json.loads(said(grounds, house, "doctor", "--json"))
    return {row["name"]: row["found"] for row in found if row["topic"].startswith("speeds (measured before")}


def take(grounds: Path, house: Path) -> Any:
    """Trains from the bundle in a home that has nothing, as on another machine."""
    home = house / "other"
    heard(lambda: train(["--from", str(house / "bundle"), "--home", str(home), "--quiet"]), "python -m trainers: ")
    return [digests(each) for each in Store(home).artifacts() if each.stage == "model"]


def predict(grounds: Path, house: Path) -> Any:
    """Predicts anew, in place of the predictions of before."""
    said(grounds, house, "predict", "RECIPE", TRAINED, "--out", "HOUSE/out.parquet")
    return rows_of(house / "out.parquet")


def predict_named(grounds: Path, house: Path) -> Any:
    """Predicts the nodes that the predictions of before name."""
    said(grounds, house, "predict", "RECIPE", TRAINED, "--out", "HOUSE/named.parquet", "--nodes", "HOUSE/out.parquet")
    return rows_of(house / "named.parquet")


def second_ui(grounds: Path, house: Path) -> Any:
    """Asks for the web UI while one runs, whose address stands in its lock."""
    lock = take_lock(house / "home" / "ui.lock", create=True)
    assert lock is not None
    try:
        only_one(house / "home")
    except InputError as error:
        return "runs already" in error.problem
    finally:
        release_lock(lock)


def rows_of(path: Path) -> dict[str, Any]:
    """Returns node -> what a file of predictions says of it."""
    import polars

    return {str(row["node_id"]): row for row in polars.read_parquet(path).to_dicts()}
