"""Mistakes of a recipe that numbers of the graph tell: ranks that would never have a seed, and rows that the memory may not hold."""

from dataclasses import replace

import pytest

from graphmill.assets.budgets.config import BudgetsConfig, MemoryConfig
from graphmill.assets.costs.needs import Sizes
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from graphmill.trainers.recipe.known_mistakes import memory_mistake, ranks_mistake
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings


@pytest.mark.parametrize(("ranks", "num_train", "wrong"), [(1, 1, False), (4, 4, False), (5, 4, True), (8, 0, False)])
def test_only_ranks_that_never_have_a_seed_are_a_mistake(ranks, num_train, wrong):
    found = ranks_mistake(TrainConfig(model="sage", trainer="distributed"), ranks, num_train)
    assert (found is not None) == wrong
    if found is not None:
        assert f"{ranks - num_train} never have one" in found.problem and f"at most {num_train} ranks" in found.remedy
    assert ranks_mistake(TrainConfig(model="sage", trainer="fullgraph"), ranks, num_train) is None


WHOLE = TrainTable(name="a", trainer="fullgraph", features="memory")
MEMORY = {
    "minibatch": TrainTable(name="a", features="memory"),
    "fullgraph": WHOLE,
    "not cut": replace(WHOLE, settings=FullGraphSettings(mode="device")),
    "without a cache": replace(WHOLE, cache="none"),
    "mapped": replace(WHOLE, features="mapped"),
    "distributed": TrainTable(name="a", trainer="distributed", features="memory"),
    "from disk": TrainTable(name="a", trainer="disk", features="memory"),
}


@pytest.mark.parametrize("name", MEMORY)
def test_a_table_in_memory_that_host_does_not_allow_is_known_before(name):
    table = MEMORY[name]
    sizes = Sizes(num_nodes=100, num_edges=400, num_rows=100, width=4, row_bytes=16)
    for host, wrong in (("50%", True), ("1599B", True), ("100%", False), ("auto", False)):
        budgets = BudgetsConfig(memory=MemoryConfig(host=host))
        found = memory_mistake(
            table.config, table.execution, replace(sizes, configs={"budgets": budgets, "hotness": None})
        )
        assert (found is not None) == (wrong and name in ("minibatch", "fullgraph", "distributed"))
        assert found is None or 'features = "memory" holds 1.6 KiB' in found.problem
        assert memory_mistake(table.config, table.execution, sizes) is None
