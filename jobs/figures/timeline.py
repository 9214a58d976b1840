"""The time-line of a model's last epoch as a picture: `graphmill timeline`, and a figure in the UI."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import short
from graphmill.kernels.errors import InputError
from graphmill.trainers.record.ledger import COMPUTE, SYNCHRONISE, TRAIN, WAIT, hidden_share, lanes

COLOURS = {
    # computing
    TRAIN: "#4477aa",
    COMPUTE: "#88bbee",
    "accumulate": "#5566dd",
    "gradients": "#aa99dd",
    "update": "#222266",
    "history": "#aa3377",
    # what a batch is
    "sample": "#ee6677",
    "load graph": "#882233",
    "mark": "#ffbbcc",
    "prune": "#cc3311",
    # its rows
    "gather": "#ccbb44",
    "extract": "#88882a",
    "load rows": "#228833",
    "assemble": "#aacc99",
    "copy": "#44bb99",
    # from place to place
    "exchange": "#ee8833",
    "h2d": "#ffcc99",
    "d2d": "#11bbcc",
    "d2h": "#aa7744",
    # nothing
    WAIT: "#dddddd",
    SYNCHRONISE: "#999999",
}
"""Word for a phase -> its colour in every picture."""

SPARE = ("#114444", "#ee77ee", "#66aa00", "#553311")
"""Colours of words that are not listed, as phases of a technique of your own have."""


def colour_of(word: str) -> str:
    """Returns the colour of a phase, which depends on its word alone."""
    return COLOURS.get(word) or SPARE[crc32(word.encode()) % len(SPARE)]


def read_timeline(model: Artifact) -> Mapping[str, Any]:
    """Returns the record that `graphmill.trainers.record.ledger.Timeline` kept.

    Raises:
        InputError: the artifact is not a model, or was trained without a record.
    """
    record = model.run_record().get("timeline") or {}
    if not record.get("spans"):
        problem = f"{model.label} has no time-line"
        raise InputError(problem, "give the version of a trained model (graphmill ls model lists them)")
    return record


def write_timeline(model: Artifact, path: Path | None) -> Path:
    """Draws a model's time-line to a PNG, `timeline-VERSION.png` in the working folder by default; returns its path.

    Raises:
        InputError: the model lacks a time-line, or the file cannot be written.
    """
    return write_png(draw_timeline(read_timeline(model)), path or Path(f"timeline-{short(model.version)}.png"))


def write_png(drawn: bytes, path: Path) -> Path:
    """Writes a picture to the file that a user gave with --out; returns its path; raises InputError if the file cannot be written."""
    try:
        path.write_bytes(drawn)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}", "give another file with --out") from error
    return path


def print_timeline(model: Artifact) -> None:
    """Prints a line per lane with its seconds by phase in the last epoch, then the share of the preparation that was hidden."""
    record = read_timeline(model)
    print(f"{model.label}, epoch {record['epoch']}: {record['seconds']:.3f} s")
    threads = sorted(record["busy_seconds"].items(), key=lambda item: lanes(record["spans"]).index(item[0]))
    for lane, sums in (*threads, *record.get("device", {}).get("seconds", {}).items()):
        phases = ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in sums.items())
        print(f"  {lane:12} {phases}")
    share = hidden_share(record)
    if share is not None:
        print(f"  {100 * share:.0f} % of the preparation was hidden behind the step")


def timeline_metadata(model: Artifact) -> dict[str, Any]:
    """Returns the figure for the UI; nothing for a model that was trained without a record."""
    from graphmill.assets.pipeline.shown import figure

    record = model.run_record().get("timeline") or {}
    return {"time-line": figure("time-line", draw_timeline(record))} if record.get("spans") else {}


def draw_timeline(record: Mapping[str, Any]) -> bytes:
    """Returns a PNG with one row per lane and one bar per span, coloured by phase; under 100 kB."""
    from graphmill.assets.figures.style import new_figure, png

    device = record.get("device", {})
    spans = [*device.get("spans", ()), *((lane, phase, *times) for lane, phase, _, *times in record["spans"])]
    rows = [*lanes(record["spans"]), *sorted({lane for lane, *_ in device.get("spans", ())})]
    drawing = new_figure(1.2 + 0.35 * len(rows))
    axes = drawing.subplots()
    # Kernels and copies lie within phases of the step, so the longest spans are drawn first.
    longest = Counter[str]()
    for _, phase, begin, end in spans:
        longest[phase] = max(longest[phase], end - begin)
    phases = sorted(longest, key=lambda phase: (phase == WAIT, -longest[phase] if device else 0, phase))
    for phase in phases:
        colour, label = colour_of(phase), phase
        for place, lane in enumerate(rows):
            bars = [(begin, end - begin) for at, what, begin, end in spans if (at, what) == (lane, phase)]
            # A white edge separates neighbours, and would cover a bar that is not much wider.
            thin = sum(length for _, length in bars) < 0.005 * record["seconds"] * len(bars)
            edge = {"linewidth": 0.3, "edgecolor": colour if thin else "white"}
            axes.broken_barh(bars, (place - 0.4, 0.8), facecolor=colour, label=label, **edge)
            label = None
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds in epoch {record['epoch']}")
    axes.set_title(_title(record), fontsize=10)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return png(drawing)


def _title(record: Mapping[str, Any]) -> str:
    share, batches = hidden_share(record), {span[2] for span in record["spans"]}
    hidden = "" if share is None else f", {100 * share:.0f} % of the preparation hidden behind the step"
    return f"batches {min(batches) + 1} to {max(batches) + 1}{hidden}"
