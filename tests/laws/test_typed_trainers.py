"""Laws 2 and 5 for every technique on graphs with node types, relations and weights, and with fan-outs per relation.

The table is recipe x technique, and no cell is left out: what a cell proves is said in `CELLS` (tests/laws/trainings.py). More models with
relations and weights: tests/trainers/techniques/. Without types: test_training_equal.py and the files beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assets.sampling.config import SamplingConfig
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.laws.trainings import KEPT, Case, Recipe, assert_promised, case_of, result
from tests.trainers.runs import losses
from trainers.recipe.techniques import TECHNIQUES

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py

BY_RELATION = SamplingConfig(fanouts=({"relation 0": 2, "relation 2": -1}, {"relation 1": 1, "*": 2}), batch_size=32)
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
            "edge_weight": True,
            "norm": "layer",
            "input_dropout": 0.1,
        },
        sampling=BY_RELATION,
    ),
}


case = case_of(RECIPES)


@pytest.mark.parametrize("trainer", TECHNIQUES)
def test_each_technique_keeps_its_promises(case: Case, trainer: str) -> None:
    assert_promised(case, trainer)


RESUMED = {
    "fullgraph": {"epochs": 4, "accumulate": 1},
    "fresh": {"settings": KEPT},
    "fresh-distributed": {"settings": KEPT},
}


@pytest.mark.parametrize("trainer", TECHNIQUES)
def test_a_device_with_memory_of_its_own_trains_and_resumes(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    """The losses of the CPU within rounding; behind a stop in the middle the bits, and the ledger, of a run without one."""
    made = Case(tmp_path_factory.mktemp("device"), RECIPES["everything"])
    how: dict[str, Any] = RESUMED.get(trainer, {})
    on_cpu = made.train(trainer, **how)
    stand_in(monkeypatch)
    straight = made.train(trainer, device="cuda", **how)
    np.testing.assert_allclose(losses(straight), losses(on_cpu), rtol=1e-3)
    after = 2 if trainer == "fullgraph" else 9
    assert result(made.resumed(trainer, after=after, device="cuda", **how)) == result(straight)
    if trainer == "minibatch":
        for topology in ("device", "uva"):
            assert result(made.train(trainer, device="cuda", topology=topology)) == result(straight)
