import errno
import fcntl
import os
import tempfile
from types import SimpleNamespace

import pytest

from graphmill.assets.storage.system import filesystem
from graphmill.assets.storage.system.filesystem import (
    beside,
    full_disk,
    full_errno,
    locked,
    make_folder,
    release_lock,
    replace_atomically,
    share_lock,
    shows_changes,
    take_lock,
)
from graphmill.kernels.errors import InputError


def test_a_lock_has_one_owner(tmp_path):
    path = tmp_path / "a.lock"
    assert take_lock(path, create=False) is None
    first = take_lock(path, create=True)
    assert first is not None and take_lock(path, create=True) is None
    release_lock(first)
    second = take_lock(path, create=False)
    assert second is not None
    release_lock(second)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_on_a_file_that_vanished_is_no_lock(tmp_path, monkeypatch, replaced):
    """A sweeper removes the file between its opening and its locking."""
    path, real = tmp_path / "a.lock", fcntl.flock

    def vanish(descriptor, flags):
        monkeypatch.undo()
        path.rename(tmp_path / "elsewhere")
        if replaced:
            path.touch()
        real(descriptor, flags)

    monkeypatch.setattr(fcntl, "flock", vanish)
    assert take_lock(path, create=True) is None
    lock = take_lock(path, create=True)
    assert lock is not None
    release_lock(lock)


def test_a_full_disk_is_known_in_any_clothes():
    for code in filesystem.FULL:
        assert full_errno(OSError(code, os.strerror(code))) == code
        assert full_errno(RuntimeError(f"SafetensorError: IoError({os.strerror(code)} (os error {code}))")) == code
    assert full_errno(OSError(errno.EACCES, "denied")) is None and full_errno(None) is None


def test_the_report_of_a_full_disk(tmp_path):
    error = full_disk(errno.ENOSPC, tmp_path / "not" / "there", 5 << 20)
    assert isinstance(error, InputError)
    assert f"cannot write {tmp_path}/not/there (5242880 bytes, 5.0 MiB): the file system is full; " in error.problem
    assert "are free" in error.problem and "GRAPHMILL_HOME" in error.remedy
    assert "ulimit -f" in full_disk(errno.EFBIG, tmp_path).remedy


def test_a_full_folder_of_temporary_files_is_named_by_its_variable(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for code in (errno.ENOSPC, errno.EDQUOT):
        told = full_disk(code, tmp_path / "temporary" / "spool")
        assert "point TMPDIR (or GRAPHMILL_HOME, if it lies there) " in told.remedy
        assert "point GRAPHMILL_HOME " in full_disk(code, tmp_path / "home" / "spool").remedy


def test_folders_are_made_with_their_parents(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_failed_replacement_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_atomically(path, b"old")

    def fail(descriptor):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken disk"):
        replace_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_the_umask_decides_who_shares_a_lock(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        release_lock(take_lock(tmp_path / "lock", create=True))
    finally:
        os.umask(before)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == mode


def test_containers_with_one_home_have_temporary_files_of_their_own(tmp_path, monkeypatch):
    """The first process of each container has the id 1, and its thread, too."""
    monkeypatch.setattr("os.getpid", lambda: 1)
    monkeypatch.setattr("threading.get_native_id", lambda: 1)
    one, other = (beside(tmp_path / "speeds.json", "tmp") for _ in range(2))
    assert one != other and one.parent == tmp_path and one.name.startswith("speeds.json.") and one.suffix == ".tmp"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(number, tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("graphmill.assets.storage.system.filesystem.fcntl.flock", flock)
    for take in (
        lambda: take_lock(tmp_path / "a", create=True),
        lambda: share_lock(tmp_path / "b"),
        locked(tmp_path / "c").__enter__,
    ):
        with pytest.raises(
            InputError, match=rf"^the file system of {tmp_path} keeps no locks \({os.strerror(number)}\)"
        ) as told:
            take()
        assert "local disk" in told.value.remedy and "None" not in str(told.value)


MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 0:50 / {0}/lake rw shared:1 - fuse.s3fs s3fs rw
3 2 8:2 / {0}/lake/inner rw - xfs /dev/sdb rw
4 1 0:51 / {0}/with\\040blank ro - squashfs /dev/loop0 ro
5 1 0:52 / {0}/memory rw - tmpfs none rw
6 1 0:53 / {0}/twice rw - ext4 none rw
7 1 0:54 / {0}/twice rw - vfat none rw
"""


@pytest.mark.parametrize(
    ("name", "equal_times", "other_times"),
    [
        ("file", True, True),
        ("lake/file", False, True),
        ("lakes", True, True),
        ("lake/inner/file", True, True),
        ("link/file", False, True),
        ("with blank/file", False, True),
        ("memory/file", False, False),
        ("twice/file", False, True),
    ],
)
def test_a_file_system_shows_changes_by_a_change_time_of_its_own(tmp_path, monkeypatch, name, equal_times, other_times):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(tmp_path.resolve()))
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    for change_time, shown in ((5, equal_times), (6, other_times)):
        status = SimpleNamespace(st_mtime_ns=5, st_ctime_ns=change_time)
        assert shows_changes(tmp_path / name, status) is shown


def test_a_system_that_does_not_say_its_file_systems_is_judged_by_the_times(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "none")
    assert [shows_changes(tmp_path, SimpleNamespace(st_mtime_ns=5, st_ctime_ns=time)) for time in (5, 6)] == [
        False,
        True,
    ]
