"""Mutated pipeline files: each is accepted or refused with one message that a terminal can show."""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

from graphmill.assets.pipeline.file import SHIPPED, load_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.adversary.attack import REFUSED, SOUND, Attack, WrongError

VALUES = (
    "9" * 5000, "1e400", "-1", "0", "1e300", "10_000_000_000_000", "9" * 30, "nan", "inf", "-inf", '""', '"\\u0000"', '"~nouser/x"',
    '"a\\u001b[31mb"', '"' + "x" * 5000 + '"', "[" * 900 + "]" * 900, "true", "[]", "{}", "[1, 'a']", "2020-01-01", "0x7fffffffffffffff",
    '"${HOME}"', '"9e99GiB"', '"-5%"', '"1000%"', '"auto"', '"../../etc"',
)  # fmt: skip
CHARACTERS = (0, 10, 27, 34, 57, 61, 91, 93, 123, 0x7F, 0x202E)
LONGEST = 20_000


def mutated(seed: int) -> str:
    """Returns a shipped pipeline file with one or two lines changed."""
    draw = random.Random(seed)
    lines = draw.choice(sorted(SHIPPED.glob("*.toml"))).read_text().split("\n")
    for _ in range(draw.choice((1, 1, 2))):
        keyed = [i for i, line in enumerate(lines) if "=" in line and not line.startswith("#")]
        i, kind = draw.choice(keyed), draw.random()
        if kind < 0.7:
            lines[i] = f"{lines[i].split('=')[0]}= {draw.choice(VALUES)}"
        elif kind < 0.8:
            place = draw.randrange(len(lines[i]) + 1)
            lines[i] = lines[i][:place] + chr(draw.choice(CHARACTERS)) + lines[i][place:]
        elif kind < 0.9:
            lines.insert(i, draw.choice(lines))
        else:
            del lines[i]
    return "\n".join(lines)


def mutations(folder: Path) -> Attack:
    """Returns the attack; the data that shipped files name are looked for in its folder."""

    def attack(seed: int, folder: Path) -> str:
        path = folder / "drawn.toml"
        path.write_text(mutated(seed))
        os.environ["GRAPHMILL_TEST_DATA"] = str(folder)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load_pipeline(path, TrainTable)
        except InputError as error:
            said = str(error)
            if any(ord(letter) < 32 and letter != "\n" for letter in said) or "\x7f" in said or "\u202e" in said:
                raise WrongError(f"a message writes to the terminal: {said[:300]!r}") from error
            if len(said) >= LONGEST:
                raise WrongError(f"a message of {len(said)} letters: {said[:300]!r}") from error
            return REFUSED
        return SOUND

    return attack
