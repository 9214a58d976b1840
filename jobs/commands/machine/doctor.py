"""`graphmill doctor`: what this machine has for graphmill, what it lacks, and the remedies.

Each probe looks at one thing and survives a machine without it. Speeds are measured once, into the home, since they take seconds:

    $GRAPHMILL_HOME/measured/speeds.json     name -> bytes per second
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from graphmill.assets.budgets.measured import measure
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.home import home_folder, store_url
from graphmill.assets.storage.system.filesystem import make_folder
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.jobs.commands.machine.surroundings import (
    LACKS,
    NOTE,
    Finding,
    compiler,
    finding,
    letters,
    limits,
    locks,
    shared_memory,
    temporary_folder,
    variables,
)
from graphmill.jobs.operations.rates import STARTS, STEPS, kept_rates, measured_rates
from graphmill.kernels.errors import InputError, install_extra

PACKAGES = ("torch", "numpy", "dagster", "duckdb", "polars")
"""Packages that every pipeline needs."""
PINNED_LEAST = 1 << 30
"""Bytes of locked memory below which a large host tier cannot be pinned."""


def examine(home: Path | None, *, again: bool = False) -> list[Finding]:
    """Returns the findings of all probes."""
    folder = home_folder(home)
    make_folder(folder)
    probes: list[Callable[[], Iterator[Finding]]] = [
        _python, _native_module, compiler, _graphics, lambda: _memory(folder), lambda: locks(folder), shared_memory,
        temporary_folder, lambda: _reading(folder), limits, letters, variables, _extras, _object_store, lambda: _speeds(folder, again),
    ]  # fmt: skip
    return [found for probe in probes for found in probe()]


def can_train(findings: list[Finding]) -> bool:
    """Tells whether this machine has everything that a training needs."""
    return not any(each.needed and each.state == LACKS for each in findings)


def print_findings(findings: list[Finding], *, as_json: bool) -> None:
    """Prints the findings by topic, each remedy below its finding; or as JSON."""
    if as_json:
        print(json.dumps([asdict(each) for each in findings], indent=2))
        return
    width, topic = max(len(each.name) for each in findings), ""
    for each in findings:
        if each.topic != topic:
            topic = each.topic
            print(topic)
        print(f"  {each.state:7} {each.name:{width}}  {each.found}")
        if each.remedy:
            print(f"  {'':7} {'':{width}}  -> {each.remedy}")


def _python() -> Iterator[Finding]:
    version = sys.version_info
    remedy = "make the virtual environment with Python 3.11: make clean, then make demo"
    fits = version[:2] in ((3, 11), (3, 12))
    yield finding("Python", "Python", fits, ".".join(map(str, version[:3])), remedy, needed=True)
    for package in PACKAGES:
        try:
            yield finding("Python", package, True, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            remedy = f"pip install -c constraints.txt {package}"
            yield finding("Python", package, False, "not installed", remedy, needed=True)


def _native_module() -> Iterator[Finding]:
    try:
        from graphmill.kernels import _native

        found, there = Path(_native.BUILD_FILE).name, True
    except ImportError as error:
        found, there = str(error), False
    yield finding("processor", "native module", there, found, "make native", needed=True)
    flags = _text("/proc/cpuinfo").partition("flags")[2].partition("\n")[0].split()
    wide = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no wide vectors"
    yield finding("processor", "cores", True, f"{_cores()}, {wide}")


def _cores() -> str:
    there, usable = os.cpu_count() or 1, usable_cores()
    return str(there) if usable == there else f"{usable} of {there}, by affinity or the control group's limit"


def _object_store() -> Iterator[Finding]:
    """Writes an object to the store that `$GRAPHMILL_STORE` names, if it names one, and tries to write it twice."""
    if not store_url():
        return
    from graphmill.assets.storage.remote.objects import creates_once, require_objects

    try:
        once = creates_once(require_objects())
    except InputError as error:
        yield Finding(
            topic="object store",
            name="GRAPHMILL_STORE",
            state=LACKS,
            found=error.problem,
            remedy=error.remedy,
            needed=True,
        )
        return
    found = f"{store_url()} is read and written" if once else f"{store_url()} lets two machines publish one version"
    remedy = "use a server that keeps If-None-Match of writes, such as a newer MinIO"
    yield finding("object store", "GRAPHMILL_STORE", once, found, remedy, needed=True)


def _graphics() -> Iterator[Finding]:
    from graphmill.kernels.cuda.driver import driver_cuda_version, gpus

    version = driver_cuda_version()
    if version is None:
        found = "none (no libcuda.so.1): trainings run on the CPU"
        yield finding("GPU", "driver", False, found, otherwise=NOTE)
        return
    yield finding("GPU", "driver", True, f"for CUDA {version[0]}.{version[1]} and older")
    for number, gpu in enumerate(gpus()):
        yield finding("GPU", f"device {number}", True, f"{gpu.name}, {format_bytes(gpu.total_bytes)}")
    if not gpus():
        yield finding("GPU", "devices", False, "none that this process may use")
        return
    yield from _gpu_libraries(f"cuda{version[0]}")


def _gpu_libraries(extra: str) -> Iterator[Finding]:
    """Yields findings on the software between a GPU and a training: torch's build, CuPy, and its compiler."""
    import torch

    build, remedy = torch.version.cuda, "install a build of torch for CUDA (pytorch.org says which)"
    yield finding("GPU", "torch", build is not None, f"{torch.__version__}, CUDA {build}", remedy)
    try:
        from graphmill.kernels.cuda.device import CudaDevice

        CudaDevice().kernel("layers/aggregate", "aggregate", {})
        yield finding("GPU", "kernels", True, "CuPy compiles them")
    except InputError as error:
        remedy = install_extra(extra) if "CuPy is not installed" in error.problem else error.remedy
        yield finding("GPU", "kernels", False, error.problem, remedy)


def _memory(home: Path) -> Iterator[Finding]:
    topic, machine = "memory and disk", measure(home)
    yield finding(topic, "memory", True, format_bytes(machine.memory_bytes))
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    unbounded = locked == resource.RLIM_INFINITY
    found = "no limit" if unbounded else f"at most {format_bytes(locked)}"
    remedy = "for large host tiers beside a GPU: ulimit -l unlimited (limits.conf, LimitMEMLOCK)"
    yield finding(topic, "locked memory", unbounded or locked >= PINNED_LEAST, found, remedy, otherwise=NOTE)
    huge = _text("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = huge.partition("[")[2].partition("]")[0] or "unknown"
    remedy = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: direct reads are slower without"
    yield finding(topic, "huge pages", chosen in ("always", "madvise"), chosen, remedy, otherwise=NOTE)
    yield finding(topic, "home", True, f"{home}, {format_bytes(machine.disk_bytes)} free")


def _reading(home: Path) -> Iterator[Finding]:
    topic, slower = "reading past the page cache", 'trainer = "disk" takes pread instead'
    try:
        from graphmill.kernels import _native

        number = _native.ring_errno()
        found = f"{os.strerror(number)}: {slower}" if number else "there"
        remedy = "allow io_uring: kernel.io_uring_disabled = 0, and the container's seccomp profile"
        yield finding(topic, "io_uring", not number, found, remedy)
    except ImportError:
        yield finding(topic, "io_uring", False, "the native module is missing")
    with tempfile.NamedTemporaryFile(dir=home) as file:
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
            yield finding(topic, "O_DIRECT", True, "in the home")
        except OSError as error:
            remedy = "put the home on a local disk (ext4, xfs): rows that are read go through the page cache without"
            yield finding(topic, "O_DIRECT", False, f"{error.strerror} in {home}", remedy)


def _extras() -> Iterator[Finding]:
    for name, module, extra, use in (
        ("DGL", "dgl", "dgl", "DGL files and models over its blocks"),
        ("PyG", "torch_geometric", "pyg", "models over its convolutions"),
        ("Ray", "ray", "ray", "runs on a cluster"),
        ("obstore", "obstore", "object-store", "artifacts in an object store"),
    ):
        there = importlib.util.find_spec(module) is not None
        found = "installed" if there else f"not installed: {use} need it"
        yield finding("optional", name, there, found, install_extra(extra), otherwise=NOTE)


def _speeds(home: Path, again: bool) -> Iterator[Finding]:
    """Yields the speeds that the home holds; measures them if it holds none or `again` is set."""
    problem = ""
    # What is damaged is measured again: no result follows from these numbers.
    speeds = {} if again else kept_rates(home)
    topic = f"speeds ({'measured before; --refresh measures again' if speeds else 'measured now'})"
    if not speeds:
        try:
            measured_rates(home, speeds)
        except RuntimeError as error:  # torch raises it for a GPU whose memory other processes hold
            problem = str(error).partition("\n")[0]
    for name, rate in speeds.items():
        yield finding(topic, name, True, f"{1 / rate:.1f} s" if name in (STARTS, STEPS) else f"{rate / 1e9:.2f} GB/s")
    if problem:
        remedy = "ask again when the GPU is free (nvidia-smi says who holds it)"
        yield finding(topic, "GPU", False, f"not measured: {problem}", remedy, otherwise=NOTE)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
