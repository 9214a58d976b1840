"""The pictures of stages: small PNG files of one width, the same bytes for the same numbers, also where there is little to draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graphmill.assets.figures.budgets import COLOURS, Level, budget_bars
from graphmill.assets.figures.graph import MOST_BARS, class_balance, degree_histogram
from graphmill.assets.figures.style import BLUE, DPI, WIDTH, byte_unit, new_figure, png
from graphmill.assets.figures.tiers import packing_figure, page_curves, tier_shares
from graphmill.assets.figures.visits import access_figure, hit_ratio_curves

pytestmark = pytest.mark.usefixtures("drawn")
RATIOS = (0, 0.1, 0.5, 1)
PARTS = ("packed rows", "disk caches", "addresses and padding")


def space(unit: int) -> dict[str, int]:
    """What a packing of a number of bytes takes."""
    return {name: unit * place for place, name in enumerate((*PARTS, "full packing", "features", "budget"))}


def reads(num_batches: int) -> dict[str, np.ndarray]:
    return {name: np.arange(num_batches) * 4096 for name in PARTS}


PICTURES: dict[str, Callable[[Path], None]] = {
    "degrees": lambda path: degree_histogram(path, np.arange(50), np.arange(50)[::-1]),
    "degrees of one node": lambda path: degree_histogram(path, np.zeros(1, np.int32), np.zeros(1, np.int32)),
    "one class": lambda path: class_balance(path, ["$only"], np.array([5]), 3),
    "many classes": lambda path: class_balance(path, [f"a long name of class {n}" for n in range(400)], np.arange(400), 0),
    "no label": lambda path: class_balance(path, ["0", "1"], np.zeros(2, np.int64), 9),
    "hit ratios": lambda path: hit_ratio_curves(
        path, RATIOS, {"bayes": np.array(RATIOS) ** 0.5, "own": np.array(RATIOS)}, chosen="bayes", source="measured"
    ),
    "accesses": lambda path: access_figure(path, np.array([0, 1, 100]), np.array([0, 40, 90])),
    "no access": lambda path: access_figure(path, np.array([0, 1]), np.zeros(2, np.int64)),
    "tiers": lambda path: tier_shares(path, np.arange(4000).reshape(-1, 4)),
    "tiers of one batch": lambda path: tier_shares(path, np.array([[0, 0, 0, 0]])),
    "pages": lambda path: page_curves(path, {"by id": np.arange(700), "filled": np.zeros(700, np.int64)}),
    "packing": lambda path: packing_figure(path, space(10**9), reads(900)),
    "packing of one batch": lambda path: packing_figure(path, space(1), reads(1)),
    "nothing on disk": lambda path: packing_figure(path, space(0), reads(3)),
    "budgets": lambda path: budget_bars(path, [Level("all", [(name, 10**9) for name in COLOURS]), Level("none", [])], "title"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_small_pngs_of_one_width_and_the_same_bytes_again(tmp_path: Path, name: str) -> None:
    paths = [tmp_path / "one.png", tmp_path / "again.png"]
    for path in paths:
        PICTURES[name](path)
    content = paths[0].read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) < 100_000 and content == paths[1].read_bytes()
    with Image.open(paths[0]) as image:
        assert image.width == WIDTH * DPI and len(image.convert("RGB").getcolors(1 << 20)) > 5


def drawn_texts(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], None]) -> list[str]:
    """Every text of the picture that a call draws."""
    from matplotlib.text import Text

    figures = []
    monkeypatch.setattr("graphmill.assets.figures.style.png", lambda figure: figures.append(figure) or b"")
    draw()
    return [text.get_text() for text in figures[0].findobj(Text)]


def test_classes_are_named_where_the_source_names_them_and_else_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.png"
    found = drawn_texts(monkeypatch, lambda: class_balance(path, ["cs.LG", "cs.CV"], np.array([1500, 4000]), 7))
    assert {"cs.LG", "cs.CV", " 4,000 (72.7 %)"} <= set(found)
    found = drawn_texts(monkeypatch, lambda: class_balance(path, ["0", "1"], np.array([3, 4]), 7))
    assert {"class 0", "class 1"} <= set(found)
    names = [f"n{number}" for number in range(MOST_BARS + 2)]
    counts = np.arange(10, MOST_BARS + 12)
    found = drawn_texts(monkeypatch, lambda: class_balance(path, names, counts, 0))
    assert any("not drawn: 2 smaller classes, 21 nodes together, 10 in the smallest" in text for text in found)
    assert "n2" in found and "n1" not in found


def test_the_chosen_policy_is_marked_with_its_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {"bayes": np.array([0, 0.25, 0.8, 1]), "random": np.array(RATIOS)}
    draw = lambda: hit_ratio_curves(tmp_path / "x.png", RATIOS, curves, chosen="bayes", source="measured")  # noqa: E731
    found = drawn_texts(monkeypatch, draw)
    assert "bayes (chosen): 25.0 %" in found and "random: 10.0 %" in found and "measured" in found


@pytest.mark.parametrize(
    ("num_bytes", "expected"), [(0, (1, "B")), (1023, (1, "B")), (1024, (1024, "KiB")), (5 << 40, (1 << 40, "TiB"))]
)
def test_units_of_byte_axes(num_bytes: int, expected: tuple[int, str]) -> None:
    assert byte_unit(num_bytes) == expected


def test_a_picture_keeps_its_colours() -> None:
    figure = new_figure(1.0)
    figure.subplots().axhspan(0, 1, color=BLUE)
    import io

    with Image.open(io.BytesIO(png(figure))) as image:
        counts = {colour: n for n, colour in image.convert("RGB").getcolors(1 << 20)}
    assert max(counts, key=lambda colour: counts[colour]) == tuple(bytes.fromhex(BLUE[1:]))
