"""A drawn shop whose purchases are links, written in every form that has splits of edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.sources.task_table import TaskTable
from tests.assets.sources.own_data import write_gz


def links(**keys: Any) -> dict[str, Any]:
    """The keys of a graph whose edges are predicted."""
    return {"task": "links", "links": TaskTable(kind="links", **keys)}


FORMS = (
    "edges",
    "texts",
    "npz",
    "pyg",
    "tables",
    "texts of tables",
    "pyg of tables",
    "dgl of tables",
    "ogb",
    "ogb of tables",
)


class Shop:
    """Drawn purchases of users and friendships among them, with a part for each link and a time for each row."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.num_users, self.num_items = int(rng.integers(3, 9)), int(rng.integers(3, 9))
        user, item = rng.integers(0, self.num_users, 40), rng.integers(0, self.num_items, 40)
        one, two = rng.integers(0, self.num_users, (2, 12))
        self.bought, self.knows = (user, item), (np.concatenate([one, two[:5]]), np.concatenate([two, one[:5]]))
        self.words = np.array(["train", "valid", "test", ""])[rng.choice(4, 1000, p=[0.6, 0.15, 0.15, 0.1])]
        self.time = rng.integers(0, 30, 40)

    def part(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The part of each edge, which is that of its reverse."""
        return self.words[np.minimum(source, target) * 31 + np.maximum(source, target)]

    def homogeneous(self) -> tuple[np.ndarray, np.ndarray]:
        return self.bought[0], self.num_users + self.bought[1]


def write(frame: pl.DataFrame, path: Path) -> Path:
    """Writes a table, as text if the file is called so."""
    (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)
    return path


def shop_graph(folder: Path, shop: Shop, form: str, key: str | None) -> dict[str, Any]:
    """The keys of the shop in a form: of one node type if it is one of `edges`; `key` is a column that splits purchases."""
    end = ".csv" if "texts" in form else ".parquet"
    named = (lambda ids: np.char.add("n", ids.astype(str))) if "texts" in form else (lambda ids: ids)
    days = pl.Series(shop.time).cast(pl.Int64) * 86_400_000
    times = days.cast(pl.Datetime("ms")) if form == "edges" else shop.time
    if "tables" not in form:
        src, dst = shop.homogeneous()
        if form == "ogb":
            return ogb_folder(folder / "ogbl", shop, key, typed=False)
        if form in ("npz", "pyg"):
            return array_graph(folder, shop, form, key)
        frame = pl.DataFrame({"src": named(src), "dst": named(dst), "part": shop.part(src, dst), "when": times})
        return {"source": "edges", "edges": write(frame, folder / f"edges{end}")} | (
            {key: "part" if "split" in key else "when"} if key else {}
        )
    if form == "ogb of tables":
        return ogb_folder(folder / "ogbl", shop, key, typed=True)
    if form.startswith(("pyg", "dgl")):
        return typed_arrays(folder, shop, form[:3], key)
    user, item = shop.bought
    bought = pl.DataFrame({"src": named(user), "dst": named(item), "part": shop.words[user * 31 + item], "when": times})
    knows = pl.DataFrame({"src": named(shop.knows[0]), "dst": named(shop.knows[1])})
    nodes = {
        name: NodeTable(path=write(pl.DataFrame({"id": named(np.arange(count))}), folder / f"{name}{end}"))
        for name, count in (("user", shop.num_users), ("item", shop.num_items))
    }
    split = {key: "part" if "split" in key else "when"} if key else {}
    edges = {
        "buys": RelationTable(
            path=write(bought, folder / f"buys{end}"), source_type="user", target_type="item", **split
        ),
        "knows": RelationTable(path=write(knows, folder / f"knows{end}"), source_type="user", target_type="user"),
    }
    return {"source": "tables", "nodes": nodes, "edges": edges}


def masks(words: np.ndarray, prefix: str = "") -> dict[str, torch.Tensor]:
    """The masks of the parts."""
    return {
        f"{prefix}{mask}_mask": torch.tensor(words == part)
        for mask, part in (("train", "train"), ("val", "valid"), ("test", "test"))
    }


def array_graph(folder: Path, shop: Shop, form: str, key: str | None) -> dict[str, Any]:
    """The keys of the shop in arrays, of one node type."""
    ends, num_nodes = np.stack(shop.homogeneous()), shop.num_users + shop.num_items
    words = shop.part(*ends)
    if form == "npz":
        codes = np.array([{"train": 0, "valid": 1, "test": 2, "": -1}[word] for word in words.tolist()])
        arrays = {"edge_time": shop.time} if key == "time_column" else {"edge_split": codes} if key else {}
        np.savez(folder / "graph.npz", edge_index=ends, num_nodes=num_nodes, y=np.arange(num_nodes) % 2, **arrays)
        return {"source": "npz", "path": folder / "graph.npz"}
    data = {
        "edge_index": torch.tensor(ends),
        "num_nodes": num_nodes,
        "edge_when": torch.tensor(shop.time),
        **masks(words, "edge_"),
    }
    torch.save(data, folder / "graph.pt")
    return {"source": "pyg", "path": folder / "graph.pt"} | ({"time": "edge_when"} if key == "time_column" else {})


def ogb_folder(top: Path, shop: Shop, key: str | None, *, typed: bool) -> dict[str, Any]:
    """The keys of the shop in OGB's layout: raw/ has the edges to train on; all edges if `key` is None."""
    ends = {("user", "buys", "item"): shop.bought, ("user", "knows", "user"): shop.knows}
    ends = ends if typed else {("node", "edge", "node"): shop.homogeneous()}
    for number, (kind, (src, dst)) in enumerate(ends.items()):
        words = (
            np.full(len(src), "train")
            if number or key is None
            else shop.words[src * 31 + dst]
            if typed
            else shop.part(src, dst)
        )
        pairs, folder = np.stack([src, dst], axis=1), top / "raw" / (f"relations/{'___'.join(kind)}" if typed else "")
        kept = pairs[words == "train"]
        write_gz(folder / "edge.csv.gz", kept.tolist())
        write_gz(folder / "num-edge-list.csv.gz", [[len(kept)]])
        if typed:
            write_gz(folder / "edge_reltype.csv.gz", [[number]] * len(kept))
        for name in ("valid", "test") if number == 0 else ():
            held = pairs[words == name]
            content = (
                {"head": held[:, 0], "tail": held[:, 1], "relation": np.zeros(len(held), np.int64)}
                if typed
                else {"edge": held}
            )
            (top / "split" / "time").mkdir(parents=True, exist_ok=True)
            torch.save(
                content | ({"head_type": ["user"] * len(held)} if typed else {}), top / "split" / "time" / f"{name}.pt"
            )
    counts = {"item": shop.num_items, "user": shop.num_users}
    if typed:
        write_gz(top / "raw" / "num-node-dict.csv.gz", [[*counts], [*counts.values()]])
        write_gz(top / "raw" / "triplet-type-list.csv.gz", [*ends])
    else:
        write_gz(top / "raw" / "num-node-list.csv.gz", [[sum(counts.values())]])
        write_gz(top / "raw" / "node-label.csv.gz", [[0]] * sum(counts.values()))
    return {"source": "ogb", "path": top}


def typed_arrays(folder: Path, shop: Shop, library: str, key: str | None) -> dict[str, Any]:
    """The keys of the shop in a graph of PyG or DGL with types."""
    ends = {("user", "buys", "item"): shop.bought, ("user", "knows", "user"): shop.knows}
    ends = {kind: tuple(map(torch.tensor, each)) for kind, each in ends.items()}
    bought = {**masks(shop.words[shop.bought[0] * 31 + shop.bought[1]]), "when": torch.tensor(shop.time)}
    counts, path = {"user": shop.num_users, "item": shop.num_items}, folder / f"graph.{library}"
    if library == "pyg":
        data: dict[Any, Any] = {kind: {"edge_index": torch.stack(each)} for kind, each in ends.items()}
        data["user", "buys", "item"] |= bought
        torch.save(data | {name: {"num_nodes": count} for name, count in counts.items()}, path)
    else:
        dgl = pytest.importorskip("dgl")
        graph = dgl.heterograph(ends, num_nodes_dict=counts)
        graph.edges["buys"].data.update(bought)
        dgl.save_graphs(str(path), [graph])
    return {"source": library, "path": path} | ({"time": "when"} if key == "time_column" else {})
