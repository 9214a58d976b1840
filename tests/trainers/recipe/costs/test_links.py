"""Trainings of links against what is said of them before, and the rows of all nodes in a file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.recipe.costs.exact import (
    RANKED_AT_ONCE,
    exact_bytes,
    link_rows_bytes,
    most_exact_bytes,
    rank_bytes,
    score_bytes,
)
from graphmill.trainers.recipe.costs.memory import EXACT, memory_terms, training_case
from graphmill.trainers.record.ledger import Ledger
from tests.laws.trainings import KEPT, Case, Recipe
from tests.trainers.graphs import link_graph_artifacts
from tests.trainers.runs import content

TRAINERS: dict[str, tuple[float, dict[str, Any]]] = {
    "minibatch": (0.05, {}),
    "disk": (1e-6, {}),
    "factored": (0.05, {"settings": {"samplers": 1, "trainers": 2}}),
    "fresh": (0.15, {"settings": KEPT | {"policy": "accuracy"}, "epochs": 6}),
    "distributed": (0.05, {}),
    "fullgraph": (0.05, {"accumulate": 1, "exclude_targets": False}),
}
"""Trainer -> share by which the bytes of an epoch may be off, and its keys; the bytes of stored batches follow from them."""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=64, per_positive=2)
    made = Case(tmp_path_factory.mktemp("links"), Recipe(table={"metric": "auc"}, labels="links", sampling=sampling))
    made.graph = link_graph_artifacts(made.home, 4000, 6000)  # of which a batch reaches a part
    return made


def moved(model: Artifact) -> dict[str, float]:
    """Link -> bytes of an epoch."""
    epochs = model.summary["numbers"]["epochs_run"]
    links = Ledger.from_rows(json.loads(model.file("ledger.json").read_text())).bytes_by_link()
    return {link: num_bytes / epochs for link, num_bytes in links.items() if num_bytes}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_bytes_of_an_epoch_are_those_that_are_said_before(case: Case, trainer: str) -> None:
    bound, keys = TRAINERS[trainer]
    model = case.train(trainer, **keys)
    found, counted = model.run_record()["prediction"]["bytes_per_epoch"], moved(model)
    assert found.keys() == counted.keys()
    for link, num_bytes in counted.items():
        assert found[link] == pytest.approx(num_bytes, rel=bound), link
    assert model.run_record()["memory_need"]["terms"]["links and what is known of them"] > 0


def test_rows_of_all_nodes_lie_in_a_file_if_memory_is_short(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"metric": "mrr", "trainer": "minibatch"}
    in_memory = case.train(place="in memory", **options)
    monkeypatch.setattr("graphmill.trainers.inference.exact.free_bytes", lambda: 1)
    monkeypatch.setattr("graphmill.trainers.inference.exact.RESULT_SHARE", 1 << 40)
    in_file = case.train(place="in a file", **options)
    assert content(in_file) == content(in_memory)
    spilled = [list((case.home / place).rglob("spill")) for place in ("in memory", "in a file")]
    assert [bool(each) for each in spilled] == [False, True]


def of_links(**keys: Any) -> Any:
    """The case of a large training of links by mini-batches."""
    given = {"name": "x", "metric": "mrr", "hidden": 128, "features": "direct"} | keys
    table = TrainTable(**given)
    semantic = ModelConfig(seed=0, train=table.config, sampling=SamplingConfig(fanouts=(10, 10), batch_size=1024))
    config: Any = type("Graph", (), {"task": "links"})()
    sizes = Sizes(
        num_nodes=1_000_000, num_edges=10_000_000, num_train=5_000_000, num_valid=10_000, num_test=400_000,
        num_rows=1_000_000, width=128, row_bytes=512, configs={"graph": config},
    )  # fmt: skip
    return training_case(semantic, table.execution, sizes)


def test_ranks_of_many_links_take_the_memory_of_some() -> None:
    case = of_links()
    assert case.sizes.num_test > RANKED_AT_ONCE and case.batch.pairs == 2 * 1024
    assert case.batch.rows[-1] == 3 * 1024
    # Ends of links have 80 known ones where the graph is not built.
    assert score_bytes(case) >= rank_bytes(RANKED_AT_ONCE, 128, 80 * RANKED_AT_ONCE)
    few = score_bytes(of_links(score_train=True))
    assert few - score_bytes(case) == pytest.approx(160 * case.sizes.num_train, rel=0.01)


def test_rows_of_links_count_unless_a_file_takes_them() -> None:
    case = of_links(eval_workspace="4GiB")
    rows = link_rows_bytes(case)
    assert rows == 4 * 128 * 1_000_000
    assert exact_bytes(case) == most_exact_bytes(case) >= rows + score_bytes(case)
    small = of_links(eval_workspace="512MiB")
    assert most_exact_bytes(small) == exact_bytes(small) + rows
    (term,) = (term for term in memory_terms(small) if term.name == EXACT)
    assert term.enough is not None and term.most - term.enough >= rows
    assert not np.isnan(term.most)
