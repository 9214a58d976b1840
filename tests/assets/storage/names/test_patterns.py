"""Paths that a user wrote: folders with letters of patterns, patterns, and addresses of other machines."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.storage.names.patterns import REMOTE, files_below, in_order, matches, why_nothing


def touched(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return [folder / name for name in names]


@pytest.mark.parametrize("name", ["v[1]", "why?", "**", "a*", "[", "x] y", "[!a]", "plain"])
def test_a_folder_is_itself_whatever_its_letters(tmp_path: Path, name: str) -> None:
    wanted = touched(tmp_path / name, "e-0.csv", "e-1.csv")
    touched(tmp_path / "v1", "e-0.csv")
    touched(tmp_path / "axx", "e-0.csv")
    assert matches(tmp_path / name / "e-*.csv") == wanted
    assert matches(tmp_path / name / "e-1.csv") == wanted[1:]


def test_letters_inside_a_matched_folder_are_letters_too(tmp_path: Path) -> None:
    wanted = touched(tmp_path, "part-0/data [v2]/x.csv", "part-1/data [v2]/x.csv")
    touched(tmp_path, "part-1/data v/x.csv")
    assert matches(tmp_path / "part-*" / "data [v2]" / "*.csv") == wanted


def test_patterns_find_what_they_found(tmp_path: Path) -> None:
    files = touched(tmp_path, "a/0.csv", "a/b/1.csv", "a/b/c/2.csv", "a/.hidden.csv", "a/b/x1", "a/b/x2", "a/b/y3")
    assert matches(tmp_path / "a" / "**" / "*.csv") == sorted(files[:3])
    assert matches(tmp_path / "a" / "**" / "b" / "?.csv") == [files[1]]
    assert matches(tmp_path / "a" / "b" / "[xy][!2]") == [files[4], files[6]]
    assert set(files[:3]) <= set(matches(tmp_path / "a" / "**"))
    assert matches(tmp_path / "a" / "z*") == []


def test_relative_patterns_begin_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched(tmp_path, "e-0.csv")
    monkeypatch.chdir(tmp_path)
    assert matches(Path("e-*.csv")) == [Path("e-0.csv")]


def test_what_is_said_of_nothing(tmp_path: Path) -> None:
    assert why_nothing(tmp_path / "x.csv") == "is not there"
    assert why_nothing(tmp_path / "x*.csv") == "matches no file"
    assert "[[] stands for a [" in why_nothing(tmp_path / "v[2]" / "x.csv")
    for address in ("s3://bucket/e.csv", "gs://bucket/*.parquet", "https://a.b/c.csv", "hdfs://n/x", "dbfs:/x/y"):
        assert REMOTE.match(address) and "remote" in why_nothing(Path(address))
    for path in ("C:/e.csv", "/s3:/x", "a=b/c.csv", "e-*.csv"):
        assert not REMOTE.match(path)


PIECES = st.lists(st.sampled_from(["a", "B", "-", ".", "_", "/", "é", "=", "1", "2", "10", "007", "300"]), max_size=6)


@settings(max_examples=200, derandomize=True)
@given(st.lists(PIECES, min_size=2, max_size=6))
def test_numbers_in_names_count_as_numbers_and_nothing_else_changes(names: list[list[str]]) -> None:
    """The order is that of the letters once all numbers have the same number of digits."""
    paths = [Path("/".join(["r", "".join(name)])) for name in names]
    padded = {path: Path(re.sub(r"\d+", lambda found: found[0].zfill(40), str(path))) for path in paths}
    assert in_order(paths) == sorted(paths, key=lambda path: (padded[path], path))


def test_patterns_name_part_two_before_part_ten(tmp_path: Path) -> None:
    wanted = touched(tmp_path, "9/part.2.csv", "9/part.10.csv", "10/part.1.csv")
    assert matches(tmp_path / "*" / "*.csv") == wanted


def test_files_below_a_folder_are_those_of_linked_folders_too(tmp_path: Path) -> None:
    plain = touched(tmp_path, "top/a", "top/deep/er/b", "other/c", "other/more/d")
    (tmp_path / "top/one").symlink_to(tmp_path / "other")
    (tmp_path / "top/two").symlink_to(tmp_path / "other/more")
    (tmp_path / "top/file").symlink_to(plain[0])
    found = {path.relative_to(tmp_path / "top").as_posix() for path in files_below(tmp_path / "top")}
    assert found == {"a", "deep/er/b", "one/c", "one/more/d", "two/d", "file"}
    assert [*files_below(tmp_path / "nothing")] == [*files_below(plain[0])] == []


def test_links_that_lead_back_are_left_out(tmp_path: Path) -> None:
    touched(tmp_path, "a/x", "b/y")
    for name, target in (("a/up", ""), ("a/self", "a"), ("a/to", "b"), ("b/to", "a"), ("b/again", "b")):
        (tmp_path / name).symlink_to(tmp_path / target)
    assert {path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path / "a")} == {"a/x", "a/to/y"}
