"""Errors of the machine as one message: a home that cannot be written, a disk, memory or a table of open files that is used up.

A step may fail anywhere by such an error, so no step catches it by itself: `refusal` turns it into an `InputError` at the doors (the
command line, the assets, the process of a training, each build). A missing file is not among them: the reader of a file that may be missing
reports it itself; anywhere else that is a defect, and keeps its traceback.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.system.filesystem import full_disk, full_errno
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError

WRITABLE = "correct its permissions, or point GRAPHMILL_HOME at a folder that this user may read and write"
REFUSED = {
    errno.EACCES: WRITABLE,
    errno.EPERM: WRITABLE,
    errno.EROFS: "the file system is mounted read-only: mount it for writing, or point GRAPHMILL_HOME elsewhere",
    errno.EXDEV: "`store` and all in it have to be on one file system: replace links and mounts inside the home by folders",
    errno.ENOTDIR: "a file stands where a folder is needed: move it away",
    errno.EISDIR: "a folder stands where a file is needed: move it away",
    errno.EEXIST: "something else stands there: move it away",
    errno.ELOOP: "a symbolic link leads to itself: replace it",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.EMFILE: "this process may open no more files: raise `ulimit -n`",
    errno.ENFILE: "this machine may open no more files: end other programs",
    errno.EAGAIN: "this user may start no more processes or threads: raise `ulimit -u`, or end other programs",
    errno.EIO: "the device failed: look into the system's log, and run `graphmill verify` afterwards",
    errno.ESTALE: "the file server has another file now: mount it again",
    errno.ETXTBSY: "the file is being executed: end that program",
    errno.ENXIO: "it is no plain file: give a file",
    errno.ENODEV: "it is no plain file: give a file",
}
"""Advice for each error number."""
MEMORY = (
    'lower what takes it: `threads` and `workers`, batch_size, fanouts or hidden, `[memory]`; features = "mapped" holds no rows; '
    "`graphmill inspect` shows what a graph needs"
)
OUT_OF_MEMORY = ("OutOfMemoryError", "OutOfMemoryException")
"""Names of the exceptions of torch and DuckDB, which are not imported for this."""


NO_TEMPORARY = "No usable temporary directory"
"""What Python says if it may write neither the folder that TMPDIR names nor one of the usual ones."""
NO_THREAD = "can't start new thread"
"""What Python says where the system refuses a thread: too many of this user, or no address space for its stack."""


def is_unread(error: OSError) -> bool:
    """Returns whether an error means that a file is there and cannot be read now: a missing right, too many open files, a failing device.

    Nothing says then that its bytes are wrong. Not so if it is missing or something else stands there.
    """
    return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)


def unread(error: OSError) -> str:
    """Returns why a file cannot be read now, and the remedy, in words."""
    said = refusal(error)
    return f"{said.problem}; {said.remedy}" if said else str(error)


def refusal(error: BaseException) -> InputError | None:
    """Returns the `InputError` for an error of the machine, one itself as it is, None for any other error."""
    if isinstance(error, InputError):
        return error
    path = Path(os.fsdecode(name)) if (name := getattr(error, "filename", None)) and not isinstance(name, int) else None
    code = full_errno(error) if isinstance(error, OSError) else None
    if code is not None and path is not None:
        return full_disk(code, path)
    if isinstance(error, FileNotFoundError) and NO_TEMPORARY in str(error):
        problem = f"no folder for temporary files can be written; {environment.TEMPORARY} = {environment.read(environment.TEMPORARY)!r}"
        return InputError(problem, f"set {environment.TEMPORARY} to a folder that this user may write")
    if is_memory(error):
        return out_of_memory(error)
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        problem = "this process may start no more threads"
        return InputError(problem, "raise `ulimit -u`, or `ulimit -v` if it has little address space")
    if isinstance(error, OSError) and (error.errno in REFUSED or code is not None):
        where = f"{path}: " if path else ""
        other = f" ({os.fsdecode(error.filename2)})" if error.filename2 else ""
        remedy = REFUSED.get(error.errno or 0, "free space where this is written")
        return InputError(f"{where}{error.strerror}{other}", remedy)
    return None


def out_of_memory(error: BaseException, need: str = "") -> InputError:
    """Returns the `InputError` for memory that ran out, with the need of the failed operation if it is known."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    said = "".join(f": {text}" for text in (need, str(error)) if text)
    return InputError(f"there is not enough memory ({format_bytes(free)} are free){said}", MEMORY)


@contextmanager
def reporting_refusals(doing: str) -> Iterator[None]:
    """Turns errors of the machine raised inside into an `InputError`, which begins with the operation."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found = refusal(error)
        if found is None:
            raise
        raise InputError(f"{doing}: {found.problem}", found.remedy) from error


def is_memory(error: BaseException) -> bool:
    """Returns whether an error means that memory ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ in OUT_OF_MEMORY:
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
