"""Kills of the commands that write into a furnished house: each is killed at drawn moments, and then carried out to its end.

At no moment is a half-written file there under a name that a command reads. What is carried out again ends as in a sound house, and nothing
is left of the killed.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.assets.budgets.measured import refresh
from graphmill.assets.chunks.rates import NAMES
from graphmill.assets.chunks.rates import PLACE as LINKS
from graphmill.assets.storage.files.digests import CACHE_NAME, sha256_file
from graphmill.assets.storage.files.documents import keep_numbers
from graphmill.assets.storage.store import Store
from graphmill.jobs.runs.instance import DAGSTER_YAML, SETTINGS, init_home
from tests.adversary import readers
from tests.adversary.attack import SOUND, WrongError, ended, in_child, kill_group, started
from tests.adversary.house import TRAINED, WAITING, contents, models, moved_in, said
from tests.adversary.house_damage import answer
from tests.adversary.readers import Reader
from tests.adversary.sorts import files_of
from tests.assets.storage.damage import flip

LONGEST_SECONDS = 3.0

Work = Callable[[Path, Path], Any]


def _untouched(house: Path, draw: random.Random) -> None:
    """Leaves the house as it is."""


def _nothing_wrong(grounds: Path, house: Path) -> None:
    """Looks at nothing besides the store."""


@dataclass(frozen=True, kw_only=True)
class Killed:
    """A command that is killed.

    Attributes:
        work: the command, or the part of it that writes, again and again.
        again: the command, after the kills.
        reader: its answer is that of a sound house afterwards.
        before: changes the house, so that there is work.
        whole: raises an error if a file is half written; it may start threads.
    """

    work: Work
    again: Work
    reader: Reader
    before: Callable[[Path, random.Random], None] = _untouched
    whole: Work = _nothing_wrong


def _bundle(grounds: Path, house: Path) -> None:
    said(grounds, house, "bundle", "RECIPE", TRAINED, "HOUSE/bundle")


def _no_bundle(house: Path, draw: random.Random) -> None:
    shutil.rmtree(house / "bundle")


def _whole_predictions(grounds: Path, house: Path) -> None:
    if (house / "out.parquet").exists():
        assert readers.rows_of(house / "out.parquet") == readers.rows_of(grounds / "house" / "out.parquet")


def _measure(grounds: Path, house: Path) -> None:
    while True:
        refresh(house / "home")
        keep_numbers(house / "home" / LINKS, {"device": "cpu"} | dict.fromkeys(NAMES, 1e9))


def _measure_once(grounds: Path, house: Path) -> None:
    # What a kill left goes when the file is written again.
    said(grounds, house, "budgets", "--refresh")
    said(grounds, house, "chunks", "RECIPE", "--refresh")
    # Other numbers than those of the sound house.
    for name in ("memory.json", "links.json"):
        shutil.copy(grounds / "house" / "home" / "measured" / name, house / "home" / "measured" / name)


def _digest(grounds: Path, house: Path) -> None:
    while True:
        (house / "home" / CACHE_NAME).unlink(missing_ok=True)
        sha256_file(grounds / "raw.npz", house / "home")


def _settle(grounds: Path, house: Path) -> None:
    while True:
        (house / "home" / SETTINGS).unlink(missing_ok=True)
        init_home(house / "home")


def _whole_settings(grounds: Path, house: Path) -> None:
    path = house / "home" / SETTINGS
    assert not path.exists() or path.read_text() == DAGSTER_YAML


def _collect(grounds: Path, house: Path) -> None:
    said(grounds, house, "gc", "--keep", "0", "--yes")


def _repair(grounds: Path, house: Path) -> None:
    said(grounds, house, "repair", "--yes")


def _damaged(house: Path, draw: random.Random) -> None:
    for folder in draw.sample(Store(house / "home").folders(), 3):
        path = draw.choice([each for each in sorted(folder.rglob("*")) if each.is_file() and each.stat().st_size])
        flip(path, draw.randrange(8 * path.stat().st_size))


def _fewer(house: Path, draw: random.Random) -> None:
    # A whole without one of its parts would be damaged.
    whole = [folder for folder in Store(house / "home").folders() if not folder.parent.name.endswith(".parts")]
    for folder in draw.sample(whole, 3):
        shutil.rmtree(folder)


def _run(grounds: Path, house: Path) -> None:
    said(grounds, house, "run", "RECIPE", "--resume")


def _everything(grounds: Path, house: Path) -> Any:
    """Returns the digests of all that the recipe asks for, both models among them."""
    _run(grounds, house)
    return [contents(grounds, house), *(models(grounds, house / "home", name) for name in (TRAINED, WAITING))]


KILLED: Mapping[str, Killed] = {
    "bundle": Killed(work=_bundle, again=_bundle, reader=readers.take, before=_no_bundle),
    "from-bundle": Killed(work=readers.take, again=readers.take, reader=readers.take),
    "predict": Killed(work=readers.predict, again=readers.predict, reader=readers.predict, whole=_whole_predictions),
    "resume": Killed(work=readers.resume, again=readers.resume, reader=readers.resume),
    "measure": Killed(work=_measure, again=_measure_once, reader=readers.budgets),
    "remember": Killed(work=_digest, again=readers.status, reader=readers.status),
    "init": Killed(work=_settle, again=readers.build, reader=readers.build, whole=_whole_settings),
    "gc": Killed(work=_collect, again=_collect, reader=readers.build),
    "repair": Killed(work=_repair, again=_repair, reader=readers.build, before=_damaged),
    "run": Killed(work=_run, again=_run, reader=_everything, before=_fewer),
}


def kill_in_house(grounds: Path, folder: Path, name: str, draw: random.Random) -> str:
    """Kills a command with all its processes, once or several times, at drawn moments, and then carries it out.

    Args:
        grounds: a furnished house, sound, and its recipe.
        folder: an empty folder.
        name, draw: the command in `KILLED`, and what draws the moments.

    Raises:
        WrongError: something is half written, lost or left behind, or the answer is another one.
    """
    killed, house = KILLED[name], moved_in(grounds, folder)
    _sweep_leftovers(house)
    killed.before(house, draw)
    wrong_before = name == "repair"
    for _ in range(draw.choice((1, 1, 2, 4))):
        child = started(lambda: killed.work(grounds, house))
        # Most commands end within a second, so short delays are drawn more often.
        time.sleep(LONGEST_SECONDS * draw.random() ** 3)
        kill_group(child)
        status = ended(child)
        if status not in (0, -signal.SIGKILL):
            raise AssertionError(f"{name} under a kill ends with status {status}")
        # In a process of its own: threads that it starts would not be there after the next fork.
        if said_wrong := in_child(lambda: _wrong(killed, grounds, house, wrong_before)):
            raise WrongError(f"{name} was killed: {said_wrong}")
    killed.again(grounds, house)
    found, expected = killed.reader(grounds, house), answer(grounds, folder, killed.reader)
    if found != expected:
        raise WrongError(
            f"{name} carried out again gives another answer: {str(found)[:300]}, not {str(expected)[:300]}"
        )
    if left := sorted(_leftovers(house)):
        raise WrongError(f"{name} was killed, and left behind: {left}")
    return SOUND


def _wrong(killed: Killed, grounds: Path, house: Path, damaged: bool) -> str:
    """Returns what is half written, in words."""
    if not damaged and (found := Store(house / "home").damaged()):
        return f"the store has damaged artifacts: {found}"
    try:
        killed.whole(grounds, house)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _sweep_leftovers(house: Path) -> None:
    """Removes what lies there from before: only what this kill leaves counts."""
    for path in _leftovers(house):
        path.unlink()


def _leftovers(house: Path) -> list[Path]:
    """Returns half-written files; those of checkpoints are left for `gc`, which removes them."""
    found = [path for name, path in files_of(house) if name == "leftovers"]
    return [path for path in found if path.suffix != ".part" or path.parent.name != "checkpoints"]
