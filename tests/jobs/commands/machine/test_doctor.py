"""What a machine has and lacks: every probe survives a machine without the thing, and names what mends it."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.machine import doctor, surroundings
from graphmill.jobs.commands.machine.doctor import can_train, examine
from graphmill.jobs.commands.machine.surroundings import LACKS, NOTE, OK, Finding
from graphmill.jobs.operations import rates
from graphmill.jobs.operations.rates import SPEEDS
from graphmill.kernels.cuda.driver import Gpu
from graphmill.kernels.errors import InputError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SAMPLE_BYTES", 1 << 20)
    monkeypatch.setattr(rates, "_import", lambda modules: None)


def found(home: Path, name: str) -> Finding:
    return next(finding for finding in examine(home) if finding.name == name)


def test_this_machine_can_train_and_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(graphmill, ["--home", str(tmp_path), "doctor"])
    assert result.exit_code == 0, result.output
    for line in ("native module", "io_uring", "O_DIRECT", "huge pages", "locked memory", "disk, sequential", "driver"):
        assert line in result.output


def test_json_is_the_same_for_programs(tmp_path: Path) -> None:
    result = CliRunner().invoke(graphmill, ["--home", str(tmp_path), "doctor", "--json"])
    findings = json.loads(result.output)
    assert {"topic", "name", "state", "found", "remedy", "needed"} == set(findings[0])
    assert {finding["state"] for finding in findings} <= {OK, LACKS, NOTE}


def test_speeds_are_measured_once_and_again_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examine(tmp_path)
    monkeypatch.setattr(rates, "_measured", lambda home: iter([("memory copy, one thread", 5e9)]))
    assert found(tmp_path, "memory copy, one thread").topic.startswith("speeds (measured before")
    again = {finding.name: finding for finding in examine(tmp_path, again=True)}["memory copy, one thread"]
    assert again.found == "5.00 GB/s" and again.topic == "speeds (measured now)"
    sound = (tmp_path / SPEEDS).read_text()
    for text in (
        sound.replace("5000000000.0", "7000000000.0"),
        '{"memory copy, one thread": "fast"}',
        "[1]",
        "damaged",
    ):
        (tmp_path / SPEEDS).write_text(text)
        assert found(tmp_path, "memory copy, one thread").topic == "speeds (measured now)"
    (tmp_path / SPEEDS).write_text("damaged")
    assert found(tmp_path, "memory copy, one thread").found == "5.00 GB/s"


def test_a_gpu_whose_memory_others_hold_is_said_and_measured_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(home: Path):
        yield "memory copy, one thread", 5e9
        raise RuntimeError("CUDA out of memory. Tried to allocate 256 MiB\nand more")

    monkeypatch.setattr(rates, "_measured", measured)
    for _ in range(2):
        assert found(tmp_path, "memory copy, one thread").topic == "speeds (measured now)"
        gpu = found(tmp_path, "GPU")
        assert gpu.state == NOTE and gpu.found == "not measured: CUDA out of memory. Tried to allocate 256 MiB"
    assert not (tmp_path / SPEEDS).exists()


def test_cores_are_those_that_the_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.jobs.commands.machine.doctor.os.cpu_count", lambda: 64)
    monkeypatch.setattr("graphmill.jobs.commands.machine.doctor.usable_cores", lambda: 6)
    assert found(tmp_path, "cores").found.startswith("6 of 64, by affinity or the control group's limit, ")
    monkeypatch.setattr("graphmill.jobs.commands.machine.doctor.usable_cores", lambda: 64)
    assert found(tmp_path, "cores").found.startswith("64, ")


def test_a_machine_without_a_driver_trains_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.kernels.cuda.driver.driver_cuda_version", lambda: None)
    assert found(tmp_path, "driver").state == NOTE and can_train(examine(tmp_path))


def test_a_gpu_without_its_libraries_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.kernels.cuda.driver.driver_cuda_version", lambda: (12, 8))
    monkeypatch.setattr("graphmill.kernels.cuda.driver.gpus", lambda: (Gpu("NVIDIA A100", 80 << 30),))
    monkeypatch.setattr("torch.version.cuda", None)
    findings = {finding.name: finding for finding in examine(tmp_path) if finding.topic == "GPU"}
    assert findings["device 0"].found == "NVIDIA A100, 80.0 GiB" and findings["driver"].state == OK
    assert findings["torch"].state == LACKS and "build of torch for CUDA" in findings["torch"].remedy
    assert findings["kernels"].state == LACKS

    def missing(index: int = 0) -> None:
        raise InputError("CuPy is not installed", "any")

    monkeypatch.setattr("graphmill.kernels.cuda.device.CudaDevice", missing)
    assert found(tmp_path, "kernels").remedy == 'pip install -e ".[cuda12]"'


def test_what_nothing_runs_without_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", ("torch", "no-such-package"))
    result = CliRunner().invoke(graphmill, ["--home", str(tmp_path), "doctor"])
    assert result.exit_code == 1
    assert "-> pip install -c constraints.txt no-such-package" in result.output


def test_reading_past_the_page_cache_that_is_forbidden_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmill.kernels._native.ring_errno", lambda: errno.EPERM)
    ring = found(tmp_path, "io_uring")
    assert ring.state == LACKS and "Operation not permitted" in ring.found and "seccomp" in ring.remedy


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("GRAPHMILL_CACHE_BYTES", "much", "is not a size"),
        ("GRAPHMILL_CACHE_BYTES", "-1", "is not a size"),
        ("GRAPHMILL_EXAMPLES", "yes", "GRAPHMILL_EXAMPLES is 'yes'"),
        ("GRAPHMILL_PIPELINES", "/nowhere", "there is no such folder"),
        ("GRAPHMILL_PIPELINES", __file__, "is not a folder"),
        ("TMPDIR", "/nowhere", "no file can be made there"),
        ("SLURM_PROCID", "3", "srun sets it"),
        ("PMIX_RANK", "x", "mpirun sets it"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    name: str, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    (told,) = [each for each in surroundings.variables() if each.name == name]
    assert told.state == LACKS and said in told.found and told.remedy.endswith(f"unset {name}")


def test_variables_that_are_set_are_shown_with_their_meaning_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    shown = {each.name: each.found for each in surroundings.variables()}
    assert shown["MASTER_ADDR"] == "'10.0.0.1', set by torchrun: Address at which the ranks meet."
    assert "secret" not in str([*surroundings.variables()])


def test_every_limit_is_probed_and_a_low_one_says_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings.resource, "getrlimit", lambda number: (16, 16))
    told = [*surroundings.limits()]
    assert len(told) == len(surroundings.ULIMITS) and all(each.state == NOTE and ": " in each.remedy for each in told)


def test_a_home_without_locks_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("graphmill.assets.storage.system.filesystem.fcntl.flock", flock)
    (told,) = surroundings.locks(tmp_path)
    assert told.needed and told.state == LACKS and "local disk" in told.remedy and not [*tmp_path.iterdir()]
