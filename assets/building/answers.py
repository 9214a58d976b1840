"""What a process that builds a part answers to the one that asked for it, and what that one makes of the answer.

An answer is a tuple: ("done",), ("input error", problem, remedy, checks), or ("error", traceback). Checks are those of a failed blocking
check, else None.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from graphmill.assets.building.stage import ChecksFailedError
from graphmill.assets.storage.refused import refusal
from graphmill.kernels.errors import InputError

Answer = tuple[Any, ...]


class PartError(RuntimeError):
    """A part failed by a defect; the text names the part and holds the traceback of its process."""


def answer_of(build: Callable[[], object]) -> Answer:
    """Returns the answer to a question for a part.

    Args:
        build: builds and publishes the part.
    """
    try:
        build()
        return ("done",)
    except ChecksFailedError as error:
        return ("input error", error.problem, error.remedy, error.checks)
    except Exception as error:
        said = refusal(error)
        if said is not None:
            return ("input error", said.problem, said.remedy, None)
        return ("error", traceback.format_exc())


def raise_failure(name: str, answer: Answer) -> None:
    """Raises the error of an answer; none for ("done",).

    Args:
        name: the part, and the stage that it is of.
        answer: the answer.

    Raises:
        InputError: the part failed by its input.
        PartError: it failed by a defect.
    """
    kind, *values = answer
    if kind == "input error":
        problem, remedy, checks = values
        raise InputError(problem, remedy) if checks is None else ChecksFailedError(problem, remedy, checks)
    if kind == "error":
        raise PartError(f"{name} failed:\n{values[0]}")
