"""A training maps its rows only if that leaves the memory that its processes still take; else every technique reads them directly.

A bound of memory has no rows of a mapped table, so in a control group of that size they would fight with the training for every page.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.trainers.recipe.techniques import TECHNIQUES
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.trainers.runs import train_fresh, train_parts, train_small, train_whole

TRAINERS: dict[str, Callable[[Path], Artifact | None]] = {
    "minibatch": lambda home: train_small(home, epochs=1),
    "factored": lambda home: train_small(home, epochs=1, trainer="factored", settings=FactoredSettings(samplers=1)),
    "fresh": lambda home: train_fresh(home, epochs=1),
    "fresh-factored": lambda home: train_fresh(home, epochs=1, trainer="fresh-factored"),
    "fullgraph": lambda home: train_whole(home, epochs=1),
    "distributed": lambda home: train_parts(home, 2, epochs=1),
    "fresh-distributed": lambda home: train_parts(home, 2, epochs=1, fresh={}),
}


def links(name: str, home: Path) -> set[str]:
    model = TRAINERS[name](home)
    assert model is not None
    ledger = Ledger.from_rows(json.loads(model.file("ledger.json").read_text()))
    return {link for link, num_bytes in ledger.bytes_by_link().items() if num_bytes}


def test_every_technique_that_reads_the_table_is_here() -> None:
    assert {*TRAINERS} == {*TECHNIQUES} - {"disk"}  # whose rows are packed


@pytest.mark.parametrize("name", TRAINERS)
def test_rows_are_mapped_only_beside_what_is_still_to_come(tmp_path: Path, name: str) -> None:
    assert "disk" not in links(name, tmp_path / "roomy")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("graphmill.trainers.loop.executor.bytes_to_come", lambda *given: 1 << 60)
        assert "disk" in links(name, tmp_path / "short")
