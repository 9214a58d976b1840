"""Trains the small model in a process of its own, which kills itself at the n-th event.

Usage: python -m tests.laws.train_child HOME KILL_AT resume|anew WAY.

WAY is cached, plain, disk, device, whole, fresh, factored or files; or weighted or walks, each of them "from disk" as well.

Events are steps of the progress, flushes and renames:
every place where a crash could leave something half done. KILL_AT = 0 never kills; the number of events is printed at the end.
"""

import os
import pathlib
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.building.stage import Silent
from graphmill.trainers.loop import loop
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.accelerator.backend import stand_in
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers import graphs
from tests.trainers.runs import DRAWN, train_fresh, train_packed, train_small, train_whole

FROM_DISK = " from disk"

TYPED_WAYS = ("disk", "whole", "fresh", "files")
"""Ways that train on a graph with node types, relations and weights, which the model reads."""


class Events:
    """Counts events and kills the process at one of them."""

    def __init__(self, kill_at: int):
        self.kill_at, self.count = kill_at, 0

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Any) -> Any:
        """Returns the function with an event before and one after it."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self()
            result = function(*args, **kwargs)
            self()
            return result

        return wrapped


class Counting(Silent):
    """A progress whose every advance is an event."""

    def __init__(self, events: Events):
        self.events = events

    def advance(self, n: int) -> None:
        """One event."""
        self.events()


def main() -> None:
    """Trains, or dies."""
    home, kill_at, resume = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resume"
    memory = {"device": "15%", "host": "25%"} if sys.argv[4] == "cached" else None
    events = Events(kill_at)
    loop.SAVING_SHARE = 0  # every epoch leaves a checkpoint, so that the events of a run are the same ones each time
    os.fsync, os.rename = events.around(os.fsync), events.around(os.rename)
    pathlib.Path.replace = events.around(pathlib.Path.replace)  # pyright: ignore[reportAttributeAccessIssue]
    if sys.argv[4] in TYPED_WAYS:
        with graphs.attributed():
            train(home, memory, events, {"resume": resume, **graphs.TYPED})
    else:
        train(home, memory, events, {"resume": resume})
    print(events.count)


def train(home: Path, memory: dict[str, Any] | None, events: Events, given: dict[str, Any]) -> None:
    """Trains in the way that the command line names."""
    if sys.argv[4] == "device":
        stand_in(pytest.MonkeyPatch())
    options: dict[str, Any] = {"checkpoint_steps": 1, "patience": 2, **given}
    if sys.argv[4] == "device":
        options |= {"device": "cuda", "norm": "layer"}
    if sys.argv[4] == "disk":
        packed = build_packed(home, epochs=2)  # is there already
        train_packed(packed, home, progress=Counting(events), **options)
    elif sys.argv[4].removesuffix(FROM_DISK) in DRAWN:
        sampling, options["model"] = DRAWN[sys.argv[4].removesuffix(FROM_DISK)]
        if sys.argv[4].endswith(FROM_DISK):
            packed = build_packed(home, epochs=2, sampling=sampling)
            train_packed(packed, home, sampling=sampling, progress=Counting(events), **options)
        else:
            train_small(home, sampling=sampling, progress=Counting(events), **options)
    elif sys.argv[4] == "whole":
        options |= {"epochs": 6, "norm": "layer", "checkpoint_steps": 0}
        train_whole(home, progress=Counting(events), **options)
    elif sys.argv[4] == "fresh":
        train_fresh(home, progress=Counting(events), dropout=0.3, **options)
    elif sys.argv[4] == "files":
        rows = {"embedding": "node", "embedding_rows": "mapped"}
        train_small(home, progress=Counting(events), **rows, **options)
    elif sys.argv[4] == "factored":
        settings = FactoredSettings(samplers=2, trainers=2)
        train_small(home, progress=Counting(events), trainer="factored", settings=settings, **options)
    else:
        train_small(home, memory=memory, progress=Counting(events), **options)


if __name__ == "__main__":
    main()
