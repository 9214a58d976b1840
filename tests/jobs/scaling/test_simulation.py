"""A pipeline on paper: numbers of formulas, of a run that was measured, and what breaks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.growth import last_rows
from benchmarks.predicted import compared
from benchmarks.record import RESULTS
from graphmill.jobs.command import graphmill
from graphmill.jobs.scaling.cluster import ClusterWork, Machines
from graphmill.jobs.scaling.simulation import simulate_cluster
from graphmill.kernels.errors import InputError

MACHINES = Machines(
    count=64, cores=32, memory_bytes=256 << 30, disk_bytes=8 << 40, disk_rate=2e9, pages_rate=5e5, network_rate=3e9
)
TEN_BILLION = ClusterWork(nodes=10**10, edges=10**11, features=128)


def test_a_measured_size_is_met() -> None:
    """The rows of the big run: formulas of bytes hold exactly or as bounds, and a step's cores to a quarter where no disk is waited for."""
    rows = last_rows((RESULTS / "big.jsonl").read_text())
    found = {(each.scale, each.step, each.what): each for row in rows.values() for each in compared(row)}
    assert len(found) > 50
    for each in found.values():
        ratio = each.high / each.measured
        if each.what == "memory":
            assert 1 <= ratio < 1.4, each
        elif each.what == "stored" and each.step in ("features", "partitions", "shards"):
            assert ratio == pytest.approx(1, rel=0.005), each
        elif each.what == "stored":
            assert 0.99 < ratio < 5, each
    for scale in (1 / 64, 1 / 32, 1 / 16):
        disk = found[scale, "disk", "seconds"]
        assert disk.low == pytest.approx(disk.measured, rel=0.25)


def test_one_machine_needs_no_network() -> None:
    alone = replace(MACHINES, count=1)
    found = simulate_cluster(ClusterWork(nodes=10**6, edges=2 * 10**7, features=64), alone)
    assert all(stage.machines == 1 and stage.fetched_bytes == 0 for stage in found.stages)
    moved = {each.name: sum(each.network_bytes.values()) for each in found.trainers}
    assert set(moved.values()) == {0} and not [limit for limit in found.limits if limit.stops]


def test_bytes_between_machines_are_those_of_the_formulas() -> None:
    """Per batch and other machine a copy of the gradients; of the rows all but the own share and the cached ones."""
    found = {each.name: each for each in simulate_cluster(TEN_BILLION, MACHINES).trainers}
    batches = -(-int(1e10 * 0.01 / 1024) // 64) * 64
    parameters = 2 * 128 * 256 + 2 * 256 * 172
    gradients = found["distributed_packed"].network_bytes["gradient"]
    assert gradients == pytest.approx(batches * 63 * 4 * parameters, rel=0.01)
    rows = batches * 1024 * 121 * 63 / 64 * (1 - (64 << 30) / (1e10 * 256))
    assert found["distributed"].network_bytes["feature"] == pytest.approx(256 * rows, rel=0.01)


def test_what_breaks_comes_in_the_order_of_a_run() -> None:
    found = simulate_cluster(TEN_BILLION, MACHINES)
    stops = [limit.name for limit in found.limits if limit.stops]
    assert stops[0] == "hotness" and not {"chunks", "distributed_packed"} & {*stops}
    assert any("pages of the disk" in limit.text for limit in found.limits if limit.name == "distributed")
    assert any("of memory, a machine has" in limit.text for limit in found.limits if limit.name == "samples")
    roomy = simulate_cluster(TEN_BILLION, replace(MACHINES, memory_bytes=1 << 40))
    assert any("longer than these hours" in limit.text for limit in roomy.limits if limit.name == "samples")
    small = simulate_cluster(TEN_BILLION, replace(MACHINES, disk_bytes=1 << 40, memory_bytes=4 << 40))
    assert ("graph", True) in {(limit.name, limit.stops) for limit in small.limits}
    few = simulate_cluster(TEN_BILLION, replace(MACHINES, count=8, memory_bytes=16 << 40, disk_bytes=64 << 40))
    assert any("a slot numbers" in limit.text for limit in few.limits if limit.name == "distributed")
    wide = simulate_cluster(replace(TEN_BILLION, edges=10**12), MACHINES)
    assert any("an object may have" in limit.text for limit in wide.limits if limit.name == "graph")


def test_more_of_anything_never_takes_longer() -> None:
    first = simulate_cluster(TEN_BILLION, MACHINES)
    for more in ({"count": 128}, {"network_rate": 6e9}, {"disk_rate": 4e9}, {"pages_rate": 1e6}, {"cores": 64}):
        found = simulate_cluster(TEN_BILLION, replace(MACHINES, **more))
        for before, after in zip(first.trainers, found.trainers, strict=True):
            if before.name != "fullgraph" and "count" not in more:  # more machines send each gradient to more of them
                assert after.epoch_seconds <= before.epoch_seconds * 1.001, (more, before.name)
        assert found.hours[0] <= first.hours[0] * 1.001, more


def test_the_command_prints_at_most_80_columns(tmp_path: Path) -> None:
    command = ["simulate", "cluster", "--nodes", "1e9", "--edges", "1e10", "--machines", "8"]
    printed = CliRunner().invoke(graphmill, command)
    assert printed.exit_code == 0, printed.output
    said = [line for line in printed.output.splitlines() if not line.startswith(("breaks", "slow"))]
    assert max(map(len, said)) <= 80 and "distributed_packed" in printed.output
    values = json.loads(CliRunner().invoke(graphmill, [*command, "--json"]).output)
    assert {stage["name"] for stage in values["stages"]} >= {"graph", "samples", "packed_chunks"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--train-share", "0.9"), "train_share = 0.9"),
        (("--fanouts", "10,x"), "fanouts = '10,x'"),
        (("--disk-speed", "0 GB/s"), "is not a speed above 0"),
        (("--disk-gbps", "3"), '--disk-speed "3 GB/s" or'),
        (("--network-gbps", "25"), '--network "25 Gbit/s"'),
        (("--network", "25"), "could mean bits or bytes"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(more: tuple[str, str], said: str) -> None:
    ran = CliRunner().invoke(graphmill, ["simulate", "cluster", "--nodes", "100", "--edges", "1000", *more])
    assert isinstance(ran.exception, InputError) and said in str(ran.exception)
    assert CliRunner().invoke(graphmill, ["simulate", "cluster", "--nodes", "1.5", "--edges", "9"]).exit_code == 2
