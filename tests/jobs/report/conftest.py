"""A home with the models of two pipelines, one of them with a table that is not trained."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.jobs.report.facts import read_facts
from graphmill.trainers.recipe.config import TrainTable
from tests.jobs.trained import trained_home

NOW = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="package")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The home, and facts about `tiny`, all of whose tables are trained, and `other`: two seeds of sage, and no gcn."""
    folder: Path = tmp_path_factory.mktemp("report")
    home = trained_home(folder).home
    files = {name: folder / "recipes" / f"{name}.toml" for name in ("tiny", "other")}
    facts = {name: read_facts(load_pipeline(path, TrainTable), home, NOW) for name, path in files.items()}
    return SimpleNamespace(home=home, files=files, **facts)
