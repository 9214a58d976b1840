"""docs/cli.md says what the commands say of themselves."""

import subprocess
import sys

from tests.docs.cli_page import PAGE
from tests.docs.pages import ROOT


def test_the_page_is_up_to_date() -> None:
    # In a process of its own: click keeps a command's help option as the first one who asked for it had it.
    command = [sys.executable, "-m", "tests.docs.cli_page", "--print"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert PAGE.read_text(encoding="utf-8") == printed, "make docs (python -m tests.docs.cli_page) writes it anew"
