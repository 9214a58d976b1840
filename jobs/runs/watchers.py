"""Keeps signals from where Dagster would lose them: Ctrl-C from its copies of a step's output, and an ignored SIGINT from its handlers.

Dagster starts `tail`, and a watcher that ends `tail` if the step is killed, in the process group of the terminal. An interrupt reaches them
at the same time as the step: the watcher prints a traceback, and `tail` loses the last lines. On import they get a session of their own.
They end with the step as before: Dagster sends them SIGTERM, and the watcher notices when the step is gone.

Dagster also sets handlers of SIGINT and SIGTERM around each step. A SIGINT that is ignored, as after `nohup` or in the background of a
script, would end the run in the middle of a step, and SIGTERM would be ignored afterwards. On import such a process keeps its own handlers.
"""

import signal
import subprocess
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from dagster._core.execution import compute_logs
from dagster._utils import interrupts

compute_logs.subprocess = SimpleNamespace(Popen=partial(subprocess.Popen, start_new_session=True))  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]


def _unless_ignored(replace: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns the function that replaces handlers, which does nothing while SIGINT is ignored."""

    def run(handler: Any) -> None:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            replace(handler)

    return run


interrupts._replace_interrupt_signal = _unless_ignored(interrupts._replace_interrupt_signal)
