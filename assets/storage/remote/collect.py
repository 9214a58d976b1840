"""Garbage collection of the object store, by the rules of assets/storage/local/collect.py: what nothing refers to that is kept or alive.

The artifacts of all homes count, and the leases of all machines. An artifact is taken away in this order, which leaves no reader with half
of one:

- readers go before their inputs;
- no process holds a lease, else it is spared;
- its entry is removed, so no job finds it any more;
- the leases and the entries are looked at once more: a job that took its lease before that finds the artifact gone or still there; if a
  lease or a reader has come, the entry is written again, as it was, and the artifact is spared;
- its files are removed. Killed before this, a collection leaves objects that no entry names.

Such objects, also of killed uploads, go as well, if they are older than a lease may be and no process holds one on their artifact. The
parts of an upload that S3 keeps until it is complete are not seen here: a lifecycle rule of the bucket (AbortIncompleteMultipartUpload)
ends them.
"""

from collections.abc import Collection, Iterable
from datetime import timedelta

from graphmill.assets.storage.local.collect import Garbage, Item, Removal, Report, node_of
from graphmill.assets.storage.local.keep import Node, judge
from graphmill.assets.storage.local.local_store import LocalStore
from graphmill.assets.storage.names.manifest import Address
from graphmill.assets.storage.remote.checkpoints import stored_checkpoints
from graphmill.assets.storage.remote.entries import (
    CONTENT,
    CONTENT_PLACE,
    content_prefix,
    entry_key,
    listed_entries,
    read_entries,
    read_entry,
)
from graphmill.assets.storage.remote.leases import EXPIRY_SECONDS, HeldArtifacts, held_remotely
from graphmill.assets.storage.remote.objects import Objects, Stored, require_objects
from graphmill.assets.storage.remote.upload import remove_upload


def find_stored_garbage(store: LocalStore, keep: int) -> Garbage:
    """Returns the items that `collect_stored` would remove; changes nothing but leases that have expired.

    Args:
        store: the store of this home, whose leases count as well.

    Raises:
        InputError: `keep` is negative, or the object store cannot be used.
    """
    objects = require_objects()
    uploaded, now = objects.listed(CONTENT), objects.now()
    held = held_remotely(objects, now, store.leases.held())
    listed = listed_entries(objects)
    entries = {entry.address: entry for entry in read_entries(objects, listed)}
    damaged = listed.keys() - entries.keys()
    leased = {*listed, *held.addresses} if held.damaged else held.addresses
    nodes = [node_of(key, each.manifest, each.run, listed[key].written) for key, each in entries.items()]
    verdict = judge(nodes, keep, leased)
    old = [each for each in uploaded if now - each.written > timedelta(seconds=EXPIRY_SECONDS)]
    kept_uploads = {(key, entry.upload) for key, entry in entries.items()}
    unknown = leased | damaged  # whose entry is damaged: `repair` removes it
    left = [] if held.damaged else [*_leftovers(old, kept_uploads, unknown), *_checkpoints(objects, listed, leased)]

    def item(node: Node, why: str) -> Item:
        num_bytes = entries[node.address].num_bytes
        return Item(address=node.address, num_bytes=num_bytes, why=why, about=node.about)

    return Garbage(
        left=tuple(left),
        artifacts=tuple(item(node, f"not among the newest {keep}") for node in verdict.going),
        kept=tuple(item(n, verdict.reasons[n.address]) for n in verdict.nodes if n.address in verdict.reasons),
        nodes=verdict.nodes,
        damaged_leases=held.damaged,
        damaged_entries=tuple(sorted(damaged)),
    )


def collect_stored(store: LocalStore, garbage: Garbage, report: Report = lambda item, word: None) -> int:
    """Removes garbage of the object store, as far as it still is garbage; arguments and result are those of `collect`."""
    return _StoredRemoval(store, garbage).run(report)


def remove_stored(address: Address) -> None:
    """Removes an artifact from the object store, whatever reads it: one that is damaged, or its entry, serves no reader."""
    objects = require_objects()
    objects.remove([entry_key(address)])
    objects.remove(each.key for each in objects.listed(content_prefix(address)))


class _StoredRemoval(Removal):
    def __init__(self, store: LocalStore, garbage: Garbage):
        super().__init__(garbage)
        self.store, self.objects = store, require_objects()

    def _remove_objects(self, item: Item) -> bool:
        """Removes objects of no artifact; their upload may have been completed meanwhile only under a lease."""
        if self._held().covers([item.address]):
            return False
        entry = read_entry(self.objects, item.address)
        if entry is not None and any(f"/{entry.upload}/" in key for key in item.keys):
            return False
        self.objects.remove(item.keys)
        return True

    def remove(self, item: Item) -> bool:
        if item.keys:
            return self._remove_objects(item)
        covered, key = {item.address, self.nodes[item.address].part_of}, entry_key(item.address)
        entry = None if self._is_used(item.address, covered) else read_entry(self.objects, item.address)
        if entry is None:
            self.spare(item.address)
            return False
        self.objects.remove([key])
        self._look_again()
        if self._is_used(item.address, covered):
            self.objects.create(key, entry.to_bytes())
            self.spare(item.address)
            return False
        remove_upload(entry)
        del self.nodes[item.address]
        return True

    def _is_used(self, address: Address, covered: Collection[Address | None]) -> bool:
        return self._held().covers(covered) or address in self.spared

    def _held(self) -> HeldArtifacts:
        return held_remotely(self.objects, self.objects.now(), self.store.leases.held())

    def _look_again(self) -> None:
        """Spares artifacts that were published since the listing."""
        listed = listed_entries(self.objects)
        for entry in read_entries(self.objects, listed.keys() - self.nodes.keys()):
            self.learn(node_of(entry.address, entry.manifest, entry.run, listed[entry.address].written))


def _leftovers(
    old: Iterable[Stored], kept_uploads: set[tuple[Address, str]], unknown: Collection[Address]
) -> list[Item]:
    """Returns the objects of uploads that no entry names, one item per upload."""
    found: dict[tuple[Address, str], list[Stored]] = {}
    for each in old:
        match = CONTENT_PLACE.fullmatch(each.key)
        if match is None:
            continue  # not ours
        address, upload = (match[1], match[2]), match[3]
        if (address, upload) not in kept_uploads and address not in unknown:
            found.setdefault((address, upload), []).append(each)
    return [
        Item(
            address=address,
            num_bytes=sum(each.num_bytes for each in mine),
            why="left by an upload that was interrupted",
            keys=tuple(each.key for each in mine),
        )
        for (address, _), mine in found.items()
    ]


def _checkpoints(objects: Objects, listed: dict[Address, Stored], leased: Collection[Address]) -> list[Item]:
    """Returns the checkpoints of models that were published after them."""
    return [
        Item(address=address, num_bytes=each.num_bytes, why="checkpoint whose model is published", keys=(each.key,))
        for address, each in stored_checkpoints(objects).items()
        if address in listed and address not in leased and each.written <= listed[address].written
    ]
