"""What an installed package holds: a file that is read beside its module is part of it."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_READ = {".py", ".pyc", ".cpp", ".h", ".so"}
"""Modules, which are found without being named, and sources of the native module, which is built before."""


def test_every_file_that_is_read_at_run_time_is_in_the_package() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packaged = {
        path
        for package, patterns in setuptools["package-data"].items()
        for pattern in patterns
        for path in (ROOT / package).glob(pattern)
    }
    layers = [each.rstrip("*") for each in setuptools["packages"]["find"]["include"]]
    files = {path for layer in layers for path in (ROOT / layer).rglob("*") if path.is_file()}
    read = {path for path in files if path.suffix not in NOT_READ}
    assert any(path.suffix == ".toml" for path in read) and any(path.suffix == ".cu" for path in read)
    assert read == packaged
