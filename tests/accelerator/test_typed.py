"""Graphs with node types, relations and weights on an accelerator: each technique trains there, and goes on behind a stop in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.accelerator.places import Place
from tests.laws.test_typed_trainers import RECIPES, TYPED
from tests.laws.trainings import KEPT, Case, Recipe, result
from tests.trainers.runs import losses
from trainers.recipe.techniques import TECHNIQUES

RESUMED: dict[str, dict[str, Any]] = {
    "fullgraph": {"epochs": 4, "accumulate": 1},
    "fresh": {"settings": KEPT},
    "fresh-factored": {"settings": KEPT},
    "fresh-distributed": {"settings": KEPT},
}
ROWS = Recipe(**TYPED, table={"model": "rgcn", "input": "typed", "embedding": "node", "norm": "layer"})
RECIPE_OF = RECIPES | {"rows of nodes": ROWS}
ON_DEVICE = ("minibatch", "factored", "fresh", "fresh-factored", "distributed", "fresh-distributed")
"""Techniques that sample on the device, too."""
BOTH = ("everything", "rows of nodes")
"""What the simulated accelerator runs, too; the others differ by kernels that its own tests cover."""


@pytest.mark.parametrize("trainer", TECHNIQUES)
@pytest.mark.parametrize("name", RECIPE_OF)
def test_each_technique_trains_and_resumes(tmp_path: Path, place: Place, name: str, trainer: str) -> None:
    """The losses of the CPU within rounding; behind a stop in the middle the bits, and the ledger, of a run without one."""
    if place.name.startswith("simulated") and name not in BOTH:
        pytest.skip("for a GPU alone")
    made = Case(tmp_path, RECIPE_OF[name])
    how = RESUMED.get(trainer, {})
    straight = made.train(trainer, device="cuda", **how)
    np.testing.assert_allclose(losses(straight), losses(made.train(trainer, **how)), rtol=1e-3)
    after = 2 if trainer == "fullgraph" else 9
    assert result(made.resumed(trainer, after=after, device="cuda", **how)) == result(straight)
    if trainer in ON_DEVICE:
        for topology in ("device", "uva"):
            assert result(made.train(trainer, device="cuda", topology=topology, **how)) == result(straight)
