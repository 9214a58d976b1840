"""The learning curves of a train table, drawn from the metrics that its models hold: one PNG and one table, not an event an epoch."""

import io
import json
from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.building.labels import rounded
from assets.definitions import figure
from assets.storage.artifact import Artifact

MAX_ROWS = 200
"""A table is stored with every materialisation, so a long one keeps its last rows."""


def curve_metadata(models: Sequence[Artifact]) -> dict[str, Any]:
    """Returns the figure and the table of the models' epochs."""
    histories = [read_history(model) for model in models]
    records = [
        dg.TableRecord({"model": model.label, **{name: _plain(value) for name, value in row.items()}})
        for model, history in zip(models, histories, strict=True)
        for row in history
    ]
    columns = {name: value for record in records for name, value in record.data.items()}
    schema = dg.TableSchema([dg.TableColumn(name, _type(value)) for name, value in columns.items()])
    rows = [dg.TableRecord({name: record.data.get(name) for name in columns}) for record in records[-MAX_ROWS:]]
    return {
        "learning curve": figure("learning curve", draw_curves(histories)),
        "epochs": dg.MetadataValue.table(records=rows, schema=schema),
    }


def read_history(model: Artifact) -> list[dict[str, Any]]:
    """Returns one row per epoch: epoch, loss, and the validation score where it was evaluated."""
    return [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]


def draw_curves(histories: Sequence[Sequence[dict[str, Any]]]) -> bytes:
    """Returns a PNG of loss and validation score against the epoch, one line per model; under 100 kB."""
    # A figure made without pyplot needs no display and leaves no global state.
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(7, 3), layout="constrained")
    for axis, name in zip(drawing.subplots(1, 2), ("loss", "valid"), strict=True):
        for history in histories:
            rows = [row for row in history if name in row]
            axis.plot([row["epoch"] + 1 for row in rows], [row[name] for row in rows], marker=".", linewidth=1)
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_title({"loss": "training loss", "valid": "validation score"}[name], fontsize=10)
        axis.grid(alpha=0.3)
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=90)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value)
    return value if isinstance(value, int | str) or value is None else json.dumps(value)


def _type(value: Any) -> str:
    return {int: "int", float: "float", bool: "bool"}.get(type(value), "string")
