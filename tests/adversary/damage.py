"""Damaged files of a store: one file of one artifact is damaged, and every step that reads the artifact is carried out anew.

A step has to refuse by a message, or to make what it makes of sound files: then it did not use the bytes. `repair` has to find the damage
in any case. Damage is a flipped bit, or a file that is cut, emptied, gone, longer, or another file's copy.

Every second attack is of an object store (tests/adversary/object_store.py). Of the others every second one is of this sort, "artifact"; the
rest go round the sorts of files of a furnished house (tests/adversary/sorts.py).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from graphmill.assets.storage.local.repair import find_damage
from graphmill.assets.storage.names.manifest import MANIFEST
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.adversary import workshop
from tests.adversary.attack import REFUSED, SOUND, Attack, WrongError, require_message
from tests.adversary.forged import forge
from tests.adversary.house import grounds_of
from tests.adversary.house_damage import attack_house, forge_house
from tests.adversary.object_store import attack_documents, attack_objects
from tests.adversary.sorts import SORTS
from tests.assets.storage.damage import flip

ARTIFACT, OBJECT = "artifact", "object"


def damaged_sort(seed: int) -> str:
    """Returns the sort of file that the attack of a seed damages."""
    if seed % 2 == 0:
        return OBJECT
    others = list(SORTS)
    return others[seed // 4 % len(others)] if seed // 2 % 2 else ARTIFACT


def flips(reference: Path) -> Attack:
    """Returns the attack that flips one bit.

    Args:
        reference: home with everything, sound.
    """
    return _attack(reference, lambda path, draw: flip(path, draw.randrange(8 * path.stat().st_size)))


def cuts(reference: Path) -> Attack:
    """Returns the attack that changes the length of a file, or puts another in its place."""
    return _attack(reference, cut)


def cut(path: Path, draw: random.Random) -> None:
    """Changes the length of a file, or puts another in its place."""
    data, kind = path.read_bytes(), draw.randrange(6)
    if kind == 0:
        path.write_bytes(data[: draw.randrange(len(data))])
    elif kind == 1:
        path.write_bytes(b"")
    elif kind == 2:
        path.unlink()
    elif kind == 3:
        path.write_bytes(data + draw.randbytes(draw.randrange(1, 9000)))
    elif kind == 4:
        path.write_bytes(draw.randbytes(len(data)))
    else:
        half = len(data) // 2
        path.write_bytes(data[half:] + data[:half] if data[half:] + data[:half] != data else data[:-1])


FORGED = (OBJECT, "house", ARTIFACT)
"""Where the documents of `forgeries` lie, in the order of the seeds."""


def forgeries(reference: Path) -> Attack:
    """Returns the attack that forges a sealed document: of an object store, of a house, or the numbers of an artifact that steps read."""
    grounds = grounds_of(reference)

    def attack(seed: int, folder: Path) -> str:
        sort, draw = FORGED[seed % len(FORGED)], random.Random(seed)
        if sort == ARTIFACT:
            return _forged_numbers(reference, folder, draw)
        return (attack_documents if sort == OBJECT else forge_house)(grounds, folder, draw)

    return attack


def _forged_numbers(reference: Path, folder: Path, draw: random.Random) -> str:
    """Forges a number of an artifact, and carries out every step that reads it: each ends well, or by one message."""
    home = folder / "home"
    shutil.copytree(reference, home)
    steps = workshop.steps(home)
    step = draw.choice(steps)
    readers = [each for each in steps if step in each.sources.values()]
    part = draw.choice(workshop.folders(home, step))
    forge(part / MANIFEST, draw, folder, within=("summary", "numbers"))
    ways = []
    for reader in readers:
        for place in workshop.folders(home, reader):
            shutil.rmtree(place)
        try:
            workshop.carry_out(home, reader)
        except InputError as error:
            require_message(error)
            ways.append(REFUSED)
        except Exception as error:
            error.add_note(f"{workshop.label(reader)} after {(part / MANIFEST).read_text()[:3000]}")
            raise
    return REFUSED if ways else SOUND


def _attack(reference: Path, damage: Callable[[Path, random.Random], None]) -> Attack:
    def attack(seed: int, folder: Path) -> str:
        draw, sort = random.Random(seed), damaged_sort(seed)
        if sort == OBJECT:
            return attack_objects(grounds_of(reference), folder, draw, damage)
        if sort != ARTIFACT:
            return attack_house(grounds_of(reference), folder, sort, draw, damage)
        home = folder / "home"
        shutil.copytree(reference, home)
        step = draw.choice(workshop.steps(home))
        readers = [each for each in workshop.steps(home) if step in each.sources.values()]
        made = {workshop.label(each): workshop.content(_sound(home, each)) for each in readers}
        trained = [step] if workshop.is_training(step) else [each for each in readers if workshop.is_training(each)]
        asked = draw.choice(trained) if trained else None
        classes = workshop.predicted(home, asked) if asked else b""
        part = draw.choice(workshop.folders(home, step))
        path = draw.choice([each for each in sorted(part.rglob("*")) if each.is_file() and each.stat().st_size])
        damage(path, draw)
        if (part.parent.name, part.name) not in [each.address for each in find_damage(Store(home))]:
            raise WrongError(f"repair does not find the damage of {path.relative_to(home)}")
        ways = [_read_again(home, each, made[workshop.label(each)], path) for each in readers]
        if asked:
            ways.append(_predicted(home, asked, path, classes))
        return REFUSED if REFUSED in ways or not ways else SOUND

    return attack


def _sound(home: Path, step: workshop.Step) -> workshop.Artifact:
    found = workshop.find(home, step)
    assert found is not None, f"{step.key} was not built"
    return found


def _read_again(home: Path, reader: workshop.Step, made: list[str], damaged: Path) -> str:
    """Carries out a step anew, and puts back what it had made."""
    aside, there = home / "aside", workshop.folders(home, reader)
    shutil.rmtree(aside, ignore_errors=True)
    for place in there:
        (aside / place.parent.name).mkdir(parents=True, exist_ok=True)
        place.rename(aside / place.parent.name / place.name)
    try:
        found = workshop.content(workshop.carry_out(home, reader))
        if found != made:
            raise WrongError(f"{workshop.label(reader)} took {damaged.relative_to(home)} for sound")
        return SOUND
    except InputError as error:
        require_message(error)
        return REFUSED
    finally:
        for place in there:
            shutil.rmtree(place, ignore_errors=True)
            (aside / place.parent.name / place.name).rename(place)


def _predicted(home: Path, step: workshop.Step, damaged: Path, classes: bytes) -> str:
    try:
        found = workshop.predicted(home, step)
    except InputError as error:
        require_message(error)
        return REFUSED
    if found != classes:
        raise WrongError(f"predict took {damaged.relative_to(home)} for sound")
    return SOUND
