"""Bundles: a folder with all artifacts that one training needs, to be carried to another machine.

    OUT/store/STAGE/VERSION/...      the artifacts, byte for byte as in a home
    OUT/bundle.json                  recipe, table, versions, and name and size of every file; sealed, and written last

Data are prepared where processors and disks are cheap, and models trained where a GPU is (DiskGNN, sections 3 and 4, splits its work
there: offline sampling and packing on the one side, training on the other). A bundle is a plain folder, so any program copies it, and
copying again copies only the missing files.

A bundle holds the artifacts that the garbage collector would keep for the training: those that it reads and all that these were built from,
with their parts, as far as the home still has them. So `verify`, `show` and `gc` work on the other machine as they do here.

A bundle is written whole or not at all: its list comes last. The reader compares names and sizes of all files with the list, then every
byte with the digests, and only then publishes an artifact. A copy that was cut short fails the first comparison.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from graphmill.assets.storage.files.documents import (
    BUNDLE_FORMAT,
    bundle_schema,
    manifest_schema,
    read_document,
    read_if_sound,
    seal,
)
from graphmill.assets.storage.local.artifact import Artifact, read_artifact
from graphmill.assets.storage.local.keep import closure
from graphmill.assets.storage.local.local_store import LocalStore
from graphmill.assets.storage.local.writer import Staging, publish_folder
from graphmill.assets.storage.names.manifest import MANIFEST, Address, address_of, label_of, references, repair_remedy
from graphmill.assets.storage.system.filesystem import make_folder, reporting_full_disk, sync_path, write_durably
from graphmill.kernels.errors import InputError

LIST = "bundle.json"
COPIED_AGAIN = "copy the bundle again, or make it again: graphmill bundle PIPELINE NAME OUT"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The list of a bundle.

    Attributes:
        file, text: name and content of the pipeline file.
        inputs: stage -> version of every artifact that the training reads.
        sizes: path below the folder -> bytes, of every file of the artifacts.
    """

    folder: Path
    pipeline: str
    file: str
    text: str
    table: str
    inputs: Mapping[str, str]
    sizes: Mapping[str, int]

    @property
    def num_bytes(self) -> int:
        """Bytes of all artifacts."""
        return sum(self.sizes.values())

    def addresses(self) -> list[Address]:
        """Returns the addresses of the artifacts, by stage and version."""
        return sorted({(stage, version) for _, stage, version, *_ in (name.split("/") for name in self.sizes)})


def write_bundle(
    store: LocalStore,
    out: Path,
    inputs: Mapping[str, Artifact],
    recipe: Mapping[str, str],
    report: Callable[[str], None] = lambda line: None,
) -> Bundle:
    """Copies the artifacts that a training needs into a folder, compares every byte, and writes the list.

    Args:
        out: the folder; an interrupted bundle in it is continued.
        inputs: stage -> artifact that the training reads.
        recipe: pipeline, file, text and table, as in `Bundle`.

    Raises:
        InputError: the folder holds something else, an artifact is damaged, or the disk is full.
    """
    _require_room_for_bundle(out)
    (out / LIST).unlink(missing_ok=True)
    sizes: dict[str, int] = {}
    # The lineage is looked up while its first artifacts are leased: a collector spares everything that these refer to.
    read = [each.address for each in inputs.values()]
    with store.lease(*read):
        known = _lineage(store, read)
        for address in sorted(closure(read, known) & known.keys()):
            source, target = store.root.joinpath(*address), out / "store" / address[0] / address[1]
            store.backend.fetch(address)
            with reporting_full_disk(target):
                _copy(source, target)
            if problems := _problems(target):
                # An interrupted copy, or one damaged since: only a new copy shows whether the source is damaged.
                shutil.rmtree(target)
                with reporting_full_disk(target):
                    _copy(source, target)
                problems = _problems(target)
            if problems:
                raise InputError(f"{'/'.join(address)} is damaged: {problems[0]}", repair_remedy(address))
            sizes |= {str(path.relative_to(out)): path.stat().st_size for path in _files(target)}
            report(label_of(address))
    named = {stage: artifact.version for stage, artifact in inputs.items()}
    with reporting_full_disk(out):
        write_durably(out / LIST, seal({"format": BUNDLE_FORMAT, **recipe, "inputs": named, "sizes": sizes}))
        sync_path(out)
    return open_bundle(out)


def _lineage(store: LocalStore, read: Sequence[Address]) -> dict[Address, tuple[Address, ...]]:
    """Returns address -> addresses that it refers to, of everything in the home and of what `read` was built from in the object store."""
    known = {address_of(path): references(read_if_sound(path / MANIFEST, manifest_schema)) for path in store.folders()}
    absent: set[Address] = set()
    while waiting := closure(read, known) - known.keys() - absent:
        for address in waiting:
            found = store.backend.find(address)
            if found is None:
                absent.add(address)
            else:
                known[address] = references(found.manifest)
    return known


def open_bundle(folder: Path) -> Bundle:
    """Reads the list of a bundle and compares it with the files that are there.

    Raises:
        InputError: it is not a bundle, it lists files outside of artifacts, or files are missing or have other sizes.
    """
    try:
        found = read_document(folder / LIST, bundle_schema)
    except ValueError as error:
        raise InputError(f"{folder} is no whole bundle: {error}", COPIED_AGAIN) from error
    bundle = Bundle(folder=folder, **{each.name: found[each.name] for each in fields(Bundle) if each.name != "folder"})
    wrong = list(_wrong_sizes(bundle))
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(f"the bundle {folder} was cut short: {'; '.join(wrong[:3])}{more}", COPIED_AGAIN)
    return bundle


def take_from(bundle: Bundle, store: LocalStore, report: Callable[[str], None] = lambda line: None) -> None:
    """Puts those artifacts of a bundle into a store that it lacks. Every byte of one is compared before it is published.

    Raises:
        InputError: an artifact is damaged, or the disk is full.
    """
    waiting = {address for address in bundle.addresses() if store.find(*address) is None}
    # Inputs come before the artifacts built from them: an interrupted run leaves no gap in a lineage.
    order = TopologicalSorter({each: waiting & _references(bundle.folder.joinpath("store", *each)) for each in waiting})
    try:
        order.prepare()
    except CycleError as error:
        names = " from ".join(map(label_of, error.args[1]))
        problem = f"the bundle {bundle.folder} lists artifacts that were built from themselves: {names}"
        raise InputError(problem, COPIED_AGAIN) from error
    while order.is_active():
        for address in sorted(order.get_ready()):
            _publish(bundle.folder.joinpath("store", *address), store, address)
            report(f"{label_of(address)} taken from {bundle.folder}")
            order.done(address)


def _publish(source: Path, store: LocalStore, address: Address) -> None:
    target = store.root.joinpath(*address)
    with closing(Staging(store.root)) as staging, reporting_full_disk(target), store.lease(address):
        staging.open()
        copy = staging.folder.joinpath(*address)  # an artifact is named by its folders
        _copy(source, copy)
        problems = _problems(copy)
        if problems:
            raise InputError(f"{source} is damaged: {problems[0]}", COPIED_AGAIN)
        publish_folder(copy, target, staging)  # another process may have published it first


def _references(path: Path) -> set[Address]:
    """Returns the addresses that an artifact of a bundle refers to."""
    try:
        return set(references(read_document(path / MANIFEST, manifest_schema)))
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}", COPIED_AGAIN) from error


def _copy(source: Path, target: Path) -> None:
    """Copies a folder of an artifact; files that already have the right size are left, and compared afterwards like all others."""
    for path in _files(source):
        copy = target / path.relative_to(source)
        make_folder(copy.parent)
        if not copy.is_file() or copy.stat().st_size != path.stat().st_size:
            shutil.copyfile(path, copy)
            sync_path(copy)


def _problems(path: Path) -> list[str]:
    try:
        return read_artifact(path).verify()
    except (FileNotFoundError, ValueError) as error:
        return [str(error)]


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.rglob("*")) if path.is_file())


def _wrong_sizes(bundle: Bundle) -> Iterator[str]:
    for name, size in bundle.sizes.items():
        path = bundle.folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif path.stat().st_size != size:
            yield f"{name} has {path.stat().st_size:,} of {size:,} bytes"


def _require_room_for_bundle(out: Path) -> None:
    """Refuses to write into a folder that holds anything but a bundle."""
    strange = sorted(path.name for path in out.iterdir() if path.name not in (LIST, "store")) if out.is_dir() else []
    if out.exists() and (not out.is_dir() or strange):
        raise InputError(f"{out} is there and is no bundle", "give a folder that does not exist yet")
    make_folder(out)
