"""Keeps Ctrl-C of a terminal from the processes that Dagster starts to copy a step's output to it.

Dagster starts `tail`, and a watcher that ends `tail` if the step is killed, in the process group of the terminal. An interrupt reaches them
at the same time as the step: the watcher prints a traceback, and `tail` loses the last lines. On import they get a session of their own.
They end with the step as before: Dagster sends them SIGTERM, and the watcher notices when the step is gone.
"""

import subprocess
from functools import partial
from types import SimpleNamespace

from dagster._core.execution import compute_logs

compute_logs.subprocess = SimpleNamespace(Popen=partial(subprocess.Popen, start_new_session=True))  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]
