"""The functions of `graphmill` on a home of their own: a run, what it made by every form of name, and mistakes."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import polars
import pytest
import torch

import graphmill
from tests.jobs.conftest import quick_launches as quick_launches
from tests.recipes import load_tiny, recipe, sbm

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, quick_launches: None) -> Iterator[tuple[Path, Path]]:
    """A pipeline file, and the home in which one of its tables, with two seeds, is trained."""
    folder = tmp_path_factory.mktemp("calls")
    path, home = folder / "mine.toml", folder / "home"
    trains = [{"name": "sage", "hidden": 8, "epochs": 1, "seeds": [4, 5]}, {"name": "gcn", "model": "gcn", "epochs": 1}]
    path.write_text(recipe(*trains, seed=0, graph=sbm(), sampling={"fanouts": [4, 4], "batch_size": 64}))
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):  # a launch sets both; so they are put back
            patch.setenv(name, str(home))
        outcome = graphmill.run(path, "sage", home=home, report=lines.append)
    assert set(outcome.artifacts) == {"graph", "features", "sage"}
    assert any(line.startswith("graph: built") for line in lines)
    yield path, home


def test_artifacts_are_named_as_on_the_command_line(made: tuple[Path, Path]) -> None:
    path, home = made
    graph = graphmill.artifact(path, "graph", home=home)
    read = graphmill.pipeline(path)
    names = [(f"{path}/graph", ""), (f"graph/{graph.version}", ""), (read, "graph")]
    assert {graphmill.artifact(*name, home=home).label for name in names} == {graph.label}
    assert graph.verify() == [] and graphmill.Store(home).find("graph", graph.version) is not None


def test_each_kind_opens_as_what_it_is(made: tuple[Path, Path]) -> None:
    path, home = made
    graph, features = (graphmill.open(path, name, home=home) for name in ("graph", "features"))
    assert (graph.topology.num_nodes, features.open().shape) == (300, (300, 8))
    models = [graphmill.open(path, "sage/5", home=home), graphmill.open(f"{path}/sage/5", home=home)]
    assert all(isinstance(model, graphmill.Trained) and model.semantic.seed == 5 for model in models)
    assert torch.equal(models[0].logits(), models[1].logits())
    # A model that is named by its version alone: which pipeline asked for it is not known.
    version = models[0].artifact.version
    opened = graphmill.open(f"model/{version}", home=home)
    assert isinstance(opened, graphmill.Artifact) and opened.version == version


def test_batches_and_predictions_are_those_of_a_seed(made: tuple[Path, Path], tmp_path: Path) -> None:
    path, home = made
    seeds = {
        seed: [batch.seeds.copy() for batch in graphmill.batches(path, "sage", seed=seed, home=home)] for seed in (4, 5)
    }
    assert sum(map(len, seeds[4])) == sum(map(len, seeds[5])) == len(graphmill.open(path, "graph", home=home).train_ids)
    assert any((a != b).any() for a, b in zip(seeds[4], seeds[5], strict=True) if len(a) == len(b))
    out = tmp_path / "out.parquet"
    assert graphmill.predict(path, "sage", out, seed=5, probabilities=True, home=home) == 300
    trained = graphmill.open(path, "sage/5", home=home)
    frame = polars.read_parquet(out)
    assert frame["class"].to_list() == trained.classes()
    assert {"node_id", "class", "probability", "label", "split", "embedding", "probabilities"} == set(frame.columns)


def test_mistakes_are_input_errors_with_a_remedy(made: tuple[Path, Path], tmp_path: Path) -> None:
    path, home = made
    for call, said in (
        (lambda: graphmill.pipeline("no-such"), "no-such"),
        (lambda: graphmill.pipeline(graphmill.pipeline(path), "train.lr=1"), "is read already"),
        (lambda: graphmill.artifact(graphmill.pipeline(path), home=home), "asks for several artifacts"),
        (lambda: graphmill.open("nothing", home=home), "neither the beginning of a version nor PIPELINE/STEP"),
        (lambda: graphmill.open(path, "sage", home=home), "is 2 models, with the seeds 4, 5"),
        (lambda: graphmill.open(path, "gcn", home=home), "gcn is model/.* does not have"),
        (lambda: graphmill.open(path, "gat", home=home), "has no step 'gat'"),
        (lambda: graphmill.predict(path, "sage", tmp_path / "out.csv", home=home), "does not end with .parquet"),
        (lambda: graphmill.run(path, "gat", home=home), "gat not in"),
    ):
        with pytest.raises(graphmill.InputError, match=said) as error:
            call()
        assert error.value.remedy


def test_a_run_goes_on_without_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some notebooks have streams in memory for output and errors."""
    load_tiny(tmp_path)
    for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    outcome = graphmill.run(tmp_path / "tiny.toml", selection="preprocess")
    assert set(outcome.artifacts) == {"graph", "features"}


def test_keys_that_are_set_lead_to_other_artifacts(tmp_path: Path) -> None:
    load_tiny(tmp_path)
    plain, set_ = (
        graphmill.pipeline(tmp_path / "tiny.toml"),
        graphmill.pipeline(tmp_path / "tiny.toml", "graph.nodes=310"),
    )
    assert (plain.graph.nodes, set_.graph.nodes) == (300, 310)  # pyright: ignore[reportAttributeAccessIssue]
    assert graphmill.pipeline(set_) is set_
