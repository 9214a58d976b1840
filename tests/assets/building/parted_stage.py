"""A small fan-out stage: part i holds i + 1 numbers, the parent their sums."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import numpy as np

from graphmill.assets.building.stage import Check, FanOut, Summary
from graphmill.kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Semantic:
    parts: int = 4
    rows: int = 1000


@dataclass(frozen=True, kw_only=True)
class Execution:
    workers: int = 1
    # Name of a part and what happens in it: error, defect, die, check, wait; "" and pid or slow: in each.
    trouble: tuple[str, str] = ("", "")


class PartedStage(FanOut):
    name = "parted"
    code_version = 1
    work_unit = "rows"
    Semantic = Semantic
    Execution = Execution

    def parts(self, inputs, semantic):
        return [f"p{number}" for number in range(semantic.parts)]

    def work(self, inputs, semantic, part):
        return int(part[1:]) + 1

    def build(self, building):
        sums = [int(building.inputs[f"p{number}"].array("values").sum()) for number in range(building.semantic.parts)]
        building.writer.save("sums", np.array(sums, np.int64))
        return Summary(numbers={"total": sum(sums)})

    def build_part(self, building):
        part, execution, progress = building.part, building.execution, building.progress
        progress.start("inner", 7, "rows")
        checks = self.trouble(execution, part)
        for _ in range(int(part[1:]) + 1):
            progress.advance(1)
        progress.done()
        if execution.trouble[1] == "slow":
            print(f"{part} is built")
            time.sleep(0.4)
        building.writer.save("values", np.arange(int(part[1:]) + 1) + building.semantic.rows)
        return Summary(numbers={"pid": os.getpid()} if execution.trouble[1] == "pid" else {}, checks=checks)

    def trouble(self, execution, part):
        what = execution.trouble[1] if part == execution.trouble[0] else ""
        if what == "error":
            raise InputError("a row is wrong", "correct it")
        if what == "defect":
            raise ZeroDivisionError("of the test")
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "wait":
            time.sleep(600)
        return [Check(name="fine", passed=what != "check", detail="it was not")]


PARTED = PartedStage()
