"""Ways to give the files of a folder another content under the same sizes and modification times, as programs and people do it.

A way is a generator: what it does before its `yield` stands when the files are read first, what it does behind it replaces them. Times that
a way changes are set back by its caller, as `cp -p`, `rsync -t`, `tar` and archives with normalised times do.
"""

from __future__ import annotations

import functools
import mmap
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphmill.assets.storage.system import filesystem
from graphmill.assets.storage.system.filesystem import exchange_folders

Way = Callable[[Path, Path, pytest.MonkeyPatch], Iterator[None]]
WAYS: dict[str, Way] = {}
"""Name -> way. It gets a folder, another one with the same names and the new contents, and what patches this process until the end."""


def way(replace: Way) -> Way:
    WAYS[replace.__name__.replace("_", " ")] = replace
    return replace


def files(folder: Path) -> list[Path]:
    """Returns the paths of all files below a folder, relative to it, those of linked folders too."""
    found = [Path(place, name) for place, _, names in os.walk(folder, followlinks=True) for name in names]
    return sorted(path.relative_to(folder) for path in found)


def each_file(replace: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    """Registers a way by a function that replaces one file."""

    @functools.wraps(replace)
    def replaces(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
        yield
        for name in files(old):
            replace(old / name, new / name)

    way(replaces)
    return replace


def command(*words: object) -> None:
    if shutil.which(str(words[0])) is None:
        pytest.skip(f"{words[0]} is not installed")
    subprocess.run([str(word) for word in words], check=True, capture_output=True, timeout=60)


@each_file
def written_over(old: Path, new: Path) -> None:
    old.write_bytes(new.read_bytes())


@each_file
def written_in_place(old: Path, new: Path) -> None:
    with old.open("r+b") as file:
        file.write(new.read_bytes())


@each_file
def only_the_bytes_that_differ(old: Path, new: Path) -> None:
    content = new.read_bytes()
    with old.open("r+b") as file:
        for place, (before, after) in enumerate(zip(old.read_bytes(), content, strict=True)):
            if before != after:
                os.pwrite(file.fileno(), content[place : place + 1], place)


@each_file
def mapped(old: Path, new: Path) -> None:
    with old.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[:] = new.read_bytes()


@each_file
def cut_to_nothing_and_appended_to(old: Path, new: Path) -> None:
    os.truncate(old, 0)
    content = new.read_bytes()
    with old.open("ab", buffering=0) as file:
        for place in range(0, len(content), 1000):
            file.write(content[place : place + 1000])


@each_file
def a_hole_that_is_filled(old: Path, new: Path) -> None:
    command("fallocate", "--punch-hole", "--offset", 0, "--length", max(1, old.stat().st_size), old)
    written_in_place(old, new)


@each_file
def a_sparse_file_that_is_filled(old: Path, new: Path) -> None:
    os.truncate(old, 0)
    os.truncate(old, new.stat().st_size)
    written_in_place(old, new)


@each_file
def sendfile(old: Path, new: Path) -> None:
    with new.open("rb") as source, old.open("r+b") as target:
        os.sendfile(target.fileno(), source.fileno(), 0, new.stat().st_size)


@each_file
def copy_file_range(old: Path, new: Path) -> None:
    with new.open("rb") as source, old.open("r+b") as target:
        os.copy_file_range(source.fileno(), target.fileno(), new.stat().st_size)


@each_file
def dd(old: Path, new: Path) -> None:
    command("dd", f"if={new}", f"of={old}", "conv=notrunc")


@each_file
def removed_and_written_again(old: Path, new: Path) -> None:
    """The new file often gets the inode of the old one."""
    content = new.read_bytes()
    old.unlink()
    old.write_bytes(content)


@each_file
def renamed_over(old: Path, new: Path) -> None:
    os.replace(new, old)


@each_file
def swapped_with_the_other(old: Path, new: Path) -> None:
    between = old.with_name("between")
    old.rename(between)
    new.rename(old)
    between.rename(new)


@each_file
def exchanged(old: Path, new: Path) -> None:
    if not exchange_folders(old, new):
        pytest.skip("this file system cannot exchange names")


@each_file
def cp_with_times(old: Path, new: Path) -> None:
    command("cp", "-p", new, old)


@each_file
def cp_that_shares_blocks(old: Path, new: Path) -> None:
    command("cp", "-p", "--reflink=auto", "--remove-destination", new, old)


@each_file
def rsync_with_times(old: Path, new: Path) -> None:
    command("rsync", "--times", "--ignore-times", new, old)


@each_file
def rsync_in_place(old: Path, new: Path) -> None:
    command("rsync", "--times", "--ignore-times", "--inplace", new, old)


@way
def tar(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    command("tar", "--create", "--file", archive := old.with_suffix(".tar"), "--mtime=2001-01-01", "-C", new, ".")
    command("tar", "--extract", "--file", archive, "-C", old)


@way
def a_descriptor_that_was_open_before(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    opened = {name: (old / name).open("r+b") for name in files(old)}
    yield
    for name, file in opened.items():
        file.write((new / name).read_bytes())
        file.close()


@way
def a_mapping_that_was_written_to_before(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores to a page that waits to be written back change no time."""
    views: dict[Path, mmap.mmap] = {}
    for name in files(old):
        with (old / name).open("r+b") as file:
            views[name] = mmap.mmap(file.fileno(), 0)
        for place in range(0, len(views[name]), mmap.PAGESIZE):
            views[name][place] = views[name][place]
    yield
    for name, view in views.items():
        view[:] = (new / name).read_bytes()
        view.close()


@way
def the_other_name_of_a_hard_link(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    others = {name: old.parent / f"link-{number}" for number, name in enumerate(files(old))}
    for name, other in others.items():
        os.link(old / name, other)
    yield
    for name, other in others.items():
        other.write_bytes((new / name).read_bytes())


def linked(old: Path) -> dict[Path, Path]:
    """Puts a link in the place of each file, and returns name -> file that it leads to."""
    targets = {name: old.parent / f"target-{number}" for number, name in enumerate(files(old))}
    for name, target in targets.items():
        (old / name).rename(target)
        (old / name).symlink_to(target)
    return targets


@way
def what_a_link_leads_to(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    targets = linked(old)
    yield
    for name, target in targets.items():
        target.write_bytes((new / name).read_bytes())


@way
def a_link_that_leads_elsewhere(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    linked(old)
    yield
    for name in files(old):
        (old / name).unlink()
        (old / name).symlink_to(new / name)


@way
def a_folder_in_the_place_of_another(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    old.rename(old.with_name("before"))
    new.rename(old)


@way
def folders_exchanged(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    if not exchange_folders(old, new):
        pytest.skip("this file system cannot exchange names")


@way
def a_linked_folder_that_leads_elsewhere(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    old.rename(before := old.with_name("before"))
    old.symlink_to(before)
    yield
    old.unlink()
    old.symlink_to(new)


@way
def a_mount_over_the_folder(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    try:
        command("mount", "--bind", new, old)
    except subprocess.CalledProcessError:
        pytest.skip("mounting is not permitted here")
    try:
        yield
    finally:
        command("umount", "--lazy", old)


def told(patch: pytest.MonkeyPatch, folder: Path, changed: Callable[[os.stat_result], dict[str, int]]) -> None:
    """Changes what `Path.stat` tells of the files of a folder."""
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = real(path, **options)
        if not path.is_relative_to(folder):
            return found
        facts = {name: getattr(found, name) for name in ("st_mtime_ns", "st_ctime_ns", "st_blocks", "st_blksize")}
        more = facts | (new := changed(found))
        return os.stat_result([new.get("st_ino", each) if at == 1 else each for at, each in enumerate(found)], more)

    patch.setattr(Path, "stat", stat)


@way
def a_mount_without_change_times_and_inodes(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """As object stores are mounted."""
    mounts = old.parent / "mountinfo"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:99 / {old} rw - fuse.s3fs s3fs rw\n")
    patch.setattr(filesystem, "MOUNTS", mounts)
    told(patch, old, lambda found: {"st_ino": 1, "st_ctime_ns": found.st_mtime_ns})
    yield
    for name in files(old):
        written_over(old / name, new / name)


@way
def linked_folders_inside(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every folder with files is a link, as in trees that share large folders."""
    inner = sorted({name.parent for name in files(old)} - {Path()}, reverse=True)
    for number, name in enumerate(inner):
        (old / name).rename(target := old.parent / f"target-{number}")
        (old / name).symlink_to(target)
    yield
    if not inner:
        pytest.skip("the source has no folders inside")
    for name in files(old):
        written_over(old / name, new / name)


@way
def a_clock_that_was_set_back(old: Path, new: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    for name in files(old):
        written_in_place(old / name, new / name)
    told(patch, old, lambda found: {"st_ctime_ns": found.st_ctime_ns - 86_400 * 10**9})
