"""Fetching: the files of an artifact come from the object store into a staging folder, are compared with their digests as they arrive, and
are published in the home in one step.

Of several processes of one home that want an artifact at the same time one fetches it; the others wait. A file is read in spans of 8 MiB by
a few threads, so memory is bounded by theirs, whatever its size.

The home as a cache of bounded size: `$GRAPHMILL_CACHE_BYTES`, a size such as "200GiB".

Before an artifact is fetched, those go that were not read for the longest time, until it fits. Only such go that the object store has as
well, and that no process of this home leases; they are fetched again when they are read. The time of the last use is that of run.json,
which is not content. Artifacts that are built here are not held back by the bound; the next fetch counts them.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import xxhash

from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.assets.storage.files.digests import BLOCK_BYTES, words_digest
from graphmill.assets.storage.files.documents import manifest_schema, read_if_sound
from graphmill.assets.storage.files.verified import damaged_block, note_sound
from graphmill.assets.storage.local.artifact import find_artifact
from graphmill.assets.storage.local.leases import Leases
from graphmill.assets.storage.local.local_store import LocalStore
from graphmill.assets.storage.local.writer import Staging, complete_folder, publish_folder
from graphmill.assets.storage.names.manifest import (
    MANIFEST,
    RUN,
    WORDS,
    Address,
    address_of,
    file_sizes,
    label_of,
    whole_of,
)
from graphmill.assets.storage.remote.entries import IS_DAMAGED, StoredEntry, listed_entries, read_entry
from graphmill.assets.storage.remote.objects import Objects
from graphmill.assets.storage.system.filesystem import make_folder, reporting_full_disk
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

VARIABLE = environment.CACHE_BYTES


def cache_bytes() -> int | None:
    """Returns the bound of the home's artifacts in bytes, None if there is none; raises InputError if the variable is not a size."""
    text = environment.read(VARIABLE).strip()
    if not text:
        return None
    try:
        return parse_size(text)
    except (InputError, ValueError) as error:
        problem = f"{VARIABLE} = {text}: {getattr(error, 'problem', error)}"
        raise InputError(problem, 'give a size such as "200GiB", or unset it') from error


def note_use(path: Path) -> None:
    """Notes that the artifact in a folder is read now, if the cache has a bound."""
    if environment.read(VARIABLE):
        with suppress(OSError):
            os.utime(path / RUN)


def make_space(objects: Objects, root: Path, num_bytes: int, label: str) -> None:
    """Evicts artifacts until others fit within the bound; raises InputError if it does not fit when everything is gone that may go."""
    bound = cache_bytes()
    if bound is None:
        return
    store, there = LocalStore(root.parent), {}
    for path in store.folders():
        with suppress(OSError):
            there[path] = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    used, known = sum(there.values()), None
    for path in sorted(there, key=_last_use):
        if used + num_bytes <= bound:
            return
        known = listed_entries(objects) if known is None else known
        address, part_of = address_of(path), whole_of(read_if_sound(path / MANIFEST, manifest_schema))
        if address in known and store.discard(*address, whole=part_of):
            used -= there[path]
    if used + num_bytes > bound:
        problem = f"{label} ({format_bytes(num_bytes)}) does not fit into the cache of {format_bytes(bound)}"
        stay = f"the other {format_bytes(used)} are read by running jobs, or are only in {root}"
        raise InputError(f"{problem}: {stay}", f"raise {VARIABLE}, or unset it")


def _last_use(path: Path) -> float:
    with suppress(OSError):
        return (path / RUN).stat().st_mtime
    return 0.0


FETCHES = ".fetches"
"""Folder in the store's with the locks of the processes that fetch."""
POLL_SECONDS = 0.1
THREADS, SPAN_BLOCKS = 4, 8
"""Threads that fetch one file, and the blocks of one request."""


class Vanished(InputError):
    """An object of an upload is missing: the upload was replaced or collected meanwhile, or it is damaged. `what` names it."""

    what = ""


def _vanished(entry: StoredEntry, name: str) -> Vanished:
    what = f"the object {entry.key(name)} is missing"
    error = entry.damaged(what)
    found = Vanished(error.problem, error.remedy)
    found.what = what
    return found


def fetch_artifact(objects: Objects, root: Path, address: Address, *, replaces: bool = False) -> None:
    """Fetches an artifact without its parts into a home, unless the home has it.

    Args:
        replaces: whether to fetch it though the home has one, and to replace that.

    Raises:
        InputError: the object store does not have it or has it damaged, or the disk or the cache has no room for it.
    """
    with _fetching(root, address):
        if not replaces and find_artifact(root.joinpath(*address)) is not None:
            return  # another process was faster
        before = ""
        while True:
            entry = read_entry(objects, address)
            if entry is None:
                remedy = "run the same command again: what is missing will be built"
                raise InputError(f"{label_of(address)} is neither in {root} nor in {objects.url}", remedy)
            try:
                return _take(root, entry, replaces)
            except Vanished:
                if entry.upload == before:
                    raise
                before = entry.upload  # it may have been replaced between the two requests


def read_file(entry: StoredEntry, name: str) -> bytes:
    """Returns the content of one small file of an artifact, compared with its digest; raises InputError if the file is damaged."""
    facts = entry.manifest["files"][name]
    words = _read_words(entry)[facts["first_block"] :][: facts["num_blocks"]]
    data = _read_up_to(entry, name, facts["bytes"])
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
    if len(data) != facts["bytes"] or [xxhash.xxh3_64_intdigest(block) for block in blocks] != words.tolist():
        raise entry.damaged(f"{name} does not match its digest")
    return data


def _read_words(entry: StoredEntry) -> Array:
    """Returns u64[blocks], the block digests of all files of an artifact of the object store.

    Raises:
        InputError: they do not match the manifest, or the upload is gone.
    """
    num_bytes = file_sizes(entry.manifest)[WORDS]
    data = _read_up_to(entry, WORDS, num_bytes)
    if len(data) != num_bytes or words_digest(np.frombuffer(data, "<u8")) != entry.manifest["block_digests"]:
        raise entry.damaged(f"{WORDS} does not match the manifest")
    return np.frombuffer(data, "<u8")


def _read_up_to(entry: StoredEntry, name: str, num_bytes: int) -> bytes:
    """Returns the content of an object, of a longer one only one byte more than there should be: it may be of any size.

    Raises:
        Vanished: the upload is gone.
    """
    data = entry.objects.read_range(entry.key(name), 0, num_bytes + 1)
    if data is None:
        raise _vanished(entry, name)
    return data


def _wrong_sizes(entry: StoredEntry) -> dict[str, InputError]:
    """Returns name -> error of every object of an upload that is missing or has not as many bytes as its entry says, by one listing.

    An entry is compared with the objects before any memory or disk is taken for them.
    """
    there = {each.key: each.num_bytes for each in entry.objects.listed(entry.prefix)}
    wrong: dict[str, InputError] = {}
    for name, num_bytes in file_sizes(entry.manifest).items():
        found = there.get(entry.key(name))
        if found is None:
            wrong[name] = _vanished(entry, name)
        elif found != num_bytes:
            wrong[name] = entry.damaged(f"{name} has {found} bytes instead of {num_bytes}")
    return wrong


def stored_problems(objects: Objects, address: Address, *, every_byte: bool = True) -> list[str]:
    """Returns the damage of an artifact of the object store, one text each, by `every_byte` of its files or by entry and sizes alone."""
    while True:
        try:
            entry = read_entry(objects, address)
            problems = [] if entry is None else [_said(error) for error in _damage(entry, every_byte)]
            now = read_entry(objects, address) if problems else entry
        except InputError as error:
            return [_said(error)]
        if entry is None or now is None:
            return []  # removed meanwhile
        if now.upload == entry.upload:
            return problems


def _damage(entry: StoredEntry, every_byte: bool) -> Iterator[InputError]:
    """Yields an error for each damaged file of an upload."""
    wrong = _wrong_sizes(entry)
    yield from wrong.values()
    if WORDS in wrong or not every_byte:
        return
    try:
        words = _read_words(entry)
    except InputError as error:
        yield error
        return
    for name in entry.manifest["files"]:
        try:
            for start, end in () if name in wrong else _spans(entry, name):
                _fetch_span(entry, name, words, start, end)
        except InputError as error:
            yield error


def _said(error: InputError) -> str:
    """Returns damage in words; an error of the object store itself is raised."""
    if isinstance(error, Vanished):
        return error.what
    if IS_DAMAGED not in error.problem:
        raise error
    return error.problem


def _take(root: Path, entry: StoredEntry, replaces: bool) -> None:
    """Fetches all files of an entry and publishes them in the home."""
    for error in _wrong_sizes(entry).values():
        raise error
    target = root.joinpath(*entry.address)
    num_bytes = sum(file_sizes(entry.manifest).values())
    make_space(entry.objects, root, num_bytes, label_of(entry.address))
    words = _read_words(entry)
    with closing(Staging(root)) as staging, reporting_full_disk(target, num_bytes):
        staging.open()
        folder = staging.folder
        for name in entry.manifest["files"]:
            make_folder((folder / name).parent)
            _fetch_file(entry, name, words, folder / name)
        complete_folder(folder, entry.manifest, words, entry.run)
        publish_folder(folder, target, staging, replaces=replaces)


def _fetch_file(entry: StoredEntry, name: str, words: Array, path: Path) -> None:
    """Writes one file, whose spans arrive in any order."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:

        def fetch(span: tuple[int, int]) -> None:
            left, place = memoryview(_fetch_span(entry, name, words, *span)), span[0]
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


def _fetch_span(entry: StoredEntry, name: str, words: Array, start: int, end: int) -> bytes:
    """Returns bytes [start, end) of a file, compared with their digests; they are asked for once more if they differ."""
    first = entry.manifest["files"][name]["first_block"] + start // BLOCK_BYTES
    bad, data = 0, b""
    for _ in range(2):
        data = entry.objects.read_range(entry.key(name), start, end)
        if data is None:
            raise _vanished(entry, name)
        blocks = (data[at : at + BLOCK_BYTES] for at in range(0, end - start, BLOCK_BYTES))
        found = [xxhash.xxh3_64_intdigest(block) for block in blocks]
        wrong = np.flatnonzero(np.array(found, np.uint64) != words[first : first + len(found)])
        if len(data) == end - start and not len(wrong):
            return data
        bad = start // BLOCK_BYTES + (int(wrong[0]) if len(wrong) else len(found) - 1)
    raise entry.damaged(f"{name}: {damaged_block(bad, entry.manifest['files'][name]['bytes'])}")


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
