"""The one error that a user can cause and mend.

The command line prints an `InputError` as it stands and exits with 1; everything else is a defect and keeps its traceback.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")

UNPRINTABLE = {
    code: f"\\x{code:02x}" if code < 32 else f"\\u{code:04x}"
    for code in (
        *(*range(9), *range(11, 32), *range(0x7F, 0xA0), 0x061C, 0x200B, 0x200E, 0x200F),
        *(*range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF),
    )
}
"""Characters that no eye sees, or that change how a terminal shows the text behind them, and their spelling; those that JSON leaves as
they are keep a meaning there."""
IN_A_LINE = UNPRINTABLE | {9: "\\t", 10: "\\n"}
LINE_END = re.compile(r"\n(?!  )")
"""The end of a line that is none of an error's own."""
LONG_WORD = re.compile(r"([^\s'\"]{100})[^\s'\",]{900,}")
"""A word that no one could read, such as a number of thousands of digits; an error shows its beginning."""


CLONE = Path(__file__).resolve().parents[1]
"""The folder of the layers: a clone of the project, which has its `pyproject.toml`, or the installed package."""


def install_extra(extra: str) -> str:
    """Returns the command that installs an extra of `pyproject.toml`: in a clone by the extra, else by the names of its packages."""
    if (CLONE / "pyproject.toml").exists():
        return f'pip install -e ".[{extra}]"'
    try:
        needed = [line.partition(";") for line in requires("graphmill") or ()]
    except PackageNotFoundError:  # files that were copied, not installed
        needed = []
    names = [f"'{name.strip()}'" for name, _, marker in needed if f'extra == "{extra}"' in marker.replace("'", '"')]
    return f"pip install {' '.join(names) or extra}"


class InputError(ValueError):
    """A wrong input, the rule that it breaks, and the remedy.

    Args:
        problem: the finding, with the value and the place (file, line, array, row).
        remedy: the next step, a command if there is one.

    Both may quote input: control characters are spelled out, so that no file writes to a terminal, and endless words are cut. A line
    of an error begins with two blanks; any other end of a line is that of a name, and is spelled out, too.
    """

    def __init__(self, problem: str, remedy: str = ""):
        problem, remedy = _readable(problem), _readable(remedy)
        super().__init__(f"{problem}\n  remedy: {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy


def one_line(text: str) -> str:
    """Returns a text with its control characters spelled out, ends of lines and tabs as well: a name of data in a line of a report."""
    return text.translate(IN_A_LINE)


def _readable(text: str) -> str:
    lines = LINE_END.sub(r"\\n", text.translate(UNPRINTABLE))
    return LONG_WORD.sub(lambda found: f"{found[1]}... ({len(found[0]):,} characters)", lines)


class Mistakes(InputError):
    """Several wrong inputs, told at once."""

    def __init__(self, errors: Sequence[InputError]):
        lines = [f"\n  {number}. {_told(error)}" for number, error in enumerate(errors, 1)]
        super().__init__(f"{len(errors)} mistakes:{''.join(lines)}", "correct all of them, and run the command again")
        self.errors = tuple(errors)


def _told(error: InputError) -> str:
    return f"{error.problem}\n     remedy: {error.remedy}" if error.remedy else error.problem


def each_mistake(error: InputError) -> tuple[InputError, ...]:
    """Returns the errors that an error tells."""
    return error.errors if isinstance(error, Mistakes) else (error,)


def joined(errors: Iterable[InputError]) -> InputError:
    """Returns one error that tells each of one or more errors once, in their order."""
    found = {each.problem: each for error in errors for each in each_mistake(error)}
    return next(iter(found.values())) if len(found) == 1 else Mistakes([*found.values()])


class Attempts:
    """Calls that do not depend on each other: their errors are told together."""

    def __init__(self) -> None:
        self.errors: list[InputError] = []

    def __call__(self, check: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of a call, or after an `InputError` None, which nothing may use before `settle`."""
        try:
            return check(*arguments)
        except InputError as error:
            # Its frames would keep open what the check reads, such as the result of a query.
            self.errors.append(error.with_traceback(None))
            return cast(T, None)

    def settle(self) -> None:
        """Raises one error for all; does nothing without any."""
        if self.errors:
            raise joined(self.errors)


def refused_by(checks: Iterable[Callable[[], object]]) -> list[InputError]:
    """Makes all checks, and returns the errors of those that raise an `InputError`, in their order."""
    attempts = Attempts()
    for check in checks:
        attempts(check)
    return attempts.errors


def did_you_mean(given: object, known: Iterable[object], quote: str = "") -> str:
    """Returns " (did you mean NAME?)" with the known name that is nearest to a wrong one, in quotes if wanted; "" if none is near."""
    near = get_close_matches(str(given), [str(each) for each in known], 1)
    return f" (did you mean {quote}{near[0]}{quote}?)" if near else ""
