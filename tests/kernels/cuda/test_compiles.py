"""Every CUDA source compiles for the oldest and the newest architecture that we name, to the instructions that it was written for."""

import re
from pathlib import Path

import pytest

from graphmill.kernels.cuda.compile import SOURCES
from graphmill.kernels.rows.gather_cuda import STORED_TYPES
from tests.kernels.cuda.nvrtc import ARCHITECTURES, compile_ptx
from tests.kernels.cuda.shim import KERNEL_NAME, ShimDevice

FILES = sorted(SOURCES.rglob("*.cu"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_sources_compile_as_they_stand(path, architecture):
    assert ".entry" in compile_ptx(path, architecture)


def test_a_mistake_is_reported(tmp_path):
    wrong = tmp_path / "wrong.cu"
    wrong.write_text('extern "C" __global__ void f(int* p) { *p = __half2float(q); }')
    with pytest.raises(AssertionError, match=r"wrong\.cu.*undefined"):
        compile_ptx(wrong, 90)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("stored", STORED_TYPES)
def test_gather_moves_sixteen_bytes_at_once(stored, architecture):
    from_type, from_bytes = STORED_TYPES[stored]
    for result in {"float32", "float64", stored}:
        to_type, to_bytes = STORED_TYPES[result]
        pack = 16 // max(from_bytes, to_bytes)
        options = [f"-DFROM={from_type}", f"-DTO={to_type}", f"-DPACK={pack}", "-DTEAM=16"]
        ptx = compile_ptx(SOURCES / "rows" / "gather.cu", architecture, options)
        assert ".local" not in ptx  # rows in flight stay in registers
        stores = set(re.findall(r"st\.global\.v(\d)\.\w(\d+)", ptx))
        assert any(int(count) * int(bits) == 8 * pack * to_bytes for count, bits in stores), (result, stores)
        # Rows may be anywhere, so their loads are generic; a pack is one load.
        loads = re.findall(r"ld\.(?:v(\d)\.)?\w(\d+)", ptx)
        assert any(int(count or 1) * int(bits) == 8 * pack * from_bytes for count, bits in loads), (result, loads)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_sources_run_on_the_shim_and_on_devices(path):
    """Each has a test that takes the `machine` fixture, so it runs on both; here it only has to compile for the CPU."""
    assert callable(
        ShimDevice().kernel(f"{path.parent.name}/{path.stem}", KERNEL_NAME.findall(path.read_text())[0], {})
    )
    assert "(machine" in (Path(__file__).parents[1] / path.parent.name / f"test_{path.stem}_cuda.py").read_text()
