"""Bytes between ranks by formula equal those of ledgers; the counts of a pipeline are those of its artifacts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.scaling.cluster import between_ranks, counted_steps
from graphmill.trainers.techniques.distributed.costs import (
    ModelSize,
    counted_by_formula,
    head_bytes,
    request_bytes,
)
from tests.e2e.commands import graphmill as run_graphmill
from tests.recipes import recipe, sbm
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import SAMPLING, parts_inputs, train_parts

HIDDEN, CLASSES, WIDTH, EPOCHS = 8, 3, 12, 3


@pytest.mark.parametrize("gradients", ["ordered", "all-reduce"])
@pytest.mark.parametrize(("parts", "ranks"), [(2, 2), (4, 2)])
def test_the_formulas_give_the_ledger(tmp_path: Path, parts: int, ranks: int, gradients: str) -> None:
    """Of counts of rows, calls and batches, and of the model's tensors as they lie in its file."""
    parts_inputs(tmp_path, parts)
    options = {"settings": {"gradients": gradients}, "accumulate": 1}
    model = run_threads(ranks, lambda rank: train_parts(tmp_path, parts, rank, **options))[0]
    ledger = json.loads(model.file("ledger.json").read_text())
    counts = {row["name"]: row["n"] for row in ledger["counts"] if row["layer"] == 0}
    parameters = model.summary["numbers"]["parameters"]
    # Two layers of GraphSAGE: a map of neighbours, a map of the node itself, a bias.
    size = ModelSize(num_bytes=4 * parameters, tensors=6)
    steps = counts["batches"] // parts
    found = counted_by_formula(counts, size, ranks, 4 * WIDTH, gradients == "ordered", steps)
    assert found == between_ranks(ledger) and counts["hits_remote"] > 0
    assert SAMPLING.batch_size * counts["batches"] >= counts["seeds"]


def test_heads_are_whole_rows() -> None:
    assert [head_bytes(row) for row in (1, 4, 8, 12, 256)] == [8, 8, 8, 12, 256]
    assert request_bytes(rows=10, calls=3, size_rounds=1, row_bytes=256, ranks=4) == 40 + 3 * (3 * 256 + 8)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A home in which a pipeline with a training by two ranks was run; and its file."""
    folder = tmp_path_factory.mktemp("network")
    train = {"name": "pair", "trainer": "distributed", "hidden": HIDDEN, "epochs": 1, "distributed": {"ranks": 2}}
    tables = {"sampling": {"fanouts": [3, 3], "batch_size": 64}, "partitions": {"parts": 2, "method": "random"}}
    (folder / "net.toml").write_text(recipe(train, name="net", graph=sbm(), **tables))
    ran = run_graphmill("run", str(folder / "net.toml"), home=folder / "home", forked=True)
    assert ran.returncode == 0, ran.stderr
    return folder / "net.toml", folder / "home"


def test_a_pipeline_is_counted(built: tuple[Path, Path]) -> None:
    from graphmill.assets.pipeline.file import load_pipeline
    from graphmill.trainers.recipe.config import TrainTable

    path, home = built
    found = {each.name: each for each in counted_steps(load_pipeline(path, TrainTable), Store(home))}
    sizes = {artifact.stage: artifact.total_bytes for artifact in Store(home).artifacts() if artifact.part_of is None}
    assert {name: found[name].published_bytes for name in ("graph", "features", "partitions", "shards")} == {
        name: sizes[name] for name in ("graph", "features", "partitions", "shards")
    }
    assert found["shards"].fetched_bytes == sizes["features"] + sizes["partitions"] and found["shards"].parts == 2
    pair = found["pair"]
    assert pair.ranks == 2 and pair.between["feature"] > 0 and pair.between == pair.by_formula


def test_the_command_prints_and_says_what_is_not_built(built: tuple[Path, Path], tmp_path: Path) -> None:
    path, home = built
    printed = CliRunner().invoke(graphmill, ["--home", str(home), "network", str(path)]).output
    assert "between 2 ranks " in printed and "B of gradient =" in printed and "/=" not in printed
    rows = json.loads(CliRunner().invoke(graphmill, ["--home", str(home), "network", str(path), "--json"]).output)
    assert {row["name"]: row["built"] for row in rows}["pair"]
    empty = CliRunner().invoke(graphmill, ["--home", str(tmp_path / "none"), "network", str(path)]).output
    assert (
        "pair    is not built" in " ".join(empty.split("\n")).replace("pair        ", "pair    ")
        or "is not built" in empty
    )
