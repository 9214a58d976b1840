"""Separators of one letter and of several are found or can be set, and a remedy about one can be followed."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.separators import delimiter_problems, find_separator, named_separator
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.kernels.errors import InputError

FOUND = (
    ",", ";", "|", "\t", " ", "   ", " \t ", ", ", "; ", " , ", " | ", "::", "||", "|||", " :: ", "->", " -> ", "=>", "-->", "<>", "|@|",
    "##", "@@", "\x01", "\x1f", " - ", " / ",
)  # fmt: skip
SET = (*FOUND, ":", "~", "^", "/", "@", "\t\t", ";;", ",,")


def fields(path: Path, delimiter: str | None = None) -> list[tuple[str, str]]:
    with Duck(None, 1 << 30, 1) as duck:
        table = TableFiles(duck, [path], "edges", TextForm(delimiter, names=("src", "dst")))
        assert list(table.columns) == ["src", "dst"], table.columns
        found = duck.rows(f"SELECT {table.field('src')}, {table.field('dst')} FROM {table.source(0)}")
        assert ("separated by commas" in table.layouts[0].described()) == ("," in path.read_text())
    return found


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.data())
def test_separators_are_found_and_can_be_set(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("separated")
    found = data.draw(st.booleans())
    separator = data.draw(st.sampled_from(FOUND if found else SET))
    ids = st.integers(0, 10**6).map(str) | st.sampled_from(["anna", "a.b", "x_1", "ÄÖ"])
    rows = data.draw(st.lists(st.tuples(ids, ids), min_size=2, max_size=5))
    header = data.draw(st.booleans()) or not rows[0][0].isdigit() or not found
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    lines = [separator.join(row) for row in ([("src", "dst")] if header else []) + rows]
    path = folder / ("e.csv" if separator.strip() in (",", ";") else "e.txt")
    path.write_text("".join(line + end for line in lines), newline="")
    if not header and [int(each) for each in rows[0] if each.isdigit()] == [0, 1]:
        return  # names as pandas counts them
    assert fields(path, None if found else separator) == rows


@pytest.mark.parametrize(
    "line", ["sep=;", '"sep=;"', "SEP=;", "sep=;;;", "\ufeffsep=;", "sep = ;", "sep=||", "sep=\t", "sep=\\t", "sep=,"]
)
@pytest.mark.parametrize("header", [True, False])
def test_the_line_of_a_spreadsheet_names_the_separator(tmp_path: Path, line: str, header: bool) -> None:
    separator = next(each for each in ("||", ";", "\t", ",") if each in line.replace("\\t", "\t"))
    lines = [line, *([f"src{separator}dst"] if header else []), f"7{separator}8", f"8{separator}9"]
    (tmp_path / "e.csv").write_text("".join(f"{each}\r\n" for each in lines), newline="")
    assert fields(tmp_path / "e.csv") == [("7", "8"), ("8", "9")]


@pytest.mark.parametrize("line", ["sep,dst", "sep=a", "separator", "sep", "sepal;petal", "sep=;x"])
def test_names_that_begin_like_it_are_names(line: str) -> None:
    assert named_separator(line) is None


@pytest.mark.parametrize("separator", [":", "~", "^", "/", "@"])
def test_a_remedy_names_the_delimiter_of_lines_of_one_field(tmp_path: Path, separator: str) -> None:
    (tmp_path / "e.txt").write_text("".join(f"{a}{separator}{a + 1}\n" for a in range(5)))
    with Duck(None, 1 << 30, 1) as duck:
        table = TableFiles(duck, [tmp_path / "e.txt"], "edges", TextForm(names=("src", "dst")))
        assert "one field in each line" in table.layouts[0].described()
        with pytest.raises(InputError, match="has no column 'src'") as caught:
            table.require("source_column", "src")
    named = re.search(r'set delimiter = "(.)" in \[graph\]', caught.value.remedy)
    assert named is not None and not [*delimiter_problems(named[1])]
    assert len(fields(tmp_path / "e.txt", named[1])) == 5


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["1::Toy Story (1995)::Animation|Comedy", "2::Heat::Action", "3::Jumanji::Fantasy|Animation|Drama"], "::"),
        (["src,dst", "fe80::1,fe80::2", "fe80::2,fe80::3"], ","),
        (["std::a\tstd::b", "std::b\tstd::c"], "\t"),
        (["#cats,#dogs", "#dogs,#tea"], ","),
        (["id", "a::b", "c"], None),
        (["anna@mail.org", "bob@mail.org"], None),
        (["1||2", "3|4|5"], "|"),
        (["1,,2", "2,7,3"], ","),
    ],
)
def test_letters_of_fields_are_no_separators(lines: list[str], found: str | None) -> None:
    assert find_separator("e.txt", lines) == found


@pytest.mark.parametrize("delimiter", ["", '"', "\n", "\\t", "tab", "a,b", ",,,,,,,,,"])
def test_a_delimiter_that_separates_nothing_is_refused_with_one_that_does(delimiter: str) -> None:
    (problem,) = delimiter_problems(delimiter)
    for named in re.findall(r'"((?:[^"\\]|\\t)+)"', problem.text.partition(": ")[2]):
        assert not [*delimiter_problems(named.replace("\\t", "\t"))], named
