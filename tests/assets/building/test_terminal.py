"""What data contain reaches a terminal spelled out, whatever writes it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.building.terminal import escaped, unescaped

ROOT = Path(__file__).parents[3]
BIDIRECTIONAL = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def harmful(text: str) -> list[str]:
    """The characters of a text that change how a terminal shows others; by Unicode's tables and not by ours."""
    return [
        each
        for each in text
        if each not in "\n\t"
        and (unicodedata.category(each) in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(each) in BIDIRECTIONAL)
    ]


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.text(
        st.characters(codec="utf-8") | st.sampled_from("\x1b\x07\r\x00\x7f\x85\x9b\u061c\u200e\u202e\u2028\u2066"),
        max_size=20,
    )
)
def test_no_character_of_any_text_moves_the_cursor(text: str) -> None:
    target = io.StringIO()
    print(text, file=escaped(target))
    assert not harmful(target.getvalue())
    kept = "".join(each for each in text if not harmful(each))
    assert not harmful(text) or len(target.getvalue()) > len(kept) + 1
    assert harmful(text) or target.getvalue() == f"{text}\n"


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.text(max_size=20))
def test_json_stays_json(text: str) -> None:
    target = io.StringIO()
    print(json.dumps({text: text}, ensure_ascii=False), file=escaped(target))
    assert json.loads(target.getvalue()) == {text: text}


def test_a_bar_moves_the_cursor_and_nothing_is_escaped_twice() -> None:
    target = io.StringIO()
    stream = escaped(escaped(target))
    print("\x1b[2K", end="", file=unescaped(stream))
    print("\x1b[2K", end="", file=stream)
    assert target.getvalue() == "\x1b[2K\\x1b[2K" and unescaped(target) is target


PROGRAM = """
import warnings
from graphmill.assets.building.terminal import begin_to_print
from graphmill.kernels.warn_once import warn_once
begin_to_print()
print("\\u4e2d\\udc80")
warnings.warn("for developers", UserWarning)
warn_once("no O_DIRECT")
"""


def test_a_terminal_without_a_letter_gets_it_spelled_out_and_no_warning_of_a_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True,
        env={"PYTHONIOENCODING": "latin-1", "PATH": ""},
    )  # fmt: skip
    assert done.stdout == "\\u4e2d\\udc80\n" and done.stderr == "graphmill: no O_DIRECT\n"
