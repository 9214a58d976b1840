"""The profile of tables, against counts by Polars: of drawn folders, and of the same tables as pipelines describe them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from graphmill.assets.sources.profile.profile import profiled
from graphmill.assets.sources.registry import config_class
from graphmill.assets.sources.tables.config import NodeTable

FORMS = ("parquet", "csv")


def write(frame: pl.DataFrame, path: Path, form: str) -> Path:
    path = path.with_suffix(f".{form}")
    frame.write_parquet(path) if form == "parquet" else frame.write_csv(path)
    return path


def drawn(seed: int, folder: Path) -> tuple[Any, pl.DataFrame, pl.DataFrame]:
    """Returns the configuration, users and clicks of drawn tables: with isolated nodes, ends that are missing, and ends without a row."""
    rng, form = np.random.default_rng(seed), FORMS[seed % 2]
    count, edges = int(rng.integers(5, 60)), int(rng.integers(1, 300))
    ids = [f"u{number}" for number in range(count)]
    classes = rng.choice(["a", "b", "unknown"], count)
    users = pl.DataFrame(
        {
            "id": ids, "label": classes, "part": rng.choice(["train", "val", "test"], count), "x": rng.random(count),
            "copy": [f"of {name}" for name in classes], "serial": rng.permutation(count) + 100,
            **{f"f{number}": rng.random(count) for number in range(9)},
        }
    )  # fmt: skip
    chosen = [None if rng.random() < 0.1 else f"u{rng.integers(0, count + 3)}" for _ in range(edges)]
    clicks = pl.DataFrame({"src": chosen, "dst": rng.integers(0, 40, edges)})
    nodes = {
        "user": {
            "path": write(users, folder / "users", form), "label_column": "label", "labels": "names", "no_label": ("Unknown",),
            "split_column": "part", "features": ("x", "f*", "copy", "serial", "label"), "encode": {"copy": "onehot", "f*": "log"},
        },
        "item": {"num_nodes": 40},
    }  # fmt: skip
    edge = {"path": write(clicks, folder / "clicks", form), "source_type": "user", "target_type": "item"}
    return typed(nodes, {"clicks": edge}), users, clicks


def typed(nodes: dict[str, Any], edges: dict[str, Any]) -> Any:
    from graphmill.assets.sources.tables.config import NodeTable, RelationTable

    made = {name: NodeTable(**{"path": None, **keys}) for name, keys in nodes.items()}
    return config_class("tables")(nodes=made, edges={name: RelationTable(**keys) for name, keys in edges.items()})


@pytest.mark.parametrize("seed", range(8))
def test_degrees_classes_and_roles_are_those_of_the_tables(seed: int, tmp_path: Path) -> None:
    config, users, clicks = drawn(seed, tmp_path)
    with profiled(config) as profile:
        assert profile is not None
        found = profile.values()
    named = clicks["src"].drop_nulls()
    degrees = [(named == name).sum() for name in users["id"]]
    source, target = found["relations"]["clicks"]["ends"].values()
    assert source["gaps"] == clicks["src"].null_count()
    assert source["lost"] == (~named.is_in(users["id"].implode())).sum()
    assert (source["least"], source["most"], source["isolated"]) == (min(degrees), max(degrees), degrees.count(0))
    assert source["median"] == sorted(degrees)[(len(degrees) - 1) // 2]
    assert source["values"] == named.n_unique() and source["inside"] == len(degrees) - degrees.count(0)
    assert target["isolated"] == 40 - clicks["dst"].n_unique() == found["isolated"]["item"]
    assert found["isolated"]["user"] == degrees.count(0)
    assert found["classes"] == dict(users["label"].value_counts().iter_rows())
    for name, parts in found["classes_by_split"].items():
        of_class = users.filter(pl.col("label") == name)["part"]
        assert parts == {
            "train": (of_class == "train").sum(),
            "valid": (of_class == "val").sum(),
            "test": (of_class == "test").sum(),
        }
    columns = {each["name"]: each for each in found["tables"]["user"]["columns"]}
    taken = {name: each["taken_for"] for name, each in columns.items()}
    assert (
        taken["f*"] == "feature by log" and taken["label"] == "label, feature" and taken["copy"] == "feature by onehot"
    )
    assert (taken["id"], taken["part"], taken["x"]) == ("id", "split", "feature")
    leaks = "; ".join(found["leaks"])
    assert "label of user is the label and a feature" in leaks and "serial of user has a value per row" in leaks


def test_a_column_that_tells_the_class_is_a_leak_but_not_where_the_class_is_unknown(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    users = pl.DataFrame({"id": range(200), "kind": rng.integers(0, 6, 200)})
    label = pl.when(pl.col("id") % 4 == 0).then(pl.lit("Unknown")).otherwise(pl.format("c{}", pl.col("kind") // 2))
    users = users.with_columns(label=label, noise=pl.Series(rng.integers(0, 6, 200)))
    path = write(users, tmp_path / "users", "parquet")
    edge = {
        "path": write(pl.DataFrame({"src": [1, 2], "dst": [3, 4]}), tmp_path / "e", "parquet"),
        "source_type": "user",
        "target_type": "user",
    }
    for no_label, leaks in ((("unknown",), ["kind"]), ((), [])):
        node = {
            "path": path,
            "label_column": "label",
            "labels": "names",
            "no_label": no_label,
            "features": ("kind", "noise"),
        }
        with profiled(typed({"user": node}, {"edges": edge})) as profile:
            assert profile is not None
            assert [each.split(" has ")[0].removeprefix("each value of ") for each in profile.leaks] == leaks


@pytest.mark.parametrize("given", ["nodes", "num_nodes", "neither"])
def test_edge_and_node_tables_are_one_node_type_and_one_relation(given: str, tmp_path: Path) -> None:
    edges = write(pl.DataFrame({"src": [0, 0, 1], "dst": [1, 2, 5]}), tmp_path / "edges", "csv")
    nodes = write(pl.DataFrame({"id": range(7), "x": [0.5] * 7}), tmp_path / "nodes", "csv")
    keys = {"nodes": {"nodes": nodes, "features": "x"}, "num_nodes": {"num_nodes": 7}, "neither": {}}[given]
    with profiled(config_class("edges")(edges=edges, **keys)) as profile:
        assert profile is not None
        (relation,) = profile.relations
        assert profile.isolated == ({} if given == "neither" else {"nodes": 3})
        assert relation.edges == 3 and [end.isolated for end in relation.ends] == (
            [2, 1] if given == "neither" else [5, 4]
        )


@pytest.mark.parametrize("source", ["edges", "tables"])
@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_columns_of_labels_are_labels_and_no_classes(source: str, kind: str, tmp_path: Path) -> None:
    """One that is a feature as well is a leak, whatever its kind."""
    edges = write(pl.DataFrame({"src": [0, 0, 1], "dst": [1, 2, 5]}), tmp_path / "edges", "parquet")
    frame = {"id": range(7), "x": [0.5] * 7, "rent": [0, 1, 1, 0, 1, 0, None], "sold": [1] * 7}
    of_nodes = {"label_columns": ("rent", "sold"), "features": ("x", "sold")}
    nodes = write(pl.DataFrame(frame), tmp_path / "nodes", "csv")
    edge = {"path": edges, "source_type": "nodes", "target_type": "nodes"}
    config = {
        "edges": lambda: config_class("edges")(edges=edges, nodes=nodes, task=kind, **of_nodes),
        "tables": lambda: replace(
            typed({"nodes": {"path": nodes}}, {"edges": edge}),
            task=kind,
            nodes={"nodes": NodeTable(path=nodes, **of_nodes)},
        ),
    }[source]()
    with profiled(config) as profile:
        assert profile is not None
        found = profile.values()
    taken = {each["name"]: each["taken_for"] for each in found["tables"]["nodes"]["columns"]}
    assert taken == {"id": "id", "x": "feature", "rent": "label", "sold": "label, feature"}
    assert found["label"] is None and not found["classes"]
    assert found["leaks"] == ["sold of nodes is the label and a feature: a model would read what it is to predict"]


def test_a_relation_may_be_called_like_a_node_type(tmp_path: Path) -> None:
    path = write(pl.DataFrame({"id": range(5)}), tmp_path / "users", "parquet")
    edges = write(pl.DataFrame({"src": [1, 2], "dst": [3, 4]}), tmp_path / "edges", "parquet")
    edge = {"path": edges, "source_type": "user", "target_type": "user"}
    with profiled(typed({"user": {"path": path}}, {"user": edge})) as profile:
        assert profile is not None
        found = profile.values()
    assert {name: each["rows"] for name, each in found["tables"].items()} == {"user": 5, "edges.user": 2}


def test_a_source_without_tables_has_no_profile() -> None:
    with profiled(config_class("sbm")(nodes=10, edges=20)) as profile:
        assert profile is None
