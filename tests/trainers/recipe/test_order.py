"""An order arrives at another process as it was given."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assets.pipeline.file import load_pipeline
from trainers.recipe.config import TrainTable
from trainers.recipe.order import Order, plain_order


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
        tell=print,
    )
    arrived = plain_order(json.loads(json.dumps(given.plain())))
    assert arrived.pipeline.text == pipeline.text
    assert replace(arrived, pipeline=pipeline) == replace(given, tell=None)
