"""An executor that dies, hangs or is too slow ends the run with an error that names it, and leaves no thread behind that could end."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

from graphmill.kernels.errors import InputError
from graphmill.trainers.record.ledger import Timeline
from graphmill.trainers.techniques.factored import crew, roles
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.factored.watch import Activity, ExecutorFault, Watch, fault_of
from tests.trainers.runs import train_small

ROOT = Path(__file__).parents[4]


def train(home: Path, **more: Any) -> None:
    settings = FactoredSettings(samplers=2, trainers=2, **more)
    train_small(home, trainer="factored", settings=settings, epochs=2)


def executors_alive() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith(("sampler", "trainer"))]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("draw_batch", r"sampler \d failed \(sample, batch \d\): ZeroDivisionError: gone"),
        ("extract_batch", r"trainer \d extract failed \(extract, batch \d\): ZeroDivisionError: gone"),
    ],
)
def test_an_executor_that_dies_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, name: str) -> None:
    calls, real = iter(range(100)), getattr(roles, where)

    def dies(*given: Any) -> Any:
        if next(calls) == 5:
            raise ZeroDivisionError("gone")
        return real(*given)

    monkeypatch.setattr(roles, where, dies)
    with pytest.raises(ExecutorFault, match=name):
        train(tmp_path, switching=False)
    assert executors_alive() == []


def test_a_users_mistake_keeps_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*given: Any) -> Any:
        raise InputError("fan-outs are odd", "make them even")

    monkeypatch.setattr(roles, "draw_batch", refuses)
    with pytest.raises(InputError, match=r"sampler \d failed .*: fan-outs are odd\n  remedy: make them even"):
        train(tmp_path)


def test_a_batch_that_fits_no_queue_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.trainers.recipe.queue_bytes.memory_bytes", lambda: 2000)
    with pytest.raises(InputError, match=r"sampler \d failed.* in the queue asks for .*\n  remedy: lower `batch_size`"):
        train_small(
            tmp_path, trainer="factored", settings=FactoredSettings(samplers=2, trainers=2), epochs=1, queue="1kB"
        )
    assert executors_alive() == []


LONG = 60.0
"""Seconds of `timeout`: no task of the small graph takes as long, on however slow a machine."""


class Known(Activity):
    """An activity that a test can find by its thread."""

    made: ClassVar[list[Activity]] = []

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.made.append(self)


def age_task() -> None:
    """Makes this thread's task one that began twice `LONG` seconds ago. The clocks of all others go on as they are.

    So the executor that is found is this one, however the machine's speed distributes real seconds among them.
    """
    (activity,) = (each for each in Known.made if each.thread is threading.current_thread())
    assert activity.doing is not None
    phase, position, began = activity.doing
    activity.doing = (phase, position, began - 2 * LONG)


HANGS = """
import sys, time
from pathlib import Path
from graphmill.trainers.techniques.factored import crew, roles
from tests.trainers.techniques.factored.test_faults import LONG, Known, age_task, train

real, calls = roles.{where}, iter(range(100))

def hangs(*given):
    if next(calls) == 4:
        age_task()
        time.sleep(600)
    return real(*given)

crew.Activity, roles.{where} = Known, hangs
try:
    train(Path(sys.argv[1]), timeout=LONG)
except BaseException as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("where", "phase"),
    [
        ("draw_batch", "sample"),
        pytest.param("extract_batch", "extract", marks=pytest.mark.slow("a trainer that hangs while it extracts")),
    ],
)
def test_an_executor_that_hangs_ends_the_process_in_time(tmp_path: Path, where: str, phase: str) -> None:
    """A sleep of ten minutes stands for a hang: the program ends long before, and names who it was."""
    command = [sys.executable, "-c", HANGS.format(where=where), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = rf"has been at work \({phase}, batch \d\) for \d+\.\d s, and timeout = 60 s"
    assert re.search(found, done.stdout), done.stdout + done.stderr


def hold_up(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Makes the fifth call of a function of a role take until the watch has found it."""
    real, calls, check, found = getattr(owner, name), iter(range(100)), Watch.check, threading.Event()

    def slow(*given: Any) -> Any:
        if next(calls) == 4:
            age_task()
            found.wait(120)
        return real(*given)

    def checks(watch: Watch) -> None:
        try:
            check(watch)
        except ExecutorFault:
            found.set()
            raise

    monkeypatch.setattr(Known, "made", [])
    monkeypatch.setattr(crew, "Activity", Known)
    monkeypatch.setattr(owner, name, slow)
    monkeypatch.setattr(Watch, "check", checks)


def test_an_executor_that_is_too_slow_is_a_fault_and_its_thread_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_up(monkeypatch, roles, "extract_batch")
    with pytest.raises(ExecutorFault, match=r"has been at work \(extract, batch \d\) .*timeout = 60 s"):
        train(tmp_path, timeout=LONG)
    assert executors_alive() == []


def test_a_thread_that_is_gone_is_a_fault_and_one_that_waits_is_none() -> None:
    now = [0.0]
    activity, watch = Activity("sampler 7", Timeline(), clock=lambda: now[0]), Watch(10, clock=lambda: now[0])
    watch.activities = [activity]
    now[0] = 1000.0
    watch.check()
    with activity.at("sample", 3):
        now[0] += 10
        watch.check()
        now[0] += 0.1
        with pytest.raises(ExecutorFault, match=r"sampler 7 .*sample, batch 3\) for 10.1 s"):
            watch.check()
    watch.check()
    activity.thread = threading.Thread(target=lambda: None)
    activity.thread.start()
    activity.thread.join()
    with pytest.raises(ExecutorFault, match="sampler 7 has ended without a word"):
        watch.check()
    assert isinstance(fault_of(activity, KeyboardInterrupt()), KeyboardInterrupt)


def test_a_defect_leaves_its_traceback_and_what_the_machine_refused_its_remedy(capsys: pytest.CaptureFixture) -> None:
    activity = Activity("sampler 0", Timeline())
    try:
        {}["x"]
    except KeyError as error:
        defect = fault_of(activity, error)
    assert "KeyError: 'x'" in str(defect) and "the traceback above" in str(defect)
    assert "test_faults.py" in capsys.readouterr().err
    refused = fault_of(activity, MemoryError())
    assert "sampler 0 failed" in str(refused) and "batch_size" in str(refused) and not capsys.readouterr().err
    assert "free space" in str(fault_of(activity, OSError(28, "No space left on device", "/somewhere/file")))
