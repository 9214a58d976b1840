"""Alias tables of a graph, for the tests of trainers and the laws."""

from collections.abc import Mapping
from pathlib import Path

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling_tables.config import tables_config
from graphmill.assets.sampling_tables.stage import SAMPLING_TABLES
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store


def with_tables(home: Path, inputs: Mapping[str, Artifact], sampling: SamplingConfig) -> dict[str, Artifact]:
    """Returns the inputs, and beside them the alias tables where neighbours are drawn by weight."""
    config = tables_config(sampling)
    if config is None:
        return dict(inputs)
    given = {"graph": inputs["graph"]}
    made = materialize(Store(home), SAMPLING_TABLES, config, Threads(threads=1), given)
    return {**inputs, "sampling_tables": made}
