"""The house: rules of layout that nothing else would notice."""

import ast
import re
import textwrap
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("kernels", "assets", "trainers", "jobs", "graphmill")


def test_no_public_class_name_stands_twice() -> None:
    """Who reads a name in an annotation knows which class it is."""
    found = defaultdict(list)
    for path in (path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(ROOT))
    assert len(found) > 100
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def asks_of_remote(text: str) -> list[int]:
    """The lines that ask whether a device has memory of its own; calls of that name are Ray's."""
    tree = ast.parse(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    asks = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "remote")
    return [node.lineno for node in asks if id(node) not in called]


def test_what_differs_by_device_is_said_by_devices_and_kernels() -> None:
    """Others ask where an operand is (`on_device`, `Device.holds`), or call what each kind of device does in its own way."""
    assert asks_of_remote("if device.remote:\n    actor.remote(1)") == [1]
    rooms = [path for path in (ROOT / "trainers").iterdir() if path.name != "devices"]
    files = [path for room in rooms for path in ([room] if room.suffix == ".py" else sorted(room.rglob("*.py")))]
    assert len(files) > 100
    found = [(path.relative_to(ROOT), asks_of_remote(path.read_text())) for path in files]
    assert [each for each in found if each[1]] == []


def misplaced_comments(text: str) -> list[tuple[str, int]]:
    """Every (class, line) where a comment may be read for the wrong field.

    A class whose fields have comments begins with one, unless its docstring describes the first field, and none stands
    directly below its last field. A comment below its field breaks one of the two: the first field then has none above it.
    """
    lines = text.splitlines()
    found = []
    for node in (one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.ClassDef)):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        if not fields:
            continue
        mark = " " * fields[0].col_offset + "#"
        first, below = fields[0].lineno, fields[-1].end_lineno or 0
        between = any(line.startswith(mark) for line in lines[first : below - 1])
        described = f"{ast.unparse(fields[0].target)}:" in (ast.get_docstring(node) or "").replace(",", ":")
        if between and not described and not lines[first - 2].startswith(mark):
            found.append((node.name, first))
        if below < len(lines) and lines[below].startswith(mark):
            found.append((node.name, below + 1))
    return found


FROM_AN_INDEX = re.compile(
    r"""(?:pip3?|pipx|uv) (?:install|add|run)(?: -\S+)*(?: [\w.]+\.txt)? ["'\\]*graphmill\b|graphmill\[[a-z]"""
)
"""A command that takes a package called graphmill from an index, where whoever registers the name would be run."""
EXTRAS = re.compile(r"""-e ["'\\]*\.\[([\w,-]+)\]""")


def spoken() -> dict[Path, str]:
    """The text of all files that a user may read or be shown."""
    folders = [*LAYERS, "docs", "deploy", "benchmarks"]
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".toml", ".yaml", "")
    ]
    files += [ROOT / name for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml")]
    return {path.relative_to(ROOT): path.read_text() for path in files if path.is_file() and path.suffix != ".pyc"}


def test_nothing_says_to_install_the_project_from_an_index() -> None:
    texts = spoken()
    assert len(texts) > 300
    assert [path for path, text in texts.items() if FROM_AN_INDEX.search(text)] == []
    for wrong in (
        'pip install "graphmill[dgl]"',
        "pip install graphmill",
        "pip install -U graphmill",
        "uv add graphmill",
    ):
        assert FROM_AN_INDEX.search(wrong), wrong


def test_remedies_say_how_to_install_an_extra_in_one_place() -> None:
    """It differs between a clone and a wheel."""
    code = {path: text for path, text in spoken().items() if path.suffix == ".py" and path.parts[0] in LAYERS}
    assert [path for path, text in code.items() if EXTRAS.search(text)] == []
    asked = {extra for text in code.values() for extra in re.findall(r"""install_extra\(["']([\w-]+)["']\)""", text)}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"dgl", "pyg", "ray", "cuda12", "cuda13", "postgres"} <= asked <= set(extras)


def test_every_extra_that_a_remedy_names_is_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for text in spoken().values() for found in EXTRAS.findall(text) for extra in found.split(",")}
    assert {"dgl", "pyg", "cuda12", "cuda13"} <= named <= set(extras)


@pytest.mark.parametrize("layer", LAYERS)
def test_comments_of_fields_stand_above_them(layer: str) -> None:
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    assert [(path.relative_to(ROOT), *at) for path in files for at in misplaced_comments(path.read_text())] == []


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ("# of a\na: int = 0\n# of b\nb: int = 0", []),
        ("# of a and b\na: int = 0\nb: int = 0\n\n# of f\ndef f(self): ...", []),
        ("a: int = 0  # of a\nb: int = 0\n\ndef f(self): ...", []),
        ("a: int = 0\n# of a\nb: int = 0\n# of b", [2, 5]),
        ('"""Attributes:\n        a, b: both.\n"""\n\na: int = 0\nb: int = 0\n# of c\nc: int = 0', []),
        ("a: int = 0\n# of a", [3]),
        ("a: int = 0\n# of a\nb: int = 0\nc: int = 0", [2]),
        ("a: int = 0\nb: int = (\n    0\n)\n# of b", [6]),
    ],
)
def test_a_comment_below_its_field_is_noticed(fields: str, lines: list[int]) -> None:
    text = "class Config:\n" + textwrap.indent(fields, "    ")
    assert misplaced_comments(text) == [("Config", line) for line in lines]
