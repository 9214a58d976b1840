"""Features in a table of entries: the rows that a dense table gives, whatever ids, features and files look like, in bounded memory."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.assets.features.config import features_config
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.names.version import canonical
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config

NODES, FEATURES = 12, 5


def write(folder: Path, entries: pl.DataFrame, form: str, ids: list, files: int = 1) -> dict:
    """Writes a ring of nodes and the entries; returns the keys of [graph]."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = pl.DataFrame({"id": ids})
    edges = pl.DataFrame({"src": ids, "dst": ids[1:] + ids[:1]})
    cuts = np.linspace(0, len(entries), files + 1).astype(int)
    parts = {f"entries-{i}": entries[low:high] for i, (low, high) in enumerate(itertools.pairwise(cuts))}
    for name, table in {"nodes": nodes, "edges": edges, **parts}.items():
        path = folder / f"{name}.{form}"
        table.write_csv(path) if form == "csv" else table.write_parquet(path)
    keys = {"edges": folder / f"edges.{form}", "nodes": folder / f"nodes.{form}"}
    return keys | {"feature_entries": folder / f"entries-*.{form}"}


def rows_of(folder: Path, keys: dict) -> tuple[np.ndarray, np.ndarray]:
    """Returns (feature rows in the order of the nodes, original ids) of what is built."""
    built = build_config(folder / "home", config_class("edges")(**keys), threads=1)
    original = pl.read_parquet(built.graph.file("nodes.parquet"))["original_id"].to_numpy()
    assert built.verify() == []
    return np.array(built.features.array("rows")), original


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.0, 0.1, 0.9]),
    form=st.sampled_from(["csv", "parquet"]),
    kind=st.sampled_from(["dense", "gaps", "text"]),
    named=st.booleans(),
    valued=st.booleans(),
    files=st.sampled_from([1, 3]),
)
def test_entries_make_the_rows_of_a_dense_table(
    tmp_path_factory, seed, share, form, kind, named, valued, files
) -> None:
    rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("entries")
    ids = {"dense": [*range(NODES)], "gaps": [-7, *range(10, 9 + NODES)], "text": [f"n{i:02d}" for i in range(NODES)]}[
        kind
    ]
    expected = (rng.random((NODES, FEATURES)) < share) * (rng.integers(1, 9, (NODES, FEATURES)) if valued else 1)
    expected[0] = 1  # every feature occurs, so that names are numbered as expected
    names = [f"f{i}" for i in range(FEATURES)]
    row, column = np.nonzero(expected)
    shuffled = rng.permutation(len(row))
    row, column = row[shuffled], column[shuffled]
    table = {"node": [ids[i] for i in row], "feature": [names[i] for i in column] if named else column}
    if valued:
        table["value"] = expected[row, column] / 4
    order = rng.permutation(NODES).tolist()
    keys = write(folder, pl.DataFrame(table), form, [ids[i] for i in order], files)
    rows, original = rows_of(folder, keys)
    assert rows.dtype == (np.float32 if valued else np.uint8)
    assert original.tolist() == ids, "nodes are in ascending order, so row i is of ids[i]"
    assert np.array_equal(rows, expected / 4 if valued else expected)


def test_a_repeated_entry_without_value_says_the_same_again(tmp_path: Path) -> None:
    keys = write(tmp_path, pl.DataFrame({"node": [1, 1, 2], "feature": [3, 3, 0]}), "csv", [*range(4)])
    rows, _ = rows_of(tmp_path, keys)
    assert rows.tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]


def test_slices_meet_where_rows_are_wide(tmp_path: Path, monkeypatch) -> None:
    """Slices of two rows, and batches of entries that begin in one and end three later."""
    monkeypatch.setattr("graphmill.assets.sources.features.blocks.SLICE_BYTES", 2 * FEATURES)
    expected = np.zeros((NODES, FEATURES), np.uint8)
    expected[[1, 4, 4, 5, 11], [0, 1, 3, 2, 4]] = 1
    row, column = np.nonzero(expected)
    keys = write(tmp_path, pl.DataFrame({"node": row, "feature": column}), "parquet", [*range(NODES)])
    assert np.array_equal(rows_of(tmp_path, keys)[0], expected)


def test_the_number_of_features_may_be_given_and_columns_named(tmp_path: Path) -> None:
    table = pl.DataFrame({"who": [0], "what": [1], "value": [2.5], "much": [0.5]})
    keys = write(tmp_path, table, "csv", [0, 1]) | {"num_features": 4}
    rows, _ = rows_of(tmp_path, keys | {"entry_columns": ("who", "what", "much")})
    assert rows.tolist() == [[0, 0.5, 0, 0], [0, 0, 0, 0]]
    rows, _ = rows_of(tmp_path, keys | {"entry_columns": ("who", "what")})
    assert rows.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


WRONG = {
    "a strange node": ({"node": [0, 9, 9], "feature": [0, 0, 1]}, {}, "2 entries name nodes that the graph lacks, .*row 1.*'9'"),
    "no node": ({"node": [0, None], "feature": [0, 0]}, {}, r"row 1 .*column 'node' is empty"),
    "no feature": ({"node": [0, 1], "feature": [0, None]}, {}, r"row 1 .*column 'feature' is empty"),
    "a negative feature": ({"node": [0, 1], "feature": [0, -2]}, {}, r"row 1 .*holds '-2', not a feature in"),
    "a feature beyond": ({"node": [0, 1], "feature": [0, 4]}, {"num_features": 4}, r"row 1 .*holds '4', not a feature in \[0, 4\)"),
    "hashes": ({"node": [0, 1], "feature": [0, 2**40]}, {}, "holds '1099511627776', and rows have at most 16,777,216"),
    "no number": ({"node": [0], "feature": [0], "value": ["x"]}, {}, r"row 0 .*column 'value' holds 'x', not a number"),
    "infinite": ({"node": [0], "feature": [0], "value": ["inf"]}, {}, r"row 0 .*column 'value' holds 'inf', not a finite"),
    "twice": ({"node": [2, 1, 2], "feature": [3, 0, 3], "value": [1, 1, 2]}, {}, "feature '3' of node '2' occurs twice"),
    "names counted": ({"node": [0], "feature": ["a"]}, {"num_features": 4}, "num_features = 4, but column 'feature' holds names"),
    "no entries": ({"node": [], "feature": []}, {}, "has no entries"),
    "text ids": ({"node": ["a"], "feature": [0]}, {}, "ids have different types: 'node' of entries-0.csv is VARCHAR"),
    "no such column": ({"node": [0], "tag": [0]}, {}, "has no column 'feature'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_row(tmp_path: Path, name: str) -> None:
    table, keys, said = WRONG[name]
    keys = write(tmp_path, pl.DataFrame(table), "csv", [*range(5)]) | keys
    with pytest.raises(InputError, match=said):
        rows_of(tmp_path, keys)


@pytest.mark.parametrize("kind", [pl.Int64, pl.UInt32, pl.UInt64, pl.Decimal(10, 0)])
def test_numbers_of_features_are_never_taken_for_names(tmp_path: Path, kind: type) -> None:
    table = pl.DataFrame({"node": [0, 1, 2], "feature": [2, 10, 12]}).cast({"feature": kind})
    keys = write(tmp_path, table, "parquet", [0, 1, 2])
    if kind in (pl.Int64, pl.UInt32):
        assert np.argwhere(rows_of(tmp_path, keys)[0]).tolist() == [[0, 2], [1, 10], [2, 12]]
        return
    with pytest.raises(InputError, match=r"(?s)column .feature. is .*cast it to BIGINT"):
        rows_of(tmp_path, keys)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("ids", [[0, 1, 2, 77], [10, 20, 30, 77], ["a", "b", "c", "no"]], ids=["dense", "gaps", "text"])
def test_nodes_that_the_graph_lacks_are_counted(tmp_path: Path, ids: list, form: str) -> None:
    *known, strange = ids
    table = pl.DataFrame({"node": [known[0], strange, known[1], strange], "feature": [0, 0, 0, 1]})
    keys = write(tmp_path, table, form, known, files=2)
    with pytest.raises(InputError, match=f"2 entries name nodes .*, first in .*entries-0.{form}: row 1.*'{strange}'"):
        rows_of(tmp_path, keys)


def test_values_that_the_stored_type_cannot_hold_are_named_in_the_words_of_the_files(tmp_path: Path) -> None:
    table = pl.DataFrame({"node": ["c", "b"], "feature": ["red", "blue"], "value": [1e6, 1.0]})
    keys = write(tmp_path, table, "parquet", ["a", "b", "c"])
    config = config_class("edges")(**keys)
    rows = build_config(tmp_path / "home", config, table=TableConfig(dtype="bfloat16")).features.array("rows")
    assert rows.shape == (3, 2)
    with pytest.raises(InputError, match=r"feature 'red' of node 'c' is 1000000\.0, which float16 cannot hold"):
        build_config(tmp_path / "home", config, table=TableConfig(dtype="float16"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"features": "x", "feature_entries": Path("e.csv"), "nodes": Path("n.csv")}, "beside feature_entries"),
        ({"entry_columns": ("a", "b")}, "needs feature_entries"),
        ({"num_features": 3}, "needs feature_entries"),
        ({"feature_entries": Path("e.csv"), "entry_columns": ("a", "a")}, "entry_columns = "),
        ({"feature_entries": Path("e.csv"), "entry_columns": ("a",)}, "entry_columns = "),
        ({"feature_entries": Path("e.csv"), "num_features": 0}, "num_features = 0"),
    ],
)
def test_keys_that_contradict_each_other(keys: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        config_class("edges")(edges=Path("edges.csv"), **keys)  # pyright: ignore[reportCallIssue]


def test_only_features_read_the_entries(tmp_path: Path) -> None:
    """Entries change the features' version and not the graph's; without entries no version is another one than before."""
    keys = write(tmp_path, pl.DataFrame({"node": [0], "feature": [1]}), "csv", [0, 1])
    before = build_config(tmp_path / "home", config_class("edges")(**keys), threads=1)
    (tmp_path / "entries-0.csv").write_text("node,feature\n0,1\n1,0\n")
    after = build_config(tmp_path / "home", config_class("edges")(**keys), threads=1)
    assert before.graph.version == after.graph.version and after.graph.reused
    assert before.features.version != after.features.version
    without = config_class("edges")(**{key: value for key, value in keys.items() if key != "feature_entries"})
    assert not {"entry_columns", "num_features"} & canonical(features_config(without, TableConfig()))["read"].keys()
    assert not {"entry_columns", "num_features", "feature_entries"} & canonical(without).keys()


@pytest.mark.slow("entries beyond the memory limit: 30 million within 256 MiB")
def test_entries_beyond_the_memory_limit_take_what_the_formula_says(tmp_path: Path) -> None:
    """30 million entries, shuffled, are 480 MB of staged rows; the limit is 256 MiB."""
    nodes, features, limit = 200_000, 500, 256 << 20
    rng = np.random.default_rng(0)
    pl.DataFrame({"id": np.arange(nodes)}).write_parquet(tmp_path / "nodes.parquet")
    ring = np.arange(nodes)
    pl.DataFrame({"src": ring, "dst": np.roll(ring, 1)}).write_parquet(tmp_path / "edges.parquet")
    for part in range(6):
        count = 5_000_000
        entries = {"node": rng.integers(0, nodes, count), "feature": rng.integers(0, features, count).astype(np.int32)}
        pl.DataFrame(entries).write_parquet(tmp_path / f"entries-{part}.parquet")
    (tmp_path / "mine.toml").write_text(
        '[graph]\nsource = "edges"\nedges = "edges.parquet"\nnodes = "nodes.parquet"\n'
        f'feature_entries = "entries-*.parquet"\nnum_features = {features}\nmemory_limit = "256MiB"\n'
    )
    code = (
        "import resource, sys; from pathlib import Path; from graphmill.assets.pipeline.file import load_pipeline; "
        "from tests.assets.sources.own_data import build_config; "
        "built = build_config(Path(sys.argv[1]) / 'home', load_pipeline(Path(sys.argv[1]) / 'mine.toml').graph, threads=2); "
        "print(int(built.features.array('rows', verified=False)[::1000].sum()), "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    ones, peak = map(int, done.stdout.split()[-2:])
    expected = set()
    for part in range(6):
        entries = pl.read_parquet(tmp_path / f"entries-{part}.parquet").filter(pl.col("node") % 1000 == 0)
        expected |= set(entries.iter_rows())
    assert ones == len(expected)
    assert peak <= limit + (512 << 20) + 100 * nodes + 2 * max(8 << 20, features), f"{peak >> 20} MiB"
