"""Lines for logs: how far a phase is, and how long the rest takes."""

import io

from graphmill.trainers.record import progress
from graphmill.trainers.record.progress import LineProgress


def test_lines_say_how_far_and_how_long(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    lines = LineProgress(out, every_seconds=10)
    lines.start("samples, 13 parts", 200, "batches")
    for seconds, count in ((5, 10), (5, 10), (30, 20), (40, 160)):
        now[0] += seconds
        lines.advance(count)
    lines.done()
    lines.start("sort", None, "edges")
    now[0] += 11
    lines.advance(3)
    assert out.getvalue().splitlines() == [
        "  samples, 13 parts: 20/200 batches, about 90 s left",
        "  samples, 13 parts: 40/200 batches, about 3 min left",
        "  samples, 13 parts: 200/200 batches",
        "  sort: 3 edges",
    ]
