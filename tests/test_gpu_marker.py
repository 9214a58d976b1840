"""Asking for the GPU's tests is a promise that they ran."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent / "conftest.py"
SETTINGS = "[pytest]\nmarkers = gpu: needs a device\n"
TESTS = {
    "passes": "import pytest\n@pytest.mark.gpu\ndef test_one(): pass\ndef test_two(): pass\n",
    "skips": "import pytest\n@pytest.mark.gpu\ndef test_one(): pytest.skip('no device')\ndef test_two(): pass\n",
    "has none": "def test_two(): pass\n",
}


@pytest.mark.parametrize(
    ("tests", "arguments", "code", "line"),
    [
        ("passes", ["-m", "gpu"], 0, "1 tests ran on a CUDA device"),
        ("skips", ["-m", "gpu"], 1, "-m gpu was asked for and no test ran"),
        ("has none", ["-m", "gpu"], 5, "-m gpu was asked for and no test ran"),
        ("passes", [], 0, "needs a CUDA device; `pytest -m gpu` runs it"),
        ("skips", ["-m", "not gpu"], 0, "1 passed, 1 deselected"),
    ],
)
def test_m_gpu_fails_when_none_ran(tmp_path, tests, arguments, code, line):
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_it.py").write_text(TESTS[tests])
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments]
    for processes in ([], ["-n", "1"]):
        result = subprocess.run([*command, *processes], cwd=tmp_path, capture_output=True, text=True, check=False)
        expected = line.split(", ")[0] if processes else line  # what is deselected in a process of its own is not told
        assert result.returncode == code and expected in result.stdout, result.stdout
