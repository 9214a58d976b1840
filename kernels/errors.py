"""The one error that a user can cause and mend.

The command line prints an `InputError` as it stands and exits with 1; everything else is a defect and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

UNPRINTABLE = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(9), *range(11, 32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Characters that would change how a terminal shows the text behind them, and their spelling in an error."""


class InputError(ValueError):
    """A wrong input, the rule that it breaks, and the remedy.

    Args:
        problem: the finding, with the value and the place (file, line, array, row).
        remedy: the next step, a command if there is one.

    Both may quote input: control characters are spelled out, so that no file writes to a terminal.
    """

    def __init__(self, problem: str, remedy: str = ""):
        problem, remedy = problem.translate(UNPRINTABLE), remedy.translate(UNPRINTABLE)
        super().__init__(f"{problem}\n  remedy: {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy


def did_you_mean(given: object, known: Iterable[object], quote: str = "") -> str:
    """Returns " (did you mean NAME?)" with the known name that is nearest to a wrong one, in quotes if wanted; "" if none is near."""
    near = get_close_matches(str(given), [str(each) for each in known], 1)
    return f" (did you mean {quote}{near[0]}{quote}?)" if near else ""
