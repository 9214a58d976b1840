"""`graphmill timeline`: what it prints and draws, and what it refuses."""

from pathlib import Path

import pytest

from assets.storage.store import Store
from jobs.figures.timeline import draw_timeline, print_timeline, timeline_metadata, write_timeline
from kernels.errors import InputError
from tests.jobs.trained import trained_home

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
