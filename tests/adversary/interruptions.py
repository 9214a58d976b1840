"""Kills, full disks and crowds: a step that is broken off, or carried out by several processes at once, and then carried out again.

Whatever happened, the store has nothing damaged, nothing is left in its staging area, and the step carried out again makes what an
undisturbed one makes.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Set
from pathlib import Path

from graphmill.assets.storage.local.collect import collect, find_garbage
from graphmill.assets.storage.local.writer import STAGING
from graphmill.assets.storage.names.manifest import Address
from graphmill.assets.storage.store import Store
from tests.adversary import workshop
from tests.adversary.attack import REFUSED, SOUND, Attack, WrongError, ended, kill_group, started
from tests.adversary.house import grounds_of
from tests.adversary.house_kills import KILLED, LONGEST_SECONDS, kill_in_house

PAGE = 4096
ENDED_WELL = (0, 2)
"""Exit statuses of a child of `started`: it did its work, or refused it by a message."""


STEP = "step"


def killed_sort(seed: int) -> str:
    """Returns what the kill of a seed breaks off: a step, or one of the commands that write into a furnished house."""
    return list(KILLED)[seed // 2 % len(KILLED)] if seed % 2 else STEP


def kills(reference: Path) -> Attack:
    """Returns the attack that kills a step with all its processes, once or several times, at drawn moments; `--resume` goes on.

    Every second attack kills a command of a user instead (tests/adversary/house_kills.py).

    Args:
        reference: home with everything, sound.
    """

    def attack(seed: int, folder: Path) -> str:
        draw, sort = random.Random(seed), killed_sort(seed)
        if sort != STEP:
            return kill_in_house(grounds_of(reference), folder, sort, draw)
        home, step, made = _without_a_step(reference, folder, draw)
        kept = _present(home)
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            child = started(lambda: workshop.carry_out(home, step, resume=True))
            # Most steps of the small graph end within a second, so short delays are drawn more often.
            time.sleep(LONGEST_SECONDS * draw.random() ** 3)
            kill_group(child)
            status = ended(child)
            if status not in (0, -signal.SIGKILL):
                raise AssertionError(f"{workshop.label(step)} under a kill ends with status {status}")
            _require_whole(home, kept)
        _finish(home, step, made)
        return SOUND

    return attack


def full_disks(reference: Path) -> Attack:
    """Returns the attack that carries out a step on a file system that ends early, in bytes or in files.

    Args:
        reference: home with everything, sound.
    """

    def attack(seed: int, folder: Path) -> str:
        draw = random.Random(seed)
        prepared, step, made = _without_a_step(reference, folder, draw)
        there, wanted = _taken(prepared), _taken(*workshop.folders(reference, step))
        # Most often less than the step needs, with what it needs while it works.
        pages, inodes = (there[n] + draw.randrange(1, wanted[n] * 3 // 2 + 4) for n in (0, 1))
        limit = f"nr_inodes={inodes}" if draw.random() < 0.3 else f"size={pages * PAGE}"
        disk = folder / "disk"
        disk.mkdir()
        _mount("mount", "-t", "tmpfs", "-o", limit, "tmpfs", str(disk))
        try:
            home = disk / "home"
            shutil.copytree(prepared, home)
            status = ended(started(lambda: workshop.carry_out(home, step)))
            if status not in ENDED_WELL:
                raise AssertionError(f"{workshop.label(step)} on a disk with {limit} ends with status {status}")
            _require_whole(home, _present(prepared))
            _mount("mount", "-o", "remount,size=1g,nr_inodes=100000", str(disk))
            _finish(home, step, made)
        finally:
            _mount("umount", "-l", str(disk))
        return REFUSED if status else SOUND

    return attack


def crowds(reference: Path) -> Attack:
    """Returns the attack in which several processes carry out one step at once, while others collect, look and are killed.

    Args:
        reference: home with everything, sound.
    """

    def attack(seed: int, folder: Path) -> str:
        draw = random.Random(seed)
        home, step, made = _without_a_step(reference, folder, draw)
        work: list[Callable[[], object]] = [lambda: workshop.carry_out(home, step)] * draw.choice((2, 3))
        work += draw.sample([lambda: _collected(home), lambda: Store(home).damaged(), lambda: Store(home).sweep()], 2)
        draw.shuffle(work)
        children = [started(each) for each in work]
        if draw.random() < 0.5:
            time.sleep(draw.random())
            kill_group(children[work.index(draw.choice(work))])
        for status in [ended(child) for child in children]:
            if status not in (*ENDED_WELL, -9):
                raise AssertionError(
                    f"one of {len(children)} processes around {workshop.label(step)} ends with {status}"
                )
        _require_whole(home)
        for each in workshop.steps(home):  # what the collector took
            workshop.carry_out(home, each)
        _finish(home, step, made)
        return SOUND

    return attack


def _taken(*folders: Path) -> tuple[int, int]:
    """Returns the pages and the files, folders included, that folders have."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return sum(-(-path.stat().st_size // PAGE) for path in paths if path.is_file()), len(paths)


def can_mount(folder: Path) -> bool:
    """Tells whether this process may mount small file systems."""
    try:
        _mount("mount", "-t", "tmpfs", "-o", "size=4096", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError):
        return False
    _mount("umount", str(folder))
    return True


def _mount(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True)


def _collected(home: Path) -> None:
    store = Store(home)
    collect(store, find_garbage(store, 0))


def _without_a_step(reference: Path, folder: Path, draw: random.Random) -> tuple[Path, workshop.Step, list[str]]:
    """Returns a copy of the home that lacks a drawn step, the step, and what it made."""
    home = folder / "home"
    shutil.copytree(reference, home)
    step = draw.choice(workshop.steps(home))
    made = workshop.find(home, step)
    assert made is not None, f"{step.key} was not built"
    content = workshop.content(made)
    for place in workshop.folders(home, step):
        shutil.rmtree(place)
    return home, step, content


def _present(home: Path) -> Set[Address]:
    return {(artifact.stage, artifact.version) for artifact in Store(home).artifacts()}


def _require_whole(home: Path, kept: Set[Address] = frozenset()) -> None:
    damaged = Store(home).damaged()
    if damaged:
        raise WrongError(f"the store has damaged artifacts: {damaged}")
    if not kept <= _present(home):
        raise WrongError(f"lost: {kept - _present(home)}")


def _finish(home: Path, step: workshop.Step, made: list[str]) -> None:
    """Carries the step out again, as a user does with --resume, and compares."""
    found = workshop.carry_out(home, step, resume=True)
    if workshop.content(found) != made:
        raise WrongError(f"{workshop.label(step)} carried out again makes another result")
    if found.verify():
        raise WrongError(f"{found.label} is damaged: {found.verify()}")
    Store(home).sweep()
    left = list((Store(home).root / STAGING).iterdir())
    if left:
        raise WrongError(f"left behind: {left}")
