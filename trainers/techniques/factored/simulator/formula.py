"""The formula and the metric of FGNN, section 5.3: the number of devices that sample, and when one of them should train instead."""

from __future__ import annotations

import math


def formula_samplers(devices: int, sample_seconds: float, train_seconds: float) -> int:
    """Returns N_s = ceil(N_g / (K + 1)) with K = T_t / T_s: the devices that sample; the others train.

    Args:
        devices: N_g.
        sample_seconds: T_s, seconds of one batch.
        train_seconds: T_t, seconds of one batch.
    """
    if sample_seconds <= 0:
        return 1
    # Rounded to remove noise of the last bits: 6 / (2 + 1) is exactly 2.
    share = devices * sample_seconds / (train_seconds + sample_seconds)
    return max(1, min(devices, math.ceil(share - 1e-9)))


def profit(waiting: int, trainers: int, train_seconds: float, standby_seconds: float) -> float:
    """Returns P = M_r T_t / N_t - T_t', the seconds by which a standby trainer finishes one batch before the trainers finish all.

    Args:
        waiting: M_r, batches in the queue.
        trainers: N_t, running trainers; none makes the profit infinite.
        train_seconds: T_t, seconds of one batch by a trainer.
        standby_seconds: T_t', seconds of one batch by a standby trainer.
    """
    return math.inf if trainers == 0 else waiting * train_seconds / trainers - standby_seconds
