"""The `graphmill` command's entry: it answers interrupts from its first moment on, and imports the commands after that."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphmill.kernels.errors import InputError

EXIT_INPUT, EXIT_INTERRUPTED = 1, 130
TIMING = {"plan", "--plan"}
"""A command and an option that time pieces of trainings, with the heap and the threads that trainings have."""
INTERRUPTED = "graphmill: interrupted; what was finished is kept, training goes on with --resume"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; input errors and refusals of the machine exit with 1 and one message, a signal with 128 + its number.

    Args:
        arguments: words of the command line; None for those of this process, which then answers interrupts by itself.
    """
    _open_standard_streams()
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until all is imported that answers it, an interrupt ends the process at once: as an exception it would show the imports.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from graphmill.assets.building import interrupts
    from graphmill.assets.building.terminal import begin_to_print

    if arguments is None:
        interrupts.begin(INTERRUPTED)
        begin_to_print()
    try:
        if arguments is None and TIMING & set(sys.argv):
            from graphmill.assets.building.child import begin_as_trainings

            begin_as_trainings()
        code = _run(arguments)
    except BaseException:
        if not interrupts.came():
            raise
        code = EXIT_INTERRUPTED
    if interrupts.came():
        interrupts.finish()
    if arguments is None:
        interrupts.leave(code)
    if code:
        sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    """Runs a command and returns the exit code; a defect is raised."""
    import click

    from graphmill.assets.building import interrupts

    try:
        from graphmill.jobs.command import graphmill

        graphmill(arguments, prog_name="graphmill", standalone_mode=False)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:  # the reader of the output, such as `head`, has read enough
        _forget_output()
        return EXIT_INPUT
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        if not interrupts.came():  # cancelled in the web UI, or an answer was refused
            click.echo(INTERRUPTED, err=True)
        return EXIT_INTERRUPTED
    except Exception as error:
        if interrupts.came():  # what follows from it
            return EXIT_INTERRUPTED
        said = _refused(error)
        if said is None:
            raise
        _forget_output()
        click.echo(f"graphmill: {said}", err=True)
        return EXIT_INPUT


def _refused(error: Exception) -> InputError | None:
    """Returns an error as one of the user's input or a refusal of the machine or the history, None for a defect."""
    from graphmill.assets.storage.system.refused import refusal

    said = refusal(error)
    if said is None and "sqlalchemy" in sys.modules:
        from graphmill.jobs.runs.instance import history_error
        from graphmill.kernels import environment

        said = history_error(error, environment.read(environment.DAGSTER_HOME))
    return said


def _open_standard_streams() -> None:
    """Opens those of the descriptors 0 to 2 that the caller closed; else the next file that is opened would get the printed text."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _forget_output() -> None:
    """Points standard output at nothing: the rest of its buffer cannot be written, and the interpreter would report that again."""
    try:
        sys.stdout.flush()
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
