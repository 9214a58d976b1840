"""The pictures of a train table's models for the UI, drawn once and then taken from the history.

A run that reuses a model reports it again, with all that its page shows. Drawing takes longer than everything else that such a run does,
so the pictures of the last materialisation are taken when they were drawn from the same: the models, and the records of their trainings.
"""

import hashlib
import json
import re
from collections.abc import Sequence

import dagster as dg

from graphmill.assets.definitions import HIDDEN
from graphmill.assets.pipeline.shown import SUMMARY
from graphmill.assets.storage.local.artifact import Artifact

DRAWING = 2
"""Raised by hand when pictures of the same models would look otherwise."""
DRAWN_TAG = f"{HIDDEN}drawn"
"""Tag of a materialisation: what its pictures were drawn from (`drawn_from`)."""
PICTURE = re.compile(r"!\[([^\]]+)\]\(data:image/png;base64,[^)]+\)")


def pictures(
    instance: dg.DagsterInstance, key: dg.AssetKey, models: Sequence[Artifact], splits: Sequence[str]
) -> dict[str, dg.MarkdownMetadataValue]:
    """Returns title -> picture: learning curve, cost of an epoch and, if it was recorded, the time-line.

    Args:
        models: the models; cost and time-line are those of the last.
        splits: split of each model, "" without a list of splits.
    """
    if found := _drawn_before(instance, key, drawn_from(models, splits)):
        return found
    from graphmill.jobs.figures.cost import cost_metadata
    from graphmill.jobs.figures.curves import curve_metadata
    from graphmill.jobs.figures.timeline import timeline_metadata

    return curve_metadata(models, splits) | cost_metadata(models[-1]) | timeline_metadata(models[-1])


def drawn_from(models: Sequence[Artifact], splits: Sequence[str]) -> str:
    """Returns a hash of all that decides the pictures, 32 hex digits: a tag holds at most 63 characters."""
    source = [DRAWING, list(splits), [[model.version, model.run_record()] for model in models]]
    return hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()[:32]


def _drawn_before(instance: dg.DagsterInstance, key: dg.AssetKey, source: str) -> dict[str, dg.MarkdownMetadataValue]:
    """Returns the pictures of the last materialisation of an asset if they were drawn from the same, else {}."""
    event = instance.get_latest_materialization_event(key)
    last = None if event is None else event.asset_materialization
    if last is None or (last.tags or {}).get(DRAWN_TAG) != source or SUMMARY not in last.metadata:
        return {}
    found = PICTURE.finditer(str(last.metadata[SUMMARY].value))
    return {picture[1]: dg.MetadataValue.md(picture[0]) for picture in found}
