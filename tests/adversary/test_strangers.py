"""Exports that no reader has seen give their graph or a refusal that is true, and its command makes the graph."""

import random
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.registry import config_class
from graphmill.jobs.commands.pipelines.inspect_pipeline import with_problems
from graphmill.kernels.errors import InputError
from tests.adversary.files import LIBRARY
from tests.adversary.strangers import KINDS, Pairs, drawn_pairs
from tests.assets.sources.own_data import Built, build_config

SEEDS = 2
RULES = {"undirected": False, "duplicates": "keep", "self_loops": "keep"}


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of the time of a small build."""
    monkeypatch.setattr("graphmill.assets.graph.stage._draw", lambda *given: {})


def inspected(config: Any) -> list[str]:
    """Returns the mistakes that `inspect` tells."""
    try:
        survey = config.survey()
    except InputError as error:
        return [str(error)]
    return [*with_problems(survey, [[(FEATURES, features_config(config, None)), (GRAPH, config)]]).problems]


def pairs_of(built: Built) -> Pairs:
    """Returns the edges of a graph by the ids of its tables."""
    topology = built.opened.topology
    ids = pl.read_parquet(built.graph.path / "nodes.parquet")["original_id"].cast(pl.Int64).to_numpy()
    targets = np.repeat(np.arange(len(ids)), np.diff(topology.indptr))
    return sorted(zip(ids[topology.indices].tolist(), ids[targets].tolist(), strict=True))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_an_export_gives_its_graph_or_a_refusal_whose_command_does(tmp_path: Path, kind: Any) -> None:
    for seed in range(SEEDS):
        draw = random.Random(seed)
        pairs = drawn_pairs(draw)
        made, folder = kind(pairs, draw), tmp_path / str(seed)
        folder.mkdir()
        (folder / made.name).write_bytes(made.content)
        config: Any = config_class("edges")(edges=folder / made.name, **RULES)
        if not made.said:
            assert inspected(config) == [] and pairs_of(build_config(folder / "home", config)) == sorted(pairs)
            continue
        with pytest.raises(InputError) as refused:
            build_config(folder / "home", config)
        said = str(refused.value)
        assert made.said in said and not LIBRARY.search(said), said
        assert any(made.said in each for each in inspected(config))
        if made.mends:
            assert pairs_of(build_config(folder / "home", mended(folder, refused.value, made.name))) == sorted(pairs)


def mended(folder: Path, error: InputError, name: str) -> Any:
    """Carries out the command of a remedy; returns the configuration of the file that it makes."""
    commands = re.findall(r"((?:sed|tail|awk|tr|iconv|grep) .* > NEW\.csv)", error.remedy)
    assert len(commands) == 1, error.remedy
    subprocess.run(["bash", "-c", commands[0]], cwd=folder, check=True)
    path = folder / f"new-{name}"
    (folder / "NEW.csv").rename(path)
    return config_class("edges")(edges=path, **RULES)


def _matrix(edges: np.ndarray) -> np.ndarray:
    found = np.zeros((40, 40), int)
    found[edges[0], edges[1]] = 1
    return found


ARRAYS = {
    "turned edges": ("edge_index", lambda edges: edges.T),
    "edges as numbers with a point": ("edge_index", lambda edges: edges.astype(np.float32)),
    "edges with weights": ("edge_index", lambda edges: np.vstack([edges, edges[:1]])),
    "rows of edges with weights": ("edge_index", lambda edges: np.vstack([edges, edges[:1]]).T),
    "an adjacency matrix": ("edge_index", _matrix),
    "turned features": ("x", lambda x: x.T),
    "features of one column": ("x", lambda x: x[:, 0]),
    "labels of an unsigned type": ("y", lambda y: np.where(y == 0, -1, y).astype(np.uint8)),
    "labels below -1": ("y", lambda y: np.where(y == 0, -100, y)),
    "one-hot labels": ("y", lambda y: np.eye(3, dtype=int)[y]),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_of_another_form_is_refused_and_the_expression_of_the_remedy_makes_it_right(
    tmp_path: Path, kind: str
) -> None:
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 40, (2, 120)), axis=1)
    arrays = {"edge_index": edges, "x": rng.random((40, 3), np.float32), "y": rng.integers(0, 3, 40)}
    expected = _opened(tmp_path / "sound", arrays)
    name, change = ARRAYS[kind]
    changed = {**arrays, name: change(arrays[name])}
    with pytest.raises(InputError) as refused:
        _opened(tmp_path / "refused", changed)
    found = re.search(r"(?:save|means unknown:|unknown is -1:) (?:y = )?([^;]*)", refused.value.remedy)
    assert found is not None, refused.value.remedy
    if "[y < 0] = -1" in found[1]:
        exec(found[1], {"np": np, **changed})
        right = changed[name]
    else:
        right = eval(found[1], {"np": np, **changed})
    graph = _opened(tmp_path / "mended", {**changed, name: right})
    assert np.array_equal(graph.topology.indices, expected.topology.indices)
    if name != "y":
        assert np.array_equal(graph.labels, expected.labels)
    elif "below" in kind or "unsigned" in kind:
        assert np.array_equal(graph.labels, np.where(arrays["y"] == 0, -1, arrays["y"]))


def _opened(folder: Path, arrays: dict[str, np.ndarray]) -> Any:
    folder.mkdir()
    np.savez(folder / "graph.npz", **arrays)
    return build_config(folder / "home", config_class("npz")(path=folder / "graph.npz", **RULES)).opened
