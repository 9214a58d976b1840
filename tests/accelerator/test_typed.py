"""Graphs with node types, relations and weights on an accelerator: each technique trains there, and goes on behind a stop in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.accelerator.places import Place
from tests.laws.test_typed_trainers import RECIPES, TYPED
from tests.laws.trainings import KEPT, Case, Recipe, result
from tests.trainers.runs import losses

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


def case_of(name: str, place: Place, folder: Path) -> Case:
    """The case of a recipe, skipped if the simulated accelerator leaves it to a GPU."""
    if place.name.startswith("simulated") and name not in BOTH:
        pytest.skip("for a GPU alone")
    return Case(folder, RECIPE_OF[name])


def topologies(name: str, trainer: str) -> tuple[str, ...]:
    """One of the two places of the topology, so that every technique and every recipe has both."""
    places = ("device", "uva")
    return (places[(list(RECIPE_OF).index(name) + ON_DEVICE.index(trainer)) % 2],) if trainer in ON_DEVICE else ()


@pytest.mark.parametrize("trainer", TECHNIQUES)
@pytest.mark.parametrize("name", RECIPE_OF)
def test_each_technique_trains_and_resumes(tmp_path: Path, place: Place, name: str, trainer: str) -> None:
    """The losses of the CPU within rounding; behind a stop in the middle the bits, and the ledger, of a run without one."""
    made, how = case_of(name, place, tmp_path), RESUMED.get(trainer, {})
    straight = made.train(trainer, device="cuda", **how)
    np.testing.assert_allclose(losses(straight), losses(made.train(trainer, **how)), rtol=1e-3)
    after = 2 if trainer == "fullgraph" else 9
    assert result(made.resumed(trainer, after=after, device="cuda", **how)) == result(straight)
    for topology in topologies(name, trainer):
        assert result(made.train(trainer, device="cuda", topology=topology, **how)) == result(straight)


@pytest.mark.slow("techniques that draw on a device with the topology in its other place")
@pytest.mark.parametrize("trainer", ON_DEVICE)
@pytest.mark.parametrize("name", RECIPE_OF)
def test_each_place_of_the_topology_gives_the_bits(tmp_path: Path, place: Place, name: str, trainer: str) -> None:
    made, how = case_of(name, place, tmp_path), RESUMED.get(trainer, {})
    found = [result(made.train(trainer, device="cuda", topology=where, **how)) for where in ("device", "uva", "host")]
    assert found[0] == found[1] == found[2]
