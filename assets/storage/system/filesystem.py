"""The store's operations on the file system: durable writes, owner locks, and clear errors when the disk is full.

A file is durable when its data and the directory entry that names it were both synced. A lock is a `flock`: the kernel drops it when the
last process that holds it dies, SIGKILL included, so a lock that can be taken has no living owner.
"""

import ctypes
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graphmill.assets.sizes import format_bytes
from graphmill.kernels.environment import TEMPORARY
from graphmill.kernels.errors import InputError

FULL = {
    errno.ENOSPC: ("the file system is full", "free space there, or point GRAPHMILL_HOME at a larger file system"),
    errno.EDQUOT: (
        "the disk quota is used up",
        "free space, ask for a larger quota, or point GRAPHMILL_HOME elsewhere",
    ),
    errno.EFBIG: (
        "the file is larger than allowed",
        "raise the file size limit (`ulimit -f`) or use a file system without it",
    ),
}

READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Error numbers of opening for writing in a folder that may be read but not written."""
MOUNTS = Path("/proc/self/mountinfo")
OWN_CHANGE_TIMES = re.compile("bcachefs|btrfs|ceph|ext[234]|f2fs|gpfs|lustre|nfs4?|overlay|xfs|zfs")
"""File systems that set a file's change time at every change, and let no program set it."""
AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Constants of renameat2(2), which Python does not have."""


def full_errno(error: BaseException | None) -> int | None:
    """Returns which of ENOSPC, EDQUOT, EFBIG an error reports, or None.

    Writers in other languages (Parquet, safetensors) wrap the system's error in exceptions of their own; its text survives.
    """
    if isinstance(error, OSError) and error.errno in FULL:
        return error.errno
    return next((code for code in FULL if os.strerror(code) in str(error)), None)


def full_disk(code: int, path: Path, wanted_bytes: int | None = None) -> InputError:
    """Returns the report of a full disk: path, bytes wanted, bytes free, remedy.

    Args:
        code: errno that `full_errno` found.
        path: the file that was written; the free bytes are those of its nearest existing parent.
        wanted_bytes: size of that file, None if it is not known.
    """
    reason, remedy = FULL[code]
    folder = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    free_bytes = shutil.disk_usage(folder).free
    wanted = "" if wanted_bytes is None else f" ({wanted_bytes} bytes, {format_bytes(wanted_bytes)})"
    problem = f"cannot write {path}{wanted}: {reason}; {free_bytes} bytes ({format_bytes(free_bytes)}) are free"
    if path.absolute().is_relative_to(tempfile.gettempdir()):
        remedy = remedy.replace("GRAPHMILL_HOME", f"{TEMPORARY} (or GRAPHMILL_HOME, if it lies there)")
    return InputError(problem, f"{remedy}; nothing was published and the store is as it was")


@contextmanager
def reporting_full_disk(path: Path, wanted_bytes: int | None = None) -> Iterator[None]:
    """Turns ENOSPC, EDQUOT and EFBIG raised inside into an `InputError` about `path`."""
    try:
        yield
    except OSError as error:
        code = full_errno(error)
        if code is None:
            raise
        raise full_disk(code, path, wanted_bytes) from error


def sync_path(path: Path) -> None:
    """Forces a file's data, or a directory's entries, to the device.

    On Linux this includes pages that were dirtied through a mapping. File systems that cannot sync a directory
    (EINVAL) are taken at their word.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def shows_changes(path: Path, status: os.stat_result) -> bool:
    """Tells whether a change of a file always changes its status: the kind of file system does it, or its change time is one of its own.

    Mounts of object stores, archives and FAT repeat the modification time there, which programs set. A file in memory (tmpfs) may change
    through a mapping without a trace.
    """
    kind = _file_system(path)
    own = kind not in ("tmpfs", "ramfs") and status.st_ctime_ns != status.st_mtime_ns
    return own or OWN_CHANGE_TIMES.fullmatch(kind) is not None


def _file_system(path: Path) -> str:
    """Returns the kind of file system that a file lies on, such as "ext4" or "fuse.s3fs"; "" if the system does not say."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    place, longest, found = f"{os.path.realpath(path)}/", 0, ""
    for line in lines:  # ID PARENT DEVICE ROOT POINT OPTIONS ... - KIND SOURCE OPTIONS
        mount, _, kind = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split()[4]).rstrip("/") + "/"
        if len(point) >= longest and place.startswith(point):  # a later mount hides an earlier one
            longest, found = len(point), kind.split()[0]
    return found


def make_folder(path: Path) -> None:
    """Creates a directory and its missing parents durably: each new entry is synced in its parent."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_path(path.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Writes a whole file and syncs its data; the caller syncs the directory."""
    with reporting_full_disk(path, len(data)), open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def exchange_folders(first: Path, second: Path) -> bool:
    """Exchanges two folders in one step: at no moment is either name without a folder.

    Returns:
        Whether it was done; False if the system or the file system cannot.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    failed = renameat2(
        AT_FDCWD, os.fsencode(first.absolute()), AT_FDCWD, os.fsencode(second.absolute()), RENAME_EXCHANGE
    )
    if failed and ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(first), None, str(second))
    return not failed


def beside(path: Path, ending: str) -> Path:
    """Returns a new path in the same folder, a different one at every call.

    Process ids would not do: containers that mount one folder have the same ones.
    """
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.{ending}")


@contextmanager
def _own_file(path: Path, ending: str) -> Iterator[Path]:
    """Yields the path of a new file beside another, which is removed after the block unless it got another name.

    Its lock says that its process is alive, so the files that killed processes left beside `path` are removed here, too.
    """
    make_folder(path.parent)
    left = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{32}}\.(tmp|new)")
    for other in [each for each in path.parent.iterdir() if left.fullmatch(each.name)]:
        with suppress(OSError):  # another user's
            if (lock := take_lock(other, create=False)) is not None:
                other.unlink(missing_ok=True)
                release_lock(lock)
    lock, own = None, path
    while lock is None:  # another process may take the file for a killed one's between its creation and its locking
        own = beside(path, ending)
        lock = take_lock(own, create=True)
    try:
        yield own
    finally:
        own.unlink(missing_ok=True)
        release_lock(lock)


def replace_atomically(path: Path, data: bytes) -> None:
    """Replaces a file's content so that readers see the old bytes or the new, never a mixture; the last writer wins."""
    with _own_file(path, "tmp") as own:
        write_durably(own, data)
        os.replace(own, path)


def write_once(path: Path, make: Callable[[], bytes]) -> bytes:
    """Returns the content of a file, made if the file does not exist yet; of processes that make it at the same time the first wins.

    Numbers that are measured so do not change from day to day, nor do results that are computed from them.
    """
    if not path.exists():
        with _own_file(path, "new") as own:
            write_durably(own, make())
            with suppress(FileExistsError):
                # Unlike a rename, a link never replaces.
                os.link(own, path)
    return read_whole_file(path)


def read_whole_file(path: Path) -> bytes:
    """Returns the content of a file. A named pipe or a device, whose reading may never end, is an `OSError` like a missing file."""
    # Without O_NONBLOCK, opening a pipe waits for a writer; a file ignores it.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
        return file.read()


NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


def take_lock(path: Path, *, create: bool) -> int | None:
    """Takes the exclusive lock file `path`, made if it is missing and `create` is set.

    Returns:
        A descriptor that holds the lock until it is closed or the process dies; None when another process holds it,
        or when the file vanished between opening and locking (the process that removed it held it).
    """
    return _lock(path, os.O_RDWR | (os.O_CREAT if create else 0), fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the exclusive lock file `path`, made if it is missing, while the block runs; waits for another owner first."""
    lock = None
    while lock is None:
        lock = _lock(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
    try:
        yield
    finally:
        release_lock(lock)


def share_lock(path: Path) -> int | None:
    """Takes a shared lock on the file `path`, made when it is missing, after waiting for an exclusive owner.

    Returns:
        A descriptor as of `take_lock`; None when the file vanished meanwhile.

    Raises:
        OSError: the file can neither be made nor opened; one that may be read but not written is shared all the same.
    """
    try:
        return _lock(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in READ_ONLY or not path.exists():
            raise
        return _lock(path, os.O_RDONLY, fcntl.LOCK_SH)


def _lock(path: Path, flags: int, operation: int) -> int | None:
    try:
        descriptor = os.open(path, flags, 0o666)  # the umask decides who shares it
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, operation)
        # A lock on an unlinked file protects nothing: another process may hold a new file of the same name.
        if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
            _HELD.add(descriptor)
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        if error.errno in NO_LOCKS:
            os.close(descriptor)
            raise no_locks(path, error) from error
        raise
    os.close(descriptor)
    return None


def no_locks(path: Path, error: OSError) -> InputError:
    """Returns the error of a file system that keeps no locks."""
    problem = f"the file system of {path.parent} keeps no locks ({error.strerror}), by which processes of one home wait for each other"
    remedy = "point GRAPHMILL_HOME (or --home) at a local disk, or mount the file system with locks (Lustre: -o flock; NFS: a lock service)"
    return InputError(problem, remedy)


def release_lock(descriptor: int) -> None:
    """Gives a lock of `take_lock` or `share_lock` back."""
    _HELD.discard(descriptor)
    os.close(descriptor)


_HELD: set[int] = set()


def _let_go() -> None:
    # Closing a copy leaves the parent's lock alone; only LOCK_UN would drop it.
    while _HELD:
        os.close(_HELD.pop())


os.register_at_fork(after_in_child=_let_go)
