"""Commands of a user who may do less than the one who runs the tests, which may be root."""

import ctypes
import subprocess
import sys
from pathlib import Path

from tests.e2e.commands import ROOT, environment

VERSION_3, DAC_OVERRIDE, DAC_READ_SEARCH = 0x20080522, 1, 2
COMMAND = [
    sys.executable,
    "-c",
    "from tests.adversary.privileges import drop; drop(); from jobs.cli import main; main()",
]


def drop() -> None:
    """Takes the right to read and write what permissions forbid from this process."""
    libc, header, data = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    data[0] &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    libc.capset(header, data)


def graphmill_without_rights(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs `graphmill ARGUMENTS` to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
