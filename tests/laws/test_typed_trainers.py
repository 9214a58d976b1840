"""Laws 2 and 5 for every technique on graphs with node types, relations and weights, and with fan-outs per relation.

The table is recipe x technique, and no cell is left out; recipes whose parts are all in "everything" are left to the long run. What a cell
proves is said in `CELLS` (tests/laws/trainings.py). More models with
relations and weights: tests/trainers/techniques/. Without types: test_training_equal.py and the files beside it. On an accelerator:
tests/accelerator/test_typed.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.laws.trainings import Case, Recipe, assert_promised, case_of

BY_RELATION = SamplingConfig(fanouts=({"relation 0": 2, "relation 2": -1}, {"relation 1": 1, "*": 2}), batch_size=64)
TYPED: dict[str, Any] = {"relations": 3, "type_columns": (12, 5, 0)}

RECIPES = {
    "types": Recipe(**TYPED, table={"model": "sage", "input": "typed", "norm": "layer", "input_dropout": 0.1}),
    "relations": Recipe(relations=3, table={"model": "rgcn", "bases": 2, "residual": True}),
    "attention": Recipe(relations=3, table={"model": "rgat", "heads": 2, "attention_dropout": 0.25}),
    "fan-outs": Recipe(relations=3, table={"model": "rgcn", "norm": "layer"}, sampling=BY_RELATION),
    "weights": Recipe(
        weights=True, table={"model": "gat", "heads": 2, "attention_dropout": 0.2, "edge_weight": True, "norm": "layer"}
    ),
    "everything": Recipe(
        **TYPED,
        weights=True,
        table={
            "model": "rgcn",
            "input": "typed",
            "bases": 2,
            "residual": True,
            "edge_weight": True,
            "norm": "layer",
            "input_dropout": 0.1,
        },
        sampling=BY_RELATION,
    ),
}


SLOW = {
    name: "node types, relations and fan-outs per relation, each without the others"
    for name in ("types", "relations", "fan-outs")
}

case = case_of(RECIPES, SLOW)


@pytest.mark.parametrize("trainer", TECHNIQUES)
def test_each_technique_keeps_its_promises(case: Case, trainer: str) -> None:
    assert_promised(case, trainer)
