"""A small shop in tables: users with text ids, items with gaps in their ids, cities without a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.sources.tables.source import TypedTablesConfig

USERS = ["eve", "bob", "ann", "dan", "cat"]
ITEMS = [30, 10, 20, 70]
PARTS = ["train", "valid", "test", "train", None]


def frames() -> dict[str, pl.DataFrame]:
    return {
        "users": pl.DataFrame(
            {
                "id": USERS,
                "a": np.arange(5, dtype=np.float32),
                "b": np.arange(5, dtype=np.float32) * 10,
                "team": ["red", "blue", "red", "blue", None],
                "part": PARTS,
            }
        ),
        "items": pl.DataFrame({"id": ITEMS, "x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]}).with_columns(
            pl.col("x").cast(pl.List(pl.Float32))
        ),
        "buys": pl.DataFrame(
            {
                "who": ["ann", "ann", "bob", "eve", "cat"],
                "what": [10, 70, 20, 30, 10],
                "amount": [1.0, 2.0, 3.0, 4.0, 5.0],
            }
        ),
        "lives": pl.DataFrame({"who": ["dan", "eve"], "city": [2, 0]}),
    }


def write(folder: Path, form: str = "parquet", changed: Mapping[str, pl.DataFrame] | None = None) -> None:
    for name, frame in {**frames(), **(changed or {})}.items():
        if form == "parquet":
            frame.write_parquet(folder / f"{name}.parquet")
            continue
        if name == "items":
            frame = frame.with_columns(x1=pl.col("x").list.get(0), x2=pl.col("x").list.get(1)).drop("x")
        frame.write_csv(folder / f"{name}.csv")


def shop(folder: Path, form: str = "parquet", **keys) -> TypedTablesConfig:
    user = NodeTable(
        path=folder / f"users.{form}", features=("a", "b"), label_column="team", labels="names", split_column="part"
    )
    item = NodeTable(path=folder / f"items.{form}", features="x" if form == "parquet" else "x*")
    buys = RelationTable(
        path=folder / f"buys.{form}",
        source_type="user",
        target_type="item",
        source_column="who",
        target_column="what",
        weight_column="amount",
    )
    lives = RelationTable(
        path=folder / f"lives.{form}", source_type="user", target_type="city", source_column="who", target_column="city"
    )
    nodes = {"user": user, "item": item, "city": NodeTable(num_nodes=3)}
    given = {"nodes": nodes, "edges": {"buys": buys, "lives": lives}, "undirected": False} | keys
    return TypedTablesConfig(**given)
