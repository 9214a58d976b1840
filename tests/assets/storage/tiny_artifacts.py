"""Artifacts of a few bytes with a lineage and a day on which they say they were built."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import numpy as np

from graphmill.assets.building.stage import Summary
from graphmill.assets.storage.files.stage_numbers import NUMBERS, PublishedNumbers
from graphmill.assets.storage.names.version import version_of

TIERS = {"device": 0, "host": 0}
SPREAD = {"min": 0, "mean": 0, "max": 0}
DAY = datetime(2024, 1, 1, tzinfo=UTC)


def numbers_of(stage, arrays=None):
    """Returns the numbers that every artifact of a stage has, and those that follow from its arrays."""
    declared, arrays = NUMBERS.get(stage, PublishedNumbers()), arrays or {}
    lengths = {
        name: arrays[array].shape[axis] - surplus
        for name, (array, axis, surplus) in declared.lengths.items()
        if array in arrays
    }
    return {name: _sound(declared.check_of(name)) for name in declared.always.split()} | lengths


def _sound(check):
    for value in (1, "float32", [], TIERS, SPREAD):
        with suppress(ValueError):
            check(value, "")
            return value
    raise AssertionError("no sound value is listed")


def put(store, stage, number, inputs=(), day=None, asked_by="", scores=None, **config):
    """Publishes a tiny artifact that says it was built on a day, for whom, and with which scores."""
    config = {"number": number} | config
    roles = {f"input{index}": artifact for index, artifact in enumerate(inputs)}
    version = version_of(stage, 1, config, {role: artifact.version for role, artifact in roles.items()}, {})
    with store.writer(stage, version) as writer:
        writer.save("values", np.arange(number + 1))
        started = (DAY + timedelta(days=number if day is None else day)).isoformat()
        summary = Summary(numbers=numbers_of(stage) | (scores or {}))
        return writer.publish(config, roles, summary, {"started": started, "asked_by": asked_by})


def address(artifact):
    return artifact.stage, artifact.version


def present(store):
    return {(path.parent.name, path.name) for path in store.folders()}
