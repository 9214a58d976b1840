"""A rank that dies or hangs while the others read rows on its device ends the run with its name, and nothing is left."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.trainers.ranks.test_faults import GRAPHMILL, RECIPE, ROOT, ended, members, start

ON_DEVICES = RECIPE.replace('name = "two"', 'name = "two"\ndevice = "cuda"')
SITE = str(Path(__file__).parent / "site")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with the artifacts of the recipe, and the file that trains on devices."""
    folder = tmp_path_factory.mktemp("device-faults")
    assert ON_DEVICES != RECIPE
    (folder / "faulty.toml").write_text(ON_DEVICES)
    (folder / "impatient.toml").write_text(ON_DEVICES.replace("timeout = 120", "timeout = 6"))
    built = subprocess.run(
        [GRAPHMILL, "--home", str(folder / "home"), "build", str(folder / "faulty.toml")],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow("ranks with devices, one of which is killed or stopped")
@pytest.mark.parametrize(
    ("sent", "file", "words"),
    [
        (signal.SIGKILL, "faulty.toml", "rank 1 of 2 was killed (SIGKILL"),
        (signal.SIGSTOP, "impatient.toml", "rank 1 of 2 did not answer"),
    ],
)
def test_a_rank_on_a_device_that_dies_or_hangs_is_named(home, monkeypatch, sent, file, words):
    monkeypatch.setattr("tests.trainers.ranks.test_faults.PATHS", {"PYTHONPATH": f"{SITE}:{ROOT}"})
    launcher, trigger = start(home, file=file)
    os.kill(members(trigger)[1], sent)
    code, said = ended(launcher, trigger)
    assert code == 1 and words in said, said
