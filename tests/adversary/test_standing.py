"""The standing adversary, in short: a few attacks of each kind, and what keeps it complete."""

import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.assets.pipeline.catalogue import stages
from graphmill.jobs.command import graphmill
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.adversary import interruptions, workshop
from tests.adversary.attack import REFUSED, SOUND, TRACEBACK, WRONG, WrongError, carried_out
from tests.adversary.house import COMMANDS
from tests.adversary.house_kills import KILLED
from tests.adversary.kinds import KINDS
from tests.adversary.sorts import SORTS, files_by_sort, sort_of
from tests.e2e.commands import ROOT


def test_a_few_of_each_kind() -> None:
    """In a process of its own: it forks, which goes well only where nothing has started threads."""
    command = [sys.executable, "-m", "tests.adversary", "--drawn"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.split()[0] in KINDS}
    assert rows.keys() == KINDS.keys()
    for name, kind in KINDS.items():
        assert int(rows[name][0]) in (kind.drawn, 0), done.stdout  # 0: this machine does not allow it, and it says so


def test_everything_that_is_listed_is_attacked(tmp_path: Path) -> None:
    steps = workshop.steps(tmp_path)
    assert {step.recipe.name for step in steps} == {stage.name for stage in stages()} | {"model"}
    trained = {step.name for step in steps if workshop.is_training(step)}
    assert trained == set(TECHNIQUES)


def test_every_sort_of_file_and_every_killed_command_is_drawn() -> None:
    """Half of the damage is that of objects, and half of the rest that of artifacts; half of the kills are of steps."""
    for kind in ("flips", "cuts"):
        drawn = [KINDS[kind].sort(seed) for seed in range(4 * len(SORTS))]
        assert {*drawn} == {*SORTS, "artifact", "object"} and drawn.count("object") == 2 * drawn.count("artifact")
        assert 2 * drawn.count("object") == len(drawn)
    drawn = [KINDS["kills"].sort(seed) for seed in range(1, 2 * len(KILLED) + 1)]
    assert {*drawn} == {*KILLED, "step"} and len(drawn) == 2 * len(KILLED)


def test_a_file_of_a_new_sort_is_found_to_have_no_attack(tmp_path: Path) -> None:
    """The adversary asks of all files of a house in which every command has worked."""
    assert sort_of("home/measured/links.json") == "measured-links"
    with pytest.raises(AssertionError, match=r"home/measured/needs\.json is of no sort"):
        files_by_sort(made(tmp_path, "home/measured/needs.json"))
    with pytest.raises(AssertionError, match=r"has no file of .*checkpoint"):
        files_by_sort(made(tmp_path / "other", "home/dagster.yaml"))


def made(house: Path, name: str) -> Path:
    (house / name).parent.mkdir(parents=True)
    (house / name).touch()
    return house


def test_every_command_has_worked_in_the_house() -> None:
    """A new command furnishes the house, or it is listed here, with the reason why no file of its own is missing there."""
    written_as_well = {"run", "demo", "train"}  # what `build` and the trainings of the house write
    laid_down = {"ui"}  # its lock, with an address
    only_read = {
        "diff",
        "inspect",
        "leaderboard",
        "ls",
        "network",
        "show",
        "simulate",
        "sql",
        "status",
        "validate",
        "verify",
    }
    measured_anew = {"plan"}  # seconds under a seal; damaged ones are measured again, as those of `doctor` are
    only_remove = {"gc", "prune-runs", "repair", "rm"}
    for_users = {"new", "plot", "timeline", "export"}  # files that nothing of a home refers to
    others = written_as_well | measured_anew | laid_down | only_read | only_remove | for_users
    assert {words[0] for words in COMMANDS} == {*graphmill.commands} - others


@pytest.mark.parametrize("way", [REFUSED, SOUND, WRONG, TRACEBACK])
def test_an_attack_ends_in_one_of_four_ways(tmp_path: Path, way: str) -> None:
    def attack(seed: int, folder: Path) -> str:
        raised = {REFUSED: InputError("no"), WRONG: WrongError("other bytes"), TRACEBACK: KeyError("a defect")}
        if way in raised:
            raise raised[way]
        return way

    ((found, said),) = carried_out(attack, [1], tmp_path)
    assert found == way and bool(said) == (way in (WRONG, TRACEBACK))


@pytest.mark.parametrize("ends", [KeyError("a defect"), InputError("no")])
def test_a_step_that_fails_before_it_is_killed_is_no_sound_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Exception
) -> None:
    """Only a child that ended well or by the kill may be followed by the step that is carried out again."""
    monkeypatch.setattr(interruptions, "_without_a_step", lambda *_: (tmp_path, workshop.steps(tmp_path)[0], []))
    monkeypatch.setattr(interruptions, "_finish", lambda *_: None)
    monkeypatch.setattr(interruptions, "kill_group", lambda child: None)  # it ends by itself
    monkeypatch.setattr(interruptions, "LONGEST_SECONDS", 0.0)

    def fails(*_: object, **__: object) -> None:
        raise ends

    monkeypatch.setattr(workshop, "carry_out", fails)
    attack = interruptions.kills(tmp_path)
    with pytest.raises(AssertionError, match=r"under a kill ends with status [12]$"):
        attack(2, tmp_path)
    monkeypatch.setattr(workshop, "carry_out", lambda *_, **__: None)
    assert attack(2, tmp_path) == SOUND


def test_a_process_that_dies_is_no_answer(tmp_path: Path) -> None:
    import os

    assert carried_out(lambda seed, folder: os._exit(7), [1], tmp_path) == [(TRACEBACK, "the process ended with 7")]


def test_of_a_batch_that_dies_each_is_tried_alone(tmp_path: Path) -> None:
    import os

    found = carried_out(lambda seed, folder: SOUND if seed == 1 else os._exit(7), [1, 2], tmp_path)
    assert [way for way, _ in found] == [SOUND, TRACEBACK]
