"""Generated ratings: their best ranking reaches the published score, and no byte depends on threads or batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from graphmill.assets.sources.generated import ratings
from graphmill.assets.sources.task_table import TaskTable
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import Built, build

SHOP = {"nodes": 3000, "edges": 12000, "features": 8, "classes": 6}


def shop(folder: Path, split: str = "random", threads: int = 2) -> Built:
    """The ratings as links."""
    task = TaskTable(kind="links", split=split)  # pyright: ignore[reportArgumentType]
    return build(folder, "ratings", threads=threads, task="links", links=task, **SHOP)


@pytest.mark.parametrize("split", ["random", "time"])
def test_the_best_ranking_reaches_the_published_score(tmp_path: Path, split: str) -> None:
    built = shop(tmp_path, split)
    links, numbers = built.opened.links, built.numbers
    assert links is not None and built.opened.task == "links" and numbers["node_types"] == ["user", "item"]
    test = links.split == 2
    user, item = links.source[test], links.target[test] - 2400
    other = np.random.default_rng(0).integers(0, 600, len(user))
    same = np.concatenate([user % 6 == item % 6, user % 6 == other % 6])
    found = roc_auc_score(np.repeat([1, 0], len(user)), same)
    assert abs(found - numbers["best_roc_auc"]) < 0.02 and numbers["best_roc_auc"] > 0.85


def test_users_have_classes_and_no_byte_depends_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build(tmp_path / "a", "ratings", **SHOP).opened
    assert (whole.labels[:2400] == np.arange(2400) % 6).all() and (whole.labels[2400:] == -1).all()
    first = shop(tmp_path / "b", "time", threads=1)
    monkeypatch.setattr(ratings, "BATCH_EDGES", 777)
    second = shop(tmp_path / "c", "time", threads=2)
    assert first.graph.files["link_split.npy"] == second.graph.files["link_split.npy"]
    assert first.graph.files["indices.npy"] == second.graph.files["indices.npy"]
    with pytest.raises(InputError, match="makes 4 items for classes = 6 tastes: give at least 36 nodes"):
        build(tmp_path / "d", "ratings", nodes=20, edges=10, classes=6)
