"""Measured numbers of README.md and docs/ are those of recorded rows."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.record import RESULTS
from tests.docs.measured import NUMBERS, ROWS, Wrong, is_clean, recorded, written
from tests.docs.pages import PAGES, ROOT

NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
MEASURED = [path for path in PAGES if "<!--rows: " in path.read_text(encoding="utf-8")]

SECTION = """\
## Sampling

| all | <!--= min(a.lines.ratio)-->4.03<!--/-->x to <!--= max(a.lines.ratio)-->4.9<!--/-->x |
| threads | <!--= a.lines(threads=2).bytes / 1e3-->1,500 | 12<!--/--> |
| measured | <!--rows: a = sampling graph.nodes=2-->sampling 2026-11-22 (18d73ab, Intel Xeon)<!--/--> |
"""
ROW = {
    "scale": "full",
    "graph": {"nodes": 2},
    "lines": [{"threads": 1, "ratio": 4.91, "bytes": 1}, {"threads": 2, "ratio": 4.029, "bytes": [1_500_400, 12_400]}],
    "time": "2026-11-22T05:38:00+00:00",
    "commit": "18d73ab",
    "machine": {"cpu": "Intel(R) Xeon(R)"},
}


def results(folder: Path, *rows: dict) -> Path:
    (folder / "sampling.jsonl").write_text("".join(json.dumps(ROW | row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_each_number_is_that_of_its_row(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert written(text) == text, "make docs (python -m tests.docs.measured) writes it anew"


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_every_mark_is_read(path: Path) -> None:
    """A mark with a mistake in its own syntax would never be compared."""
    text = path.read_text(encoding="utf-8")
    found = [*ROWS.finditer(text), *NUMBERS.finditer(text)]
    assert not [match[0] for match in NUMBERS.finditer(text) if not re.search(r"\d", match[2])]
    assert len(found) == len(re.findall(r"<!--(?:rows|unmeasured)?[:=]", text)) == text.count("<!--/-->")


def test_the_pages_of_measurements_have_marks() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in MEASURED}
    assert names >= {"docs/papers.md", "docs/planning.md", "README.md", "docs/choosing.md"}


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_a_number_changed_by_hand_is_found(path: Path) -> None:
    """Every marked number that the program writes: each is changed in its last digit."""
    text = path.read_text(encoding="utf-8")
    waiting = waiting_names(text)
    for match in NUMBERS.finditer(text):
        if not waiting & set(re.findall(r"\w+", match[1])):
            place = match.end(2) - 1 - next(i for i, letter in enumerate(reversed(match[2])) if letter.isdigit())
            other = "1" if text[place] != "1" else "2"
            section = text[text.rfind("\n#", 0, place) + 1 : (text.find("\n#", place) + 1) or len(text)]
            at = place - text.rfind("\n#", 0, place) - 1
            assert written(section[:at] + other + section[at + 1 :]) == section, match[0]


def waiting_names(text: str) -> set[str]:
    """Returns the names of rows that are not measured yet."""
    return {
        part.partition("=")[0].strip()
        for match in ROWS.finditer(text)
        if match[1] == "unmeasured"
        for part in match[2].split(";")
    }


def test_no_row_of_a_dirty_tree_is_cited() -> None:
    dirty = {row["commit"] for path in RESULTS.glob("*.jsonl") for row in recorded(path.stem) if not is_clean(row)}
    for path in PAGES:
        stamps = [match[3] for match in ROWS.finditer(path.read_text(encoding="utf-8")) if match[1] == "rows"]
        assert not [stamp for stamp in stamps if "-dirty" in stamp or any(f"({commit}," in stamp for commit in dirty)]


def test_numbers_are_written_with_the_digits_of_the_text(tmp_path: Path) -> None:
    results(tmp_path, {})
    assert written(SECTION, tmp_path) == SECTION
    assert (
        written(SECTION.replace("4.03<", "5.00<").replace("12<", "99<").replace("18d73ab", "aaaaaaa"), tmp_path)
        == SECTION
    )


def test_the_newest_clean_row_is_taken(tmp_path: Path) -> None:
    newer = {"commit": "2222222", "lines": [{"threads": 2, "ratio": 3.0, "bytes": [1_000_000, 2_000]}]}
    results(tmp_path, {}, newer, {"commit": "3333333-dirty"}, {"scale": "quick"}, {"graph": {"nodes": 3}})
    text = written(SECTION, tmp_path)
    assert ">3.00<!--/-->x to" in text and ">1,000 | 2<" in text and "(2222222, Intel Xeon)" in text


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("graph.nodes=2", "graph.nodes=4", "no row"),
        ("a = sampling", "a = other", "no row"),
        ("graph.nodes=2", "commit=4444444", "uncommitted changes"),
        ("a.lines.ratio)-->4.03", "a.lines.speed)-->4.03", "no field 'speed'"),
        ("threads=2", "threads=7", "no element"),
        ("min(a", "min(b", "'b' is not defined"),
        ("1,500 | 12", "1,500", "1 numbers"),
    ],
)
def test_a_mark_without_a_clean_row_or_a_field_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    results(tmp_path, {}, {"commit": "4444444-dirty"})
    with pytest.raises(Wrong, match=problem):
        written(SECTION.replace(old, new), tmp_path)


def test_names_of_rows_end_with_their_section(tmp_path: Path) -> None:
    results(tmp_path, {})
    with pytest.raises(Wrong, match="'a' is not defined"):
        written(SECTION + "## Next\n\n<!--= a.graph.nodes-->2<!--/-->\n", tmp_path)


def test_a_section_waits_until_its_benchmark_has_run_on_a_clean_tree(tmp_path: Path) -> None:
    results(tmp_path, {"commit": "4444444-dirty"})
    text = written(SECTION.replace("rows: ", "unmeasured: ").replace("4.03<", "9.99<"), tmp_path)
    assert "9.99" in text and "to be measured again" in text
    results(tmp_path, {"commit": "4444444-dirty"}, {})
    assert written(text, tmp_path) == SECTION
