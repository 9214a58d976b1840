"""The learning rate as a function of the step."""

from __future__ import annotations

import math


def rate_factor(schedule: str, step: int, warmup_steps: int, num_steps: int) -> float:
    """Returns the factor of the learning rate at a step.

    Args:
        schedule: "constant", "cosine" (half a period, from 1 to 0) or "linear" (from 1 to 0), after the warm-up.
        step: number of the optimiser step in the run, from 0.
        warmup_steps: steps in which the factor grows from 1 / warmup_steps to 1.
        num_steps: steps of the whole run; the factor would be 0 at this one.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    share = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    return {"constant": 1.0, "cosine": 0.5 * (1 + math.cos(math.pi * share)), "linear": 1.0 - share}[schedule]
