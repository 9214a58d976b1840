"""Which pipelines are big, by the bytes of what they read and build."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.pipeline.file import load_pipeline, parse_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.jobs.operations.size import BIG_FILE_BYTES, is_big, raw_bytes, takes_memory
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import PACKED, load_tiny, recipe


def sampled(nodes: int, **tables: Any) -> str:
    graph = {"source": "rmat", "nodes": nodes, "edges": 1_000_000, "features": 128}
    sampling = {"fanouts": [10, 10, 10], "batch_size": 1024, "reuse": 4}
    return recipe(graph=graph, sampling=sampling, **tables)


def parsed(text: str, folder: Path):
    return parse_pipeline(folder / "mine.toml", text.encode(), TrainTable)


def sparse(path: Path, num_bytes: int):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(num_bytes)


def test_a_folder_is_judged_by_all_its_files(tmp_path):
    pipeline = parsed('[graph]\nsource = "ogb"\npath = "ogbn"\n', tmp_path)
    assert not is_big(pipeline), "a folder that is not there yet"
    sparse(tmp_path / "ogbn/raw/edge.csv.gz", BIG_FILE_BYTES // 2)
    assert not is_big(pipeline)
    sparse(tmp_path / "ogbn/processed/deep/data_processed", BIG_FILE_BYTES // 2)
    assert raw_bytes(pipeline) == BIG_FILE_BYTES and is_big(pipeline)


def test_a_pattern_is_judged_by_all_that_it_matches(tmp_path):
    pipeline = parsed('[graph]\nsource = "edges"\nedges = "edges-*.parquet"\n', tmp_path)
    for number in range(4):
        sparse(tmp_path / f"edges-{number}.parquet", BIG_FILE_BYTES // 4)
    assert is_big(pipeline)


def test_tables_of_types_and_relations_are_judged_by_all_their_files(tmp_path):
    edges = '[graph.edges.buys]\npath = ["a.csv", "b.csv"]\nsource_type = "user"\ntarget_type = "user"\n'
    nodes = '[graph.nodes.user]\npath = "users.parquet"\n[graph.nodes.item]\npath = "users.parquet"\n'
    pipeline = parsed(f'[graph]\nsource = "tables"\n{nodes}{edges}', tmp_path)
    for number, name in enumerate(("a.csv", "b.csv", "users.parquet")):
        sparse(tmp_path / name, 100 + number)
    assert raw_bytes(pipeline) == 303, "each path once"


def test_samples_and_packing_are_judged_by_what_they_take(tmp_path):
    small, large = 1000, 400_000
    assert not is_big(parsed(sampled(large), tmp_path)), "nothing is stored"
    assert is_big(parsed(sampled(large, **PACKED), tmp_path))
    assert not is_big(parsed(sampled(small, **PACKED), tmp_path))


def test_heavy_stages_of_big_pipelines_take_a_slot_and_light_ones_do_not(tmp_path):
    pipeline = parsed(sampled(400_000, **PACKED), tmp_path)
    taking = {step.name: takes_memory(pipeline, step.recipe.name) for step in preprocessing_steps(pipeline)}
    assert taking.pop("budgets") is False
    assert {"graph", "samples", "packed_chunks"} <= taking.keys() and all(taking.values())
    assert not takes_memory(load_tiny(tmp_path), "graph")


@pytest.mark.parametrize("name", ["cora", "photo", "minesweeper", "sbm"])
def test_the_small_shipped_pipelines_are_small(name, monkeypatch):
    from graphmill.assets.pipeline.file import load_pipeline

    monkeypatch.setenv("GRAPHMILL_TEST_DATA", "/nowhere")
    assert not is_big(load_pipeline(name, TrainTable))


@pytest.mark.parametrize("name", ["a*", "b?", "c [1]", "**"])
def test_letters_of_patterns_in_folders(tmp_path, name):
    """A pattern inside such a folder once matched itself without end."""
    folder = tmp_path / name
    (folder / "parts").mkdir(parents=True)
    for part in range(3):
        (folder / "parts" / f"{part}.parquet").write_bytes(bytes(10))
    text = '[graph]\nsource = "edges"\nedges = "{}"\n'
    for edges, num_bytes in (("parts/*.parquet", 30), ("parts", 30), ("parts/1.parquet", 10), ("**/?.parquet", 30)):
        (folder / "p.toml").write_text(text.format(edges))
        assert raw_bytes(load_pipeline(folder / "p.toml")) == num_bytes
