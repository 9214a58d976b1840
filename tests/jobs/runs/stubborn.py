"""A program that ends by SIGKILL only, with a child of its own that does too: what a hung training looks like.

    python stubborn.py PID_FILE

Both process ids are written to the file when both ignore signals.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # An ignored signal stays ignored across exec.
    child = subprocess.Popen(["sleep", "600"])
    path = Path(sys.argv[1])
    path.with_suffix(".part").write_text(f"{os.getpid()} {child.pid}")
    path.with_suffix(".part").rename(path)
    while True:
        time.sleep(60)
