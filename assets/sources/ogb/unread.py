"""The contents of an OGB folder that nothing reads: features of edges, years of nodes, and the like."""

from __future__ import annotations

from pathlib import Path

from graphmill.assets.sources.readers.archive import Archive
from graphmill.assets.sources.unread import unread_words

TEXT = (
    "edge.csv.gz", "num-node-list.csv.gz", "num-edge-list.csv.gz", "node-feat.csv.gz", "node-label.csv.gz", "triplet-type-list.csv.gz",
    "num-node-dict.csv.gz", "nodetype-has-feat.csv.gz", "nodetype-has-label.csv.gz",
)  # fmt: skip
READ = {
    "text": TEXT,
    "typed text": TEXT,
    "binary": ("data.npz", "node-label.npz"),
    "arrays": ("edge_index.npy", "node_feat.npy", "node_label.npy"),
}
"""Form of the folder -> names of the files that are read, or that say nothing beside those."""

ARRAYS = ("num_nodes_list", "num_edges_list", "edge_index", "node_feat", "node_label")
"""Arrays of the archives that are read."""


def unread_contents(path: Path, form: str) -> list[str]:
    """Returns phrases about the files in raw/ or processed/ that are not read, and about such arrays of archives.

    Args:
        path: the folder.
        form: its form, see `graphmill.assets.sources.ogb.source.form`.
    """
    files = sorted(each for top in ("raw", "processed") for each in (path / top).rglob("*"))
    data = [each for each in files if each.suffix in (".gz", ".npz", ".npy")]
    left = [each.relative_to(path).as_posix() for each in data if each.name not in READ[form]]
    found = unread_words("file", "files", left)
    for each in data:
        if each.suffix == ".npz" and each.name in READ[form]:
            with Archive(each) as archive:
                names = [name for name in archive.names if name not in ARRAYS]
            found += unread_words("array", "arrays", names, f" of {each.relative_to(path).as_posix()}")
    return found
