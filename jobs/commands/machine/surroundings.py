"""What `graphmill doctor` asks of the surroundings of a process: limits, locks, folders, letters and environment variables."""

import locale
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from graphmill.assets.pipeline.file import pipelines_folder
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.remote.fetch import cache_bytes
from graphmill.assets.storage.system.filesystem import release_lock, take_lock
from graphmill.jobs.runs.shown import shown_examples
from graphmill.kernels import environment
from graphmill.kernels.environment import SERVER_SOCKET, socket_folder
from graphmill.kernels.errors import InputError

OK, LACKS, NOTE = "ok", "missing", "note"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a probe.

    Attributes:
        state: "ok", "missing", or "note" for neither good nor bad.
        remedy: how to get the missing thing; "" if nothing is missing.
        needed: True if nothing can be trained without it.
    """

    topic: str
    name: str
    state: str
    found: str
    remedy: str = ""
    needed: bool = False


def finding(
    topic: str, name: str, fine: bool, found: str, remedy: str = "", *, needed: bool = False, otherwise: str = LACKS
) -> Finding:
    """Returns the finding of a probe: ok and without its remedy if all is fine, else `otherwise`."""
    state, remedy = (OK, "") if fine else (otherwise, remedy)
    return Finding(topic=topic, name=name, state=state, found=found, remedy=remedy, needed=needed)


MEMORY, LIMITS, VARIABLES = "memory and disk", "limits of a process", "environment"
SHARED = Path("/dev/shm")
SHARED_LEAST, TEMPORARY_LEAST = 256 << 20, 1 << 30
LONGEST_SHOWN = 120
ULIMITS = (
    (
        resource.RLIMIT_NOFILE,
        "open files",
        "n",
        1024,
        "builds of many parts and trainings of several ranks end without more",
    ),
    (resource.RLIMIT_NPROC, "processes and threads", "u", 1024, "each rank starts dozens of threads"),
    (resource.RLIMIT_AS, "address space", "v", 64 << 30, "files are mapped, and libraries reserve more than they use"),
    (resource.RLIMIT_DATA, "data", "d", 64 << 30, "a build ends as if the memory ran out"),
    (resource.RLIMIT_FSIZE, "file size", "f", 1 << 40, "larger artifacts cannot be written"),
    (resource.RLIMIT_CPU, "processor time", "t", 86_400, "the kernel kills a longer training without a word"),
    (resource.RLIMIT_STACK, "stack", "s", 1 << 20, "libraries crash with a smaller one"),
)
"""Limit, name, letter of `ulimit`, the least that is enough, and what a lower one costs."""


def limits() -> Iterator[Finding]:
    """Yields the limits that the system sets this process."""
    for number, name, letter, least, cost in ULIMITS:
        limit = resource.getrlimit(number)[0]
        unbounded = limit == resource.RLIM_INFINITY
        number_of = f"{limit:,}" if letter in "nu" else f"{limit:,} s" if letter == "t" else format_bytes(limit)
        remedy = f"ulimit -{letter} unlimited, or as many as the administrator allows: {cost}"
        yield finding(
            LIMITS, name, unbounded or limit >= least, "no limit" if unbounded else number_of, remedy, otherwise=NOTE
        )


def locks(home: Path) -> Iterator[Finding]:
    """Yields whether the file system of the home keeps locks, by which processes of one home wait for each other."""
    path = home / ".doctor.lock"
    try:
        held = take_lock(path, create=True)
        if held is not None:
            release_lock(held)
        yield finding(MEMORY, "locks", True, "the file system of the home keeps them")
    except InputError as error:
        yield finding(MEMORY, "locks", False, error.problem, error.remedy, needed=True)
    finally:
        with suppress(OSError):
            path.unlink()


def shared_memory() -> Iterator[Finding]:
    """Yields the space of /dev/shm."""
    remedy = "docker run --shm-size 1g: nodes of Ray and links between GPUs share memory there, and fail or take files without"
    if not SHARED.is_dir():
        yield finding(MEMORY, str(SHARED), False, "not there", remedy, otherwise=NOTE)
        return
    free = shutil.disk_usage(SHARED).free
    yield finding(MEMORY, str(SHARED), free >= SHARED_LEAST, f"{format_bytes(free)} free", remedy, otherwise=NOTE)


def temporary_folder() -> Iterator[Finding]:
    """Yields the folder of temporary files: whether it is the one that was named, its space, and whether sockets can lie there."""
    name, given = "temporary files", environment.read(environment.TEMPORARY)
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        problem = f"no folder can be written, {environment.TEMPORARY} = {given!r}"
        yield finding(MEMORY, name, False, problem, f"set {environment.TEMPORARY} to one that can", needed=True)
        return
    free, taken = shutil.disk_usage(folder).free, socket_folder(SERVER_SOCKET)
    found = f"{folder}, {format_bytes(free)} free" + (f"; sockets in {taken}" if taken != folder else "")
    if given and Path(given).absolute() != Path(folder).absolute():
        remedy = f"set {environment.TEMPORARY} to a folder that can be written, or unset it"
        yield finding(MEMORY, name, False, f"{found}; {environment.TEMPORARY} = {given!r} cannot be used", remedy)
        return
    remedy = f"set {environment.TEMPORARY} to a larger folder: files that are unpacked or sorted lie there for a while"
    yield finding(MEMORY, name, free >= TEMPORARY_LEAST, found, remedy, otherwise=NOTE)


def letters() -> Iterator[Finding]:
    """Yields the encoding of the terminal and of file names."""
    terminal = getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(False)
    files = sys.getfilesystemencoding()
    fine = all(each.lower().replace("-", "") == "utf8" for each in (terminal, files))
    remedy = "export LC_ALL=C.UTF-8: names with other letters are spelled out, such as \\u4e2d, and such files may not be found"
    yield finding("letters", "locale", fine, f"terminal {terminal}, names of files {files}", remedy, otherwise=NOTE)


def compiler() -> Iterator[Finding]:
    """Yields the C++ compiler, which only a clone needs."""
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    remedy = "apt-get install g++: `make native` needs it after a change of the kernels; an installed wheel does not"
    yield finding("processor", "C++ compiler", found is not None, found or "none", remedy, otherwise=NOTE)


def variables() -> Iterator[Finding]:
    """Yields the variables of docs/environment.md that are set, and what is wrong with them."""
    wrong = _wrong_variables()
    for name, text in environment.variables_set().items():
        about = environment.VARIABLES.get(name)
        shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
        said = f"{shown!r}" + (f", set by {about.set_by}: {about.meaning}" if about else "")
        problem = wrong.get(name)
        yield finding(
            VARIABLES,
            name,
            problem is None,
            f"{shown!r}: {problem}" if problem else said,
            f"correct it, or: unset {name}",
        )
    if not environment.variables_set():
        yield Finding(
            topic=VARIABLES, name="variables", state=OK, found="none is set that graphmill reads (docs/environment.md)"
        )


def _wrong_variables() -> dict[str, str]:
    """Returns name -> what is wrong, of the variables whose text cannot be used."""
    wrong = {}
    checks: dict[str, Callable[[], object]] = {
        environment.CACHE_BYTES: cache_bytes,
        environment.EXAMPLES: shown_examples,
        environment.PIPELINES: pipelines_folder,
    }
    for name, check in checks.items():
        try:
            check()
        except InputError as error:
            wrong[name] = error.problem
    folder = environment.read(environment.PIPELINES)
    if folder and not Path(folder).exists():
        wrong[environment.PIPELINES] = "there is no such folder"
    given = environment.read(environment.TEMPORARY)
    if given and not os.access(given, os.W_OK | os.X_OK):
        wrong[environment.TEMPORARY] = "no file can be made there"
    program, told = environment.launcher()
    if program:
        wrong |= dict.fromkeys(told, f"{program} sets it for one of several processes, which `graphmill` refuses to be")
    return wrong
