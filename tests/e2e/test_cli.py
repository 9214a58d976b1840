"""The command line end to end on a small generated graph, and its answers to bad input."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.storage.store import Store
from tests.e2e.commands import COMMAND, SMALL, environment, graphmill

pytestmark = pytest.mark.first


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the graph and GraphSAGE of the small pipeline, which tests copy."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "small.toml").write_text(SMALL)
    assert graphmill("build", str(folder / "small.toml"), home=folder / "home").returncode == 0
    assert graphmill("train", str(folder / "small.toml"), "sage", home=folder / "home", forked=True).returncode == 0
    return folder / "home"


@pytest.fixture
def home(tmp_path: Path, built: Path) -> Path:
    return shutil.copytree(built, tmp_path / "home", symlinks=True)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_a_pipeline_from_file_to_leaderboard_and_again(tmp_path: Path, pipeline: Path) -> None:
    home = tmp_path / "home"
    assert "is valid" in graphmill("validate", str(pipeline), home=home).stdout
    early = graphmill("train", str(pipeline), home=home)
    assert early.returncode == 1 and f"graphmill build {pipeline}" in early.stderr
    assert Store(home).artifacts() == []
    built = graphmill("build", str(pipeline), home=home)
    assert built.returncode == 0 and "graph: built" in built.stdout, built.stderr
    one = graphmill("train", str(pipeline), "sage", home=home)
    assert one.returncode == 0 and "sage: trained" in one.stdout and "gcn" not in one.stdout, one.stderr
    run = graphmill("run", str(pipeline), home=home, forked=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(": trained") == 2 and run.stdout.count("reused") == 3
    assert "leaderboard" in run.stdout and "±" in run.stdout
    again = graphmill("run", str(pipeline), home=home)
    assert again.stdout.count("reused") == 5 and ": trained" not in again.stdout
    listed = graphmill("ls", home=home).stdout
    assert listed.count("model/") == 3 and listed.count("graph/") == 1 and listed.count("features/") == 1
    assert "5 artifacts" in listed
    model = next(line.split()[0] for line in listed.splitlines() if line.startswith("model/"))
    shown = graphmill("show", model, home=home).stdout
    assert "test_accuracy" in shown and "weights are finite" in shown and "graph/" in shown
    verified = graphmill("verify", home=home)
    assert verified.returncode == 0 and verified.stdout.count("sound") == 5


def test_verify_finds_a_flipped_bit(home: Path) -> None:
    features = next(each for each in Store(home).artifacts() if each.stage == "features")
    path = features.file("rows.npy")
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    verified = graphmill("verify", home=home)
    assert verified.returncode == 1 and "rows.npy" in verified.stdout and "remedy" in verified.stdout


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("epochs = 2", "epochs = 0"), "epochs = 0"),
        (('model = "sage"', 'model = "sgae"'), "sage"),
        (("fanouts = [5, 5]", "fanouts = [5]"), "fanouts"),
        (("nodes = 3000", "node = 3000"), "nodes"),
        (("[sampling]", "[schedule]\ncron = '0 3 * *'\n[sampling]"), "has 4 fields"),
        (("seed = 3", "seed = "), "TOML"),
    ],
)
def test_a_wrong_pipeline_is_one_clear_error(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace(*change))
    result = graphmill("run", str(path), home=tmp_path / "home")
    assert result.returncode == 1 and result.stdout == ""
    assert expected in result.stderr and "small.toml:" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "home").exists()


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    text = (
        SMALL.replace("nodes = 3000", "nodse = 3000").replace("hidden = 16", "hidden = 1.5", 1).replace("[5, 5]", "[0]")
    )
    path.write_text(text)
    error = graphmill("validate", str(path), home=tmp_path / "home").stderr
    for part in ("nodse", "hidden", "fanouts"):
        assert part in error


def npz_pipeline(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "g.npz", **arrays)  # pyright: ignore
    path = folder / "npz.toml"
    path.write_text('name = "npz"\n[graph]\nsource = "npz"\npath = "g.npz"\n')
    return path


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"edge_index": np.array([[0, 1], [1, 9]]), "num_nodes": np.array(3)}, "9"),
        ({"edge_index": np.zeros((2, 0), np.int64), "num_nodes": np.array(3)}, "edge"),
        ({"edge_index": np.array([[0], [1]]), "x": np.array([[0.0], [np.nan]])}, "row 1"),
        ({"edge_index": np.array([[0], [1]]), "y": np.array(["a", None], dtype=object)}, "pickle"),
        (
            {"edge_index": np.array([[0], [1]]), "y": np.array([0, 1])}
            | {"train": np.array([0]), "val": np.array([0]), "test": np.array([1])},
            "train",
        ),
    ],
)
def test_bad_arrays_are_named_and_no_graph_is_published(tmp_path: Path, arrays: dict, expected: str) -> None:
    result = graphmill("build", str(npz_pipeline(tmp_path, **arrays)), home=tmp_path / "home")
    assert result.returncode == 1 and expected in result.stderr and "remedy" in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
    assert not [each for each in Store(tmp_path / "home").artifacts() if each.stage == "graph"]


def test_unknown_names_list_the_known_ones(home: Path, pipeline: Path) -> None:
    assert "cora" in graphmill("run", "corra", home=home).stderr
    assert "sage, gcn" in graphmill("train", str(pipeline), "gat", home=home).stderr
    assert "stages are: features, graph, model" in graphmill("ls", "chunks", home=home).stderr


def test_two_processes_that_build_the_same_version_both_succeed(tmp_path: Path, pipeline: Path) -> None:
    home = tmp_path / "home"
    command = [*COMMAND, "build", str(pipeline)]
    racers = [subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [racer.communicate(timeout=120)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0] and all("graph/" in output for output in outputs)
    features, graph = Store(home).artifacts()
    assert features.verify() == graph.verify() == []


def test_an_interrupt_ends_with_130_and_training_goes_on(tmp_path: Path, pipeline: Path) -> None:
    home = tmp_path / "home"
    pipeline.write_text(SMALL.replace("epochs = 2", "epochs = 400", 1))
    graphmill("build", str(pipeline), home=home)
    process = subprocess.Popen(
        [*COMMAND, "train", str(pipeline), "sage"], env=environment(home), stderr=subprocess.PIPE, text=True
    )
    checkpoints = home / "checkpoints"
    while process.poll() is None and not list(checkpoints.glob("*.safetensors")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert "--resume" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert not list((home / "store" / ".staging").iterdir())
    assert len(list(checkpoints.iterdir())) == 1


def test_every_command_has_an_example(tmp_path: Path) -> None:
    from graphmill.jobs.command import graphmill as group

    assert set(group.commands) >= {
        "build",
        "train",
        "run",
        "demo",
        "validate",
        "ls",
        "show",
        "verify",
        "init",
        "ui",
        "diff",
        "sql",
        "gc",
        "inspect",
        "predict",
    }
    for name, command in group.commands.items():
        assert f"Example: graphmill {name}" in (command.help or ""), name


def test_predictions_of_a_trained_model_go_to_parquet(tmp_path: Path, pipeline: Path, home: Path) -> None:
    import polars

    out = tmp_path / "out.parquet"
    missing = graphmill("predict", str(pipeline), "gcn", "--out", str(out), home=home)
    assert missing.returncode == 1 and "remedy" in missing.stderr and not out.exists()
    done = graphmill("predict", str(pipeline), "sage", "--out", str(out), home=home)
    assert done.returncode == 0 and "3,000 nodes, by model/" in done.stdout, done.stderr
    rows = polars.read_parquet(out)
    assert rows.columns == ["node_id", "class", "probability", "label", "split", "embedding"] and len(rows) == 3000
    assert rows["probability"].is_between(0.25, 1.0).all()
