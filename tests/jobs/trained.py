"""A home with one graph and four models, built in about a second."""

from __future__ import annotations

from pathlib import Path

from graphmill.assets.storage.store import Store
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.recipes import load_tiny


def trained_home(folder: Path) -> Store:
    """Builds the tiny graph, then sage with two seeds, sage with another rate, and gcn."""
    store, recipes = Store(folder / "home"), folder / "recipes"
    variants = [load_tiny(recipes), load_tiny(recipes, "other", epochs="2 -> 3\nseeds = [1, 2]\nlr = 0.01")]
    for pipeline in variants:
        built = build_config(store.home, pipeline.graph, threads=1)
        assert pipeline.sampling is not None
        for table in pipeline.train[: 2 if pipeline is variants[0] else 1]:
            train_table(store, built.inputs, table, pipeline.sampling, pipeline.seed, report=lambda line: None)
    return store
