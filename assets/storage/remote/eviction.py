"""The home as a cache of bounded size: `$GRAPHMILL_CACHE_BYTES`, a size such as "200GiB".

Before an artifact is fetched, those go that were not read for the longest time, until it fits. Only such go that the object store has as
well, and that no process of this home leases; they are fetched again when they are read. The time of the last use is that of run.json,
which is not content. Artifacts that are built here are not held back by the bound; the next fetch counts them.
"""

import os
from contextlib import suppress
from pathlib import Path

from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.assets.storage.files.documents import manifest_schema, read_if_sound
from graphmill.assets.storage.local.local_store import LocalStore
from graphmill.assets.storage.names.manifest import MANIFEST, RUN, address_of, whole_of
from graphmill.assets.storage.remote.entries import listed_entries
from graphmill.assets.storage.remote.objects import Objects
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError

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
