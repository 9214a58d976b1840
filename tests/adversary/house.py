"""A furnished house: a home as it is after use, with what commands wrote beside it, and what each command answers there.

    GROUNDS/house.toml, raw.npz     the recipe, and raw data that are large enough for their digest to be remembered
    GROUNDS/house/                  what is attacked: the home, a bundle, predictions
    GROUNDS/sound/                  what each command answers in the sound house, computed when it is first asked for

`furnish` uses the commands of users, so a file that one of them begins to write appears here by itself. What a kill would leave behind is
laid down by hand, since no command leaves it when nothing kills it. Ids and times in the history differ from one furnishing to the next, so
an attack of the same number may hit another place there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Silent
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.pipeline.steps import Versions, preprocessing_steps
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import VARIABLE
from graphmill.assets.storage.store import Store
from graphmill.jobs.cli import main
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.checkpoint_head import checkpoint_path
from tests.adversary import workshop

NODES, EDGES, FEATURES = 400, 2000, 1024
"""Features alone are more than a megabyte, below which the digest of a raw file is not remembered."""
TRAINED, WAITING = "trained", "waiting"
"""The train tables: a model, and a training that was broken off and has a checkpoint."""
STOPPED_IN = "epoch 3"
TABLES = {
    "graph": 'source = "npz"\npath = "raw.npz"',
    "sampling": "fanouts = [3, 3]\nbatch_size = 64\nreuse = 1",
    "partitions": 'method = "ldg"\nparts = 2',
    "chunks": "chunks_per_part = 2",
    "hotness": "",
    "memory": 'device = "10%"\nhost = "auto"\ndisk = "2x"',
    "samples": "",
}
TABLE = '[[train]]\nname = "{name}"\nmodel = "sage"\nhidden = 8\nepochs = {epochs}\nthreads = 1\nlr = 0.02\nqueue = "4MiB"\n'
OLD = 1_700_000_000
"""A time long ago: the digest of a file that changed just now is not remembered."""


VERDICTS = (0, 1, 3)
"""Exit codes of commands that did their work: `verify` and `repair` tell by theirs what they found."""


class _BrokenOff(BaseException):
    """Ends a training where a user's Ctrl-C might."""


class _Stops(Silent):
    def start(self, label: str, total: int | None, unit: str) -> None:
        if label.startswith(STOPPED_IN):
            raise _BrokenOff


def furnish(grounds: Path) -> None:
    """Makes a house by real commands."""
    grounds.mkdir()
    _write_recipe(grounds)
    home, pipeline = grounds / "house" / "home", recipe(grounds)
    data = preprocessing_steps(pipeline, home)
    trained, waiting = training_steps(pipeline, data)
    for step in (*data, trained):
        workshop.carry_out(home, step, pipeline=pipeline)
    with contextlib.suppress(_BrokenOff):
        workshop.carry_out(home, waiting, pipeline=pipeline, progress=_Stops())
    for command in COMMANDS:
        said(grounds, grounds / "house", *command)
    (home / "ui.lock").write_bytes(b"http://127.0.0.1:3000".ljust(64))
    _leave_behind(grounds / "house", checkpoint_path(home / "checkpoints", Versions().only(waiting)))


COMMANDS = (
    ("init",),
    ("build", "RECIPE"),
    ("doctor",),
    ("budgets", "RECIPE"),
    ("chunks", "RECIPE"),
    ("predict", "RECIPE", TRAINED, "--out", "HOUSE/out.parquet"),
    ("bundle", "RECIPE", TRAINED, "HOUSE/bundle"),
    ("report", "RECIPE"),
)
"""Commands that write into the home or beside it; the words RECIPE and HOUSE become paths."""


def _write_recipe(grounds: Path) -> None:
    make, trains = np.random.default_rng(7), [(TRAINED, 2), (WAITING, 6)]
    labels = make.integers(0, 3, NODES)
    rows = make.random((NODES, FEATURES), np.float32)
    rows[:, :3] += 4 * np.eye(3, dtype=np.float32)[labels]
    path = grounds / "raw.npz"
    np.savez(path, edge_index=make.integers(0, NODES, (2, EDGES)), y=labels, x=rows)
    os.utime(path, (OLD, OLD))
    tables = "\n\n".join(f"[{name}]\n{keys}" for name, keys in TABLES.items())
    named = "\n".join(TABLE.format(name=name, epochs=epochs) for name, epochs in trains)
    (grounds / "house.toml").write_text(f'name = "house"\nseed = 5\n\n{tables}\n\n{named}')


def _leave_behind(house: Path, checkpoint: Path) -> None:
    """Lays down what kills leave: half-written files, the folder and lock of a writer, leases and claims of processes that are gone."""
    home, owner = house / "home", "0123456789abcdef" * 2
    half = checkpoint.read_bytes()[:5000]
    staging = home / "store" / ".staging"
    (staging / owner).mkdir(parents=True)
    (home / "store" / ".claims").mkdir(exist_ok=True)
    (home / "leases").mkdir(exist_ok=True)
    for path in (
        staging / f"{owner}.lock",
        home / "store" / ".claims" / f"samples.parts@{checkpoint.stem}",
        home / "leases" / f"model@{checkpoint.stem}",
    ):
        path.write_bytes(b"")
    for path in (
        staging / owner / "rows.npy",
        checkpoint.with_name(f"{checkpoint.name}.{owner}.part"),
        home / "measured" / f"memory.json.{owner}.new",
        home / "measured" / f"memory.json.{owner}.tmp",
        home / f"dagster.yaml.{owner}.tmp",
        home / f"raw_digests.json.{owner}.tmp",
        house / ".out.parquet.part",
    ):
        path.write_bytes(half)


def grounds_of(reference: Path) -> Path:
    """Returns the place of the furnished house beside the home in which everything was built."""
    return reference.with_name("grounds")


def recipe(grounds: Path, *settings: str) -> Pipeline:
    """Returns the pipeline of the house, with keys set."""
    return load_pipeline(str(grounds / "house.toml"), TrainTable, settings=settings)


def moved_in(grounds: Path, folder: Path) -> Path:
    """Returns a copy of the sound house in a folder."""
    house = folder / "house"
    shutil.copytree(grounds / "house", house)
    return house


def said(grounds: Path, house: Path, *words: str) -> str:
    """Runs the command line in this process to its end.

    Args:
        grounds, house: the words RECIPE and HOUSE become paths of them; in what is returned, the house's path is HOUSE again.
        words: the command.

    Returns:
        What was printed on standard output, and behind it the exit code if it is not 0.

    Raises:
        InputError: it was refused by one message.
    """
    recipe_path = str(grounds / "house.toml")
    arguments = [word.replace("RECIPE", recipe_path).replace("HOUSE", str(house)) for word in words]
    return heard(lambda: main(["--home", str(house / "home"), *arguments])).replace(str(house), "HOUSE")


def heard(work: Callable[[], int | None], name: str = "graphmill: ") -> str:
    """Returns what a command prints on standard output when it runs in this process, and the exit code behind it if it is not 0.

    Args:
        work: the command; it may end by an exit.
        name: how its messages begin.

    Raises:
        InputError: it was refused by one message.
    """
    # The run of a build sets these for its children, and this process goes on with another home.
    kept = {name: os.environ.get(name) for name in (VARIABLE, "DAGSTER_HOME")}
    # A warning of Dagster opens a handler over the stream of this command, which the next command would write to.
    handlers = logging.root.handlers[:]
    # Files, since the steps of a run get copies of the streams' descriptors.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _silent_children():
                code = work() or 0
        except SystemExit as ended:
            code = ended.code
        finally:
            logging.root.handlers[:] = handlers
            for variable, value in kept.items():
                os.environ.pop(variable, None) if value is None else os.environ.update({variable: value})
        printed, message = ((file.seek(0), file.read())[1] for file in (out, err))
    if code and any(line.startswith(name) for line in message.splitlines()) and "Traceback" not in message:
        raise InputError(message)
    if code not in VERDICTS or "Traceback" in message:
        raise AssertionError(f"a command ended with {code}: {message}")
    return printed + (f"exit {code}" if code else "")


@contextlib.contextmanager
def _silent_children() -> Iterator[None]:
    """Lets the lines of trainings, which are processes of their own, go nowhere while the block runs."""
    own = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def models(grounds: Path, home: Path, table: str, *settings: str, **run: Any) -> list[str]:
    """Trains a table unless the home has its model, with keys set; returns the digests of its weights, losses and scores."""
    pipeline = recipe(grounds, *settings)
    steps = training_steps(pipeline, preprocessing_steps(pipeline, home))
    step = next(each for each in steps if each.name == table)
    return digests(workshop.carry_out(home, step, pipeline=pipeline, **run))


def digests(model: Artifact) -> list[str]:
    """Returns the version of a model and the digests of its weights, losses and scores."""
    return [model.version, *(model.files[name]["digest"] for name in ("weights.safetensors", "metrics.jsonl"))]


def contents(grounds: Path, house: Path) -> dict[str, list[str]]:
    """Returns version -> digests of every artifact that the house's recipe asks for, of what is there."""
    pipeline, home, store = recipe(grounds), house / "home", Store(house / "home")
    data = preprocessing_steps(pipeline, home)
    found = {step.name: store.find(step.recipe.name, Versions().only(step)) for step in data}
    return {f"{name} {each.version}": workshop.content(each) for name, each in found.items() if each}
