"""The messages that docs/troubleshooting.md quotes are those of the program."""

import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
FOLDERS = ("kernels", "assets", "trainers", "jobs")


def test_every_quoted_message_stands_in_the_code() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for name in FOLDERS for path in (ROOT / name).rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # texts that go on in the next line
    quoted = re.findall(r'\*\*"([^"]+)"\*\*', PAGE.read_text(encoding="utf-8"))
    assert len(quoted) > 15
    pieces = [piece.strip() for text in quoted for piece in re.split(r"\.\.\.|\d+", text)]
    missing = [piece for piece in pieces if piece and piece not in source]
    assert not missing
