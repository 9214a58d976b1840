"""Graphs with node types, relations and weights on an accelerator: each technique trains there, and goes on behind a stop in the middle."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.accelerator.places import Place
from tests.laws.test_typed_trainers import RECIPES, TYPED
from tests.laws.trainings import KEPT, STOP, Case, Recipe, result
from tests.trainers.runs import content, losses

RESUMED: dict[str, dict[str, Any]] = {
    "fullgraph": {"epochs": 2, "accumulate": 1},
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


ON_CPU = {"minibatch": "plain", "disk": "plain", "factored": "plain", "fresh": "kept", "fresh-factored": "kept"}
ON_CPU |= {"distributed": "shared"}
"""Technique -> the model of a case that has its losses; that it has them, tests/laws/test_typed_trainers.py shows."""


@pytest.fixture(scope="module")
def case_named(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Returns the case of a recipe, the same one for all tests."""
    return cache(lambda name: Case(tmp_path_factory.mktemp("case"), RECIPE_OF[name]))


@pytest.fixture
def made(case_named: Callable[[str], Case], place: Place, name: str) -> Case:
    """The case of a recipe, skipped if the simulated accelerator leaves it to a GPU."""
    if place.name.startswith("simulated") and name not in BOTH:
        pytest.skip("for a GPU alone")
    return case_named(name)


def topology(name: str, trainer: str) -> dict[str, str]:
    """One of the two places of the topology on a device, so that every technique and every recipe has both."""
    places = ("device", "uva")
    where = (list(RECIPE_OF).index(name) + ON_DEVICE.index(trainer)) % 2 if trainer in ON_DEVICE else None
    return {} if where is None else {"topology": places[where]}


@pytest.mark.parametrize("trainer", TECHNIQUES)
@pytest.mark.parametrize("name", RECIPE_OF)
def test_each_technique_trains_and_resumes(made: Case, name: str, trainer: str) -> None:
    """The losses of the CPU within rounding; behind a stop in the middle the bits, and the ledger, of a run without one.

    What draws on the device is stopped while it does, and has the bits of batches that the CPU draws.
    """
    how = RESUMED.get(trainer, {})
    straight = made.train(trainer, device="cuda", **how)
    on_cpu = getattr(made, ON_CPU[trainer]) if trainer in ON_CPU else made.train(trainer, **how)
    np.testing.assert_allclose(losses(straight), losses(on_cpu), rtol=1e-3)
    after = 1 if trainer == "fullgraph" else STOP
    resumed = made.resumed(trainer, after=after, device="cuda", **topology(name, trainer), **how)
    assert result(resumed) == result(straight)
    if trainer not in ON_DEVICE:
        assert content(resumed) == content(straight)


@pytest.mark.slow("techniques that draw on a device with the topology in its other place")
@pytest.mark.parametrize("trainer", ON_DEVICE)
@pytest.mark.parametrize("name", RECIPE_OF)
def test_each_place_of_the_topology_gives_the_bits(made: Case, name: str, trainer: str) -> None:
    how = RESUMED.get(trainer, {})
    found = [result(made.train(trainer, device="cuda", topology=where, **how)) for where in ("device", "uva", "host")]
    assert found[0] == found[1] == found[2]
