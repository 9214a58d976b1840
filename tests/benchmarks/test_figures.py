"""The figures of benchmarks in the pages are those of the recorded rows."""

import pytest

from benchmarks.figures import DRAWN, FOLDER, drawn
from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", DRAWN)
def test_each_figure_is_drawn_from_recorded_rows_and_shown(name: str) -> None:
    figures = drawn(name)
    assert figures
    pages = [(ROOT / "docs" / page).read_text() for page in ("papers.md", "choosing.md")]
    for figure in figures:
        assert (FOLDER / f"{figure.name}.png").is_file()
        assert any(f"](images/papers/{figure.name}.png)" in page for page in pages)
        assert figure.says.count(" at ") or "bar" in figure.says


def test_no_picture_stays_of_a_figure_that_is_gone() -> None:
    names = {figure.name for name in DRAWN for figure in drawn(name)}
    assert {path.stem for path in FOLDER.iterdir()} == names
