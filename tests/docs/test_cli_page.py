"""docs/cli.md says what the commands say of themselves."""

from tests import forks
from tests.docs.cli_page import PAGE
from tests.docs.pages import ROOT


def test_the_page_is_up_to_date() -> None:
    # In a process of its own: click keeps a command's help option as the first one who asked for it had it.
    done = forks.run(["-m", "tests.docs.cli_page", "--print"], cwd=ROOT, imports=forks.COMMANDS)
    assert done.returncode == 0, done.stderr
    assert PAGE.read_text(encoding="utf-8") == done.stdout, "make docs (python -m tests.docs.cli_page) writes it anew"
