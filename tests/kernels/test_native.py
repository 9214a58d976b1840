"""The kernels that are imported are the ones beside these tests."""

from pathlib import Path

from graphmill import kernels
from graphmill.kernels import _native

ROOT = Path(__file__).resolve().parents[2]


def test_kernels_are_ours():
    # A package on the index provides a module of the same name; it must not stand in front of this folder.
    assert Path(kernels.__file__ or "").resolve().parent == ROOT / "kernels"
    assert Path(_native.BUILD_FILE).resolve().parent == ROOT / "kernels" / "_native"
