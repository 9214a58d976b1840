"""Damaged files of a furnished house: one file of a drawn sort is damaged, and the commands that read it are carried out."""

from __future__ import annotations

import os
import random
from ast import literal_eval
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphmill.kernels.errors import InputError
from tests.adversary.attack import REFUSED, SOUND, WrongError, require_message
from tests.adversary.forged import forge
from tests.adversary.house import moved_in
from tests.adversary.readers import Reader
from tests.adversary.sorts import SORTS, files_by_sort, files_of


def attack_house(
    grounds: Path, folder: Path, name: str, draw: random.Random, damage: Callable[[Path, random.Random], None]
) -> str:
    """Damages a file of a sort, and carries out the commands that read it.

    Args:
        grounds: a furnished house, sound, and its recipe.
        folder: an empty folder.
        name, draw: the sort of the damaged file, and what draws the file among those of the sort.
        damage: damages a file.

    Returns:
        `REFUSED` if one of the commands was refused.

    Raises:
        WrongError: a command gave another answer than in a sound house.
    """
    sort = SORTS[name]
    sound = {reader: answer(grounds, folder, reader) for reader in sort.readers}
    house = moved_in(grounds, folder)
    path = draw.choice(files_by_sort(house)[name])
    if path.stat().st_size:
        damage(path, draw)
    else:
        path.write_bytes(draw.randbytes(draw.randrange(1, 100)))
    gone, ways = not path.exists(), []
    for reader, expected in sound.items():
        try:
            found = reader(grounds, house)
        except InputError as error:
            require_message(error)
            ways.append(REFUSED)
            continue
        except Exception as error:
            error.add_note(f"{reader.__name__} after damage of {path.relative_to(house)}")
            raise
        fits = (
            found == expected
            or (reader in sort.less and within(found, expected))
            or (sort.made_anew and (gone or not found))
        )
        if not fits:
            raise WrongError(f"{reader.__name__} took {path.relative_to(house)} for sound: {_first(found, expected)}")
    return REFUSED if ways else SOUND


DOCUMENTS = ("record", "measured-memory", "measured-links", "measured-speeds", "bundle-list", "bundle", "last-report")
"""Sorts that have sealed documents."""


def forge_house(grounds: Path, folder: Path, draw: random.Random) -> str:
    """Forges a sealed document of a house, and carries out the commands that read it: each ends well, or by one message.

    Args:
        grounds, folder: as for `attack_house`.
        draw: what draws the document and the nonsense.

    Returns:
        `REFUSED` if one of the commands was refused.

    Raises:
        WrongError: something was written outside of the house.
    """
    house, ways, name = moved_in(grounds, folder), [], draw.choice(DOCUMENTS)
    (folder / "out").mkdir()
    path = draw.choice([each for each in files_by_sort(house)[name] if each.suffix == ".json"])
    if not forge(path, draw, folder):
        return SOUND
    for reader in SORTS[name].readers:
        try:
            reader(grounds, house)
        except InputError as error:
            require_message(error)
            ways.append(REFUSED)
        except Exception as error:
            error.add_note(f"{reader.__name__} after a forgery in {path.relative_to(house)}: {path.read_text()[:3000]}")
            raise
    if os.listdir(folder / "out") or {*os.listdir(folder)} != {"house", "out"}:
        raise WrongError(f"{path.relative_to(house)}: something was written outside of the house")
    return REFUSED if ways else SOUND


def answer(grounds: Path, folder: Path, reader: Reader) -> Any:
    """Returns the answer of a command in the sound house, which is asked once."""
    kept = grounds / "sound" / f"{reader.__name__}.txt"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        house = moved_in(grounds, folder / f"sound-{reader.__name__}")
        try:
            found = reader(grounds, house)
        except InputError as error:
            raise AssertionError(f"{reader.__name__} is refused in a sound house") from error
        for _ in files_of(house):  # the command may have written a file of a new sort
            continue
        kept.write_text(repr(found))
    return literal_eval(kept.read_text())


def within(found: Any, expected: Any) -> bool:
    """Tells whether an answer says nothing that another does not say: values may be missing, or None, and none may be another."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        return all(name in expected and within(value, expected[name]) for name, value in found.items())
    if isinstance(found, list) and isinstance(expected, list):
        return all(any(within(value, each) for each in expected) for value in found)
    return found is None or found == expected


def _first(found: Any, expected: Any) -> str:
    """Returns the first difference of two answers, for a message."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for name in {**expected, **found}:
            if found.get(name) != expected.get(name):
                return f"{name}: {_first(found.get(name), expected.get(name))}"
    return f"{str(found)[:300]} instead of {str(expected)[:300]}"
