"""The words in which a technique's row says what does not go with it; trainers/recipe/options.py has the options and the conditions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A cell of the table of options that is more than "yes".

    Attributes:
        option: name of the option.
        why: end of the sentence that begins with the option and the trainer.
        when: name of a condition under which it holds, "" for always.
        useless: whether the option has no effect, instead of contradicting the technique.
        remedy: what to do about it; {own} in it stands for the header of the sub-table with the technique's own keys.
    """

    option: str
    why: str
    when: str = ""
    useless: bool = False
    remedy: str = "remove the key"


def each(
    options: str, why: str, *, whens: str = "", useless: bool = False, remedy: str = "remove the key"
) -> tuple[Limit, ...]:
    """Returns a limit for each of several options under each of several conditions; both are names with blanks between them."""
    return tuple(
        Limit(option=option, why=why, when=when, useless=useless, remedy=remedy)
        for option in options.split()
        for when in whens.split() or [""]
    )
