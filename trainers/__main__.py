"""`python -m graphmill.trainers`: answers interrupts from its first moment on, and imports the program (trainers/program.py) after that."""

import os
import signal

from graphmill.assets.building import interrupts

INTERRUPTED = "python -m trainers: interrupted; --resume goes on from the last checkpoint"

if __name__ == "__main__":
    if "GRAPHMILL_RANKS_PARENT" in os.environ:  # its launcher prints the line, and ends it by SIGTERM
        interrupts.begin("", (signal.SIGINT,))
    else:
        interrupts.begin("" if "DAGSTER_PIPES_CONTEXT" in os.environ else INTERRUPTED)
    from graphmill.trainers.program import run

    run()
