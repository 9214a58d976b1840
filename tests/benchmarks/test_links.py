"""DGL and GraphBolt compute the loss of a batch of links that ours computes, and train on them; R-GCN is DGL's."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks import link_limited, link_nations, links
from benchmarks.rival_process import RivalProcess, contestants, spec_of
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from tests.assets.sources.own_data import build_config
from tests.graphs import build_graph


@pytest.mark.parametrize("system", ["dgl", "graphbolt"])
def test_a_rival_has_our_loss_of_links_and_learns(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = contestants(system, quick=True)
    if not found:
        pytest.skip(f"{system} is not there")
    config = TrainConfig(model="sage", layers=2, hidden=8, dropout=0.0, threads=1, lr=0.03)
    for name, value in {"CONFIG": config, "FANOUTS": (4, 3), "BATCH_SIZE": 64, "THREADS": 1}.items():
        monkeypatch.setattr(links, name, value)
    graph = build_graph(
        Store(tmp_path / "home"),
        config_class("sbm")(seed=1, nodes=300, edges=1500, features=6, classes=3, p_in=0.9),
    )
    edges = np.arange(0, 2000, 5)
    np.save(tmp_path / "edges.npy", edges)
    spec = spec_of(graph, config, (4, 3), 64) | {"edges": str(tmp_path / "edges.npy"), "classes": 8, "system": system}
    ours = links.OurEpochs(graph.open(), edges)
    with RivalProcess(found[0][1], spec, found[0][2], "benchmarks.link_child") as rival:
        assert links.compare(rival, graph.open(), edges) < 1e-5
        for epoch in (ours.epoch, lambda: rival.ask("epoch")):
            answers = [epoch() for _ in range(6)]
            assert answers[-1]["loss"] < answers[0]["loss"] and min(each["edges"] for each in answers) > 1000


def test_rivals_under_a_limit_learn_the_links_of_our_relation(tmp_path: Path) -> None:
    spec = link_limited.write(tmp_path, {"nodes": 500, "edges": 3000}, batches=2)
    indptr, indices, links, reverse = (np.load(spec[name]) for name in ("indptr", "indices", "links", "reverse"))
    target = np.repeat(np.arange(500), np.diff(indptr))
    pairs = set(zip(indices[links].tolist(), target[links].tolist(), strict=True))
    buys, knows = (set(pl.read_parquet(tmp_path / f"{name}.parquet").rows()) for name in ("buys", "knows"))
    assert len(pairs) == len(links) == 2 * link_limited.BATCH_SIZE and pairs <= buys and not buys & knows
    assert np.array_equal(indices[reverse], target) and np.array_equal(target[reverse], indices)
    assert 2 * (len(buys) + len(knows)) == len(indices)
    assert load_pipeline(tmp_path / "links.toml", TrainTable).train[0].trainer == "disk"


def test_the_model_of_nations_is_that_of_dgl(tmp_path: Path) -> None:
    pytest.importorskip("dgl")
    if link_nations.find_spec("pykeen") is None:
        pytest.skip("needs PyKEEN: pip install pykeen")
    link_nations.write(tmp_path)
    pipeline = load_pipeline(tmp_path / "nations.toml", TrainTable)
    assert pipeline.sampling is not None
    graph = build_config(tmp_path / "home", pipeline.graph, threads=1).opened
    assert link_nations.compare(graph, pipeline.sampling) < 1e-10
