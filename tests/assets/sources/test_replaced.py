"""Files that were replaced under the same sizes and modification times: the next build is of the new content, for every source of files."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file

from graphmill.assets.sources.edges.asset import keep_table
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.storage.files import digests
from graphmill.assets.storage.names.upstream import asset_table
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.sources import own_data
from tests.assets.sources.own_data import Built, Drawn, build, contents, edge_frame, node_frame
from tests.assets.sources.replacements import WAYS, files
from tests.assets.sources.test_own_data import write_typed_arrays
from tests.assets.sources.test_python_environment import install

pytestmark = pytest.mark.usefixtures("quick_readers")


def changed() -> Drawn:
    """The graph of `Drawn` with other targets and other rows of features: each of its files has as many bytes as before."""
    graph = Drawn()
    graph.dst, graph.x = np.roll(graph.dst, 1), np.roll(graph.x, 1, axis=0)
    return graph


def repacked(write: Callable[[Path, Drawn], dict[str, Any]]) -> Callable[[Path, Drawn], dict[str, Any]]:
    """Makes a writer whose packed files are as long as their content."""

    def written(folder: Path, graph: Drawn) -> dict[str, Any]:
        keys = write(folder, graph)
        for path in folder.rglob("*.gz"):
            path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 0, mtime=0))
        for path in folder.rglob("*.npz"):
            with np.load(path) as arrays:
                np.savez(path, **arrays)
        return keys

    return written


def write_parquet(folder: Path, graph: Drawn) -> dict[str, Any]:
    """Two part files of edges, and nodes."""
    half = graph.num_edges // 2
    for number in range(2):
        part = edge_frame(graph)[number * half :][:half]
        part.write_parquet(folder / f"edges-{number}.parquet", compression="uncompressed", statistics=False)
    node_frame(graph).write_parquet(folder / "nodes.parquet", compression="uncompressed", statistics=False)
    return KEYS | {"edges": folder / "edges-*.parquet", "nodes": folder / "nodes.parquet"}


KEYS = {"features": "f*", "label_column": "y", "split_column": "part"}


def write_database(folder: Path, graph: Drawn) -> dict[str, Any]:
    with duckdb.connect(folder / "shop.duckdb") as database:
        for name, frame in (("edges", edge_frame(graph)), ("nodes", node_frame(graph))):
            frame.write_parquet(path := folder / f"{name}.parquet")
            database.read_parquet(str(path)).create(name)
            path.unlink()
    return KEYS


def write_paths(folder: Path, graph: Drawn) -> dict[str, Any]:
    write_parquet(folder, graph)
    return KEYS


def loaded_database(folder: Path) -> dict[str, Any]:
    with duckdb.connect(folder / "shop.duckdb", read_only=True) as database:
        return loaded({name: database.table(name) for name in ("edges", "nodes")})


def loaded_paths(folder: Path) -> dict[str, Any]:
    return loaded({"edges": str(folder / "edges-*.parquet"), "nodes": folder / "nodes.parquet"})


def loaded(values: dict[str, Any]) -> dict[str, Any]:
    """Does what a run does whose IO manager loads assets."""
    for key, value in values.items():
        keep_table(key, value, asset_table(key))
    return {key: asset_table(key) for key in values}


def write_features(folder: Path, graph: Drawn) -> dict[str, Any]:
    np.save(folder / "rows.npy", graph.x)
    return own_data.write_npz(folder, graph)


def write_tensors(folder: Path, graph: Drawn) -> dict[str, Any]:
    save_file({"rows": graph.x}, folder / "rows.safetensors")
    return own_data.write_npz(folder, graph)


def write_types(folder: Path, graph: Drawn) -> dict[str, Any]:
    """The form of MAG240M, with the drawn graph's order of pairs, and features."""
    path = write_typed_arrays(folder)
    for file in path.rglob("*.npy"):
        rows = np.load(file)
        np.save(file, np.roll(rows, int(graph.dst[0] != Drawn().dst[0]), axis=-1 if "edge" in file.name else 0))
    return {"path": path}


def write_modules(folder: Path, graph: Drawn) -> dict[str, Any]:
    ends = enumerate(graph.dst[:10], 10)
    modules = {f"pack/m{number}.py": f"import pack.m{10 + end % 10}\n" for number, end in ends}
    install(folder, "pack", {"pack/__init__.py": "import pack.m10\n"} | modules)
    return {"path": folder, "min_class": 2, "features": 16}


class Reader(NamedTuple):
    """How a source's files are written, and what is to be done before each build."""

    source: str
    write: Callable[[Path, Drawn], dict[str, Any]]
    load: Callable[[Path], dict[str, Any]] = lambda _: {}
    table: str = ""


READERS = {
    "npz": Reader("npz", own_data.write_npz),
    "Parquet": Reader("edges", write_parquet),
    "CSV": Reader("edges", repacked(own_data.write_csv)),
    "OGB text": Reader("ogb", repacked(own_data.write_ogb_text)),
    "OGB binary": Reader("ogb", repacked(own_data.write_ogb_binary)),
    "OGB arrays": Reader("ogb", write_types),
    "DGL": Reader("dgl", own_data.write_dgl),
    "pt": Reader("pyg", own_data.write_pyg),
    "npy": Reader("npz", write_features, table="rows.npy"),
    "safetensors": Reader("npz", write_tensors, table="rows.safetensors"),
    "DuckDB": Reader("asset", write_database, loaded_database),
    "paths of assets": Reader("asset", write_paths, loaded_paths),
    "modules": Reader("python-environment", write_modules),
}
QUICK = ("npz", "Parquet")
ALL = "every source's files, replaced in every way"


def built(reader: Reader, folder: Path, keys: dict[str, Any], home: Path) -> Built:
    """Builds graph and features from the files of a folder, with the records of a home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHMILL_HOME", str(home))
        table = TableConfig(file=folder / reader.table) if reader.table else None
        return build(home, reader.source, table=table, **keys | reader.load(folder))


def states(folder: Path) -> dict[Path, tuple[int, int]]:
    """Returns file -> size and modification time."""
    return {name: ((found := os.stat(folder / name)).st_size, found.st_mtime_ns) for name in files(folder)}


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are remembered at once, and the samples of all files are equal."""
    monkeypatch.setattr(digests, "SMALL_BYTES", 0)
    monkeypatch.setattr(digests, "SETTLED_NS", -1)
    monkeypatch.setattr(digests, "_sample", lambda path, num_bytes: 0)


def pairs() -> Iterator[Any]:
    """Yields each way with each source. Those that are not slow have each way once, and each source at least twice."""
    for number, way in enumerate(WAYS):
        for place, name in enumerate(READERS):
            quick = place == number % len(READERS)
            yield (way, name) if quick else pytest.param(way, name, marks=pytest.mark.slow(ALL))


@pytest.mark.parametrize(("way", "name"), [*pairs()])
@pytest.mark.usefixtures("remembering")
def test_a_build_is_of_the_files_as_they_are(
    way: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forcing: Callable[[int], None]
) -> None:
    reader, old, new, home = READERS[name], tmp_path / "old", tmp_path / "new", tmp_path / "home"
    for folder, graph in ((old, Drawn()), (new, changed())):
        folder.mkdir()
        keys = reader.write(folder, graph)
        for path in files(folder):
            os.utime(folder / path, (10**9, 10**9))
    expected = built(reader, new, keys, tmp_path / "other home")
    keys = {key: old / value.relative_to(new) if isinstance(value, Path) else value for key, value in keys.items()}
    if way == "a mapping that was written to before":
        monkeypatch.setattr(os, "fsync", forcing)
    steps = WAYS[way](old, new, monkeypatch)
    next(steps)
    first, before = built(reader, old, keys, home), states(old)
    assert first.versions != expected.versions
    next(steps, None)
    for path, (_, modified) in before.items():
        if os.stat(old / path).st_mtime_ns != modified:
            os.utime(old / path, ns=(modified, modified))
    assert states(old) == before
    second = built(reader, old, keys, home)
    steps.close()
    assert second.versions == expected.versions and contents(second) == contents(expected)


def moved_over(old: Path, new: Path, *, in_place: bool) -> None:
    """Gives all files of a folder the content of those of another: over their bytes, or by a rename of each."""
    for name in files(old):
        if in_place:
            with (old / name).open("r+b") as file:
                file.write((new / name).read_bytes())
        else:
            shutil.copy(new / name, old / "between")
            os.replace(old / "between", old / name)


@pytest.mark.parametrize(
    ("name", "moments"),
    [(name, 3) for name in QUICK]
    + [
        pytest.param(name, 20, marks=pytest.mark.slow("every source's files, replaced while they are read"))
        for name in READERS
    ],
)
def test_files_that_are_replaced_while_they_are_read_are_no_artifact(name: str, moments: int, tmp_path: Path) -> None:
    """Whatever a build publishes is of the old or of the new files as a whole, under the version of these."""
    reader, old, folders = READERS[name], tmp_path / "old", [tmp_path / "first", tmp_path / "second"]
    whole: dict[str, str] = {}
    for folder, graph in zip(folders, (Drawn(), changed()), strict=True):
        folder.mkdir()
        keys = reader.write(folder, graph)
        began = time.perf_counter()
        made = built(reader, folder, keys, tmp_path / f"home of {folder.name}")
        longest = time.perf_counter() - began
        whole |= {each.version: each.content for each in (made.graph, made.features)}
    keys = {key: old / value.relative_to(folder) if isinstance(value, Path) else value for key, value in keys.items()}
    draw, outcomes = np.random.default_rng(0), []
    for number in range(moments):
        before, after = draw.permutation(2)
        shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(folders[before], old)
        home, how = tmp_path / f"home {number}", {"in_place": bool(draw.integers(2))}
        moment = threading.Timer(draw.uniform(0, longest), moved_over, (old, folders[after]), how)
        moment.start()
        try:
            built(reader, old, keys, home)
            outcomes.append("built")
        except (InputError, pl.exceptions.PolarsError, duckdb.Error) as error:
            outcomes.append(str(error))
        finally:
            moment.join()
        for artifact in Store(home).artifacts():
            assert whole[artifact.version] == artifact.content and artifact.verify() == []


@pytest.mark.usefixtures("remembering")
def test_what_a_build_has_read_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no way would have anything to hide."""
    monkeypatch.setattr(digests, "shows_changes", lambda path, status: True)
    keys = own_data.write_npz(tmp_path, Drawn())
    first = built(READERS["npz"], tmp_path, keys, tmp_path / "home")
    monkeypatch.setattr(digests.hashlib, "file_digest", None)
    assert built(READERS["npz"], tmp_path, keys, tmp_path / "home").versions == first.versions
