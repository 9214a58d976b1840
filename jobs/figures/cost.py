"""The cost of a model for the UI: a picture of its epoch with seconds by phase, rows by tier and bytes by link, and a few numbers."""

import json
from collections.abc import Mapping
from typing import Any

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.trainers.recipe.page import device_share
from graphmill.trainers.record.checks import TIERS
from graphmill.trainers.record.ledger import STEP, WAIT, Ledger

LINKS = {
    "disk": "disk",
    "mapped": "mapped file (asked for)",
    "h2d": "host to device",
    "d2d": "within the device",
    "d2h": "device to host",
    "rank": "from rank to rank",
}
"""Links of the ledger, in words."""


def epoch_cost(model: Artifact) -> dict[str, dict[str, float]]:
    """Returns the mean cost of the epochs that were run: `seconds` by phase, `rows` by tier and `bytes` by link."""
    ledger = read_ledger(model)
    epochs = max(1, model.summary["numbers"]["epochs_run"])
    counts = {row["name"]: row["n"] for row in ledger["counts"] if row["layer"] == 0}
    rows = {place: counts[name] / epochs for name, place in TIERS.items() if name in counts}
    told = sum(counts[name] for name in TIERS if name in counts)
    if rest := counts.get("inputs", 0) - counts.get("without_features", 0) - told:
        rows[TIERS["misses"]] = rest / epochs
    moved = Ledger.from_rows(ledger).bytes_by_link()
    sums = {words: moved[link] / epochs for link, words in LINKS.items() if link in moved}
    return {"seconds": _seconds(model.run_record()), "rows": rows, "bytes": sums}


def read_ledger(model: Artifact) -> dict[str, Any]:
    """Returns the rows of a model's ledger.json, as `Ledger.rows` makes them."""
    return json.loads(model.file("ledger.json").read_text())


def read_metrics(model: Artifact) -> list[dict[str, Any]]:
    """Returns a row for each epoch, counted from 1: its loss, and the score if it was validated; none for an artifact without metrics."""
    if "metrics.jsonl" not in model.files:
        return []
    return [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]


def _seconds(run: Mapping[str, Any]) -> dict[str, float]:
    """Returns the mean seconds of an epoch: steps and waiting for batches in the last epoch's proportion, and evaluation."""
    taken = run.get("epoch_seconds") or {}
    train, evaluate = taken.get("train") or [], taken.get("evaluate") or []
    if not train:
        return {}
    busy = ((run.get("timeline") or {}).get("busy_seconds") or {}).get(STEP) or {}
    waited = busy.get(WAIT, 0.0) / max(sum(busy.values()), 1e-9)
    mean = sum(train) / len(train)
    return {"training steps": mean * (1 - waited), "waiting": mean * waited, "evaluation": sum(evaluate) / len(train)}


def cost_metadata(model: Artifact) -> dict[str, Any]:
    """Returns the figure for the UI."""
    from graphmill.assets.pipeline.shown import figure

    title = "cost of an epoch"
    return {title: figure(title, draw_cost(epoch_cost(model), f"seed {model.config['seed']}"))}


def traffic_metadata(model: Artifact) -> dict[str, Any]:
    """Returns bytes moved by link, and, if several tiers had rows, rows by tier, the device's share, and the rows of a cache."""
    ledger = read_ledger(model)
    moved = {f"{link}_bytes": n for link, n in Ledger.from_rows(ledger).bytes_by_link().items()}
    rows = {row["name"]: row["n"] for row in ledger["counts"] if row["name"] in TIERS}
    shown: dict[str, Any] = dict(sorted(moved.items())) | rows
    if (share := device_share(model)) is not None:
        shown["device_hit_ratio"] = share
    record = model.run_record().get("cache") or {}
    return shown | {f"cache_{name}": record[name] for name in ("device_rows", "host_rows") if name in record}


def draw_cost(cost: Mapping[str, Mapping[str, float]], name: str) -> bytes:
    """Returns a PNG with one bar for the seconds, one for the rows, and one per link for the bytes."""
    from graphmill.assets.figures.style import LEVELS, LIGHT, PURPLE, YELLOW, new_figure, png

    links = cost["bytes"]
    drawing = new_figure(3.6 + 0.3 * len(links))
    seconds, rows, moved = drawing.subplots(3, 1, height_ratios=(1, 1, 0.5 + 0.5 * max(1, len(links))))
    phases = {"training steps": PURPLE, "waiting": LIGHT, "evaluation": YELLOW}
    _shares(seconds, [(what, value, phases[what]) for what, value in cost["seconds"].items()], "{:,.2f} s")
    _shares(rows, [(what, value, LEVELS[what]) for what, value in cost["rows"].items()], "{:,.0f}")
    seconds.set_xlabel("share of the seconds of an epoch, %", fontsize=9)
    rows.set_xlabel("share of the input rows of an epoch, by where they come from, %", fontsize=9)
    _draw_links(moved, links)
    title = f"{name}: an epoch takes {sum(cost['seconds'].values()):,.2f} s and {sum(cost['rows'].values()):,.0f} input rows"
    drawing.suptitle(f"{title} (mean of all epochs)", fontsize=10)
    return png(drawing)


def _shares(axes: Any, parts: list[tuple[str, float, str]], shown: str) -> None:
    """Draws one bar of several lengths; its legend has their values and shares. Lengths of zero are left out."""
    from graphmill.assets.figures.style import stacked_bar

    total = max(sum(value for _, value, _ in parts), 1e-9)
    labelled = [
        (f"{what}: {shown.format(value)} ({100 * value / total:.1f} %)", 100 * value / total, colour)
        for what, value, colour in parts
        if value > 0
    ]
    stacked_bar(axes, labelled)
    axes.set_xlim(0, 100)
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if labelled:
        columns = 3 if len(labelled) <= 3 else 2
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": columns, "frameon": False}
        axes.legend(fontsize=8, handlelength=1.2, columnspacing=1.2, **place)


def _draw_links(axes: Any, links: Mapping[str, float]) -> None:
    from graphmill.assets.figures.style import BLUE, byte_unit, grid

    largest = max(links.values(), default=0)
    size, unit = byte_unit(largest)
    axes.barh(range(len(links)), [value / size for value in links.values()], color=BLUE)
    for place, value in enumerate(links.values()):
        axes.text(value / size, place, f" {format_bytes(round(value))}", va="center", fontsize=8)
    axes.set_yticks(range(len(links)), list(links), fontsize=8)
    axes.set_ylim(len(links) - 0.4, -0.6)
    axes.set_xlim(0, 1.2 * max(1e-9, largest / size))
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel(f"bytes moved per epoch over each link, {unit}", fontsize=9)
    grid(axes, "x")
