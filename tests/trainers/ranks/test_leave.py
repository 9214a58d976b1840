"""How a rank ends by an error: one message for what people or the machine can mend, a traceback for a defect."""

import subprocess
import sys

import pytest

from graphmill.assets.storage.names.home import ROOT


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ("InputError('parts are odd', 'make them even')", 1, "parts are odd"),
        ("OSError(28, 'No space left on device', '/full/file')", 1, "the file system is full"),
        ("MemoryError()", 1, "batch_size"),
        ("KeyboardInterrupt()", 130, ""),
        ("KeyError('x')", 70, "KeyError: 'x'"),
    ],
)
def test_the_exit_code_and_the_message_say_whose_it_is(error, code, said):
    text = "import threading; threading.Thread(target=threading.Event().wait).start(); from graphmill.kernels.errors import InputError; "
    text += f"from graphmill.trainers.ranks.leave import leave; leave({error})"
    # A thread that waits for ever is not waited for.
    ended = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == code and said in ended.stderr
    assert "Traceback" not in ended.stderr
