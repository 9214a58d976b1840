"""The time-line of a training on a device shows kernels and copies, by the device's own clock."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.jobs.figures.timeline import draw_timeline, print_timeline
from graphmill.trainers.devices.spans import DeviceSpans
from tests.accelerator.backend import stand_in
from tests.trainers.runs import train_fresh, train_parts, train_small

pytestmark = pytest.mark.usefixtures("drawn")
ON_DEVICE: dict[str, Any] = {"device": "cuda", "epochs": 2, "eval_every": 0}
TRAININGS: dict[str, tuple[Any, set[str]]] = {
    "host samples": (lambda home: train_small(home, **ON_DEVICE), {"h2d", "gather_tiered"}),
    "device samples": (
        lambda home: train_small(home, topology="device", features="memory", **ON_DEVICE),
        {"recorded launches", "copy_pieces", "gather_tiered"},
    ),
    "fresh": (
        lambda home: train_fresh(home, features="memory", **ON_DEVICE),
        {"h2d", "d2h", "gather_tiered", "look_up", "take_slots", "history"},
    ),
    "ranks": (lambda home: train_parts(home, 1, **ON_DEVICE), {"h2d", "gather_tiered"}),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_kernels_and_copies_of_an_epoch_are_shown(tmp_path, monkeypatch, capsys, name):
    stand_in(monkeypatch)
    train, wanted = TRAININGS[name]
    model = train(tmp_path)
    record = model.run_record()["timeline"]
    device, step = record["device"], "GPU, step"
    seen = {what for _, what, _, _ in device["spans"]}
    assert wanted | {"train", "update"} <= seen
    assert {step} < {lane for lane, *_ in device["spans"]} == device["seconds"].keys()
    assert all(0 <= begin <= end <= record["seconds"] for _, _, begin, end in device["spans"])
    # The kernels of a step are in its phases, whose spans have those of the host's thread for their beginnings.
    phases = [
        (what, begin, end) for lane, what, begin, end in device["spans"] if lane == step and what in ("train", "update")
    ]
    kernels = [span for span in device["spans"] if span[0] == step and span[1].startswith("aggregate")]
    assert kernels
    for _, what, begin, end in kernels:
        assert any(first <= begin and end <= last for _, first, last in phases), what
    trained = [begin for what, begin, _ in phases if what == "train"]
    host = [begin for lane, phase, _, begin, _ in record["spans"] if (lane, phase) == ("step", "train")]
    assert len(trained) == len(host) and all(one >= other - 1e-3 for one, other in zip(trained, host, strict=True))
    print_timeline(model)
    printed = capsys.readouterr().out
    assert all(lane in printed for lane in device["seconds"]) and "gather_tiered" in printed
    assert len(draw_timeline(record)) < 200_000


def test_a_training_on_the_processor_has_no_such_spans(tmp_path):
    assert "device" not in train_small(tmp_path, epochs=1).run_record()["timeline"]


class Clock:
    """A device with one stream per thread, which is as far as the test says."""

    def __init__(self) -> None:
        self.now, self.reached, self.recording = 0.0, 1e9, False

    def clock(self) -> float:
        return self.now

    def stamp(self) -> float | None:
        return None if self.recording else self.now

    def seconds(self, began: float, stamp: float) -> float | None:
        return stamp - began if stamp <= self.reached else None

    def stream_number(self) -> int:
        return 0 if threading.current_thread() is threading.main_thread() else 7


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9), st.booleans()), max_size=30), st.integers(0, 200)
)
def test_spans_are_those_that_the_device_has_done(works, reached):
    clock: Any = Clock()
    spans = DeviceSpans(clock)
    with spans.span("before"):
        pass
    clock.now = 5
    spans.start()
    expected, sums, most = [], {}, 12
    spans.MOST = most
    for name, length, recording in works:
        clock.recording, begin = recording, clock.now - 5
        with spans.span(name):
            clock.now += length
        if not recording and most:
            most -= 1
            if clock.now <= reached:
                expected.append(["GPU, step", name, begin, begin + length])
                sums[name] = sums.get(name, 0) + length
    clock.reached = reached
    assert spans.finish() == {"spans": expected, "seconds": {"GPU, step": sums} if sums else {}}
    assert spans.finish() == {"spans": [], "seconds": {}}


def test_streams_of_threads_are_lanes_of_their_own():
    clock: Any = Clock()
    spans = DeviceSpans(clock)
    spans.start()

    def work() -> None:
        with spans.span("gather"):
            clock.now += 1

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    work()
    assert [span[:2] for span in spans.finish()["spans"]] == [["GPU, stream 1", "gather"], ["GPU, step", "gather"]]


def test_an_error_of_a_launch_is_the_launchs_own():
    clock: Any = SimpleNamespace(clock=lambda: 0.0, stamp=lambda: 0.0, stream_number=lambda: 0, seconds=lambda *_: 0.0)
    spans = DeviceSpans(clock)
    spans.start()
    with pytest.raises(ValueError, match="launch"), spans.span("a"):
        raise ValueError("launch")
    assert spans.finish()["spans"] == []
