"""The publication of an artifact: it is built in a staging directory, synced, and renamed into place in one step.

A writer works in a staging folder of its own below `.staging/`. It holds a `flock` on `.staging/<id>.lock` for as long as it works in
`.staging/<id>`: no process holds the lock of a dead owner's folder, and the next owner sweeps it. The order of publication is

    content files synced -> block_digests.bin, run.json -> directory synced -> manifest.json -> directory synced
    -> rename to <stage>/<version> -> parent directory synced

so a crash at any point, SIGKILL and power loss included, leaves a whole artifact or none. rename(2) refuses to
replace a directory that is not empty: of two writers of one version the first wins and the other discards its own. A writer that is to
replace the published artifact exchanges the two folders in one step instead.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from graphmill.assets.storage.files.arrays import DATA_OFFSET, ArrayAppender, create_array, read_header, write_array
from graphmill.assets.storage.files.digests import block_digests, words_digest
from graphmill.assets.storage.files.direct_array import DirectArray
from graphmill.assets.storage.files.documents import seal
from graphmill.assets.storage.files.verified import note_sound
from graphmill.assets.storage.local.artifact import Artifact, find_artifact, read_artifact
from graphmill.assets.storage.local.backend import StoreBackend
from graphmill.assets.storage.names.manifest import FORMAT, MANIFEST, OWN_FILES, RUN, WORDS, Address
from graphmill.assets.storage.names.version import canonical
from graphmill.assets.storage.system.filesystem import (
    READ_ONLY,
    exchange_folders,
    full_disk,
    full_errno,
    locked,
    make_folder,
    release_lock,
    reporting_full_disk,
    sync_path,
    take_lock,
    write_durably,
)
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

STAGING = ".staging"
OWNER = re.compile("[0-9a-f]{32}")
"""Names of owners; anything else in the folder is not ours, and stays."""


class Staging:
    """A private folder `.staging/<id>` whose owner is known to be alive by its lock."""

    def __init__(self, root: Path):
        self.area = root / STAGING
        self.folder = self.area / "closed"
        self._lock: int | None = None
        self._owner = 0
        self._num_extra = 0

    def open(self) -> None:
        """Sweeps the folders of dead owners, then makes a new locked folder.

        Raises:
            InputError: `.staging` is a symbolic link: its target belongs to somebody else, and a rename may not reach from there.
        """
        self._owner = os.getpid()
        if self.area.is_symlink():
            raise InputError(f"{self.area} is a symbolic link", "remove the link; to move a store, move the whole home")
        make_folder(self.area)
        sweep(self.area)
        while self._lock is None:  # a sweeper may take a lock file between its creation and its locking
            self.folder = self.area / uuid.uuid4().hex
            self._lock = take_lock(self.folder.with_suffix(".lock"), create=True)
        try:
            self.folder.mkdir()
        except BaseException:
            self.close()
            raise

    def second_folder(self) -> Path:
        """Returns the name of another folder, not yet made, that lives and dies with this one."""
        self._num_extra += 1
        return self.folder.with_suffix(f".{self._num_extra}")

    def close(self) -> None:
        """Removes everything that was not renamed away; the lock goes last. In a forked child it does nothing."""
        if self._lock is not None and self._owner == os.getpid():
            _remove_owned(self.area, self.folder.name)
            release_lock(self._lock)
            self._lock = None


def sweep(area: Path) -> list[str]:
    """Removes the staging folders whose owner process is gone. Returns their ids.

    Args:
        area: the folder `.staging`; it may be missing. A symbolic link is not followed, and a folder that cannot be written is left.
    """
    if area.is_symlink() or not area.is_dir() or not os.access(area, os.W_OK):
        return []
    owners = sorted({owner for path in area.iterdir() if OWNER.fullmatch(owner := path.name.partition(".")[0])})
    swept = []
    for owner in owners:
        # Its lock file comes before a folder and goes after it: a folder without one was never live, so the lock is
        # made anew.
        has_folder = any(area.glob(f"{owner}*/"))
        try:
            lock = take_lock(area / f"{owner}.lock", create=has_folder)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
            continue  # another user's, whose umask does not share it
        if lock is not None:
            _remove_owned(area, owner)
            release_lock(lock)
            swept.append(owner)
    return swept


def _remove_owned(area: Path, owner: str) -> None:
    lock_path = area / f"{owner}.lock"
    for path in area.glob(f"{owner}*"):
        if path.is_symlink():
            path.unlink(missing_ok=True)  # its target is not ours
        elif path != lock_path:
            shutil.rmtree(path, ignore_errors=True)
    lock_path.unlink(missing_ok=True)


REPLACE_LOCK = ".replace.lock"
NO_SUMMARY: dict[str, Any] = {"numbers": {}, "checks": [], "figures": {}}


class Writer:
    """Builds one artifact; a context manager that leaves nothing behind when its block raises.

    Args:
        backend: the object store behind the home, which gets the artifact as well, or none.
        replaces: whether to replace a sound artifact of this version, too. A reader that has one of its files open keeps that file.
    """

    def __init__(
        self, root: Path, backend: StoreBackend, address: Address, threads: int = 1, *, replaces: bool = False
    ):
        stage, version = address
        assert stage and not stage.startswith(".") and "/" not in stage, f"{stage!r} cannot name a stage"
        assert len(version) == 64 and not version.strip("0123456789abcdef"), f"{version!r} is no version"
        self.stage, self.version, self.threads = stage, version, threads
        self.target = root / stage / version
        self._root, self._replaces, self._backend = root, replaces, backend
        self._mapped: list[np.memmap[Any, Any]] = []
        self._direct: dict[Path, DirectArray] = {}
        self._appended: dict[Path, ArrayAppender] = {}
        self._notes: dict[str, Any] = {}
        self._staging = Staging(root)

    def __enter__(self) -> Writer:
        with reporting_full_disk(self._root):
            self._staging.open()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._mapped.clear()
        for each in self._direct.values():
            each.close()
        self._staging.close()
        code = None if isinstance(error, InputError) else full_errno(error)
        if code is not None:
            raise full_disk(code, Path(getattr(error, "filename", None) or self._staging.folder)) from error

    def create(self, name: str, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.memmap[Any, Any]:
        """Makes the array `name` and maps it for filling, dtype[shape] of zeros; it becomes read-only at `publish`."""
        mapped = create_array(self.path(f"{name}.npy"), shape, dtype)
        self._mapped.append(mapped)
        return mapped

    def create_direct(self, name: str, shape: int | tuple[int, ...], dtype: DTypeLike) -> DirectArray:
        """Makes the array `name` for writing past the page cache, every byte of it, before `publish`; else as `create`."""
        path = self.path(f"{name}.npy")
        self._direct[path] = DirectArray(path, shape, dtype)
        return self._direct[path]

    def append(self, name: str, dtype: DTypeLike) -> ArrayAppender:
        """Makes the array `name` of one dimension, whose length is known at the end of the context that this is."""
        path = self.path(f"{name}.npy")
        self._appended[path] = ArrayAppender(path, dtype)
        return self._appended[path]

    def save(self, name: str, array: ArrayLike) -> None:
        """Stores a whole array under `name`; rules as for `create`."""
        self._mapped.append(write_array(self.path(f"{name}.npy"), array))

    def path(self, name: str) -> Path:
        """Returns the path at which to write a content file of any other kind; files that exist at `publish` become content."""
        assert name not in OWN_FILES and not name.startswith((".", "/")) and ".." not in name, (
            f"{name!r} cannot name a file"
        )
        path = self._staging.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def scratch(self) -> Path:
        """Returns a new folder for working files. It is not content, and goes with the staging folder, kills included."""
        folder = self._staging.second_folder()
        folder.mkdir()
        return folder

    def note(self, **facts: Any) -> None:
        """Adds facts about this run (seconds, peaks) to run.json; they are recorded, not content."""
        self._notes |= facts

    def publish(
        self,
        config: Any,
        inputs: Mapping[str, Artifact],
        summary: Any,
        run: Mapping[str, Any],
        *,
        code_version: int = 1,
        raw: Mapping[str, str] | None = None,
        read: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> Artifact:
        """Makes the artifact durable and visible in one step.

        Args:
            config, inputs: Semantic config, and role -> artifact that it was built from.
            summary: a `Summary` or plain values; part of the content, so it holds no times and no hosts.
            run: times, host, Execution config; they are recorded, not content.
            code_version, raw: the other inputs of the version's hash.
            read: role -> aspect, of the inputs of which only an aspect was read.
            more: further fields of the manifest: the parts of a fan-out artifact, or the artifact that it is a part of.

        Returns:
            The published artifact, or the one that another writer published first (then `reused` is true).

        Raises:
            InputError: the disk is full, and nothing was published; or the object store cannot be used, and the home alone has it.
        """
        for mapped in self._mapped:
            mapped.flush()
            mapped.flags.writeable = False
        with reporting_full_disk(self._staging.folder):
            files, words = self._digest_files()
            manifest = {
                "format": FORMAT,
                "stage": self.stage,
                "code_version": code_version,
                "version": self.version,
                "config": canonical(config),
                "inputs": {role: _named(each, (read or {}).get(role)) for role, each in sorted(inputs.items())},
                "raw": dict(raw or {}),
                "files": files,
                "block_digests": words_digest(words),
                "summary": NO_SUMMARY | canonical(summary),
                **(more or {}),
            }
            complete_folder(self._staging.folder, manifest, words, dict(run) | self._notes)
            won = publish_folder(self._staging.folder, self.target, self._staging, replaces=self._replaces)
        made = replace(read_artifact(self.target, self._backend), reused=not won)
        return made.shared(replaces=self._replaces and won)

    def _digest_files(self) -> tuple[dict[str, dict[str, Any]], Array]:
        folder, files, words, first = self._staging.folder, {}, [np.zeros(0, "<u8")], 0
        for path in sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()):
            assert path.is_file() and not path.is_symlink(), f"{path} is not a plain file"
            direct = self._direct.get(path)
            blocks = direct.finish(self.threads) if direct else None
            sync_path(path)
            if blocks is None:
                appended = self._appended.get(path)
                blocks = appended.words if appended else None
                blocks = block_digests(path, self.threads) if blocks is None else blocks
                note_sound(path, blocks)
            facts = {"digest": words_digest(blocks), "first_block": first, "num_blocks": len(blocks)}
            files[path.relative_to(folder).as_posix()] = _described(path) | facts
            words.append(blocks)
            first += len(blocks)
        return files, np.concatenate(words)


def complete_folder(folder: Path, manifest: Mapping[str, Any], words: Array, run: Mapping[str, Any]) -> None:
    """Adds the store's own files to the content of an artifact; every file and entry is durable before the manifest exists.

    Args:
        folder: the folder with the content files, each of which is synced.
        words: u64[blocks], the block digests of all files.
    """
    write_durably(folder / WORDS, words.tobytes())
    write_durably(folder / RUN, seal(dict(run)))
    for inner in [path for path in folder.rglob("*") if path.is_dir()]:
        sync_path(inner)
    sync_path(folder)
    write_durably(folder / MANIFEST, seal(dict(manifest)))
    sync_path(folder)


def publish_folder(folder: Path, target: Path, staging: Staging, *, replaces: bool = False) -> bool:
    """Gives a finished artifact its place in one step; a damaged one that stands there is set aside.

    Args:
        folder: the artifact, on the file system of the store.
        staging: the writer's staging folder; an artifact that is set aside goes with it.
        replaces: whether to replace a sound artifact, too.

    Returns:
        Whether it was published; False if a sound artifact stands there already.
    """
    make_folder(target.parent)
    while not rename_folder(folder, target):
        if find_artifact(target) is not None and not replaces:
            return False
        if replaces and exchange_folders(folder, target):
            break  # the replaced artifact goes with the staging folder
        _set_aside(target, staging, replaces)
    sync_path(target.parent)
    return True


def _set_aside(target: Path, staging: Staging, replaces: bool) -> None:
    with locked(target.parent.parent / REPLACE_LOCK):
        # Again under the lock: another writer may have replaced a damaged artifact by a sound one meanwhile.
        if target.exists() and (replaces or find_artifact(target) is None):
            os.rename(target, staging.second_folder())


def _described(path: Path) -> dict[str, Any]:
    """Returns the manifest's static facts about a file: bytes, and for an array dtype and shape."""
    facts: dict[str, Any] = {"bytes": path.stat().st_size}
    if path.suffix == ".npy":
        shape, dtype, offset = read_header(path)
        assert offset == DATA_OFFSET, f"{path.name} is not padded: make it with Writer.create or Writer.save"
        facts |= {"dtype": dtype.name, "shape": list(shape)}
    return facts


def _named(artifact: Artifact, aspect: str | None) -> dict[str, str]:
    named = {"stage": artifact.stage, "version": artifact.version, "content": artifact.content}
    if aspect is not None and aspect in artifact.aspects:
        named |= {"aspect": aspect, "aspect_version": artifact.aspects[aspect]}
    return named


def rename_folder(source: Path, target: Path) -> bool:
    """Renames a folder unless the target is there already. Returns whether it did."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True
