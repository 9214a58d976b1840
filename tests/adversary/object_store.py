"""An object store as grounds of attacks: one object of it is damaged or forged, and another machine uses it.

What is damaged has to be named by `verify`, and removed by `repair`; everything else has to be read as before, and nothing may be written
outside of the home. The store is a folder, `file://`, so that its objects are files that can be damaged.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from graphmill.assets.storage.files.documents import seal
from graphmill.assets.storage.names.home import STORE_VARIABLE
from graphmill.assets.storage.names.manifest import Address, content_digest
from graphmill.assets.storage.remote.checkpoints import checkpoint_key
from graphmill.assets.storage.remote.entries import CONTENT_PLACE, PLACE, listed_entries, read_entries
from graphmill.assets.storage.remote.objects import require_objects
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.store.repair import repair_stored
from graphmill.kernels.errors import InputError
from graphmill.trainers.record.checkpoint_head import take_newer, waiting_run
from tests.adversary.attack import REFUSED, SOUND, WrongError, require_message
from tests.adversary.forged import forge
from tests.adversary.house import heard, said

OBJECTS = "objects"
Damage = Callable[[Path, random.Random], None]


@contextmanager
def shared_in(folder: Path) -> Iterator[None]:
    """Sets the object store in a folder for this process while the block runs."""
    before = os.environ.get(STORE_VARIABLE)
    os.environ[STORE_VARIABLE] = f"file://{folder / OBJECTS}"
    try:
        yield
    finally:
        os.environ.pop(STORE_VARIABLE) if before is None else os.environ.update({STORE_VARIABLE: before})


def fill(folder: Path, home: Path) -> None:
    """Makes an object store in a folder of all that a home has: artifacts, checkpoints, and the lease of a process that is alive."""
    with shared_in(folder):
        store, objects = Store(home), require_objects()
        for artifact in store.artifacts():
            artifact.shared()
        for path in sorted((home / "checkpoints").glob("*.safetensors")):
            objects.send(checkpoint_key(path), path)
        held = [f"{each.stage}/{each.version}" for each in store.artifacts()[:1]]
        objects.write(f"leases/{'0' * 32}.json", seal({"addresses": held}))


def attack_objects(grounds: Path, folder: Path, draw: random.Random, damage: Damage) -> str:
    """Damages an object, and uses the store from a home that has nothing.

    Args:
        grounds: folder with a filled object store, sound.
        folder: an empty folder.
        draw, damage: what draws the object, and damages its file.

    Returns:
        `REFUSED` if a command was refused.

    Raises:
        WrongError: damage was not found or not mended, something else was lost, or something was written outside.
    """
    path = _moved_in(grounds, folder, draw)
    if path.stat().st_size:
        damage(path, draw)
    else:
        path.write_bytes(draw.randbytes(9))
    return _used(grounds, folder, path, draw, always=True)


def attack_documents(grounds: Path, folder: Path, draw: random.Random) -> str:
    """Forges a sealed document of an object store; arguments, result and errors are those of `attack_objects`.

    What is nonsense to one reader is a value like others to the next, so not every forgery has to be found.
    """
    path = _moved_in(grounds, folder, draw, ending=".json")
    return _used(grounds, folder, path, draw, always=False) if forge(path, draw, folder) else SOUND


def _moved_in(grounds: Path, folder: Path, draw: random.Random, ending: str = "") -> Path:
    """Copies the store of the grounds and returns one of its objects, of a kind that is drawn first."""
    shutil.copytree(grounds / OBJECTS, folder / OBJECTS)
    (folder / "home").mkdir()
    (folder / "out").mkdir()
    files = [each for each in sorted((folder / OBJECTS).rglob("*")) if each.is_file() and each.name.endswith(ending)]
    kinds = sorted({each.relative_to(folder / OBJECTS).parts[0] for each in files})
    kind = draw.choice(kinds)
    return draw.choice([each for each in files if each.relative_to(folder / OBJECTS).parts[0] == kind])


def _used(grounds: Path, folder: Path, path: Path, draw: random.Random, *, always: bool) -> str:
    """Uses a store with one damaged object; `always`: whether the damage has to be found."""
    before, key = sorted(os.listdir(folder)), path.relative_to(folder / OBJECTS).as_posix()
    match = PLACE.fullmatch(key) or CONTENT_PLACE.fullmatch(key)
    damaged, sound = (match[1], match[2]) if match else None, _contents(grounds)
    others = [address for address in sorted(sound) if address != damaged]
    with shared_in(folder):
        store = Store(folder / "home")
        ways = [*_looked_over(grounds, folder, damaged), _resumed(grounds, folder)]
        for address in [*draw.sample(others, min(3, len(others))), *([damaged] if damaged else [])]:
            problems = store.backend.problems([address])
            if problems and address != damaged:
                raise WrongError(f"damage of {key} makes {'/'.join(address)} damaged: {problems}")
            if address == damaged and path.exists() and always and not problems:
                raise WrongError(f"verify does not find the damage of {key}")
            ways.append(_fetched(folder / "home", address, sound[address], damaged))
        if damaged is not None:
            _mended(store, damaged, key)
    if sorted(os.listdir(folder)) != before or os.listdir(folder / "out"):
        raise WrongError(f"{key}: something was written outside of the home")
    return REFUSED if REFUSED in ways else SOUND


@functools.cache
def _contents(grounds: Path) -> dict[Address, str]:
    """Returns address -> digest of the content of every artifact of a sound store."""
    with shared_in(grounds):
        entries = read_entries(require_objects(), listed_entries(require_objects()))
        return {entry.address: content_digest(entry.manifest) for entry in entries}


def _looked_over(grounds: Path, folder: Path, damaged: Address | None) -> Iterator[str]:
    """Carries out the commands that look at a store; each ends well, or by a message."""
    about = [] if damaged is None else ["/".join((damaged[0], damaged[1][:12]))]
    whole = [("ls",), ("gc", "--keep", "0", "--dry-run"), ("verify",), ("sql", "SELECT count(*) FROM artifacts")]
    if (grounds / "house.toml").exists():
        whole += [("status", "RECIPE"), ("leaderboard", "RECIPE"), ("show", "RECIPE/trained")]
    for words in (*whole, *((command, each) for each in about for command in ("show", "verify"))):
        yield _way(lambda words=words: said(grounds, folder, *words))


def _way(work: Callable[[], object]) -> str:
    try:
        work()
    except InputError as error:
        require_message(error)
        return REFUSED
    return SOUND


def _resumed(grounds: Path, folder: Path) -> str:
    """Asks for the checkpoint of another machine: one that is damaged replaces nothing, and is never taken for none."""
    kept = sorted((grounds / OBJECTS / "checkpoints").glob("*.safetensors"))
    ways = []
    for original in kept:
        path, version = folder / "home" / "checkpoints" / original.name, original.stem
        waiting_run(path, version)
        ways.append(_way(lambda path=path, version=version: take_newer(path, version)))
        stands = (folder / OBJECTS / "checkpoints" / original.name).exists()
        if ways[-1] == SOUND and stands and (not path.exists() or path.read_bytes() != original.read_bytes()):
            raise WrongError(f"the damaged checkpoint {path.name} was taken for sound, or for none")
    return REFUSED if REFUSED in ways else SOUND


def _fetched(home: Path, address: Address, content: str, damaged: Address | None) -> str:
    """Fetches an artifact into the home, and compares it with the sound one; only the damaged one, and the whole of it, may be refused."""

    def fetch() -> None:
        found = Store(home).find(*address)
        if found is not None:
            found.here()
            if found.content != content and address != damaged:
                raise WrongError(f"{found.label} has another content")
        elif address != damaged and damaged != (f"{address[0]}.parts", damaged and damaged[1]):
            raise WrongError(f"{'/'.join(address)} is not found any more")

    way = _way(fetch)
    if way == REFUSED and address != damaged:
        raise WrongError(f"{'/'.join(address)}, which is sound, is refused")
    return way


def _mended(store: Store, damaged: Address, key: str) -> None:
    """Repairs the object store, and looks again."""
    heard(lambda: repair_stored(store, ("/".join(damaged),), yes=True))
    if problems := store.backend.problems([damaged]):
        raise WrongError(f"repair leaves the damage of {key}: {problems}")
