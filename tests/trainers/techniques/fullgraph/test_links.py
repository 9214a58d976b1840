"""Links over the whole graph, in chunks: the losses of an uncut pass, and the same bits in any mode, on ranks and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.storage.local.artifact import Artifact
from tests.trainers.graphs import link_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import Stops, build_chunks, content, losses, train_whole

OF_LINKS: dict[str, Any] = {
    "links": True, "model": "gcn", "metric": "auc", "exclude_targets": False, "hidden": 8, "epochs": 3, "threads": 1,
}  # fmt: skip
HEADS: dict[str, dict[str, Any]] = {
    "dot": {},
    "mlp": {"link_head": "mlp", "head": "linear", "input": "linear"},
    "distmult": {"link_head": "distmult", "model": "rgcn", "graph": {"relations": 2}},
    "jumps": {"link_head": "bilinear", "head": "linear", "jk": "cat", "model": "sage"},
    "normed": {"norm": "batch", "link_loss": "margin", "model": "sage"},
}


def trained(home: Path, head: str = "dot", **options: Any) -> Artifact:
    """A model of links; options over those of the head."""
    return train_whole(home, **(OF_LINKS | HEADS[head] | options))


def scores(model: Artifact) -> list[str]:
    """The digests of weights and of the scores of all epochs."""
    return [content(model)[name] for name in ("weights.safetensors", "metrics.jsonl")]


@pytest.mark.parametrize("head", HEADS)
def test_chunks_have_the_losses_of_an_uncut_pass(tmp_path: Path, head: str) -> None:
    """Pairs are computed some at a time, so the sums round in another order; the pairs are the same."""
    how: dict[str, Any] = {"dropout": 0.3, "dtype": "float64"}
    uncut = trained(tmp_path / "uncut", head, mode="device", **how)
    cut = trained(tmp_path / "cut", head, **how)
    np.testing.assert_allclose(losses(cut), losses(uncut), rtol=1e-10)
    numbers = uncut.summary["numbers"]
    for name in ("test_mrr", "test_auc", "valid_ap"):
        assert cut.summary["numbers"][name] == pytest.approx(numbers[name], abs=1e-6)
    assert all(check["passed"] for check in cut.summary["checks"] if "ledger" in check["name"])


@pytest.mark.parametrize("values", [24, 1000])
def test_pairs_that_are_computed_at_once_change_the_order_of_sums_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    whole = trained(tmp_path / "whole", "mlp", dtype="float64")
    monkeypatch.setattr("graphmill.trainers.techniques.fullgraph.memory.PAIR_VALUES", values)
    np.testing.assert_allclose(losses(trained(tmp_path / "few", "mlp", dtype="float64")), losses(whole), rtol=1e-10)


@pytest.mark.parametrize("head", ["dot", "jumps"])
def test_modes_devices_ranks_files_and_stops_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    one = trained(tmp_path / "one", head)
    for number, ways in enumerate(({"hybrid": False}, {"devices": 1}, {"link": "1000 GB/s"}, {"workspace": "1GiB"})):
        assert scores(trained(tmp_path / str(number), head, **ways)) == scores(one), ways
    with pytest.raises(ConnectionAbortedError):
        trained(tmp_path / "stopped", head, progress=Stops(1))
    assert content(trained(tmp_path / "stopped", head, resume=True)) == content(one)
    home = tmp_path / "ranks"
    build_chunks(home, link_graph_artifacts(home).graph, 2, 3)  # before threads ask for them
    two = run_threads(2, lambda ranks: trained(home, head, ranks=ranks))[0]
    assert scores(two) == scores(one) and two.summary["numbers"] == one.summary["numbers"]
    for name in ("free_bytes", "anonymous_bytes"):
        monkeypatch.setattr(f"graphmill.trainers.recipe.costs.course.{name}", lambda: 1)
    assert content(trained(tmp_path / "files", head)) == content(one)
    assert list((tmp_path / "files").rglob("spill")) and not list((tmp_path / "one").rglob("spill"))
