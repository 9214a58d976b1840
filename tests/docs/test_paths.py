"""Every file that README and docs name exists, every link leads somewhere, and the tree in docs/architecture.md is the real one."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import LANGUAGES, PAGES, ROOT, fences, inline_code, prose, slugs

FOLDERS = ("kernels", "assets", "trainers", "jobs", "graphmill", "tests", "benchmarks", "docs")
LAYERS = FOLDERS[:5]
NAMED = re.compile(rf"(?<![\w/.$-])(?:{'|'.join(FOLDERS)})/[\w./*-]*")
BARE_FILE = re.compile(r"[\w*-]+\.(?:py|cpp|h|cu|cuh)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def names_of(path: Path) -> list[tuple[int, str]]:
    """Returns the line and the code of all places in which a page names files."""
    blocks = [(fence.line, fence.text) for fence in fences(path) if fence.language == "text"]
    return [*inline_code(path), *blocks]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_named_path_exists(path: Path) -> None:
    missing = []
    for line, code in names_of(path):
        for name in NAMED.findall(code):
            found = ROOT.glob(name) if "*" in name else filter(Path.exists, [ROOT / name.rstrip(".")])
            if not any(found):
                missing.append(f"{path.name}:{line}: {name}")
    assert not missing


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_are_named_with_their_folders(path: Path) -> None:
    """A bare name could be any of several files, and the test above would not see it."""
    assert not [f"{path.name}:{line}: {code}" for line, code in inline_code(path) if BARE_FILE.fullmatch(code)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_resolves(path: Path) -> None:
    broken = []
    for line, text in prose(path):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", text)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            page = (path.parent / name).resolve() if name else path
            if not page.exists() or (anchor and anchor not in slugs(page)):
                broken.append(f"{path.name}:{line}: {target}")
    assert not broken


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_code_stands_in_fences_of_a_known_language(path: Path) -> None:
    assert not [f"{path.name}:{f.line}: {f.language!r}" for f in fences(path) if f.language not in LANGUAGES]
    assert not [f"{path.name}:{line}: {text}" for line, text in prose(path) if text.startswith("    ")]


def test_every_page_is_linked_from_the_reading_order() -> None:
    order = ROOT / "docs" / "README.md"
    text = order.read_text(encoding="utf-8")
    pages = [path.relative_to(order.parent).as_posix() for path in PAGES[1:] if path != order]
    assert not [name for name in pages if f"({name})" not in text]
    assert "(docs/README.md)" in PAGES[0].read_text(encoding="utf-8")


def test_the_readme_is_read_in_one_go() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= 200


def tree() -> list[str]:
    """Returns the paths of the tree in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^## The tree\n.*?^```text\n(.*?)^```", text, re.S | re.M)
    found, folder = [], ""
    for line in block.splitlines():
        match = re.fullmatch(r"( *)([\w./-]+) {2,}\S.*", line)
        assert match and len(match[1]) in (0, 2), f"not a name, two blanks or more and what is there: {line!r}"
        folder = folder if match[1] else match[2]
        found.append(folder + match[2] if match[1] else match[2])
    return found


def test_the_tree_is_the_real_one() -> None:
    listed = tree()
    assert len(listed) == len(set(listed))
    assert not [
        name for name in listed if not ((ROOT / name).is_dir() if name.endswith("/") else (ROOT / name).is_file())
    ]
    rooms = [
        f"{layer}/{room.name}{'/' if room.is_dir() else ''}"
        for layer in LAYERS
        for room in sorted((ROOT / layer).iterdir())
        if (room.suffix == ".py" and room.name != "__init__.py")
        or (room.is_dir() and room.name != "__pycache__" and any(each.suffix != ".pyc" for each in room.rglob("*.*")))
    ]
    assert not [room for room in rooms if room not in listed]
