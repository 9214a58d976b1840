"""Writes the graphs that the recipes of this folder read: one of each form, small, and the same on every machine.

Usage: python write_data.py FOLDER. What is there already stays, so that two checkouts read the same bytes.
"""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path

import numpy as np
import polars as pl

PACKAGES = {"alder": 9, "birch": 7, "cedar": 6, "dogwood": 2}
"""Distributions of the Python environment, with their modules; the last is too small for a class."""


def main() -> None:
    """Writes all forms into the folder, each with a generator of its own."""
    folder = Path(sys.argv[1])
    if folder.exists():
        return
    unfinished = folder.with_name(folder.name + ".unfinished")
    unfinished.mkdir(parents=True)
    for write in (write_arrays, write_tables, write_texts, write_ogb, write_python_environment, write_dgl):
        write(unfinished, np.random.default_rng(len(write.__name__)))
    unfinished.rename(folder)


def write_arrays(folder: Path, rng: np.random.Generator) -> None:
    """An archive with sparse features, unknown labels, two splits and names."""
    dense = rng.random((500, 12), np.float32) * (rng.random((500, 12)) < 0.3)
    rows, columns = np.nonzero(dense)
    masks = rng.integers(0, 4, (2, 500))
    labels = np.where((masks < 3).any(axis=0), rng.integers(0, 4, 500), -1)
    np.savez(
        folder / "arrays.npz",
        edge_index=rng.integers(0, 500, (2, 4000)),
        num_nodes=np.int64(500),
        x_indptr=np.searchsorted(rows, np.arange(501)),
        x_indices=columns,
        x_data=dense[rows, columns],
        x_shape=np.array([500, 12]),
        y=labels,
        train_masks=masks == 0,
        val_masks=masks == 1,
        test_masks=masks == 2,
        class_names=np.array(["oak", "elm", "fir", "yew"]),
    )


def write_tables(folder: Path, rng: np.random.Generator) -> None:
    """Parquet: two files of edges with weights, and nodes with a column of lists and a split."""
    columns = {"src": rng.integers(0, 600, 5000), "dst": rng.integers(0, 600, 5000), "w": rng.random(5000)}
    edges = pl.DataFrame(columns)
    for part in range(2):
        edges[part * 2500 : (part + 1) * 2500].write_parquet(folder / f"edges-{part}.parquet")
    features = pl.Series(rng.random((600, 16), np.float32).tolist(), dtype=pl.List(pl.Float32))
    split = rng.choice(["train", "valid", "test"], 600, p=[0.6, 0.2, 0.2])
    nodes = {"id": np.arange(600), "x": features, "class": rng.integers(0, 4, 600), "part": split}
    pl.DataFrame(nodes).write_parquet(folder / "nodes.parquet")


def write_texts(folder: Path, rng: np.random.Generator) -> None:
    """CSV: text ids, weights, relations and class names."""
    names = np.array([f"user-{number}" for number in range(300)])
    edges = {"from": rng.choice(names, 2000), "to": rng.choice(names, 2000), "strength": rng.random(2000)}
    pl.DataFrame(edges | {"relation": rng.choice(["follows", "likes"], 2000)}).write_csv(folder / "edges.csv")
    nodes = {"name": names, "f0": rng.random(300), "f1": rng.random(300), "team": rng.choice(["red", "blue"], 300)}
    pl.DataFrame(nodes).write_csv(folder / "nodes.csv")


def write_ogb(folder: Path, rng: np.random.Generator) -> None:
    """A folder in the text form of the Open Graph Benchmark."""
    parts = zip(("train", "valid", "test"), np.split(rng.permutation(200), [120, 160]), strict=True)
    files = {
        "raw/edge.csv.gz": rng.integers(0, 200, (1000, 2)),
        "raw/num-node-list.csv.gz": [[200]],
        "raw/num-edge-list.csv.gz": [[1000]],
        "raw/node-feat.csv.gz": rng.random((200, 8), np.float32),
        "raw/node-label.csv.gz": rng.integers(0, 5, (200, 1)),
        **{f"split/random/{part}.csv.gz": ids[:, None] for part, ids in parts},
    }
    for name, rows in files.items():
        path = folder / "ogbn_small" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(",".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist())
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def write_python_environment(folder: Path, rng: np.random.Generator) -> None:
    """A folder of installed packages whose modules import each other, most often those of their own package."""
    modules = [f"{package}.m{number}" for package, count in PACKAGES.items() for number in range(count)]
    site = folder / "packages"
    for package, count in PACKAGES.items():
        texts = {f"{package}/__init__.py": f'"""The package {package}."""\n'}
        own = [name for name in modules if name.startswith(package)]
        for number in range(count):
            imports = {str(rng.choice(own if rng.random() < 0.7 else modules)) for _ in range(4)}
            words = [f"{package[:2]}_{rng.integers(0, 30)}" for _ in range(20)]
            lines = [f"import {name}" for name in sorted(imports)] + [f"{word} = {i}" for i, word in enumerate(words)]
            texts[f"{package}/m{number}.py"] = "\n".join(lines) + "\n"
        record = "".join(f"{name},,\n" for name in texts)
        info = f"{package}-1.0.dist-info"
        texts |= {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"}
        for name, text in (texts | {f"{info}/RECORD": record}).items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text(text)


def write_dgl(folder: Path, rng: np.random.Generator) -> None:
    """A heterograph saved by DGL, where DGL is installed."""
    if importlib.util.find_spec("dgl") is None:
        return
    import dgl
    import torch

    def ends(count: int) -> torch.Tensor:
        return torch.from_numpy(rng.integers(0, count, 300))

    relations = {("author", "writes", "paper"): (ends(50), ends(80)), ("paper", "cites", "paper"): (ends(80), ends(80))}
    graph = dgl.heterograph(relations, num_nodes_dict={"author": 50, "paper": 80})
    graph.nodes["paper"].data["feat"] = torch.from_numpy(rng.random((80, 12), np.float32))
    graph.nodes["paper"].data["label"] = torch.from_numpy(rng.integers(0, 3, 80))
    dgl.save_graphs(str(folder / "papers.bin"), [graph])


if __name__ == "__main__":
    main()
