"""The recipes of docs/tables.md and docs/formats.md are run as they are printed."""

import re
from pathlib import Path

import pytest

from graphmill.assets.features.stage import FEATURES
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from tests import forks
from tests.assets.sources.own_data import build_config

pytestmark = pytest.mark.usefixtures("quick_readers")

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = "".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("tables", "formats"))
RECIPE = re.compile(r"### Recipe: (.+?)\n\n```python\n(.+?)```\n\n```toml\n(.+?)```", re.S)
RECIPES = {name: (code, table) for name, code, table in RECIPE.findall(PAGES)}


def test_every_recipe_was_found():
    assert len(RECIPES) == PAGES.count("### Recipe: ") == 13


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(tmp_path, name):
    code, table = RECIPES[name]
    done = forks.run(["-c", code], cwd=tmp_path, imports=forks.READERS)
    assert done.returncode == 0, done.stderr
    (tmp_path / "mine.toml").write_text(table)
    pipeline = load_pipeline(tmp_path / "mine.toml")
    (features,) = FEATURES.configs(pipeline).values()
    built = build_config(tmp_path / "home", pipeline.graph, table=features.table)
    graph = built.opened
    assert graph.topology.num_edges > 0 and built.verify() == []
    keys = re.findall(r"^(\w+) = ", table, re.M)
    assert ("weight_column" in keys) == (graph.topology.weights is not None)
    assert ("edge_ids" in keys) == (graph.topology.edge_ids is not None)


def test_the_page_names_every_key():
    import dataclasses

    from graphmill.assets.sources.registry import config_class

    text = PAGES + (DOCS / "own-data.md").read_text(encoding="utf-8")
    schemas = [config_class(source) for source in ("edges", "tables", "ogb", "dgl", "pyg", "npz")]
    for schema in (*schemas, NodeTable, RelationTable):
        for key in dataclasses.fields(schema):
            assert not key.metadata.get("key", True) or f"`{key.name}" in text or f"{key.name} = " in text, key.name
