"""Simulated epochs as a picture: time by number of samplers, by number of devices, and the activities of the devices."""

import io
from collections.abc import Mapping
from typing import Any

BUSY = {"sample": "#ee6677", "extract": "#ccbb44", "train": "#4477aa"}


def draw_allocation(found: Mapping[str, Any]) -> bytes:
    """Returns the result of `graphmill.jobs.commands.machine.simulate.simulation` as PNG: Figures 16a, 13 and 14 of FGNN."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.6), layout="constrained")
    switching, scaling, breakdown = figure.subplots(1, 3)
    rows, devices = found["by_samplers"], found["by_devices"]
    samplers = [row["samplers"] for row in rows]
    static = [row for row in rows if row["static_seconds"] is not None]
    switching.plot([row["samplers"] for row in static], [row["static_seconds"] for row in static], "o--", label="fixed")
    switching.plot(samplers, [row["seconds"] for row in rows], "o-", label="with switching")
    switching.axvline(devices[-1]["formula_samplers"], color="#bbbbbb", label="formula")
    switching.set(xlabel=f"samplers of {found['devices']} devices", ylabel="seconds per epoch")
    counts = [row["devices"] for row in devices]
    for key, label in (
        ("formula_seconds", "formula, switching"),
        ("best_seconds", "best"),
        ("time_shared_seconds", "time-shared"),
    ):
        scaling.plot(counts, [row[key] for row in devices], "o-", label=label)
    scaling.set(xlabel="devices", ylabel="seconds per epoch", xscale="log", yscale="log")
    scaling.set_xticks(counts, [str(count) for count in counts])
    scaling.minorticks_off()
    below = [0.0] * len(rows)
    for stage, colour in BUSY.items():
        heights = [row["busy_seconds"][stage] / (found["devices"] * row["seconds"]) for row in rows]
        breakdown.bar(samplers, heights, bottom=below, color=colour, label=stage)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    breakdown.set(xlabel=f"samplers of {found['devices']} devices", ylabel="busy seconds per device and second")
    for axes in (switching, breakdown):
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes in (switching, scaling, breakdown):
        axes.legend(frameon=False, fontsize=8)
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=110)
    return held.getvalue()
