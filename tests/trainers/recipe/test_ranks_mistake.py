"""More ranks than training nodes: a rank would wait through the whole training."""

import pytest

from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.known_mistakes import ranks_mistake


@pytest.mark.parametrize(("ranks", "num_train", "wrong"), [(1, 1, False), (4, 4, False), (5, 4, True), (8, 0, False)])
def test_only_ranks_that_never_have_a_seed_are_a_mistake(ranks, num_train, wrong):
    found = ranks_mistake(TrainConfig(model="sage", trainer="distributed"), ranks, num_train)
    assert (found is not None) == wrong
    if found is not None:
        assert f"{ranks - num_train} never have one" in found.problem and f"at most {num_train} ranks" in found.remedy
    assert ranks_mistake(TrainConfig(model="sage", trainer="fullgraph"), ranks, num_train) is None
