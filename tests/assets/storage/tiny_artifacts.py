"""Artifacts of a few bytes with a lineage and a day on which they say they were built."""

from datetime import UTC, datetime, timedelta

import numpy as np

from graphmill.assets.building.stage import Summary
from graphmill.assets.storage.names.version import version_of

NUMBERS = {
    "graph": {"num_nodes": 1, "num_edges": 0},
    "model": {"best_epoch": 1, "epochs_run": 1},
    "chunks": {"num_nodes": 1, "num_distinct": 1, "num_parts": 1, "chunks_per_part": 1, "schedule": "any"},
}
"""Numbers that every artifact of a stage has."""
DAY = datetime(2024, 1, 1, tzinfo=UTC)


def put(store, stage, number, inputs=(), day=None, asked_by="", scores=None, **config):
    """Publishes a tiny artifact that says it was built on a day, for whom, and with which scores."""
    config = {"number": number} | config
    roles = {f"input{index}": artifact for index, artifact in enumerate(inputs)}
    version = version_of(stage, 1, config, {role: artifact.version for role, artifact in roles.items()}, {})
    with store.writer(stage, version) as writer:
        writer.save("values", np.arange(number + 1))
        started = (DAY + timedelta(days=number if day is None else day)).isoformat()
        summary = Summary(numbers=NUMBERS.get(stage, {}) | (scores or {}))
        return writer.publish(config, roles, summary, {"started": started, "asked_by": asked_by})


def address(artifact):
    return artifact.stage, artifact.version


def present(store):
    return {(path.parent.name, path.name) for path in store.folders()}
