"""Machine code is kept under all that it was made from, and small numbers are numbers."""

import types

import pytest

from graphmill.kernels.cuda import compile
from tests.kernels.cuda.nvrtc import compile_ptx


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Compiles with a stand-in for NVRTC; `made.options` lists what was compiled."""
    options = []
    nvrtc = types.SimpleNamespace(
        getVersion=lambda: (13, 0), createProgram=lambda *_: 1, compileProgram=lambda _, given: options.append(given),
        getCUBIN=lambda _: f"code {len(options)}".encode(), destroyProgram=lambda _: None, NVRTCError=ValueError,
    )  # fmt: skip
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(nvrtc=nvrtc))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compile, "_headers", lambda cupy: ("-Iheaders",))

    def code(source="rows/gather", defines=(), capability="90"):
        return compile.machine_code(cupy, source, dict(defines), capability)

    return types.SimpleNamespace(code=code, options=options, nvrtc=nvrtc)


def test_code_is_kept_for_its_text_its_names_its_gpu_and_its_compiler(made, monkeypatch):
    assert made.code() == made.code() == b"code 1"
    assert made.code(defines=[("ID", "int")]) == b"code 2" and made.code(capability="80") == b"code 3"
    monkeypatch.setattr(compile, "_texts", lambda: "a header has changed")
    assert made.code() == b"code 4"
    made.nvrtc.getVersion = lambda: (13, 1)
    assert made.code() == b"code 5" and len(made.options) == 5
    assert {"-arch=sm_90", "-Iheaders", "--fmad=false"} < set(made.options[0])


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-1], lambda whole: b"?" + whole[1:], lambda whole: whole[:-1] + b"?", lambda _: b""]
)
def test_code_that_does_not_fit_its_digest_is_compiled_anew(made, tmp_path, damage):
    assert made.code() == b"code 1"
    (kept,) = (tmp_path / "graphmill" / "cuda").iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    assert made.code() == made.code() == b"code 2"
    assert list(kept.parent.iterdir()) == [kept]


def test_a_folder_that_cannot_be_written_costs_time_alone(made, monkeypatch, tmp_path):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    assert (made.code(), made.code()) == (b"code 1", b"code 2")


def test_no_value_is_too_small_to_be_kept():
    """The CPU computes with subnormal numbers."""
    text = compile_ptx(compile.SOURCES / "layers/dropout.cu", 90, ["-DELEMENT=float", "-DID=int"])
    assert ".ftz" not in text
