"""The sealed documents of a home, an object store and a bundle: what each kind has to say, and the one way in which each is read.

A document is a JSON file that carries its own digest, so that one flipped bit anywhere in it shows; numbers that are measured once are kept
so. A reader of a document did not write it: the document may come from another machine's disk, from an object store that a team writes to,
or from an older mistake. What does not fit its schema is damage of that document, as a flipped bit is. A record of another room, such as
the header of a checkpoint, has its schema beside its reader, made of the same checks (assets/storage/files/schema.py).
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from graphmill.assets.storage.files.arrays import DATA_OFFSET, KINDS
from graphmill.assets.storage.files.digests import BLOCK_BYTES
from graphmill.assets.storage.files.schema import (
    STAGE,
    VERSION,
    Check,
    Fields,
    address,
    boolean,
    digest,
    in_format,
    listed,
    mapped,
    maybe,
    moment,
    name,
    number,
    path_inside,
    plain,
    shown,
    stage,
    text,
    version,
    whole,
)
from graphmill.assets.storage.files.stage_numbers import NUMBERS, PublishedNumbers
from graphmill.assets.storage.names.manifest import FORMAT, OWN_FILES
from graphmill.assets.storage.names.version import canonical, part_version, spelled, version_of
from graphmill.assets.storage.system.filesystem import read_whole_file, replace_atomically, write_once
from graphmill.assets.storage.system.refused import is_unread
from graphmill.kernels.errors import InputError

DIGEST = "digest"


def seal(document: dict[str, Any]) -> bytes:
    """Returns the document as indented JSON with a `digest` field over all its other fields."""
    return _sealed(canonical(document))


def _sealed(document: dict[str, Any]) -> bytes:
    """Does what `seal` does with a document of plain JSON values."""
    content = {key: value for key, value in document.items() if key != DIGEST}
    content[DIGEST] = xxhash.xxh3_128_hexdigest(spelled(content))
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("ascii")


def unseal(path: Path) -> dict[str, Any]:
    """Reads a sealed document.

    Raises:
        ValueError: the file is missing or not a JSON object, or its bytes are not those that were sealed.
        OSError: it is there and cannot be read now.
    """
    return unseal_bytes(sealed_bytes(path), path.name)


def sealed_bytes(path: Path) -> bytes:
    """Returns the bytes of a file that should hold a sealed document; raises as `unseal`."""
    try:
        return read_whole_file(path)
    except OSError as error:
        if is_unread(error):
            raise
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error


def unseal_bytes(data: bytes, name: str) -> dict[str, Any]:
    """Returns the sealed document that a file's bytes are."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}") from error
    if not _is_intact(data):
        raise ValueError(f"{name} does not match its own digest")
    return document


@lru_cache(maxsize=64)  # a command reads the documents of a few artifacts again and again
def _is_intact(data: bytes) -> bool:
    """Returns whether bytes of JSON are those of a sealed document."""
    document = json.loads(data)
    # Comparing bytes, not only the digest, finds damage in white space and in the digest itself.
    try:
        return isinstance(document, dict) and _sealed(document) == data
    except (ValueError, RecursionError):  # damage can spell values that were never sealed, such as NaN
        return False


def kept_numbers(path: Path, kind: Fields, measure: Callable[[], Mapping[str, Any]], remedy: str) -> dict[str, Any]:
    """Returns name -> value from the file, which is made first if it does not exist; the first of several processes wins.

    Args:
        kind: the values that it holds. A file with these alone, without a seal, was written by hand, and is taken at its word.

    Raises:
        InputError: the file is damaged, or the disk is full.
    """
    data = write_once(path, lambda: seal(dict(measure())))
    try:
        values = json.loads(data)
        if not isinstance(values, dict) or not values.keys() <= kind.names:
            values = unseal_bytes(data, path.name)
        values = {name: value for name, value in values.items() if name != DIGEST}
        kind(values, "")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}", remedy) from error
    return values


def keep_numbers(path: Path, values: Mapping[str, Any]) -> None:
    """Replaces the values of a file."""
    replace_atomically(path, seal(dict(values)))


def read_document(path: Path, kind: Check) -> dict[str, Any]:
    """Reads a document.

    Raises:
        ValueError: the file is missing, its bytes are not those that were sealed, or it is not a document of this kind.
        OSError: it is there and cannot be read now.
    """
    return parse_document(sealed_bytes(path), path.name, kind)


def read_if_sound(path: Path, kind: Check) -> dict[str, Any]:
    """Reads a document as `read_document` does; returns an empty one if it is missing, damaged or cannot be read."""
    try:
        return read_document(path, kind)
    except (ValueError, OSError):
        return {}


def parse_document(data: bytes, called: str, kind: Check) -> dict[str, Any]:
    """Returns the document that bytes are."""
    document = unseal_bytes(data, called)
    if problem := _problem(data, called, kind):
        raise ValueError(f"{called} says nothing sound: {problem}")
    return document


@lru_cache(maxsize=64)  # as many as `unseal_bytes` remembers
def _problem(data: bytes, called: str, kind: Check) -> str:
    """Returns the problem of a sealed document, "" if it is one of its kind."""
    try:
        document = unseal_bytes(data, called)
        kind({each: value for each, value in document.items() if each != DIGEST}, "")
    except ValueError as error:
        return str(error)
    return ""


ENTRY_FORMAT, BUNDLE_FORMAT = 1, 1
PLACE = re.compile(rf"store/({STAGE})/({VERSION})/.+", re.DOTALL)
"""Paths of the files of artifacts in a bundle."""
SECONDS = number(0, 1e12)
COUNT = whole()
AT = Fields({"stage": stage, "version": version})


run_schema = Fields(
    optional={
        "started": moment,
        "seconds": SECONDS,
        "asked_by": name,
        "execution": Fields(optional={"asked_by": name}),
        "locations": mapped(text),
        "reads": mapped(AT),
        "work": Fields({"units": number(0), "seconds": SECONDS}, {"memory_bytes": maybe(COUNT)}),
        "node": name,
        "unread": listed(text),
        "host": Fields(optional={"name": name}),
        "threads": maybe(COUNT),
        "epoch_seconds": Fields(optional={"train": listed(SECONDS), "evaluate": listed(SECONDS)}),
        "peak_memory_bytes": maybe(COUNT),
        "ranks": listed(Fields(optional={"peak_memory_bytes": maybe(COUNT)})),
        "memory_need": maybe(Fields(optional={"bytes": COUNT, "least_bytes": COUNT, "terms": mapped(COUNT)})),
        "cache": maybe(mapped(maybe(COUNT))),
        "timeline": maybe(
            Fields(
                optional={
                    "epoch": COUNT,
                    "seconds": SECONDS,
                    "busy_seconds": mapped(mapped(SECONDS)),
                    "spans": listed(listed(plain, length=5)),
                }
            )
        ),
        "prediction": maybe(
            Fields(
                optional={
                    "memory_bytes": maybe(number(0)),
                    "epoch_seconds": maybe(SECONDS),
                    "bytes_per_epoch": mapped(number(0)),
                }
            )
        ),
        "executors": maybe(
            Fields(
                optional={
                    "batches": COUNT,
                    "sampled_by": mapped(COUNT),
                    "trained_by": mapped(COUNT),
                    "stage_seconds": mapped(SECONDS),
                }
            )
        ),
    }
)
"""How an artifact was built, run.json. None of it is content, so every field may be missing."""

ONE_FILE = Fields(
    {"bytes": COUNT, "digest": digest, "first_block": COUNT, "num_blocks": COUNT},
    {"dtype": name, "shape": listed(COUNT)},
)
CHECKED = Fields(
    {"name": name, "passed": boolean, "detail": text}, {"blocking": boolean, "numbers": mapped(maybe(number()))}
)
_MANIFEST = Fields(
    {
        "format": in_format(FORMAT),
        "stage": stage,
        "version": version,
        "code_version": COUNT,
        "config": mapped(plain),
        "inputs": mapped(Fields(AT.required, {"content": digest, "aspect": name, "aspect_version": version})),
        "raw": mapped(name),
        "files": mapped(ONE_FILE, path_inside),
        "block_digests": digest,
        "summary": Fields(
            {"numbers": mapped(plain), "checks": listed(CHECKED), "figures": mapped(path_inside)},
            {"derived": listed(path_inside), "unread": listed(text)},
        ),
    },
    {
        "aspects": mapped(version),
        "parts": listed(Fields({"name": name, "bytes": COUNT, **AT.required})),
        "part": Fields({"name": name, "stage": stage, "of": version}),
    },
)


def manifest_schema(value: Any, where: str) -> None:
    """Requires a manifest: each field, the files as a whole, and numbers of the right kind."""
    _MANIFEST(value, where)
    for problem in (*_wrong_files(value["files"]), *wrong_numbers(value)):
        raise ValueError(problem)


def recipe_problem(manifest: Mapping[str, Any]) -> str:
    """Returns the problem of a manifest of the right form whose recipe is not that of its version; "" if it is sound."""
    if _version(manifest) == manifest["version"]:
        return ""
    return "its version is not that of its config, inputs and raw content"


def wrong_numbers(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yields the problems of the numbers of a manifest whose other fields are sound."""
    numbers = NUMBERS.get(manifest["stage"], PublishedNumbers())
    yield from numbers.problems(manifest["summary"]["numbers"], manifest["files"])


def _wrong_files(files: Mapping[str, Any]) -> Iterator[str]:
    """Yields the problems of files whose fields are sound one by one."""
    names = sorted(files)
    yield from (f"files/{each} is a name of the store's own" for each in names if each.split("/")[0] in OWN_FILES)
    yield from (f"files/{low} is a file and a folder" for low, high in pairwise(names) if high.startswith(f"{low}/"))
    first = 0
    for each in sorted(files, key=lambda each: files[each]["first_block"]):
        facts = files[each]
        if facts["num_blocks"] != -(-facts["bytes"] // BLOCK_BYTES):
            yield f"files/{each} has {facts['bytes']} bytes and {facts['num_blocks']} digests"
        if facts["num_blocks"] and facts["first_block"] != first:
            yield f"files/{each} begins with digest {facts['first_block']}, not {first}"
        first += facts["num_blocks"]
        if each.endswith(".npy") or facts.keys() & {"dtype", "shape"}:
            yield from _wrong_array(f"files/{each}", facts)


def _wrong_array(where: str, facts: Mapping[str, Any]) -> Iterator[str]:
    try:
        kind = np.dtype(facts["dtype"])
        if kind.kind not in KINDS or facts["bytes"] != DATA_OFFSET + math.prod(facts["shape"]) * kind.itemsize:
            yield f"{where} has {facts['bytes']} bytes, which {shown(facts['dtype'])}{facts['shape']} does not take"
    except (TypeError, KeyError, ValueError):
        yield f"{where} is an array without a type or a shape"


def _version(manifest: Mapping[str, Any]) -> str:
    """Returns the version that follows from a manifest's recipe."""
    if "part" in manifest:
        return part_version(manifest["part"]["of"], manifest["part"]["name"])
    versions = {role: each.get("aspect_version", each["version"]) for role, each in manifest["inputs"].items()}
    return version_of(manifest["stage"], manifest["code_version"], manifest["config"], versions, manifest["raw"])


_ENTRY = Fields({"format": in_format(ENTRY_FORMAT), "upload": digest, "manifest": manifest_schema, "run": run_schema})


def entry_schema(value: Any, where: str) -> None:
    """Requires the entry of an artifact in an object store: manifest and record of the run, and the name of the upload of its files."""
    _ENTRY(value, where)
    if problem := recipe_problem(value["manifest"]):
        raise ValueError(problem)


lease_schema = Fields({"addresses": listed(address)})
"""The lease of a process in an object store: STAGE/VERSION of all that it holds."""
raw_schema = Fields({"raw": mapped(version)})
"""The record of raw files in an object store: name -> SHA-256."""

_BUNDLE = Fields(
    {
        "format": in_format(BUNDLE_FORMAT),
        "pipeline": name,
        "file": path_inside,
        "text": text,
        "table": name,
        "inputs": mapped(version, key=stage),
        "sizes": mapped(COUNT, key=path_inside),
    }
)


def bundle_schema(value: Any, where: str) -> None:
    """Requires the list of a bundle: its recipe, and name and size of every file of its artifacts."""
    _BUNDLE(value, where)
    if "/" in value["file"]:
        raise ValueError(f"file is {shown(value['file'])}, not the name of a file")
    for each in value["sizes"]:
        if not PLACE.fullmatch(each):
            raise ValueError(f"sizes lists {shown(each)}, which is no file of an artifact")
