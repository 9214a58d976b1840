"""Finding artifacts that are damaged, or were built from other bytes than are there now, so that a run rebuilds exactly these.

Every step compares its inputs before it builds (assets/storage/files/verified.py) and notes the digest of each input's content. So an
artifact that was built from a damaged one before or after the damage is sound, and stays. Two kinds go in addition to damaged artifacts:

- artifacts built from other content than their input has now, under the same version;
- artifacts that an older version of graphmill built from a damaged one: it compared nothing, and noted nothing.

A damaged part of a fan-out artifact goes alone; the whole counts as absent then, and a run rebuilds the part.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphmill.assets.storage.files.documents import manifest_schema, read_if_sound
from graphmill.assets.storage.local.artifact import Artifact, identity, read_artifact
from graphmill.assets.storage.local.local_store import LocalStore
from graphmill.assets.storage.names.manifest import MANIFEST, Address, address_of, content_digest, label_of, whole_of
from graphmill.assets.storage.system.refused import unread


@dataclass(frozen=True, kw_only=True)
class Damage:
    """An artifact that cannot be trusted.

    Attributes:
        part_of: address of the whole if it is a part; None for any other.
        stood: `identity` of the folder, which differs from that of a folder that takes its place.
    """

    path: Path
    problems: Sequence[str]
    part_of: Address | None
    stood: tuple[int, int, int] | None

    @property
    def address(self) -> Address:
        """Stage and version."""
        return address_of(self.path)

    @property
    def label(self) -> str:
        """Stage and short version, for people."""
        return label_of(self.address)


def find_damage(
    store: LocalStore, folders: Sequence[Path] | None = None, not_read: dict[Path, str] | None = None
) -> list[Damage]:
    """Reads every byte of artifacts and returns those that cannot be trusted, inputs before the artifacts built from them.

    A file that cannot be read now does not count as damaged, since no wrong byte was seen in it.

    Args:
        folders: artifacts to read; None for all. Artifacts built from a damaged one are looked for in the whole store.
        not_read: takes the reason of each artifact that cannot be read now; None drops them.
    """
    found: dict[Address, Damage] = {}
    for path in store.folders() if folders is None else folders:
        stood = identity(path)  # before it is read: a folder that takes its place meanwhile is another one
        try:
            problems = _problems(path)
        except OSError as error:
            if not_read is not None:
                not_read[path] = unread(error)
            continue
        if problems:
            found[address_of(path)] = _damage(path, problems, stood)
    while more := [each for each in _built_wrongly(store, found) if each.address not in found]:
        found |= {each.address: each for each in more}
    return list(found.values())


def remove_damage(store: LocalStore, found: Damage) -> bool:
    """Removes an artifact in one step; returns False if a running job uses it or the whole that it is a part of, or if it was replaced."""
    return store.discard(*found.address, may=lambda: identity(found.path) == found.stood, whole=found.part_of)


def lineage_problems(store: LocalStore, artifact: Artifact) -> list[str]:
    """Returns the inputs of an artifact that have other content now, one text each."""
    problems = []
    for entry in artifact.inputs.values():
        now = store.find(entry["stage"], entry["version"]) if "content" in entry else None
        if now is not None and now.content != entry["content"]:
            problems.append(f"built from other bytes than {now.label} has now")
    return problems


def _problems(path: Path) -> list[str]:
    try:
        return read_artifact(path).verify(threads=2)
    except FileNotFoundError:
        return []
    except ValueError as error:
        return [str(error)]


def _built_wrongly(store: LocalStore, damaged: Mapping[Address, Damage]) -> Iterator[Damage]:
    for path in store.folders():
        stood, manifest = identity(path), read_if_sound(path / MANIFEST, manifest_schema)
        for entry in manifest.get("inputs", {}).values():
            address = entry["stage"], entry["version"]
            label = label_of(address)
            if "content" not in entry:
                if address in damaged:
                    yield _damage(path, [f"built from {label} without comparing it, and {label} is damaged"], stood)
                continue
            now = read_if_sound(store.root.joinpath(*address) / MANIFEST, manifest_schema)
            if now and content_digest(now) != entry["content"]:
                yield _damage(path, [f"built from other bytes than {label} has now"], stood)


def _damage(path: Path, problems: Sequence[str], stood: tuple[int, int, int] | None) -> Damage:
    part_of = whole_of(read_if_sound(path / MANIFEST, manifest_schema))
    return Damage(path=path, problems=problems, part_of=part_of, stood=stood)
