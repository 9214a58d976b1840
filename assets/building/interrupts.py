"""Ends a program when it is asked to stop, whatever its code does with the exception: `begin` is its first act.

Python turns Ctrl-C into an exception in the main thread. That exception can be lost: in a destructor, in a library that catches everything,
while modules are imported. Then the program prints a traceback, or goes on. So a thread of its own learns of SIGINT, SIGTERM and SIGHUP
from the file descriptor to which Python writes the number of every signal. The main thread gets a KeyboardInterrupt, or what Dagster
raises, and unwinds: it ends children, gives locks back, marks its run as cancelled. If it is not done after UNWIND_SECONDS, the thread
ends the process and all that it has started. Nothing is lost by that: what is stored is whole or absent, as after a SIGKILL.

After the signal nothing but one line is printed: exceptions that are not handled follow from the interrupt.

A signal that is ignored when the program starts (by `nohup`, or in the background of a script) stays ignored. A child that has to import
before it can begin is started inside `blocked`; its first signal waits for its `begin`.

`held_interrupt` and `watched_interrupts` are for places where an exception would be lost or would come at the wrong place.
"""

import _thread
import atexit
import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
UNWIND_SECONDS = 2.2
"""Seconds that the main thread has to unwind; with what the end takes it stays below three."""
POLL_SECONDS, LOOK_SECONDS = 0.05, 0.2


class _Wakeup:
    """A pipe into which Python writes the number of every signal that has a handler, whoever sets it, until `close`."""

    def __init__(self):
        self.reading, self._writing = os.pipe()
        for end in (self.reading, self._writing):
            os.set_blocking(end, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def numbers(self) -> bytes:
        """Returns the numbers that came since the last call."""
        try:
            return os.read(self.reading, 4096)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Gives the numbers back to whom they went before."""
        signal.set_wakeup_fd(self._before)
        os.close(self.reading)
        os.close(self._writing)


class _Watch:
    """The signals of this process, and the thread that waits for them; `line` is printed at the end."""

    def __init__(self, line: str, numbers: Sequence[int]):
        self.line, self.numbers = line, numbers
        self.first, self.raised, self.lost, self.elsewhere = 0, False, False, False
        # The exit code of a program that has done its work.
        self.code: int | None = None
        # A step of Dagster redirects the descriptor 2 to its log.
        self._terminal = os.dup(2)
        self._lock = threading.RLock()
        self._wakeup = _Wakeup()
        threading.Thread(target=self._run, name="interrupts", daemon=True).start()

    def look(self) -> int:
        """Returns the number of the first signal that came, 0 before."""
        with self._lock:
            for number in self._wakeup.numbers():
                self.note(number)
        return self.first

    def note(self, number: int) -> None:
        """Takes notice of a signal."""
        if number in self.numbers and not self.elsewhere:
            self.first = self.first or number

    def say(self) -> None:
        with self._lock:
            line, self.line = self.line, ""
        if line:
            with contextlib.suppress(OSError):
                os.write(self._terminal, f"{line}\n".encode())

    def _run(self) -> None:
        while not self.look():
            # Not without a limit: another thread may have read the number.
            select.select([self._wakeup.reading], [], [], LOOK_SECONDS)
        logging.disable()
        limit = time.monotonic() + UNWIND_SECONDS
        while time.monotonic() < limit:
            time.sleep(POLL_SECONDS)
            if self.lost:  # where nobody could catch it; the main thread gets another one
                self.lost = self.raised = False
                _thread.interrupt_main()
        end()


_watches: list[_Watch] = []
"""The one of this process, from `begin` on."""


def begin(line: str, numbers: Sequence[int] = STOPS, *, handlers: bool = True) -> None:
    """Makes signals end this process from now on. Only the first call in a process counts; the main thread makes it.

    Args:
        line: the one line that is printed then; "" for none.
        numbers: the signals; those that are ignored now stay so.
        handlers: whether they raise KeyboardInterrupt; False if they have handlers already.
    """
    if not _watches:
        heeded = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
        _watches.append(_Watch(line, heeded))
        for number in heeded if handlers else ():
            signal.signal(number, raise_interrupt)
        sys.unraisablehook = _unless_stopped(sys.unraisablehook)
        threading.excepthook = _unless_stopped(threading.excepthook)
        sys.excepthook = _finish_if_stopped(sys.excepthook)
        atexit.register(_last)  # the first that is registered is the last that is called
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def came() -> int:
    """Returns the number of the first signal that came since `begin`; 0 if none came, or without `begin`."""
    return max((watch.look() for watch in _watches), default=0)


def raise_interrupt(number: int, frame: Any) -> None:
    """Is the handler of the signals: raises KeyboardInterrupt, at the first of them alone, so that cleaning up is not interrupted."""
    for watch in _watches:
        watch.note(number)
        if watch.raised:
            return
        watch.raised = True
    raise KeyboardInterrupt


def end() -> NoReturn:
    """Ends this process after a signal, and all processes that it has started: prints the line, exit code 128 + the signal's number."""
    for number in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
    (watch,) = _watches
    watch.say()
    os._exit(128 + watch.first)


def finish() -> NoReturn:
    """Ends this process after a signal when the main thread has unwound: calls what `atexit` knows, then as `end`."""
    with contextlib.suppress(BaseException):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        atexit._run_exitfuncs()  # without the end of the interpreter, which waits for threads
    end()


def leave(code: int) -> NoReturn:
    """Ends this program, which has done its work: what `atexit` knows is called, and the interpreter is not taken down.

    That would take as long as a small command, and no Python code could answer a signal in it.
    """
    for watch in _watches:
        watch.code = code
    sys.exit(code)


@contextlib.contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Sets the handler of signals while the block runs."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def stop_event() -> Iterator[threading.Event]:
    """Yields an event that the signals set in place of ending this process, even if they are ignored, as in the background of a script."""
    stop = threading.Event()
    with handled(STOPS, lambda *_: stop.set()):
        for watch in _watches:
            watch.elsewhere = True
        try:
            yield stop
        finally:
            for watch in _watches:
                watch.look()
                watch.elsewhere = False


@contextlib.contextmanager
def held_interrupt() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C sets; KeyboardInterrupt comes at the end of the block, and not at any place inside it.

    The same holds for the other signals that end a command. Nothing is held outside the main thread, nor a signal that is ignored or has
    a handler of its own.
    """
    seen, ours = threading.Event(), (signal.default_int_handler, raise_interrupt)
    main = threading.current_thread() is threading.main_thread()
    with handled([n for n in STOPS if main and signal.getsignal(n) in ours], lambda *_: seen.set()):
        yield seen
    if seen.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def watched_interrupts() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether SIGINT or SIGTERM came in the block; outside the main thread it never notices any.

    It is for what Dagster carries out: Dagster replaces the handlers of both again and again, and ends an interrupted run as a failure
    without raising. A command has `begin`; in a notebook the signals are read as long as the block runs.
    """
    if _watches:
        yield lambda: bool(came())
    elif threading.current_thread() is not threading.main_thread():
        yield lambda: False
    else:
        wakeup, seen = _Wakeup(), set[int]()

        def noticed() -> bool:
            seen.update(wakeup.numbers())
            return bool({signal.SIGINT, signal.SIGTERM} & seen)

        with contextlib.closing(wakeup):
            yield noticed


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Blocks the signals in this thread: a child that is started in the block gets none before its own `begin`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def descendants(process: int) -> list[int]:
    """Returns the ids of the processes that a process has started, and of those that they have."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found = [process]
    for each in found:
        found.extend(children.get(each, []))
    return found[1:]


def _unless_stopped(hook: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Returns a hook for exceptions that are not handled: nothing is printed after a signal, and a lost interrupt is noted."""

    def run(about: Any) -> None:
        if not came():
            hook(about)
        elif not isinstance(about.exc_value, Exception):
            for watch in _watches:
                watch.lost = True

    return run


def _finish_if_stopped(hook: Callable[..., Any]) -> Callable[..., None]:
    """Returns a hook for the exception with which a program ends, such as one in its imports: after a signal it is not printed."""

    def run(*about: Any) -> None:
        if came():
            finish()
        hook(*about)

    return run


def _last() -> None:
    """Is the last function that `atexit` calls: answers a signal that came since the work was done, or ends the process at once."""
    (watch,) = _watches
    if came():
        end()
    if watch.code is None:  # a defect, whose traceback is printed
        return
    for number in watch.numbers:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(watch.code)
