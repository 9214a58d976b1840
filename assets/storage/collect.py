"""Garbage collection: removes old artifacts, and nothing that a kept artifact or a running job refers to.

These stay: the newest versions of each train table, seed and split, and of each pipeline's data of a stage and split; artifacts that living
jobs lease (see `assets/storage/leases.py`); and all that these refer to through their manifests. The rest goes, with damaged folders and
with checkpoints of models that were published, which no run can need. A checkpoint without a model belongs to an unfinished run, which may
go on from it, so it stays. An artifact that several pipelines share counts for the one that it was built for.

The garbage is listed first and shown. Each removal checks again, because jobs start meanwhile:

- readers go before their inputs, so when a job takes a lease on the way, all that its artifact refers to is there;
- the lease file of the artifact is locked exclusively while it is renamed away, so no job can begin to read it;
- under that lock the store is looked at once more. An artifact published since the listing may refer to this one; it
  must have leased it to be built, and was published before the lease ended, so it is visible now.

A part of a fan-out artifact is covered by a lease on the whole, and goes only when no process holds that either. A whole of which only
parts were built counts as one more version of its stage, for the next build goes on from them.

A job that finds an artifact and leases it too late sees that it is entirely gone, and its error says how to rebuild it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmill.assets.storage.artifact import read_artifact
from graphmill.assets.storage.documents import manifest_schema, read_if_sound, run_schema
from graphmill.assets.storage.keep import Node, closure, readers_first, reasons_to_keep, splits_read
from graphmill.assets.storage.leases import Address
from graphmill.assets.storage.manifest import MANIFEST, RUN, references, whole_of
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError

CHECKPOINTS, CHECKPOINTED = "checkpoints", "model"
"""Folder of the home with `<version>.safetensors`, and the stage whose versions these are."""
VERSION_DIGITS = 64
SPLIT_BY = "graph"
"""Stage whose configuration names the split that is read if its source has several."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """An artifact or a checkpoint in the home, and why it goes or stays.

    Attributes:
        address: stage and version that it is or, for a checkpoint, belongs to.
        path: folder or file of the item.
        num_bytes: bytes of all its files.
        why: the reason, for people.
        about: the PIPELINE/STEP that it was built for, and its scores; "" if that is not known.
        written: time at which a checkpoint was written (nanoseconds since 1970).
    """

    address: Address
    path: Path
    num_bytes: int
    why: str
    about: str = ""
    written: int = 0


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """The items that a collection would remove, and those that stay.

    Attributes:
        files: checkpoints to remove.
        folders: artifacts to remove, readers before their inputs.
        kept: artifacts that stay.
        unfinished: checkpoints that stay, since a run could go on from them.
        nodes: everything that the store had when this was listed.
    """

    files: tuple[Item, ...]
    folders: tuple[Item, ...]
    kept: tuple[Item, ...]
    unfinished: tuple[Item, ...]
    nodes: tuple[Node, ...] = field(repr=False)

    @property
    def num_bytes(self) -> int:
        """Bytes that it would free."""
        return sum(item.num_bytes for item in (*self.files, *self.folders))


def find_garbage(store: Store, keep: int) -> Garbage:
    """Returns the items that `collect` would remove; changes nothing but the files of dead leases.

    Args:
        store: the store to look through.
        keep: number of the newest versions that stay, 0 or more: of each train table, seed and split, of each pipeline's data of a stage
            and split.

    Raises:
        InputError: `keep` is negative.
    """
    if keep < 0:
        raise InputError(f"keep = {keep} is negative", "give the number of versions to keep, 0 or more")
    # Leases first: an artifact that a job publishes and lets go of after this line is in the store when it is listed.
    leased = store.leases.held()
    nodes, damage = [], {}
    for path in store.folders():
        with suppress(FileNotFoundError):
            node, problem = _look(path)
            nodes.append(node)
            damage |= {node.address: problem} if problem else {}
    reasons = reasons_to_keep(nodes, keep, leased)
    splits = splits_read(nodes)
    nodes = [
        replace(node, about=f"{node.about}, split {splits[node.address]}")
        if node.about and node.address in splits
        else node
        for node in nodes
    ]
    named = {node.address: node for node in nodes}
    going = [node for node in readers_first(nodes) if node.address not in reasons]
    files, unfinished = _checkpoints(store, leased, {node.address for node in nodes if node.sound})
    return Garbage(
        files=tuple(files),
        folders=tuple(_item(store, node, damage.get(node.address) or f"not among the newest {keep}") for node in going),
        kept=tuple(
            _item(store, named[address], why + _hint(damage.get(address))) for address, why in sorted(reasons.items())
        ),
        unfinished=tuple(unfinished),
        nodes=tuple(nodes),
    )


def lineage(store: Store) -> dict[Address, tuple[Address, ...]]:
    """Returns address -> addresses that it refers to, of everything that a store has, damaged or not."""
    found = {}
    for path in store.folders():
        with suppress(FileNotFoundError):
            node, _ = _look(path)
            found[node.address] = node.inputs
    return found


def collect(store: Store, garbage: Garbage, report: Callable[[Item, str], None] = lambda item, word: None) -> int:
    """Removes garbage, as far as it still is garbage: items that came into use since they were listed are spared.

    Args:
        store: the store that the garbage was found in.
        garbage: files and folders to remove; nothing else is removed.
        report: function that gets each item with "removed" or "spared".

    Returns:
        Freed bytes.
    """
    freed_bytes = 0
    for item in garbage.files:
        with store.leases.alone(item.address) as alone:
            going = alone and _unchanged(item)
            if going:
                item.path.unlink(missing_ok=True)
        freed_bytes += item.num_bytes if going else 0
        report(item, "removed" if going else "spared")
    removal = _Removal(store, garbage)
    for item in garbage.folders:
        removed = removal.remove(item)
        freed_bytes += item.num_bytes if removed else 0
        report(item, "removed" if removed else "spared")
    return freed_bytes


def _unchanged(item: Item) -> bool:
    """Returns whether a file is the one that was listed: a training that began and ended meanwhile may have left another."""
    with suppress(FileNotFoundError):
        return item.path.stat().st_mtime_ns == item.written
    return False


class _Removal:
    """Removes artifacts one by one and learns on the way which must be spared."""

    def __init__(self, store: Store, garbage: Garbage):
        self.store, self.spared = store, set()
        self.nodes = {node.address: node for node in garbage.nodes}

    def remove(self, item: Item) -> bool:
        def still_garbage() -> bool:
            self._learn()
            return item.address not in self.spared

        removed = self.store.discard(*item.address, may=still_garbage, whole=self.nodes[item.address].part_of)
        if removed:
            del self.nodes[item.address]
        else:
            self._spare(item.address)
        return removed

    def _learn(self) -> None:
        """Spares artifacts that were published or repaired since the listing, and all that they refer to."""
        for path in self.store.folders():
            known = self.nodes.get((path.parent.name, path.name))
            if known is not None and known.sound:
                continue
            with suppress(FileNotFoundError):
                node, _ = _look(path)
                if node.sound:
                    self.nodes[node.address] = node
                    self._spare(node.address)

    def _spare(self, address: Address) -> None:
        self.spared |= closure([address], {each.address: each.inputs for each in self.nodes.values()})


def _look(path: Path) -> tuple[Node, str]:
    """Returns a folder's node and the problem with it ("" if it is sound).

    Raises:
        FileNotFoundError: it vanished.
    """
    problem, manifest = "", {}
    try:
        manifest = read_artifact(path).manifest
    except ValueError as error:
        problem = f"damaged: {error}"
        manifest = read_if_sound(path / MANIFEST, manifest_schema)  # a lost array does not hide the artifact's inputs
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    node = node_of((path.parent.name, path.name), manifest, read_if_sound(path / RUN, run_schema), written)
    return replace(node, sound=not problem), problem


def node_of(address: Address, manifest: Mapping[str, Any], run: Mapping[str, Any], written: datetime) -> Node:
    """Returns the node of an artifact.

    Args:
        address: stage and version.
        manifest, run: its documents, empty if they are lost.
        written: when its files were written, which counts if its record does not say when it was built.
    """
    config = manifest.get("config", {})
    group, split = asked_for(run, config), config.get("split") if address[0] == SPLIT_BY else None
    return Node(
        address=address,
        group=group,
        split="" if split is None else str(split),
        about=", ".join([group, *_scores(manifest)]) if group else "",
        built=_built(run, written),
        inputs=references(manifest),
        part_of=whole_of(manifest),
    )


def _built(run: Mapping[str, Any], written: datetime) -> str:
    """Returns when an artifact was built, in UTC: its own record, or when its files were written if that is lost."""
    try:
        started = datetime.fromisoformat(run["started"])
    except (ValueError, KeyError, TypeError):
        started = written
    return started.astimezone(UTC).isoformat(timespec="microseconds")


def asked_for(run: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Returns the group that an artifact is a version of: the PIPELINE/STEP that it was first built for, with the seed of a training."""
    asked = run.get("asked_by") or (run.get("execution") or {}).get("asked_by") or ""
    seed = f", seed {config['seed']}" if asked and "train" in config and "seed" in config else ""
    return f"{asked}{seed}"


def _scores(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yields the scores of a model, in percent."""
    numbers = (manifest.get("summary") or {}).get("numbers", {})
    for split in ("valid", "test"):
        for name, value in numbers.items():
            if name.startswith(f"{split}_") and isinstance(value, float):
                yield f"{name.replace('_', ' ')} {100 * value:.2f} %"


def _checkpoints(store: Store, leased: set[Address], sound: set[Address]) -> tuple[list[Item], list[Item]]:
    going, staying = [], []
    for path in sorted((store.home / CHECKPOINTS).glob("*.safetensors*")):
        address = (CHECKPOINTED, path.name.partition(".")[0])
        if len(address[1]) != VERSION_DIGITS or not path.is_file():
            continue  # not ours
        with suppress(FileNotFoundError):
            found = path.stat()
            goes, why = _judged(store, address, path, leased, sound)
            item = Item(address=address, path=path, num_bytes=found.st_size, why=why, written=found.st_mtime_ns)
            (going if goes else staying).append(item)
    return going, staying


def _judged(store: Store, address: Address, path: Path, leased: set[Address], sound: set[Address]) -> tuple[bool, str]:
    """Returns whether a checkpoint goes, and why or why not."""
    if address in leased:
        return False, "its training is running"
    if path.suffix == ".part":
        return True, "half written by a process that is gone"
    if address not in sound:
        return False, "unfinished run: --resume goes on from it"
    if _trains_again(store, address, path):
        return False, "unfinished run of --retrain: --resume goes on from it"
    return True, "its model is published"


def _trains_again(store: Store, address: Address, checkpoint: Path) -> bool:
    """Returns whether a checkpoint is younger than the model of its version: a `--retrain` was to replace it, and was interrupted."""
    with suppress(FileNotFoundError):
        return checkpoint.stat().st_mtime > (store.root.joinpath(*address) / MANIFEST).stat().st_mtime
    return True


def _item(store: Store, node: Node, why: str) -> Item:
    path = store.root.joinpath(*node.address)
    return Item(address=node.address, path=path, num_bytes=sum(_sizes(path)), why=why, about=node.about)


def _sizes(folder: Path) -> Iterator[int]:
    if folder.is_symlink():  # the link goes, and its target stays
        return
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield os.lstat(os.path.join(place, name)).st_size


def _hint(problem: str | None) -> str:
    return f"; {problem}; the next run that needs it rebuilds it" if problem else ""
