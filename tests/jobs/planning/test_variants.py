"""The other trainings that a plan compares are of the same task, and so is one that is taken out of its file."""

from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline, parse_pipeline
from graphmill.assets.tasks.labels import Kind
from graphmill.jobs.planning.variants import Room, alone, variants
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import recipe, sbm

METRIC: dict[Kind, str] = {"classes": "f1_macro", "multilabel": "f1_macro", "regression": "r2", "links": "auc"}


@pytest.mark.parametrize("kind", METRIC)
def test_variants_keep_the_task_of_the_file(tmp_path: Path, kind: Kind) -> None:
    sampling = {"fanouts": [4, 3], "batch_size": 64} | ({"per_positive": 2} if kind == "links" else {})
    train = {"name": "gcn", "model": "gcn", "hidden": 8, "metric": METRIC[kind]}
    (tmp_path / "mine.toml").write_text(recipe(train, graph=sbm(), task={"kind": kind}, sampling=sampling))
    pipeline = load_pipeline(tmp_path / "mine.toml", TrainTable)
    found = [each for each in variants(pipeline, Room(host=1 << 20, disk="2x", cores=2)) if not each.own]
    assert len(found) == 7
    for each in found:
        assert "the kind is 'classes'" not in each.refused
        assert each.pipeline is None or each.pipeline.table("task").kind == kind
    compared = {each.technique.name for each in found if each.pipeline is not None}
    # A pass over all edges has the links that it predicts among them, which the file has to allow.
    assert len(compared) == (6 if kind == "links" else 7) and (kind != "links" or "fullgraph" not in compared)
    text = alone(pipeline, "gcn")
    assert parse_pipeline(pipeline.path, text.encode(), TrainTable).table("task").kind == kind
