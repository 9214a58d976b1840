"""Lines of `graphmill inspect` about an archive's labels, split and arrays that nothing reads."""

from collections.abc import Sequence

from graphmill.assets.sources.arrays.archive import Archive
from graphmill.assets.sources.npz.arrays import (
    ADJACENCY,
    KNOWN,
    LISTS,
    MASKS,
    OF_EDGES,
    class_names,
    meant_by,
    splits,
    to_labels,
)
from graphmill.assets.sources.targets import unlabelled
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.assets.sources.unread import unread_words
from graphmill.assets.tasks.labels import CLASSES, Kind, column_words
from graphmill.kernels.errors import InputError

PARTS = ("train", "validation", "test")


def classes_line(archive: Archive, num_nodes: int, kind: Kind = CLASSES) -> list[str]:
    """Returns a line about the classes, labels or targets; none if the archive has no labels that can be read."""
    name = next((name for name in ("y", "labels") if name in archive), None)
    if name is None:
        return []
    try:
        labels = to_labels(archive, name, num_nodes, kind)
        names = class_names(archive, labels)
    except InputError:  # a build says it, and so do the notes
        return []
    shown = f": {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if "class_names" in archive else ""
    unknown = unlabelled(labels)
    return [f"{column_words(kind, len(names))}{shown}" + (f", {unknown:,} nodes without a label" if unknown else "")]


def splits_line(archive: Archive, split: int | None, num_nodes: int) -> list[str]:
    """Returns a line about the split that would be used; none if the archive has none that can be read, or one is drawn."""
    try:
        parts = splits(split, archive, num_nodes)
    except InputError:
        return []
    if parts is None:
        return []
    counts = ", ".join(f"{name} {len(part):,}" for name, part in zip(PARTS, parts, strict=True))
    if split is None and any(name in archive for name in LISTS):
        return [f"split: {counts}"]
    shape = archive.header(MASKS[0]).shape
    rows = 1 if len(shape) == 1 else shape[0] if shape[1] == num_nodes else shape[1]
    return [f"{rows} split{'s' if rows > 1 else ''}, number {split or 0}: {counts}"]


def unread_arrays(
    archive: Archive, split: int | None, marks: LinkSplit | None = None, read: Sequence[str] = ()
) -> list[str]:
    """Returns a phrase about the arrays that nothing reads; none if all are read. `read` are names of others that are read."""
    adjacency = "adj_indptr" in archive and "edge_index" not in archive
    found = [
        name
        for name in archive.names
        if name not in (ADJACENCY if adjacency else (*KNOWN, *read, OF_EDGES.get(marks or "")))
    ]
    if "class_names" in archive and "class_names" not in found and archive.dtype("class_names").kind not in "US":
        found.append("class_names (not text)")
    if adjacency and "adj_data" in archive and not archive.dtype("adj_data").hasobject:
        found += ["adj_data (weights of edges)"] if (archive.read("adj_data") != 1).any() else []
    elif not adjacency and any(name in archive for name in LISTS):
        other = MASKS if split is None else LISTS
        found += [name for name in other if name in archive]
    return unread_words("array", "arrays", found) + unread_words("file", "files", archive.others)


def meant_lines(archive: Archive) -> list[str]:
    """Returns a line for each array that nothing reads and whose name means one that is missing."""
    if "adj_indptr" in archive and "edge_index" not in archive:
        return []
    meant = {name: meant_by(name, archive) for name in archive.names}
    return [f"rename {name} to {other}, so that it is read" for name, other in meant.items() if other]
