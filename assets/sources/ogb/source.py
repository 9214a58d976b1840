"""Open Graph Benchmark folders, as unzipped: ogbn-* and ogbl-* in their text and binary forms, MAG240M in its own.

    raw/edge.csv.gz, num-node-list.csv.gz, ...      text: ogbn-arxiv, ogbn-products
    raw/data.npz, node-label.npz                    binary: ogbn-papers100M
    raw/triplet-type-list.csv.gz, relations/...     text with node and edge types: ogbn-mag
    processed/<type>/node_feat.npy, ...             arrays with node and edge types: MAG240M
    split/<scheme>/train.csv.gz, valid, test        node ids; one more folder, of the node type, if there are types
    split/<scheme>/split_dict.pt                    the same in one file, as OGB's DatasetSaver writes it
    split/<scheme>/train.pt, valid.pt, test.pt      links of ogbl-* (assets/sources/ogb/link_split.py)

Format: `ogb/io/read_graph_raw.py` and `ogb/lsc/mag240m.py` of github.com/snap-stanford/ogb. Node types are ranges of ids in alphabetical
order, edge types are numbered by (source type, relation, destination type), as OGB sorts both. Edge features and pickled files other than
these splits are not read. A file with several columns of labels is a matrix of several labels or of numbers (ogbn-proteins), by [task].

Peak memory: as assets/sources/edges/source.py states. Labels take 16 bytes per node while they are read. Features of the binary
forms pass in slices of 8 MiB; a zip member in Fortran order is read whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.sources.arrays.archive import Archive
from graphmill.assets.sources.arrays.mapped_arrays import open_plain
from graphmill.assets.sources.interface import FEATURES_TOO, TableConfig
from graphmill.assets.sources.ogb.split_dict import NAME as SPLIT_DICT
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.splits import one_split
from graphmill.assets.sources.spooled import SpooledConfig
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.assets.sources.typed_graph import TypedGraph, TypedSource, survey_typed
from graphmill.assets.sources.unread import unread_words
from graphmill.assets.storage.names.patterns import files_below
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress
    from graphmill.assets.sources.survey import Survey


@dataclass(frozen=True, kw_only=True)
class OgbConfig(SpooledConfig):
    """`[graph]` with `source = "ogb"`."""

    # names this kind of source
    source: str = field(default="ogb", metadata=FEATURES_TOO)
    # the unzipped folder, for example "ogbn_arxiv"; relative to the pipeline file
    path: Path
    # folder in split/, if there are several, or a list of folders: one graph each; "random" draws a stratified split instead
    split: str | tuple[str, ...] | None = None

    tasks = ("classes", "multilabel", "regression")
    gives_candidates = True
    example: ClassVar[Mapping[str, Any]] = {"path": "ogbn_arxiv"}

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a list of splits that names the drawn one."""
        yield from super().problems()
        if isinstance(self.split, tuple) and "random" in self.split:
            text = 'split = [...] names "random", which is drawn and not a folder: name folders, or random alone'
            yield KeyProblem("split", text)
        if self.links is not None and self.split is not None and (self.marks is None or self.split == "random"):
            how = "leave it out; split in [task] draws a split of links, or takes that of the folder"
            yield KeyProblem("split", f"split = {self.split!r} has no effect with [task] kind = 'links': {how}")

    @property
    def link_splits(self) -> tuple[LinkSplit, ...]:
        """The splits of links: a drawn one, or that of the folder."""
        return ("random", "given")

    def brings_split(self) -> bool:
        """Tells whether the folder's split is used; "random" draws one instead."""
        return self.split != "random"

    def files(self) -> Mapping[str, Path]:
        """Returns the files that may be read, by their path in the folder."""
        form(self.path)
        splits = [*files_below(self.path / "split")]
        below = [path for name in ("raw", "processed") for path in files_below(self.path / name)]
        paths = [path for path in (*below, *splits) if path.suffix in (".gz", ".npz", ".npy")]
        paths += [path for path in (self.path / SPLIT_DICT, *splits) if path.name == SPLIT_DICT and path.is_file()]
        paths += [path for path in splits if self.marks is not None and path.name in HELD_OUT]
        return {path.relative_to(self.path).as_posix(): path for path in sorted(paths)}

    def raw(self, table: TableConfig | None) -> Mapping[str, str]:
        """Returns one digest of the names and contents of files of the folder.

        Those of the graph are all that may be read except those of features alone. Of a matrix of features only the number of its rows
        enters: it may give the number of nodes of a type. Those of a feature table are the files with features and those that give the
        number of nodes, edges included if only they give the number of a type.
        """
        found = self.files()
        if table is not None:
            return {"ogb": _digest({name: path for name, path in found.items() if name in _of_features(self, found)})}
        rows = {name: len(open_plain(path)) for name, path in found.items() if path.name == "node_feat.npy"}
        other = {name: path for name, path in found.items() if path.name not in FEATURE_FILES}
        return {"ogb": _digest(other, rows)}

    @contextmanager
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[TypedSource]:
        """Reads the folder except features and edges."""
        with Duck(folder, self.duck_bytes, execution.threads) as duck:
            found = read(self, duck)
            yield TypedSource(found, self, folder, lambda table: found.blocks)

    def survey(self) -> Survey:
        """Describes the folder from its counts and headers; features and edges are not read."""
        with Duck(None, self.duck_bytes, 2) as duck:
            return survey_typed(read(self, duck), self, self.files())


HELD_OUT = ("valid.pt", "test.pt")
"""Files of links that are held out."""

FEATURE_FILES = ("node-feat.csv.gz", "node_feat.npy")
"""Files that hold only features."""

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

COUNT_FILES = ("num-node-list.csv.gz", "num-node-dict.csv.gz", "data.npz")
"""Files that give the number of nodes; the last holds the features as well."""


def form(path: Path) -> str:
    """Returns "text", "binary", "typed text" or "arrays"; raises InputError if the folder is missing, or has none of these forms."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}", "set `path` in [graph] to the folder that holds raw/ or processed/")
    for name, found in (
        ("raw/data.npz", "binary"),
        ("raw/triplet-type-list.csv.gz", "typed text"),
        ("raw/num-node-dict.csv.gz", "typed text"),
        ("raw", "text"),
        ("processed", "arrays"),
    ):
        if (path / name).exists():
            return found
    inside = ", ".join(sorted(entry.name for entry in path.iterdir())[:10]) or "nothing"
    problem = f"{path} holds neither raw/ nor processed/; it holds {inside}"
    raise InputError(problem, "give an unzipped ogbn-* or ogbl-* folder")


def _of_features(config: OgbConfig, found: Mapping[str, Path]) -> set[str]:
    """Returns the names of the files with features, and of those that may give the number of nodes of a type without features."""
    with_features = {name for name, path in found.items() if path.name in FEATURE_FILES}
    if form(config.path) == "arrays":
        counted = {Path(name).parent.name for name in with_features}
        counting = {
            name
            for name, path in found.items()
            if path.name in ("edge_index.npy", "node_label.npy")
            and not counted.issuperset(path.parent.name.split("___")[::2])
        }
    else:
        counting = {name for name, path in found.items() if path.name in COUNT_FILES}
    return with_features | counting


def _digest(found: Mapping[str, Path], counts: Mapping[str, int] | None = None) -> str:
    from graphmill.assets.storage.files.digests import sha256_file

    whole = hashlib.sha256()
    for name, count in (counts or {}).items():
        whole.update(f"{name}\0{count} rows\n".encode())
    for name, path in found.items():
        whole.update(f"{name}\0{sha256_file(path)}\n".encode())
    return whole.hexdigest()


def read(config: OgbConfig, duck: Duck) -> TypedGraph:
    """Reads everything except features and edges, which the result yields in slices.

    Raises:
        InputError: a file is missing or does not fit the others.
    """
    from graphmill.assets.sources.ogb.binary import array_split, read_arrays, read_binary
    from graphmill.assets.sources.ogb.candidates import given_candidates
    from graphmill.assets.sources.ogb.link_split import with_held_out
    from graphmill.assets.sources.ogb.text import read_split, read_text, read_typed_text

    path, kind, split, numbers = config.path, form(config.path), one_split(config.split), {}
    readers = {"text": read_text, "binary": read_binary, "typed text": read_typed_text, "arrays": read_arrays}
    node_types, relations, blocks, labels = readers[kind](path, duck, config.task)
    candidates = []
    if config.links is not None and config.links.source_candidates:
        candidates = given_candidates(node_types, relations, path, split, duck)
    if config.marks is not None:
        relations = with_held_out(relations, path, split, duck, undirected=config.undirected)
    if config.links is not None:
        splits = None
    elif kind == "arrays":
        splits, numbers = array_split(path, split, duck, node_types, labels)
    else:
        splits = read_split(path, split, duck, node_types, typed=kind == "typed text")
    return TypedGraph(
        where=str(path),
        node_types=node_types,
        relations=relations,
        blocks=blocks,
        labels=labels,
        splits=splits,
        numbers=numbers,
        unread=_unread(path, kind),
        candidates=candidates,
    )


def _unread(path: Path, form: str) -> list[str]:
    """Returns phrases about the files in raw/ or processed/ that are not read, and about such arrays of archives."""
    files = sorted(each for top in ("raw", "processed") for each in files_below(path / top))
    data = [each for each in files if each.suffix in (".gz", ".npz", ".npy")]
    left = [each.relative_to(path).as_posix() for each in data if each.name not in READ[form]]
    found = unread_words("file", "files", left)
    for each in data:
        if each.suffix == ".npz" and each.name in READ[form]:
            with Archive(each) as archive:
                names = [name for name in archive.names if name not in ARRAYS]
            found += unread_words("array", "arrays", names, f" of {each.relative_to(path).as_posix()}")
    return found
