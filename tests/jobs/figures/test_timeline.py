"""`graphmill timeline`: what it prints and draws, and what it refuses."""

import re
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.jobs.figures.timeline import (
    COLOURS,
    SPARE,
    colour_of,
    draw_timeline,
    print_timeline,
    timeline_metadata,
    write_timeline,
)
from graphmill.kernels.errors import InputError
from graphmill.trainers.record.ledger import COMPUTE, SYNCHRONISE, TRAIN, WAIT
from graphmill.trainers.techniques.factored.roles import COPY, EXTRACT, MARK, SAMPLE
from tests.jobs.trained import trained_home

pytestmark = pytest.mark.usefixtures("drawn")
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return trained_home(tmp_path_factory.mktemp("home"))


def test_it_prints_every_lane_and_draws_them(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = next(each for each in store.artifacts() if each.stage == "model")
    print_timeline(model)
    text = capsys.readouterr().out
    assert "sampler 0" in text and "train" in text and "hidden behind the step" in text
    monkeypatch.chdir(tmp_path)
    path = write_timeline(model, None)
    assert path.name.startswith("timeline-") and path.read_bytes().startswith(PNG)
    assert "time-line" in timeline_metadata(model)


def test_it_refuses_what_has_none(store: Store, tmp_path: Path) -> None:
    graph = next(each for each in store.artifacts() if each.stage == "graph")
    with pytest.raises(InputError, match="no time-line"):
        print_timeline(graph)
    model = next(each for each in store.artifacts() if each.stage == "model")
    with pytest.raises(InputError, match="cannot be written"):
        write_timeline(model, tmp_path / "missing" / "x.png")


def test_a_long_epoch_stays_a_small_picture() -> None:
    spans = [[f"sampler {n % 8}", "sample", n, n * 0.01, n * 0.01 + 0.02] for n in range(320)]
    record = {"epoch": 1, "seconds": 3.2, "busy_seconds": {"sampler 0": {"sample": 1.0}}, "spans": spans}
    assert len(draw_timeline(record)) < 100_000


def phases_in(text: str) -> set[str]:
    """Words for phases in the source of a trainer."""
    spans = re.findall(r"span\([^\n\"]*\"([a-z0-9 ]+)\"", text)
    return {*spans, *re.findall(r"Work\(\"([a-z0-9 ]+)\"", text)}


def test_every_word_of_the_trainers_has_a_colour_of_its_own() -> None:
    used = {TRAIN, COMPUTE, WAIT, SYNCHRONISE, SAMPLE, MARK, COPY, EXTRACT}
    for path in (ROOT / "trainers").rglob("*.py"):
        used |= phases_in(path.read_text())
    assert {"update", "gather", "load rows", "h2d", "prune"} <= used, "the words are found"
    assert used == COLOURS.keys()
    assert len({*COLOURS.values(), *SPARE}) == len(COLOURS) + len(SPARE)


def test_the_colour_of_a_word_does_not_depend_on_the_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.axes

    bars: list[tuple[str, str]] = []
    plain = matplotlib.axes.Axes.broken_barh

    def drawn(self: Any, *args: Any, facecolor: str, label: str | None, **more: Any) -> Any:
        bars.append((str(label), facecolor))
        return plain(self, *args, facecolor=facecolor, label=label, **more)

    monkeypatch.setattr(matplotlib.axes.Axes, "broken_barh", drawn)
    seen: dict[str, set[str]] = {}
    for words in (["train", "brew"], ["brew", "sample", "wait"], ["aaa", "brew", "update", "train"]):
        spans = [["step", word, 0, place, place + 1.0] for place, word in enumerate(words)]
        bars.clear()
        draw_timeline({"epoch": 1, "seconds": 9.0, "busy_seconds": {"step": {"train": 1.0}}, "spans": spans})
        for word, colour in bars:
            seen.setdefault(word, set()).add(colour)
    assert {word: {colour_of(word)} for word in seen} == seen and seen["brew"] <= {*SPARE}
