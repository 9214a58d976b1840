"""A rehearsal with two hosts: network namespaces with addresses of their own, the documented torchrun line, and what each host needs."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import Versions, preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import recipe, sbm
from tests.trainers.ranks.test_faults import ROOT

TRAIN = {"name": "two", "trainer": "distributed", "hidden": 8, "epochs": 2}
TABLES = {
    "name": "hosts",
    "graph": sbm(nodes=600, edges=5000, train_ratio=0.5),
    "partitions": {"method": "ldg", "parts": 2},
    "sampling": {"fanouts": [4, 4], "batch_size": 32, "reuse": 1},
}
EXCHANGE = recipe(TRAIN | {"samplers": 1}, hotness={"policy": "degree"}, memory={"host": "20%"}, **TABLES)
FROM_DISK = recipe(
    TRAIN | {"samples": "stored", "distributed": {"rows": "packed"}},
    samples={"plan": "parts"},
    memory={"device": "5%", "host": "20%", "disk": "20x"},
    cache_plan={},
    **TABLES,
)
# Pipeline, stages that a host needs, those that it names, and the parts of artifacts that it needs for part 1 of the graph.
CASES = {
    "exchange": (EXCHANGE, ("graph", "partitions", "shards", "hotness", "budgets"), ("graph", "shards", "budgets"), {}),
    "packed": (
        FROM_DISK,
        ("graph", "partitions", "shards", "samples", "cache_plan", "packed_chunks"),
        ("graph", "shards", "samples", "packed_chunks"),
        {"samples": ("part-1-",), "packed_chunks": ("static-tiers", "segments-")},
    ),
}
ADDRESSES = ("10.77.31.1", "10.77.31.2")
LIMIT = 540
"""Seconds for both hosts: four programs that load torch, on a machine that may be busy with other things."""


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def hosts():
    """Names of two namespaces that reach one another."""
    names = [f"graphmill{os.getpid()}{letter}" for letter in "ab"]
    if shutil.which("ip") is None or ip("netns", "add", names[0]).returncode:
        pytest.skip("this machine allows no network namespaces (ip netns add)")
    try:
        ip("netns", "add", names[1])
        made = ip("link", "add", "gm0", "netns", names[0], "type", "veth", "peer", "name", "gm0", "netns", names[1])
        if made.returncode:
            pytest.skip(f"this machine allows no virtual links: {made.stderr.strip()}")
        for name, address in zip(names, ADDRESSES, strict=True):
            for words in (
                ("addr", "add", f"{address}/24", "dev", "gm0"),
                ("link", "set", "gm0", "up"),
                ("link", "set", "lo", "up"),
            ):
                assert ip("-n", name, *words).returncode == 0
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)


def copied(home, other, versions, needed, named):
    """Copies what a host needs that has part 1: no features, and nothing of part 0.

    Args:
        needed: stages whose artifacts it needs.
        named: stage -> beginnings of the names of its parts that the host needs; of groups of segments the last one is that of part 1.
    """
    for stage in needed:
        artifact = Store(home).open(stage, versions[stage])
        own = [name for name in artifact.parts if name.startswith(({"shards": ("part-0001",)} | named).get(stage, ()))]
        own = [name for name in own if not name.startswith("segments-0-")]
        assert len(own) < len(artifact.parts) or not artifact.parts
        for entry in ({"stage": stage, "version": versions[stage]}, *(artifact.parts[name] for name in own)):
            shutil.copytree(
                home / "store" / entry["stage"] / entry["version"], other / "store" / entry["stage"] / entry["version"]
            )


def host_command(host, number, address, words):
    """The documented line as one host runs it."""
    line = f"--nnodes 2 --node-rank {number} --nproc-per-node 1 --master-addr {address} --master-port 29517 -m graphmill.trainers"
    program = [sys.executable, "-m", "torch.distributed.run"]
    return ["ip", "netns", "exec", host, *program, *line.split(), *words]


def ended_together(children, logs, within):
    """Waits for all children and returns their exit codes; the rest is ended when one fails or time is up."""
    limit = time.monotonic() + within
    try:
        while any(child.poll() is None for child in children) and not any(child.returncode for child in children):
            if time.monotonic() > limit:
                said = "\n".join(f"--- host {number}\n{log.read_text()}" for number, log in enumerate(logs))
                pytest.fail(f"the hosts are not done after {within} s\n{said}")
            time.sleep(0.2)
        with suppress(
            subprocess.TimeoutExpired
        ):  # the failure of one ends the other, within the time that is documented
            for child in children:
                child.wait(60)
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return [child.wait() for child in children]


@pytest.mark.slow("two hosts with addresses of their own, by the documented line of torchrun")
@pytest.mark.parametrize("case", CASES)
def test_two_hosts_train_by_the_documented_line(hosts, tmp_path, case):
    path, homes = tmp_path / "hosts.toml", [tmp_path / "first", tmp_path / "second"]
    text, needed, told, named_parts = CASES[case]
    path.write_text(text)
    graphmill = str(Path(sys.executable).with_name("graphmill"))
    run = subprocess.run(
        [graphmill, "--home", str(homes[0]), "run", str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    (model,) = [each for each in Store(homes[0]).artifacts() if each.stage == "model"]
    alone = {name: model.files[name]["digest"] for name in ("weights.safetensors", "metrics.jsonl")}
    steps, known = preprocessing_steps(load_pipeline(str(path), TrainTable), homes[0]), Versions()
    versions = {step.name: known.only(step) for step in steps}
    copied(homes[0], homes[1], versions, needed, named_parts)
    children, logs = [], [tmp_path / f"host{number}.log" for number in (0, 1)]
    for number, (host, home, log) in enumerate(zip(hosts, homes, logs, strict=True)):
        named = [f"--input={stage}={versions[stage]}" for stage in told]
        words = [str(path), "two", *(["--retrain"] if number == 0 else named)]
        environment = os.environ | {"GRAPHMILL_HOME": str(home), "GLOO_SOCKET_IFNAME": "gm0", "PYTHONPATH": str(ROOT)}
        with log.open("w") as file:
            child = subprocess.Popen(
                host_command(host, number, ADDRESSES[0], words), cwd=ROOT, env=environment, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        children.append(child)
    assert ended_together(children, logs, LIMIT) == [0, 0], "\n".join(log.read_text() for log in logs)
    model = Store(homes[0]).open("model", model.version)
    assert {name: model.files[name]["digest"] for name in alone} == alone
    assert [each["rank"] for each in model.run_record()["ranks"]] == [0, 1]
    assert not (homes[1] / "store" / "features").exists() and not (homes[1] / "store" / "model").exists()
