"""`graphmill predict --ranks 2`: processes that each have the rows of their parts write what one process writes."""

import numpy as np
import polars
import pytest
from click.testing import CliRunner

from graphmill.jobs.command import graphmill
from graphmill.kernels.errors import InputError
from graphmill.trainers.techniques.distributed import predict
from tests.e2e.commands import graphmill as run_graphmill
from tests.recipes import recipe, sbm

RECIPE = recipe(
    {"name": "two", "trainer": "distributed", "hidden": 8, "epochs": 2},
    name="ranked",
    graph=sbm(nodes=600, edges=5000, train_ratio=0.5),
    partitions={"method": "random", "parts": 4},
    sampling={"fanouts": [4, 4], "batch_size": 64},
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A pipeline file and the words that name the home of its trained model."""
    folder = tmp_path_factory.mktemp("ranked")
    path, home = folder / "ranked.toml", ["--home", str(folder / "home")]
    path.write_text(RECIPE)
    told = run_graphmill("run", str(path), home=folder / "home", forked=True)
    assert told.returncode == 0, told.stderr
    return path, home


def test_ranks_predict_what_one_process_predicts(trained, tmp_path, monkeypatch):
    (path, home), run = trained, CliRunner()
    found = []
    for ranks in ("1", "2"):
        out = tmp_path / f"by{ranks}.parquet"
        told = run.invoke(
            graphmill,
            [
                *home,
                "predict",
                str(path),
                "two",
                "--out",
                str(out),
                "--ranks",
                ranks,
                "--workspace",
                "64KiB",
                "--probabilities",
                "--top",
                "2",
                "--threshold",
                "0.4",
            ],
        )
        assert told.exit_code == 0, told.output
        found.append(polars.read_parquet(out))
    one, two = found
    assert one.columns == two.columns and one.height == two.height == 600
    assert one["class"].null_count() and one["class_1"].null_count() == 0 and "probability_2" in one.columns
    numbers = [name for name, kind in one.schema.items() if kind.is_float() or kind.is_nested()]
    assert numbers and one.drop(numbers).equals(two.drop(numbers))
    for name in numbers:
        left, right = (np.array(frame[name].to_list(), np.float64) for frame in found)
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5, err_msg=name)
    assert sorted(each.name for each in tmp_path.glob(".*")) == []

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(predict, "_merged", full)
    out = tmp_path / "full.parquet"
    told = run.invoke(graphmill, [*home, "predict", str(path), "two", "--out", str(out), "--ranks", "2"])
    assert isinstance(told.exception, InputError) and "full" in str(told.exception)
    assert not out.exists() and sorted(each.name for each in tmp_path.glob(".*")) == []


def test_a_number_of_ranks_that_does_not_divide_the_parts_is_refused(trained, tmp_path):
    path, home = trained
    words = [*home, "predict", str(path), "two", "--out", str(tmp_path / "x.parquet"), "--ranks", "3"]
    told = CliRunner().invoke(graphmill, words)
    assert isinstance(told.exception, InputError) and "3" in str(told.exception)
