"""Commands of a user who may do less than the one who runs the tests, which may be root."""

import ctypes
import subprocess
from pathlib import Path

from tests import forks
from tests.e2e.commands import ROOT, environment

VERSION_3, DAC_OVERRIDE, DAC_READ_SEARCH = 0x20080522, 1, 2
PROGRAM = "from tests.adversary.privileges import drop; drop(); from graphmill.jobs.cli import main; main()"


def drop() -> None:
    """Takes the right to read and write what permissions forbid from this process."""
    libc, header, data = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    data[0] &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    libc.capset(header, data)


def graphmill_without_rights(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs `graphmill ARGUMENTS` to its end."""
    words = ["-c", PROGRAM, *arguments]
    return forks.run(words, cwd=ROOT, env=environment(home), imports=forks.COMMANDS, timeout=120)
