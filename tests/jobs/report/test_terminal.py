"""Curves as letters."""

from __future__ import annotations

from graphmill.jobs.report.plots import HEIGHT, curve_lines
from graphmill.jobs.report.series import Series


def drawn(*curves: Series, width: int = 60, log: bool = False) -> list[str]:
    return list(curve_lines("title", curves, width, log=log))


def test_a_curve_reaches_from_corner_to_corner_and_fits_the_width() -> None:
    rising = Series(label="up", x=[1, 2, 3], y=[0.0, 5.0, 10.0])
    lines = drawn(rising)
    grid = [line.partition("|")[2] for line in lines[1 : HEIGHT + 1]]
    assert grid[-1].startswith("A") and grid[0].rstrip().endswith("A") and all("A" in row for row in grid)
    assert max(map(len, lines)) <= 60 and lines[1].startswith("10 |") and lines[HEIGHT].strip().startswith("0 |")
    assert lines[-1] == "  A  up: 10 at 3"


def test_two_curves_have_two_letters_and_a_value_that_is_not_finite_is_left_out() -> None:
    flat = Series(label="flat", x=[1, 3], y=[5.0, 5.0])
    broken = Series(label="broken", x=[1, 2, 3], y=[1.0, 9.0, float("nan")])
    lines = drawn(flat, broken)
    assert any("A" in line for line in lines[1:HEIGHT]) and any("B" in line for line in lines[1:HEIGHT])
    assert lines[-1] == "  B  broken: not finite at 3"
    assert drawn(Series(label="x", x=[1], y=[float("inf")]))[1] == "  no finite value"


def test_a_logarithmic_axis_names_its_middle() -> None:
    lines = drawn(Series(label="loss", x=[1, 2], y=[100.0, 1.0]), log=True)
    assert lines[1].startswith("100 |") and lines[1 + HEIGHT // 2].strip().startswith("10 |")
