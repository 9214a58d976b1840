"""A published artifact: a directory that is never changed again, and the manifest that describes it.

    <home>/store/<stage>/<version>/
        manifest.json       configuration and inputs, every file's size and digest, summary numbers; carries its own digest
        block_digests.bin   xxh3-64 of each 1 MiB of every file, little-endian, in the order of the manifest
        run.json            times, host, Execution config: how it was built; not content
        *.npy, ...          the content

The parts of a fan-out artifact (see assets/building/parts.py) are artifacts of their own in `<home>/store/<stage>.parts/`; its manifest
lists them, and it is sound when they are. An artifact that only the object store has (assets/storage/remote/) is known by its manifest, and
its folder is fetched when the first of its files is read. Opening checks the manifest and all sizes. `array` and `file` compare the whole
file with its digest before they hand it out, once per process (assets/storage/files/verified.py); `verify` reads all bytes of all files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.storage.files.arrays import DATA_OFFSET, open_array
from graphmill.assets.storage.files.digests import block_digests, words_digest
from graphmill.assets.storage.files.documents import (
    manifest_schema,
    read_document,
    read_if_sound,
    recipe_problem,
    run_schema,
)
from graphmill.assets.storage.files.verified import damaged_block, verify_again, verify_once
from graphmill.assets.storage.local.backend import NO_OBJECT_STORE, StoreBackend
from graphmill.assets.storage.names.manifest import (
    MANIFEST,
    OWN_FILES,
    RUN,
    WORDS,
    Described,
    address_of,
    file_sizes,
    repair_remedy,
)
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.refused import is_unread
from graphmill.kernels.errors import InputError, did_you_mean
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class Artifact(Described):
    """One version of one stage, open for reading.

    Attributes:
        path: directory of the artifact; it need not exist if the object store has the artifact (`here`).
        reused: whether it was already in the store, with all its parts, when `materialize` was called.
        backend: the object store behind the home, or none.
    """

    path: Path
    reused: bool = False
    backend: StoreBackend = field(default=NO_OBJECT_STORE, repr=False, compare=False)

    def __repr__(self) -> str:
        """Returns a line: the manifest of a graph has hundreds of numbers."""
        return f"Artifact({self.label}, {len(self.files)} files in {self.path})"

    @property
    def is_remote(self) -> bool:
        """Whether its files are not in the home, so that only the object store can have them."""
        return bool(self.backend.url) and not self.path.is_dir()

    def here(self) -> Path:
        """Returns the directory with the files, which are fetched first if only the object store has them.

        Raises:
            InputError: the object store does not have them any more, or has them damaged, or the disk is full.
        """
        self.backend.fetch(self.address)
        return self.path

    def array(self, name: str, *, verified: bool = True) -> Array:
        """Maps the array `name` read-only; its dtype and shape are checked against the manifest.

        Args:
            verified: whether to compare the whole file with its digest first, once per process; False for readers that compare their reads.

        Raises:
            InputError: the artifact has no array of that name, or its file is damaged.
        """
        entry = self._entry(f"{name}.npy")
        self.here()
        if verified:
            self._verify_once(f"{name}.npy")
        array = open_array(self.path / f"{name}.npy")
        if array.dtype.name != entry["dtype"] or list(array.shape) != entry["shape"]:
            stored = f"{entry['dtype']}{entry['shape']}"
            problem = f"{self.path / name}.npy is {array.dtype.name}{list(array.shape)}, the manifest says {stored}"
            raise InputError(problem, self.remedy)
        return array

    def small_array(self, name: str) -> Array:
        """Returns a copy of an array; of an artifact that only the object store has, without its other files."""
        if self.is_remote:
            return np.load(io.BytesIO(self.content_of(f"{name}.npy")))
        return np.array(self.array(name))

    def table(self, name: str) -> FeatureTable:
        """Describes the array `name`, of one or two dimensions, as a table of fixed-size rows with its block digests.

        Raises:
            InputError: the artifact has no array of that name, or it has another number of dimensions.
        """
        self.here()
        return replace(self.table_facts(name), block_digest=self._words(self._entry(f"{name}.npy")))

    def table_facts(self, name: str) -> FeatureTable:
        """Describes a table as `table` does, by the manifest alone: without digests, and without a look whether its file is there."""
        entry = self._entry(f"{name}.npy")
        if len(entry["shape"]) not in (1, 2):
            problem = f"{name} of {self.label} has shape {entry['shape']}, a table has rows and columns"
            raise InputError(problem, self.remedy)
        num_rows, width = (*entry["shape"], 1)[:2]
        return FeatureTable(
            path=self.path / f"{name}.npy",
            offset=DATA_OFFSET,
            num_rows=num_rows,
            width=width,
            dtype=entry["dtype"],
            row_bytes=width * np.dtype(entry["dtype"]).itemsize,
        )

    def file(self, name: str, *, verified: bool = True) -> Path:
        """Returns the path of a content file; raises InputError if the artifact has no such file, or it is damaged."""
        self._entry(name)
        self.here()
        if verified:
            self._verify_once(name)
        return self.path / name

    def content_of(self, name: str) -> bytes:
        """Returns the content of one small file, such as a figure; of an artifact that only the object store has without its others."""
        self._entry(name)
        content = self.backend.file(self.address, name) if self.is_remote else None
        return self.file(name).read_bytes() if content is None else content

    def require_unchanged(self) -> None:
        """Compares files that this process has read once more with their digests if they were changed since.

        Raises:
            InputError: a file is damaged now.
        """
        if self.is_remote:
            return  # it was not fetched, so nothing was read
        for name, entry in self.files.items():
            verify_again(self.path / name, self._words(entry), entry["bytes"])

    def run_record(self) -> dict[str, Any]:
        """Returns run.json: times, host, Execution config. Empty if it is damaged or was removed; it is not content."""
        return read_if_sound(self.path / RUN, run_schema) or dict(self.run)

    def neighbour(self, named: Mapping[str, str]) -> Artifact | None:
        """Returns another artifact of the home or of its object store, None if neither has it whole; its parts are not looked at.

        Args:
            named: an entry of a manifest with its stage and version.
        """
        path = self._beside(named)
        return find_artifact(path, self.backend) or find_stored(path, self.backend)

    def shared(self, *, replaces: bool = False) -> Artifact:
        """Makes it an artifact of the object store, if there is one, with all that it was built from.

        Args:
            replaces: whether to take the place of another one of this version.

        Returns:
            The artifact, or the one that another machine stored first, which the home has now.
        """
        if self.is_remote or not self.backend.share(self.manifest, replaces=replaces):
            return self
        return replace(read_artifact(self.path, self.backend), reused=True)

    def open_part(self, name: str) -> Artifact:
        """Opens a part after the shallow checks; one that only the object store has is known by its manifest.

        Raises:
            InputError: it is missing or damaged.
        """
        entry = self.parts[name]
        path = self._beside(entry)
        try:
            return read_artifact(path, self.backend)
        except (FileNotFoundError, ValueError) as error:
            found = find_stored(path, self.backend)
            if found is not None:
                return found
            what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
            remedy = "run the same command again: only this part will be rebuilt"
            raise InputError(f"part {name} of {self.label} ({path}) {what}", remedy) from error

    def part_problems(self) -> list[str]:
        """Returns the parts that cannot be opened, one text per problem."""
        problems, stored = [], None
        for name, entry in self.parts.items():
            if self.backend.url and not self._beside(entry).is_dir():
                # One listing answers for all parts.
                stored = self.backend.addresses(entry["stage"]) if stored is None else stored
                if (entry["stage"], entry["version"]) in stored:
                    continue
            try:
                self.open_part(name)
            except InputError as error:
                problems.append(error.problem)
        return problems

    def verify_shallow(self) -> list[str]:
        """Checks sizes and the digest list, without reading content. Returns one text per problem."""
        problems = []
        for name, num_bytes in file_sizes(self.manifest).items():
            path = self.path / name
            if not path.is_file():
                problems.append(f"{name} is missing")
            elif path.stat().st_size != num_bytes:
                problems.append(f"{name} has {path.stat().st_size} bytes instead of {num_bytes}")
        words_found = not any(problem.startswith(WORDS) for problem in problems)
        if words_found and words_digest(np.fromfile(self.path / WORDS, "<u8")) != self.manifest["block_digests"]:
            problems.append(f"{WORDS} does not match the manifest")
        return problems

    def verify(self, threads: int = 1) -> list[str]:
        """Reads every byte and compares it with the digests. Returns one text per problem, [] if it is sound.

        Raises:
            OSError: no byte that was read is wrong, and a file cannot be read now.
        """
        problems, unread = self.verify_shallow(), []
        try:
            read_document(self.path / RUN, run_schema)
        except ValueError as error:
            problems.append(str(error))
        except OSError as error:
            unread.append(error)
        problems += [problem] if (problem := recipe_problem(self.manifest)) else []
        known = OWN_FILES | self.files.keys()
        present = {str(path.relative_to(self.path)) for path in self.path.rglob("*") if not path.is_dir()}
        problems += [f"{name} is not in the manifest" for name in sorted(present - known)]
        if not any(problem.startswith(WORDS) for problem in problems):
            problems += self._damaged_blocks(threads, unread)
        if unread and not problems:
            raise unread[0]
        return problems

    @property
    def remedy(self) -> str:
        """The advice to a user whose artifact is damaged."""
        return repair_remedy(self.address)

    def _entry(self, file_name: str) -> Mapping[str, Any]:
        entry = self.files.get(file_name)
        if entry is None:
            hint = did_you_mean(file_name, self.files)
            raise InputError(f"{self.label} has no file {file_name}{hint}", f"it has {', '.join(sorted(self.files))}")
        return entry

    def _beside(self, named: Mapping[str, str]) -> Path:
        """Returns the folder of another artifact of the home, which a manifest names by stage and version."""
        return self.path.parent.parent / named["stage"] / named["version"]

    def _verify_once(self, name: str) -> None:
        verify_once(self.path / name, self._words(self.files[name]), self.files[name]["bytes"])

    def _words(self, entry: Mapping[str, Any]) -> Array:
        return np.fromfile(self.path / WORDS, "<u8", entry["num_blocks"], offset=8 * entry["first_block"])

    def _damaged_blocks(self, threads: int, unread: list[OSError]) -> Iterator[str]:
        for name, entry in self.files.items():
            path = self.path / name
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                continue  # already reported
            expected = self._words(entry)
            if words_digest(expected) != entry["digest"]:
                yield f"{name}: its digest in the manifest does not follow from {WORDS}"
            try:
                bad = np.flatnonzero(block_digests(path, threads) != expected)
            except OSError as error:
                if is_unread(error):
                    unread.append(error)
                else:
                    yield f"{name} cannot be read: {error.strerror}"
                continue
            if len(bad):
                more = f", and {len(bad) - 1} more blocks" if len(bad) > 1 else ""
                yield f"{name}: {damaged_block(int(bad[0]), entry['bytes'])}{more}"


def read_artifact(path: Path, backend: StoreBackend = NO_OBJECT_STORE) -> Artifact:
    """Opens the artifact in a directory `.../<stage>/<version>` after the shallow checks.

    Raises:
        FileNotFoundError: the directory does not exist.
        ValueError: it is damaged; the text says how.
        OSError: it cannot be read now.
    """
    while True:
        folder = identity(path)
        try:
            return _read_artifact(path, backend)
        except (FileNotFoundError, ValueError):
            # While one artifact is replaced by another, files of both may be seen: then another folder stands there now.
            if folder in (None, identity(path)):
                raise


def find_artifact(path: Path, backend: StoreBackend = NO_OBJECT_STORE) -> Artifact | None:
    """Opens an artifact as `read_artifact` does; returns None if it is absent or damaged. One that cannot be read now is an error."""
    try:
        return read_artifact(path, backend)
    except (FileNotFoundError, ValueError):
        return None


def find_stored(path: Path, backend: StoreBackend) -> Artifact | None:
    """Returns the artifact of the object store that a directory of the home lacks or has damaged; None if the object store lacks it.

    It is known by its manifest alone, and its files are fetched when they are first read; a damaged directory is replaced at once.

    Raises:
        InputError: the object store cannot be used, or has a damaged entry.
    """
    stored = backend.find(address_of(path))
    if stored is None:
        return None
    if path.is_dir():
        backend.fetch(stored.address, damaged=True)
        return find_artifact(path, backend)
    return stored_artifact(path, stored, backend)


def stored_artifact(path: Path, stored: Described, backend: StoreBackend) -> Artifact:
    """Returns the artifact of a directory whose files are fetched when they are first read."""
    return Artifact(path=path, manifest=stored.manifest, run=stored.run, backend=backend)


def identity(path: Path) -> tuple[int, int, int] | None:
    """Returns numbers that distinguish a folder from one that takes its place; None if it does not exist.

    A third folder may get the inode of the first, which was removed meanwhile; so the time of the last change counts, too.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _read_artifact(path: Path, backend: StoreBackend) -> Artifact:
    if not path.is_dir():
        raise FileNotFoundError(path)
    manifest = read_document(path / MANIFEST, manifest_schema)
    if (manifest["stage"], manifest["version"]) != address_of(path):
        raise ValueError(f"{MANIFEST} belongs to {manifest['stage']}/{manifest['version']}")
    artifact = Artifact(path=path, manifest=manifest, backend=backend)
    problems = artifact.verify_shallow()
    if problems:
        raise ValueError("; ".join(problems))
    return artifact
