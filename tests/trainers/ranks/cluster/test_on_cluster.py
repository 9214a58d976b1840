"""Ranks on the nodes of a Ray cluster: the bytes are those of one machine, and whatever is lost, killed or interrupted, nothing is left."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.jobs.launch import Launch, launch
from graphmill.trainers.__main__ import train
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.order import Order
from tests.assets.cluster.kept_nodes import kept_nodes
from tests.recipes import recipe, sbm
from tests.trainers.ranks.test_faults import PATHS, ROOT

pytest.importorskip("ray")

TWO = {"name": "two", "trainer": "distributed", "hidden": 8, "threads": 1, "samplers": 1}
TABLES = {
    "graph": sbm(nodes=400, edges=3000, train_ratio=0.6),
    "partitions": {"method": "range", "parts": 6},
    "sampling": {"fanouts": [3, 3], "batch_size": 16},
}
SHORT = recipe(TWO | {"epochs": 2, "distributed": {"ranks": 2}}, name="short", **TABLES)
LONG = recipe(
    TWO | {"epochs": 30, "distributed": {"ranks": 3}},
    name="long",
    **TABLES | {"sampling": TABLES["sampling"] | {"method": "tests.trainers.ranks.faults:sample"}},
)
REFUSED = LONG.replace("faults:sample", "faults:refuse")
WITHIN = 200
"""Seconds until all is over, on a machine that may be busy with other things."""
FREE = """
import sys, time
from graphmill.assets.cluster.connect import connected
with connected(sys.argv[1]) as cluster:
    ray, limit = cluster.ray, time.monotonic() + 60
    while ray.available_resources().get("CPU") != ray.cluster_resources()["CPU"] and time.monotonic() < limit:
        time.sleep(0.2)
    assert ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"]
    assert all(each["state"] == "REMOVED" for each in ray.util.placement_group_table().values())
"""


def command(*words):
    """Runs a command of the project to its end."""
    return subprocess.run(
        words, cwd=ROOT, env=os.environ | PATHS, capture_output=True, text=True, timeout=WITHIN, check=False
    )


def trained_here(folder, name):
    """Builds and trains a pipeline with two processes of this machine, and returns what `model_of` returns."""
    path = folder / f"{name}.toml"
    launch(Launch(pipeline=load_pipeline(str(path), TrainTable), home=folder / "home", selection="preprocess"))
    train(Order(pipeline=load_pipeline(str(path), TrainTable), table="two", home=folder / "home", ranks=2))
    return model_of(folder, name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with pipelines and a home."""
    folder = tmp_path_factory.mktemp("cluster")
    for name, text in (("short", SHORT), ("long", LONG)):
        (folder / f"{name}.toml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        # A launch sets these for its processes; the next test must not see them.
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
            patch.setenv(name, "unset-by-the-test")
        for name, value in PATHS.items():
            patch.setenv(name, value)
        yield folder


@pytest.fixture(scope="module")
def pair():
    """The address of two nodes with a core each."""
    with kept_nodes(2, num_cpus=1) as nodes:
        yield nodes.address


def on_cluster(folder, name, address, *more):
    """The command line of a training on a cluster."""
    home, path = str(folder / "home"), str(folder / f"{name}.toml")
    return [sys.executable, "-m", "graphmill.trainers", path, "two", "--home", home, "--on", address, *more]


def model_of(folder, name):
    """Digests of weights and metrics, the counted ledger, and the model of a pipeline."""
    models = [each for each in Store(folder / "home").artifacts() if each.stage == "model"]
    (model,) = (each for each in models if each.run_record()["execution"]["asked_by"] == f"{name}/two")
    counts = json.loads(model.file("ledger.json").read_text())["counts"]
    assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
    return {name: model.files[name]["digest"] for name in ("weights.safetensors", "metrics.jsonl")}, counts, model


def test_two_nodes_train_as_two_processes_do(folder, pair):
    alone, counts, _ = trained_here(folder, "short")
    done = command(*on_cluster(folder, "short", pair, "--retrain", "-v"))
    assert done.returncode == 0, done.stderr
    assert "  two: seed 0, epoch 2/2: loss" in done.stderr and "with the same weights to the bit" in done.stdout
    found, again, model = model_of(folder, "short")
    assert found == alone and again == counts
    assert [each["rank"] for each in model.run_record()["ranks"]] == [0, 1]
    # What a rank finds wrong is one message.
    (folder / "small.toml").write_text(REFUSED)
    failed = command(*on_cluster(folder, "small", pair, "--retrain", "--ranks", "1"))
    assert failed.returncode == 1 and failed.stderr.count("remedy") == 1, failed.stderr
    assert "nodes are refused" in failed.stderr, failed.stderr


def ranks_of(name):
    """Rank -> id of its process, for the training of a pipeline."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if entry.name.isdigit() and words[1:5] == [b"-m", b"graphmill.trainers", name.encode(), b"two"]:
                variables = (entry / "environ").read_bytes().split(b"\0")
                found |= {int(each[5:]): int(entry.name) for each in variables if each.startswith(b"RANK=")}
        except OSError:
            continue
    return found


def gone(name):
    """Waits until no rank is left, and tells whether that came about."""
    limit = time.monotonic() + WITHIN
    while ranks_of(name) and time.monotonic() < limit:
        time.sleep(0.1)
    return ranks_of(name) == {}


@pytest.fixture(scope="module")
def expected(folder):
    """What `model_of` returns of the long training on this machine."""
    return trained_here(folder, "long")


def started(folder, name, address, *more):
    """Starts a training on a cluster, and waits until it has trained an epoch."""
    child = subprocess.Popen(
        on_cluster(folder, name, address, "-v", *more), cwd=ROOT, env=os.environ | PATHS, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert child.stderr
    said = []
    for line in child.stderr:
        said.append(line)
        if "epoch 2/" in line:
            return child
    raise AssertionError("".join(said))


@pytest.mark.slow("a node that is lost in the middle of a training")
def test_a_training_survives_the_loss_of_a_node_with_equal_bytes(folder, expected):
    alone, _, _ = expected
    with kept_nodes(3, num_cpus=1) as nodes:
        child = started(folder, "long", nodes.address, "--retrain")
        assert set(ranks_of("long")) == {0, 1, 2}
        nodes.kill(1)
        said, lines = child.communicate(timeout=WITHIN)
        assert child.returncode == 0, lines
        assert "is lost; the training goes on from its last checkpoint with 2 ranks on 2 nodes" in lines
        assert "with the same weights to the bit" in said
        free = command(sys.executable, "-c", FREE, nodes.address)
        assert free.returncode == 0, free.stderr
    found, _, model = model_of(folder, "long")
    assert found == alone and [each["rank"] for each in model.run_record()["ranks"]] == [0, 1]


@pytest.mark.slow("the head of a cluster that is killed in the middle of a training")
def test_a_lost_head_is_one_message(folder, expected):
    with kept_nodes(2, num_cpus=2) as nodes:
        child = started(folder, "long", nodes.address, "--retrain")
        nodes.kill_head()
        _, lines = child.communicate(timeout=WITHIN)
        assert child.returncode == 1 and gone("long")
    assert lines.splitlines()[-2:] == [
        f"python -m trainers: the Ray cluster at {nodes.address} does not answer any more",
        "  remedy: start it again; --resume goes on from the last checkpoint, with or without a cluster",
    ]
    assert "Traceback" not in lines and "gcs" not in lines and "raylet" not in lines


@pytest.mark.slow("a rank on a cluster that is killed by itself")
def test_a_rank_that_is_killed_ends_the_run(folder, expected):
    with kept_nodes(2, num_cpus=2) as nodes:
        child = started(folder, "long", nodes.address, "--retrain")
        os.kill(ranks_of("long")[1], signal.SIGKILL)
        _, lines = child.communicate(timeout=WITHIN)
        assert child.returncode == 1 and gone("long")
    assert "rank 1 of 3 on node" in lines and "was killed (SIGKILL, often: out of memory)" in lines, lines


@pytest.mark.slow("a launcher on a cluster that is killed or interrupted")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_or_interrupted_launcher_leaves_nothing(folder, expected, number):
    with kept_nodes(2, num_cpus=2) as nodes:
        child = started(folder, "long", nodes.address, "--retrain")
        os.kill(child.pid, number)
        _, lines = child.communicate(timeout=WITHIN)
        if number == signal.SIGINT:
            assert child.returncode == 130 and "interrupted" in lines and "Traceback" not in lines
        assert gone("long")
        free = command(sys.executable, "-c", FREE, nodes.address)
        assert free.returncode == 0, free.stderr
