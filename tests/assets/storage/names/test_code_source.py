"""The version of a user's code is that of what its name leads to: edits of anything else, comments and docstrings change nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from graphmill.assets.storage.files.digests import code_digests
from graphmill.assets.storage.names.code_source import source_digest
from graphmill.assets.storage.names.user_code import Reference
from graphmill.kernels.errors import InputError

MINE = '''"""Models of mine."""

import math
import tools
import tools.deep as deep
from parts import Base, halved
from parts import *
from package import Exported

WIDTH = 16
UNUSED = 3
SIZES = {"a": 1}
SIZES["b"] = 2


def helper(value):
    # Doubles a value.
    return value * 2


def spare(value):
    return value + UNUSED


class Net(Base):
    """A model."""

    def __init__(self, in_width, num_classes, config):
        self.width = helper(WIDTH) + tools.scale(in_width) + SIZES["a"] + from_star()
        UNUSED = deep.SHIFT

    def forward(self, blocks, x):
        from later import finish

        spare = x
        return finish(halved(x)) + Exported.value + math.pi


class Other(Base):
    def forward(self, blocks, x):
        return tools.other(x)


if __name__ == "__main__":
    print(Net)
'''
FILES = {
    "mine.py": MINE,
    "tools/__init__.py": "def scale(x):\n    return x * FACTOR\n\nFACTOR = 3\n\ndef other(x):\n    return x\n",
    "tools/deep.py": "SHIFT = 1\nUNREAD = 2\n",
    "parts.py": "import torch\n\nclass Root:\n    depth = 1\n\nclass Base(Root):\n    pass\n\ndef halved(x):\n    return x / 2\n"
    "\ndef from_star():\n    return 4\n\ndef quartered(x):\n    return x / 4\n",
    "later.py": "def finish(x):\n    return x - 1\n\ndef begin(x):\n    return x\n",
    "package/__init__.py": "from .inner import Exported, Hidden\n",
    "package/inner.py": "class Exported:\n    value = 7\n\nclass Hidden:\n    value = 8\n",
}
Edit = Callable[[dict[str, str]], None]


def changed(file: str, old: str, new: str) -> Edit:
    """The edit that replaces a text of a file, which has it once."""

    def edit(files: dict[str, str]) -> None:
        assert files[file].count(old) == 1, (file, old)
        files[file] = files[file].replace(old, new)

    return edit


def added(file: str, text: str) -> Edit:
    return lambda files: files.update({file: files[file] + text})


HARMLESS: dict[str, Edit] = {
    "a comment": added("mine.py", "# the end\n"),
    "another comment": changed("mine.py", "# Doubles a value.", "# Multiplies a value by two."),
    "a docstring": changed("mine.py", '"""A model."""', '"""My model, the first one."""'),
    "the module's docstring": changed("mine.py", '"""Models of mine."""\n', ""),
    "a docstring more": changed("mine.py", "class Other(Base):", 'class Other(Base):\n    """Other."""\n'),
    "white space": changed("mine.py", "self.width = helper", "self.width   =   helper"),
    "blank lines": changed("mine.py", "class Net(Base)", "\n\n\nclass Net(Base)"),
    "an unrelated class": added("mine.py", "\n\nclass Third(Other):\n    size = UNUSED\n"),
    "an import for it": changed("mine.py", "import Base, halved", "import Base, halved, quartered"),
    "an unrelated class changed": changed("mine.py", "tools.other(x)", "tools.other(x) + tools.third(x)"),
    "an unused constant": changed("mine.py", "UNUSED = 3", "UNUSED = 4"),
    "an unused function": changed("mine.py", "return value + UNUSED", "return value - UNUSED"),
    "what a script does": changed("mine.py", "print(Net)", "print(Other)"),
    "a comment in another module": added("tools/__init__.py", "# tools\n"),
    "an unused function of another module": added("tools/__init__.py", "\ndef third(x):\n    return x\n"),
    "an unread constant of another module": changed("tools/deep.py", "UNREAD = 2", "UNREAD = 3"),
    "an unused class of a package": changed("package/inner.py", "value = 8", "value = 9"),
    "an unused function behind a star": changed("parts.py", "return x / 4", "return x / 8"),
    "an unused function of a late import": changed("later.py", "return x\n", "return -x\n"),
}
TELLING: dict[str, Edit] = {
    "the class": changed(
        "mine.py", "def forward(self, blocks, x):\n        from", "def forward(self, blocks, x, y=0):\n        from"
    ),
    "a used function": changed("mine.py", "value * 2", "value * 3"),
    "a used constant": changed("mine.py", "WIDTH = 16", "WIDTH = 32"),
    "a constant's type": changed("mine.py", '{"a": 1}', '{"a": "1"}'),
    "a change of a used value": changed("mine.py", 'SIZES["b"] = 2', 'SIZES["b"] = 3'),
    "the base class": changed("parts.py", "class Base(Root):\n    pass", "class Base(Root):\n    more = 1"),
    "the base's base": changed("parts.py", "depth = 1", "depth = 2"),
    "an imported function": changed("parts.py", "return x / 2", "return x / 3"),
    "a function behind a star": changed("parts.py", "return 4", "return 5"),
    "a function of an imported module": changed("tools/__init__.py", "x * FACTOR", "x + FACTOR"),
    "a constant that it uses": changed("tools/__init__.py", "FACTOR = 3", "FACTOR = 4"),
    "a module of another name": changed("tools/deep.py", "SHIFT = 1", "SHIFT = 2"),
    "a late import": changed("later.py", "return x - 1", "return x - 2"),
    "a class of a package": changed("package/inner.py", "value = 7", "value = 6"),
    "what is run for its effect": added("mine.py", "\nNet.register()\n"),
    "another base": changed("mine.py", "class Net(Base)", "class Net(Base, Other)"),
}


def digest_of(folder: Path, files: dict[str, str], reference: str = "mine:Net") -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return source_digest(Reference(reference, folder))


@pytest.mark.parametrize("seed", range(60))
def test_drawn_edits_change_the_version_only_if_one_is_of_what_is_used(tmp_path: Path, seed: int) -> None:
    """Up to six edits, half of the time with one or more that count, in any order."""
    drawn = random.Random(seed)
    harmless = drawn.sample(sorted(HARMLESS), drawn.randint(1, 5))
    telling = drawn.sample(sorted(TELLING), drawn.randint(1, 2)) if seed % 2 else []
    names = [*harmless, *telling]
    drawn.shuffle(names)
    files = dict(FILES)
    before = digest_of(tmp_path / "before", files)
    for name in names:
        (HARMLESS | TELLING)[name](files)
    assert (digest_of(tmp_path / "after", files) != before) == bool(telling), names


@pytest.mark.parametrize("name", [*HARMLESS, *TELLING])
def test_each_edit_alone(tmp_path: Path, name: str) -> None:
    files = dict(FILES)
    before = digest_of(tmp_path, files)
    (HARMLESS | TELLING)[name](files)
    assert (digest_of(tmp_path, files) != before) == (name in TELLING)
    assert digest_of(tmp_path, dict(FILES)) == before


def test_versions_are_of_the_text_and_not_of_the_python_that_reads_it(tmp_path: Path) -> None:
    """The digest of a small file is a constant: it is a part of versions in stores."""
    text = 'WIDTH = 16\n\n\ndef mine(x, *rest, key=None):\n    """Doc."""\n    return f"{x:>{WIDTH}}" + str(rest) + str(key) + str(1.5)\n'
    assert digest_of(tmp_path, {"constant.py": text}, "constant:mine") == CONSTANT


CONSTANT = "72ebcd4414c5e2e8cb61a5f6b8cb04ae61bbfc2e6748df194791fbcd4523885e"


@pytest.mark.parametrize(
    "text",
    [
        "class Net(:",
        "globals()['Net'] = 3\n",
        "exec('Net = 3')\n",
        "for name in ['Net']:\n    vars()[name] = 3\n",
    ],
)
def test_what_cannot_be_followed_counts_as_a_whole(tmp_path: Path, text: str) -> None:
    found = [digest_of(tmp_path, {"odd.py": text + more}, "odd:Net") for more in ("", "\nx = 5\n")]
    assert found[0] != found[1]


def test_installed_packages_count_by_release_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    (site / "theirs-1.0.dist-info").mkdir(parents=True)
    found = []
    for release in ("1.0", "1.0", "1.1"):
        next(site.glob("*.dist-info")).rename(site / f"theirs-{release}.dist-info")
        found.append(digest_of(site, {"theirs/__init__.py": "class Net:\n    pass\n"}, "theirs:Net"))
    assert found[0] == found[1] != found[2]
    # Of a file of one's own that uses it nothing but the import counts.
    monkeypatch.syspath_prepend(site)
    mine = {"own.py": "from theirs import Net\n\nclass Mine(Net):\n    pass\n"}
    before = digest_of(tmp_path, mine, "own:Mine")
    (site / "theirs" / "__init__.py").write_text("class Net:\n    width = 3\n")
    assert digest_of(tmp_path, mine, "own:Mine") == before


def test_references_alone_are_digested(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Net:\n    pass\n")
    assert set(code_digests({"model": Reference("mine:Net", tmp_path), "sampling": "uniform"})) == {"model"}
    with pytest.raises(InputError, match="there is no module absent"):
        code_digests({"model": Reference("absent:Net", tmp_path)})
