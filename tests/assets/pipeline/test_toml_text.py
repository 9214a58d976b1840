"""Pipeline files in other encodings, with marks, and with letters that only look like those of TOML."""

import subprocess
from pathlib import Path

import pytest

from graphmill.assets.pipeline.toml_text import text_of
from graphmill.kernels.errors import InputError

TEXT = 'name = "größe"\n[graph]\nsource = "sbm"\n'


def test_a_mark_of_utf_8_is_left_out() -> None:
    assert text_of(Path("a.toml"), TEXT.encode("utf-8-sig")) == text_of(Path("a.toml"), TEXT.encode()) == TEXT


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "latin-1", "cp1252"]
)
def test_other_encodings_are_converted_by_the_remedy(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "my file.toml"
    path.write_bytes(TEXT.encode(encoding))
    with pytest.raises(InputError, match="the text is not UTF-8") as caught:
        text_of(path, path.read_bytes())
    command = caught.value.remedy.partition("for example: ")[2].partition(", or with")[0]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert text_of(path, (tmp_path / "NEW.toml").read_bytes()) == TEXT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("\n", "\r"), "lines end in \\\\r alone"),
        (lambda text: text.replace('"sbm"', "\u201csbm\u201d"), "a.toml:3: the line has the quote \u201c"),
        (lambda text: text.replace('"sbm"', "\u2018sbm\u2019"), "a.toml:3: the line has the quote \u2018"),
        (lambda text: text.replace(" = ", "\u00a0= ", 1), "a.toml:1: the line has a blank that does not break"),
        (lambda text: text.replace("source", "\u200bsource"), "a.toml:3: the line has a blank of no width"),
        (lambda text: text.replace("source", "\ufeffsource"), "a.toml:3: the line has a byte-order mark"),
        (lambda text: text.replace("source", "sou\0rce"), "a.toml:3: the line has zero bytes"),
        (lambda text: text.replace('"größe"', '"\u201egröße\u201c" x'), "a.toml:1: not valid TOML"),
    ],
)
def test_what_no_eye_sees_is_named(change, said: str) -> None:
    with pytest.raises(InputError, match=said):
        text_of(Path("a.toml"), change(TEXT).encode())
