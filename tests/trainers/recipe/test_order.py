"""An order arrives at another process as it was given."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline, parse_pipeline
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.order import Order, plain_order


@pytest.mark.parametrize("home", [None, Path("/some/home")])
def test_an_order_survives_the_way(home):
    pipeline = load_pipeline("sbm", TrainTable)
    given = Order(
        pipeline=pipeline,
        table=pipeline.train[0].name,
        home=home,
        inputs={"graph": "0a1b"},
        resume=True,
        retrain=True,
        epoch_lines="all",
        ranks=3,
        variables=Path("/some/bundle"),
        tell=print,
    )
    arrived = plain_order(json.loads(json.dumps(given.plain())))
    assert arrived.pipeline.text == pipeline.text
    assert replace(arrived, pipeline=pipeline) == replace(given, tell=None)


@pytest.mark.parametrize("name", ["GRAPHMILL_HOME", "PYTHONPATH", "NEVER_SET_BY_ANYBODY"])
def test_variables_of_a_recipe_that_is_carried_are_one_path(name):
    """Its raw data are not read; what its text names neither reads nor sets the environment of this process."""
    before = dict(os.environ)
    text = f'name = "p"\n[graph]\nsource = "npz"\npath = "${{{name}}}/g.npz"\n'
    pipeline = parse_pipeline(Path("/b/p.toml"), text.encode(), TrainTable, variables=Path("/b"))
    assert pipeline.graph.path == Path("/b/g.npz") and dict(os.environ) == before
