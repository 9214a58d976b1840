"""A training begins only if its bound fits the memory, and a refusal names an amount that does: every trainer, limits around the bound."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.costs.needs import Need, Sizes, fits, require_fit
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.recipe.costs import exact
from graphmill.trainers.recipe.costs.course import KERNEL_BYTES, WAITING_BYTES
from graphmill.trainers.recipe.costs.memory import training_need, waiting_term

GRAPH: Any = SimpleNamespace(summary={"numbers": {}}, config={})
SIZES = Sizes(
    num_nodes=200_000,
    num_edges=3_000_000,
    num_train=14_000,
    num_valid=3000,
    num_test=3000,
    num_classes=16,
    num_rows=200_000,
    width=128,
    row_bytes=512,
    artifacts={"graph": GRAPH},
)
SAMPLING = SamplingConfig(fanouts=(10, 10), batch_size=512)
RANKS: dict[str, Any] = {"ranks": 2}
TABLES: list[dict[str, Any]] = [
    {},
    {"features": "direct", "cache": "none"},
    {"features": "memory", "cache": "none"},
    {"model": "gat", "heads": 4},
    {"model": "rgcn"},
    {"trainer": "disk"},
    {"trainer": "fresh"},
    {"trainer": "fresh", "fresh": {"lookahead": 1}},
    {"trainer": "factored"},
    {"trainer": "fresh-factored"},
    {"trainer": "fullgraph"},
    {"trainer": "fullgraph", "input": "typed", "embedding": "node"},
    {"trainer": "fullgraph", "fullgraph": {"mode": "device"}},
    {"trainer": "distributed", "distributed": RANKS},
    {"trainer": "fresh-distributed", "fresh-distributed": RANKS},
]


def need_of(table: dict[str, Any], limit: int, sizes: Sizes = SIZES) -> Need:
    """Returns the need in a machine with so many bytes, with the process that waits for the training."""
    own = {name: value for name, value in table.items() if isinstance(value, dict)}
    given = {name: value for name, value in table.items() if name not in own}
    train = TrainTable(name="small", hidden=64, **given)
    if own:
        ((_, values),) = own.items()
        train = replace(train, settings=type(train.settings)(**values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmill.trainers.recipe.costs.memory.memory_bytes", lambda: limit)
        patch.setattr("graphmill.trainers.recipe.queue_bytes.memory_bytes", lambda: limit)
        patch.setattr("graphmill.trainers.recipe.costs.course.free_bytes", lambda: limit - WAITING_BYTES - KERNEL_BYTES)
        patch.setattr("graphmill.trainers.recipe.costs.course.anonymous_bytes", lambda: 0)
        found = training_need(ModelConfig(seed=0, train=train.config, sampling=SAMPLING), train.execution, sizes)
    assert found is not None and found.decided
    return found.beside(waiting_term())


@settings(max_examples=300, deadline=None)
@given(
    table=st.sampled_from(TABLES),
    way=st.sampled_from(["auto", "exact", "sampled"]),
    queue=st.sampled_from(["auto", "1MiB", "64MiB"]),
    width=st.sampled_from([16, 128, 2048]),
    share=st.floats(0.2, 2.0),
)
def test_what_begins_fits_and_a_refusal_names_what_would_do(
    table: dict[str, Any], way: str, queue: str, width: int, share: float
) -> None:
    # Half of the nodes have no row where rows of nodes are learnt.
    num_rows = SIZES.num_rows // (1 + ("embedding" in table))
    sizes = replace(SIZES, width=width, row_bytes=4 * width, num_rows=num_rows)
    table = table | {"eval": way} | ({} if table.get("trainer") == "fullgraph" else {"queue": queue})
    limit = int(share * need_of(table, 1 << 40, sizes).memory_bytes)
    need = need_of(table, limit, sizes)
    if fits(need, limit):
        assert need.memory_bytes <= limit
        return
    with pytest.raises(InputError) as refused:
        require_fit(need, limit)
    (amount,) = re.findall(r"at least ([\d,]+) MiB", refused.value.remedy)
    enough = int(amount.replace(",", "")) << 20
    assert limit < enough <= need_of(table, 1 << 40, sizes).memory_bytes + (1 << 20)
    assert fits(need_of(table, enough, sizes), enough)


def test_an_exact_evaluation_takes_the_largest_workspace_that_fits() -> None:
    for free in range(1 << 20, 200 << 20, 7 << 20):
        found = exact.fitting_workspace(lambda workspace: workspace // 2 + (8 << 20), 256 << 20, free)
        assert found >= exact.LEAST_WORKSPACE and (found == exact.LEAST_WORKSPACE or found // 2 + (8 << 20) <= free)
        more = found + (256 << 20) // exact.WORKSPACE_STEPS
        assert more > 256 << 20 or more // 2 + (8 << 20) > free
