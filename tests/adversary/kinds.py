"""The kinds of attacks; a new one is a function that makes an `Attack` and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.adversary.attack import Attack
from tests.adversary.damage import FORGED, cuts, damaged_sort, flips, forgeries
from tests.adversary.data import malformed
from tests.adversary.drawn_pipelines import drawn_files
from tests.adversary.interruptions import can_mount, crowds, full_disks, killed_sort, kills
from tests.adversary.pipeline_files import mutations
from tests.adversary.signals import signalled_command, signals


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of attack.

    Attributes:
        prepare: makes the attack, from a home in which everything was built.
        share: of the time of a long run.
        drawn: number of attacks in the short form that `make test` runs.
        batch: number of attacks that share a process and a folder, where a process of its own costs more than the attack.
        sort: of a seed: a finer division of the kind, whose attacks are counted apart; "" if there is none.
        possible: tells whether this machine allows it, from an empty folder.
    """

    prepare: Callable[[Path], Attack]
    share: float
    drawn: int
    batch: int = 1
    sort: Callable[[int], str] = lambda seed: ""
    possible: Callable[[Path], bool] = lambda folder: True


KINDS = {
    "texts": Kind(prepare=mutations, share=0.05, drawn=20, batch=50),
    "pipelines": Kind(prepare=drawn_files, share=0.15, drawn=5, batch=20),
    "data": Kind(prepare=malformed, share=0.1, drawn=3),
    "flips": Kind(prepare=flips, share=0.3, drawn=4, sort=damaged_sort),
    "cuts": Kind(prepare=cuts, share=0.1, drawn=2, sort=damaged_sort),
    "forgeries": Kind(prepare=forgeries, share=0.1, drawn=3, sort=lambda seed: FORGED[seed % len(FORGED)]),
    "kills": Kind(prepare=kills, share=0.15, drawn=2, sort=killed_sort),
    "signals": Kind(prepare=signals, share=0.1, drawn=3, sort=signalled_command),
    "disks": Kind(prepare=full_disks, share=0.1, drawn=1, possible=can_mount),
    "crowds": Kind(prepare=crowds, share=0.05, drawn=1),
}
