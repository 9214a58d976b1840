"""Files whose names mean something to DuckDB, files without rows, and what is told apart by case or by time zone."""

import os
import time
from pathlib import Path

import polars
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.assets.sources.edges.source import EdgesConfig
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config


def write_edges(path: Path, pairs, names=("src", "dst"), **columns) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    src, dst = zip(*pairs, strict=True) if pairs else ((), ())
    frame = polars.DataFrame({names[0]: list(src), names[1]: list(dst), **columns})
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path)
    return path


def built(folder: Path, **keys):
    made = build_config(folder / "home", EdgesConfig(undirected=False, **keys), threads=1)
    return open_graph(made.inputs["graph"])


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize(("named", "sibling"), [("run[1]/e", "run1/e"), ("e[a]", "ea"), ("e?", "ex"), ("e*", "exx")])
def test_a_file_is_the_one_that_was_named(tmp_path, kind, named, sibling):
    path = write_edges(tmp_path / f"{named}.{kind}", [(0, 1), (1, 0)])
    write_edges(tmp_path / f"{sibling}.{kind}", [(0, 1), (1, 2), (2, 3)])
    assert built(tmp_path, edges=path).topology.num_edges == 2


def test_columns_that_differ_only_in_case_are_refused(tmp_path):
    path = write_edges(tmp_path / "e.parquet", [(0, 1), (1, 0)], DST=[1, 0])
    with pytest.raises(InputError, match="columns 'dst' and 'DST' differ only in case"):
        built(tmp_path, edges=path)
    assert (
        built(tmp_path, edges=write_edges(tmp_path / "f.parquet", [(0, 1)], a_b=[1], a_c=[2])).topology.num_edges == 1
    )


def test_ids_of_nineteen_digits_and_first_files_without_rows_are_whole_numbers(tmp_path):
    large = [(1234567890123456789, -5), (-5, 9223372036854775807)]
    assert built(tmp_path / "a", edges=write_edges(tmp_path / "e.csv", large)).topology.num_nodes == 3
    for number, pairs in enumerate(([], [(0, 1), (1, 2)])):
        write_edges(tmp_path / f"part-{number}.csv", pairs)
    assert built(tmp_path / "b", edges=tmp_path / "part-*.csv").topology.num_nodes == 3


def test_lists_of_features_may_begin_in_the_second_file(tmp_path):
    lists = polars.List(polars.Float32)
    edges = write_edges(tmp_path / "e.parquet", [(0, 1), (1, 0)])
    for number, rows in enumerate(([], [[1.0, 2.0], [3.0, 4.0]])):
        frame = polars.DataFrame({"id": list(range(len(rows))), "x": rows}, schema={"id": polars.Int64, "x": lists})
        frame.write_parquet(tmp_path / f"nodes-{number}.parquet")
    made = build_config(
        tmp_path / "home", EdgesConfig(edges=edges, nodes=tmp_path / "nodes-*.parquet", features=("x",)), threads=1
    )
    assert made.table.width == 2


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_with_a_zone_have_one_text_on_every_machine(tmp_path, monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        edges = write_edges(tmp_path / "e.parquet", [(0, 1), (1, 0)])
        at = polars.Series("at", [0, 3_600_000_000], dtype=polars.Datetime("us", "UTC"))
        polars.DataFrame({"id": [0, 1], "at": at}).write_parquet(tmp_path / "nodes.parquet")
        built(tmp_path, edges=edges, nodes=tmp_path / "nodes.parquet", name_column="at")
        (nodes,) = [
            polars.read_parquet(path) for path in (tmp_path / "home").rglob("nodes.parquet") if "graph" in path.parts
        ]
        assert nodes["name"].to_list() == ["1970-01-01 00:00:00+00", "1970-01-01 01:00:00+00"]
    finally:
        monkeypatch.undo()
        time.tzset()
        assert "TZ" not in os.environ or os.environ["TZ"] != "America/New_York"
