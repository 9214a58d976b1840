"""Fetching: the files of an artifact come from the object store into a staging folder, are compared with their digests as they arrive, and
are published in the home in one step.

Of several processes of one home that want an artifact at the same time one fetches it; the others wait. A file is read in spans of 8 MiB by
a few threads, so memory is bounded by theirs, whatever its size.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import xxhash

from graphmill.assets.storage.artifact import Artifact, find_artifact
from graphmill.assets.storage.digests import BLOCK_BYTES, words_digest
from graphmill.assets.storage.filesystem import make_folder, reporting_full_disk, sync_path, write_durably
from graphmill.assets.storage.leases import Address, Leases
from graphmill.assets.storage.manifest import MANIFEST, RUN, WORDS
from graphmill.assets.storage.remote.entries import (
    IS_DAMAGED,
    REQUESTS,
    StoredEntry,
    content_prefix,
    damaged_remedy,
    listed_entries,
    read_entries,
    read_entry,
)
from graphmill.assets.storage.remote.eviction import make_space, note_use
from graphmill.assets.storage.remote.objects import Objects, open_objects, require_objects
from graphmill.assets.storage.sealed_json import seal
from graphmill.assets.storage.staging import Staging
from graphmill.assets.storage.verified import damaged_block, note_sound
from graphmill.assets.storage.version import short
from graphmill.assets.storage.writer import publish_folder
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

FETCHES = ".fetches"
"""Folder in the store's with the locks of the processes that fetch."""
POLL_SECONDS = 0.1
THREADS, SPAN_BLOCKS = 4, 8
"""Threads that fetch one file, and the blocks of one request."""


class Vanished(Exception):
    """An object of an upload is missing: the upload was replaced or collected meanwhile, or it is damaged."""


def find_remote(root: Path, address: Address) -> Artifact | None:
    """Returns an artifact of the object store by its manifest alone; its files are fetched when they are first read.

    Args:
        root: the store's folder of the home, into which they will be fetched.
        address: stage and version.

    Returns:
        The artifact; None if the object store does not have it, or there is none.
    """
    objects = open_objects()
    entry = None if objects is None else read_entry(objects, address)
    if entry is None:
        return None
    path = root.joinpath(*address)
    if path.is_dir():  # a damaged one stands there, which is replaced before anything reads it
        fetch_artifact(root, address)
        return find_artifact(path)
    return lazy_artifact(root, entry)


def lazy_artifact(root: Path, entry: StoredEntry) -> Artifact:
    """Returns the artifact of an entry, whose files are fetched when they are first read."""
    stage, version = entry.address
    return Artifact(stage=stage, version=version, path=root / stage / version, manifest=entry.manifest, run=entry.run)


def make_here(path: Path) -> None:
    """Fetches the artifact of a folder `store/STAGE/VERSION` if the home does not have it, and notes that it is read."""
    if not path.is_dir():
        fetch_artifact(path.parent.parent, (path.parent.name, path.name))
    note_use(path)


def stored_addresses(stage: str) -> set[Address]:
    """Returns the addresses of all artifacts of the object store, or of one stage unless that is ""."""
    return set(listed_entries(require_objects(), stage))


def stored_artifacts(root: Path, addresses: Collection[Address]) -> list[Artifact]:
    """Returns artifacts of the object store by their manifests; those that vanished or have damaged entries are left out."""
    return [lazy_artifact(root, entry) for entry in read_entries(require_objects(), addresses)]


def stored_file(address: Address, name: str) -> bytes | None:
    """Returns the content of one small file of an artifact, compared with its digest; None if the object store lacks the artifact.

    Raises:
        InputError: the file is damaged.
    """
    objects = require_objects()
    entry = read_entry(objects, address)
    if entry is None:
        return None
    try:
        return _read_file(objects, entry, name)
    except Vanished as error:
        raise _damaged(objects, entry, f"the object {error} is missing") from error


def fetch_artifact(root: Path, address: Address, *, replaces: bool = False) -> None:
    """Fetches an artifact without its parts into a home, unless the home has it.

    Args:
        root: the store's folder of the home.
        address: stage and version.
        replaces: whether to fetch it though the home has one, and to replace that.

    Raises:
        InputError: the object store does not have it or has it damaged, or the disk or the cache has no room for it.
    """
    objects, label = require_objects(), f"{address[0]}/{short(address[1])}"
    with _fetching(root, address):
        if not replaces and find_artifact(root.joinpath(*address)) is not None:
            return  # another process was faster
        before = ""
        while True:
            entry = read_entry(objects, address)
            if entry is None:
                remedy = "run the same command again: what is missing will be built"
                raise InputError(f"{label} is neither in {root} nor in {objects.url}", remedy)
            try:
                return _take(objects, root, entry, replaces)
            except Vanished as error:
                if entry.upload == before:
                    raise _damaged(objects, entry, f"the object {error} is missing") from error
                before = entry.upload  # it may have been replaced between the two requests


def _read_file(objects: Objects, entry: StoredEntry, name: str) -> bytes:
    facts = entry.manifest["files"][name]
    words = _read_words(objects, entry)[facts["first_block"] :][: facts["num_blocks"]]
    data = _read_up_to(objects, entry, name, facts["bytes"])
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
    if len(data) != facts["bytes"] or [xxhash.xxh3_64_intdigest(block) for block in blocks] != words.tolist():
        raise _damaged(objects, entry, f"{name} does not match its digest")
    return data


def _read_words(objects: Objects, entry: StoredEntry) -> Array:
    """Returns u64[blocks], the block digests of all files of an artifact of the object store.

    Raises:
        InputError: they do not match the manifest.
        Vanished: the upload is gone.
    """
    num_bytes = _file_sizes(entry)[WORDS]
    data = _read_up_to(objects, entry, WORDS, num_bytes)
    if len(data) != num_bytes or words_digest(np.frombuffer(data, "<u8")) != entry.manifest["block_digests"]:
        raise _damaged(objects, entry, f"{WORDS} does not match the manifest")
    return np.frombuffer(data, "<u8")


def _read_up_to(objects: Objects, entry: StoredEntry, name: str, num_bytes: int) -> bytes:
    """Returns the content of an object, of a longer one only one byte more than there should be: it may be of any size.

    Raises:
        Vanished: the upload is gone.
    """
    data = objects.read_range(entry.key(name), 0, num_bytes + 1)
    if data is None:
        raise Vanished(entry.key(name))
    return data


def _file_sizes(entry: StoredEntry) -> dict[str, int]:
    """Returns name -> bytes of every file of an upload."""
    files = entry.manifest["files"]
    return {name: facts["bytes"] for name, facts in files.items()} | {
        WORDS: 8 * sum(facts["num_blocks"] for facts in files.values())
    }


def _wrong_sizes(objects: Objects, entry: StoredEntry) -> dict[str, InputError | Vanished]:
    """Returns name -> error of every object of an upload that is missing or has not as many bytes as its entry says, by one listing.

    An entry is compared with the objects before any memory or disk is taken for them.
    """
    prefix = f"{content_prefix(entry.address)}/{entry.upload}"
    there = {each.key: each.num_bytes for each in objects.listed(prefix)}
    wrong: dict[str, InputError | Vanished] = {}
    for name, num_bytes in _file_sizes(entry).items():
        found = there.get(entry.key(name))
        if found is None:
            wrong[name] = Vanished(entry.key(name))
        elif found != num_bytes:
            wrong[name] = _damaged(objects, entry, f"{name} has {found} bytes instead of {num_bytes}")
    return wrong


def shallow_problems(addresses: Collection[Address]) -> dict[Address, list[str]]:
    """Returns address -> damage of artifacts of the object store, as far as entries and sizes tell; several are looked at at a time."""
    with ThreadPoolExecutor(REQUESTS) as pool:
        found = pool.map(lambda each: stored_problems(each, every_byte=False), addresses)
        return {address: problems for address, problems in zip(addresses, found, strict=True) if problems}


def stored_problems(address: Address, *, every_byte: bool = True) -> list[str]:
    """Returns the damage of an artifact of the object store, one text each; nothing of it is kept.

    Args:
        address: stage and version.
        every_byte: whether to read all of its files; else entry and sizes alone are compared.
    """
    objects = require_objects()
    while True:
        try:
            entry = read_entry(objects, address)
            problems = [] if entry is None else [_said(error) for error in _damage(objects, entry, every_byte)]
            now = read_entry(objects, address) if problems else entry
        except InputError as error:
            return [_said(error)]
        if entry is None or now is None:
            return []  # removed meanwhile
        if now.upload == entry.upload:
            return problems


def _damage(objects: Objects, entry: StoredEntry, every_byte: bool) -> Iterator[InputError | Vanished]:
    """Yields an error for each damaged file of an upload."""
    wrong = _wrong_sizes(objects, entry)
    yield from wrong.values()
    if WORDS in wrong or not every_byte:
        return
    try:
        words = _read_words(objects, entry)
    except (InputError, Vanished) as error:
        yield error
        return
    for name in entry.manifest["files"]:
        try:
            for start, end in () if name in wrong else _spans(entry, name):
                _fetch_span(objects, entry, name, words, start, end)
        except (InputError, Vanished) as error:
            yield error


def _said(error: InputError | Vanished) -> str:
    """Returns damage in words; an error of the object store itself is raised."""
    if isinstance(error, Vanished):
        return f"the object {error} is missing"
    if IS_DAMAGED not in error.problem:
        raise error
    return error.problem


def _take(objects: Objects, root: Path, entry: StoredEntry, replaces: bool) -> None:
    """Fetches all files of an entry and publishes them in the home."""
    for error in _wrong_sizes(objects, entry).values():
        raise error
    target = root.joinpath(*entry.address)
    num_bytes = sum(_file_sizes(entry).values())
    make_space(root, num_bytes, f"{entry.address[0]}/{short(entry.address[1])}")
    words = _read_words(objects, entry)
    with closing(Staging(root)) as staging, reporting_full_disk(target, num_bytes):
        staging.open()
        folder = staging.folder
        for name in entry.manifest["files"]:
            make_folder((folder / name).parent)
            _fetch_file(objects, entry, name, words, folder / name)
        write_durably(folder / WORDS, words.tobytes())
        write_durably(folder / RUN, seal(dict(entry.run)))
        for inner in (path for path in folder.rglob("*") if path.is_dir()):
            sync_path(inner)
        sync_path(folder)
        write_durably(folder / MANIFEST, seal(dict(entry.manifest)))
        sync_path(folder)
        publish_folder(folder, target, staging, replaces=replaces)


def _fetch_file(objects: Objects, entry: StoredEntry, name: str, words: Array, path: Path) -> None:
    """Writes one file, whose spans arrive in any order."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:

        def fetch(span: tuple[int, int]) -> None:
            left, place = memoryview(_fetch_span(objects, entry, name, words, *span)), span[0]
            while len(left):
                written = os.pwrite(descriptor, left, place)
                left, place = left[written:], place + written

        spans = list(_spans(entry, name))
        if len(spans) == 1:
            fetch(spans[0])
        else:
            with ThreadPoolExecutor(THREADS) as pool:
                for _ in pool.map(fetch, spans):
                    pass
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    facts = entry.manifest["files"][name]
    note_sound(path, words[facts["first_block"] :][: facts["num_blocks"]])


def _spans(entry: StoredEntry, name: str) -> Iterator[tuple[int, int]]:
    """Yields first and last byte (exclusive) of each request for a file; none for an empty one."""
    size, step = entry.manifest["files"][name]["bytes"], SPAN_BLOCKS * BLOCK_BYTES
    yield from ((start, min(start + step, size)) for start in range(0, size, step))


def _fetch_span(objects: Objects, entry: StoredEntry, name: str, words: Array, start: int, end: int) -> bytes:
    """Returns bytes [start, end) of a file, compared with their digests; they are asked for once more if they differ."""
    first = entry.manifest["files"][name]["first_block"] + start // BLOCK_BYTES
    bad, data = 0, b""
    for _ in range(2):
        data = objects.read_range(entry.key(name), start, end)
        if data is None:
            raise Vanished(entry.key(name))
        blocks = (data[at : at + BLOCK_BYTES] for at in range(0, end - start, BLOCK_BYTES))
        found = [xxhash.xxh3_64_intdigest(block) for block in blocks]
        wrong = np.flatnonzero(np.array(found, np.uint64) != words[first : first + len(found)])
        if len(data) == end - start and not len(wrong):
            return data
        bad = start // BLOCK_BYTES + (int(wrong[0]) if len(wrong) else len(found) - 1)
    raise _damaged(objects, entry, f"{name}: {damaged_block(bad, entry.manifest['files'][name]['bytes'])}")


def _damaged(objects: Objects, entry: StoredEntry, problem: str) -> InputError:
    label = f"{entry.address[0]}/{short(entry.address[1])}"
    return InputError(f"{label} in {objects.url} {IS_DAMAGED}: {problem}", damaged_remedy(entry.address))


@contextmanager
def _fetching(root: Path, address: Address) -> Iterator[None]:
    """Holds the right to fetch an artifact into a home while the block runs; waits for another process that does."""
    claims = Leases(root, FETCHES)
    while True:
        with claims.alone(address) as alone:
            if alone:
                yield
                return
        time.sleep(POLL_SECONDS)
