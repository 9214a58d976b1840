"""Garbage collection: removes old artifacts, and nothing that a kept artifact or a running job refers to.

These stay: the newest versions of each train table, seed and split, and of each pipeline's data of a stage and split; artifacts that living
jobs lease (see `assets/storage/local/leases.py`); and all that these refer to through their manifests. The rest goes, with damaged folders
and with checkpoints of models that were published, which no run can need. A checkpoint without a model belongs to an unfinished run, which
may go on from it, so it stays. An artifact that several pipelines share counts for the one that it was built for.

The garbage is listed first and shown. Each removal checks again, because jobs start meanwhile:

- readers go before their inputs, so when a job takes a lease on the way, all that its artifact refers to is there;
- the lease file of the artifact is locked exclusively while it is renamed away, so no job can begin to read it;
- under that lock the store is looked at once more. An artifact published since the listing may refer to this one; it
  must have leased it to be built, and was published before the lease ended, so it is visible now.

A part of a fan-out artifact is covered by a lease on the whole, and goes only when no process holds that either. A whole of which only
parts were built counts as one more version of its stage, for the next build goes on from them.

A job that finds an artifact and leases it too late sees that it is entirely gone, and its error says how to rebuild it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmill.assets.storage.files.documents import manifest_schema, read_if_sound, run_schema
from graphmill.assets.storage.local.artifact import read_artifact
from graphmill.assets.storage.local.keep import Node, closure, judge
from graphmill.assets.storage.local.local_store import LocalStore
from graphmill.assets.storage.names.manifest import (
    CHECKPOINTED,
    CHECKPOINTS,
    MANIFEST,
    RUN,
    Address,
    address_of,
    references,
    whole_of,
)

VERSION_DIGITS = 64
SPLIT_BY = "graph"
"""Stage whose configuration names the split that is read if its source has several."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """An artifact, or a file or objects that belong to none, and why it goes or stays.

    Attributes:
        address: stage and version that it is or, for anything else, belongs to.
        about: the PIPELINE/STEP that it was built for, and its scores; "" if that is not known.
        checkpoint, written: a checkpoint's file in the home, and when it was written (nanoseconds since 1970); None for any other.
        keys: keys of objects in an object store that belong to no artifact.
    """

    address: Address
    num_bytes: int
    why: str
    about: str = ""
    checkpoint: Path | None = None
    written: int = 0
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """The items that a collection of a home or of an object store would remove, and those that stay.

    Attributes:
        left: what belongs to no artifact: checkpoints of models that were published, objects of uploads that were killed.
        artifacts: artifacts to remove, readers before their inputs.
        unfinished: checkpoints of the home that stay, since a run could go on from them.
        nodes: everything that was there when this was listed.
        damaged_leases: keys of leases in an object store that cannot be read: nothing goes as long as they count.
        damaged_entries: artifacts of an object store whose entries cannot be read; `graphmill repair` removes them.
    """

    left: tuple[Item, ...]
    artifacts: tuple[Item, ...]
    kept: tuple[Item, ...]
    nodes: tuple[Node, ...] = field(repr=False)
    unfinished: tuple[Item, ...] = ()
    damaged_leases: tuple[str, ...] = ()
    damaged_entries: tuple[Address, ...] = ()

    @property
    def going(self) -> tuple[Item, ...]:
        """Everything that goes, in the order of removal."""
        return (*self.left, *self.artifacts)

    @property
    def num_bytes(self) -> int:
        """Bytes that it would free."""
        return sum(item.num_bytes for item in self.going)


Report = Callable[[Item, str], None]
"""Gets each item with "removed" or "spared"."""


def find_garbage(store: LocalStore, keep: int) -> Garbage:
    """Returns the items that `collect` would remove; changes nothing but the files of dead leases.

    Args:
        keep: number of the newest versions that stay, 0 or more, of each train table, seed and split, and of a pipeline's data.

    Raises:
        InputError: `keep` is negative.
    """
    # Leases first: an artifact that a job publishes and lets go of after this line is in the store when it is listed.
    leased = store.leases.held()
    nodes, damage = [], {}
    for path in store.folders():
        with suppress(FileNotFoundError):
            node, problem = _look(path)
            nodes.append(node)
            damage |= {node.address: problem} if problem else {}
    verdict = judge(nodes, keep, leased)
    named = {node.address: node for node in verdict.nodes}
    checkpoints, unfinished = _checkpoints(store, leased, {node.address for node in nodes if node.sound})
    return Garbage(
        left=tuple(checkpoints),
        artifacts=tuple(
            _item(store, node, damage.get(node.address) or f"not among the newest {keep}") for node in verdict.going
        ),
        kept=tuple(
            _item(store, named[address], why + _hint(damage.get(address)))
            for address, why in sorted(verdict.reasons.items())
        ),
        unfinished=tuple(unfinished),
        nodes=verdict.nodes,
    )


def collect(store: LocalStore, garbage: Garbage, report: Report = lambda item, word: None) -> int:
    """Removes garbage as far as it still is garbage, and returns the freed bytes: items that came into use since are spared."""
    return _LocalRemoval(store, garbage).run(report)


class Removal:
    """Removes garbage item by item, and learns on the way which artifacts must be spared."""

    def __init__(self, garbage: Garbage):
        self.garbage, self.nodes = garbage, {node.address: node for node in garbage.nodes}
        self.spared: set[Address] = set()

    def run(self, report: Report) -> int:
        """Removes what still is garbage; returns the freed bytes."""
        freed_bytes = 0
        for item in self.garbage.going:
            removed = self.remove(item)
            freed_bytes += item.num_bytes if removed else 0
            report(item, "removed" if removed else "spared")
        return freed_bytes

    def remove(self, item: Item) -> bool:
        """Removes an item; returns False if it came into use since it was listed."""
        raise NotImplementedError

    def learn(self, node: Node) -> None:
        """Spares an artifact that was published since the listing, and all that it refers to."""
        self.nodes[node.address] = node
        self.spare(node.address)

    def spare(self, address: Address) -> None:
        """Spares an artifact and all that it refers to."""
        self.spared |= closure([address], {each.address: each.inputs for each in self.nodes.values()})


class _LocalRemoval(Removal):
    def __init__(self, store: LocalStore, garbage: Garbage):
        super().__init__(garbage)
        self.store = store

    def remove(self, item: Item) -> bool:
        if item.checkpoint is not None:
            return self._remove_checkpoint(item.checkpoint, item)

        def still_garbage() -> bool:
            self._look_again()
            return item.address not in self.spared

        removed = self.store.discard(*item.address, may=still_garbage, whole=self.nodes[item.address].part_of)
        if removed:
            del self.nodes[item.address]
        else:
            self.spare(item.address)
        return removed

    def _remove_checkpoint(self, path: Path, item: Item) -> bool:
        """Removes a checkpoint, unless a training that began and ended meanwhile has left another."""
        with self.store.leases.alone(item.address) as alone, suppress(FileNotFoundError):
            if alone and path.stat().st_mtime_ns == item.written:
                path.unlink()
                return True
        return False

    def _look_again(self) -> None:
        """Spares artifacts that were published or repaired since the listing."""
        for path in self.store.folders():
            known = self.nodes.get(address_of(path))
            if known is not None and known.sound:
                continue
            with suppress(FileNotFoundError):
                node, _ = _look(path)
                if node.sound:
                    self.learn(node)


def _look(path: Path) -> tuple[Node, str]:
    """Returns a folder's node and the problem with it ("" if it is sound); raises FileNotFoundError if it vanished."""
    problem, manifest = "", {}
    try:
        manifest = read_artifact(path).manifest
    except ValueError as error:
        problem = f"damaged: {error}"
        manifest = read_if_sound(path / MANIFEST, manifest_schema)  # a lost array does not hide the artifact's inputs
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    node = node_of(address_of(path), manifest, read_if_sound(path / RUN, run_schema), written)
    return replace(node, sound=not problem), problem


def node_of(address: Address, manifest: Mapping[str, Any], run: Mapping[str, Any], written: datetime) -> Node:
    """Returns the node of an artifact by its documents, empty if lost; `written`, its files' time, counts if the record has none."""
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
    numbers = (manifest.get("summary") or {}).get("numbers", {})
    for split in ("valid", "test"):
        for name, value in numbers.items():
            if name.startswith(f"{split}_") and isinstance(value, float):
                share = not name.endswith(("_error", "_mae", "_rmse"))
                yield f"{name.replace('_', ' ')} {f'{100 * value:.2f} %' if share else f'{value:.4g}'}"


def _checkpoints(store: LocalStore, leased: set[Address], sound: set[Address]) -> tuple[list[Item], list[Item]]:
    going, staying = [], []
    for path in sorted((store.home / CHECKPOINTS).glob("*.safetensors*")):
        address = (CHECKPOINTED, path.name.partition(".")[0])
        if len(address[1]) != VERSION_DIGITS or not path.is_file():
            continue  # not ours
        with suppress(FileNotFoundError):
            found = path.stat()
            goes, why = _judged(store, address, path, leased, sound)
            item = Item(address=address, checkpoint=path, num_bytes=found.st_size, why=why, written=found.st_mtime_ns)
            (going if goes else staying).append(item)
    return going, staying


def _judged(
    store: LocalStore, address: Address, path: Path, leased: set[Address], sound: set[Address]
) -> tuple[bool, str]:
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


def _trains_again(store: LocalStore, address: Address, checkpoint: Path) -> bool:
    """Returns whether a checkpoint is younger than the model of its version: a `--retrain` was to replace it, and was interrupted."""
    with suppress(FileNotFoundError):
        return checkpoint.stat().st_mtime > (store.root.joinpath(*address) / MANIFEST).stat().st_mtime
    return True


def _item(store: LocalStore, node: Node, why: str) -> Item:
    path = store.root.joinpath(*node.address)
    return Item(address=node.address, num_bytes=sum(_sizes(path)), why=why, about=node.about)


def _sizes(folder: Path) -> Iterator[int]:
    if folder.is_symlink():  # the link goes, and its target stays
        return
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield os.lstat(os.path.join(place, name)).st_size


def _hint(problem: str | None) -> str:
    return f"; {problem}; the next run that needs it rebuilds it" if problem else ""
