"""setup.py: what compiles again, and where a build in place keeps what it made."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("setuptools")
pytest.importorskip("pybind11")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        spec = importlib.util.spec_from_file_location("setup_of_graphmill", ROOT / "setup.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def made(setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An object beside the list of its headers, newer than all that it was made from; returns its path."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "kernels/native/a/op.cpp",
        "kernels/native/a/op.h",
        "kernels/native/b/other.h",
        "build/native_flags.txt",
    ):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
        os.utime(name, (100, 100))
    listed = "op.o: kernels/native/a/op.cpp \\\n /gone/pybind11/numpy.h kernels/native/a/op.h\n"
    Path("build/op.d").write_text(listed)
    Path("build/op.o").touch()
    os.utime("build/op.o", (200, 200))
    return Path("build/op.o")


@pytest.mark.parametrize(
    ("touched", "again"),
    [
        ("kernels/native/a/op.cpp", True),
        ("kernels/native/a/op.h", True),
        ("build/native_flags.txt", True),
        ("kernels/native/b/other.h", False),
        ("build/op.o", False),
    ],
)
def test_a_source_its_headers_and_the_flags_make_an_object_old(
    setup: ModuleType, made: Path, touched: str, again: bool
) -> None:
    assert not setup.needs_recompile(str(made), "kernels/native/a/op.cpp")
    os.utime(touched, (300, 300))
    assert setup.needs_recompile(str(made), "kernels/native/a/op.cpp") is again


@pytest.mark.parametrize("gone", ["build/op.o", "build/op.d", "kernels/native/a/op.h"])
def test_what_is_missing_compiles_again(setup: ModuleType, made: Path, gone: str) -> None:
    Path(gone).unlink()
    assert setup.needs_recompile(str(made), "kernels/native/a/op.cpp")


def test_builds_in_place_and_editable_installs_share_their_objects(setup: ModuleType) -> None:
    from setuptools import Distribution

    folders = []
    for attribute in ("inplace", "editable_mode", None):
        command = setup.BuildNative(Distribution({"ext_modules": [setup.native]}))
        if attribute:
            setattr(command, attribute, True)
        command.ensure_finalized()
        folders.append((command.build_temp, command.build_lib))
    assert folders[0] == folders[1] == ("build/objects", "build/native") and folders[2] != folders[0]
