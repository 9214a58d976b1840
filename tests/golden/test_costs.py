"""Estimates are those of the committed texts; `python -m tests.golden` writes them anew."""

import difflib
from pathlib import Path

import pytest

from tests.golden.costs import FOLDER, cluster_text, graph_text
from tests.golden.recipes import texts

pytestmark = pytest.mark.first


def assert_equal(name: str, found: str) -> None:
    wanted = (FOLDER / f"{name}.txt").read_text()
    changed = "\n".join(
        difflib.unified_diff(wanted.splitlines(), found.splitlines(), "committed", "now", n=0, lineterm="")
    )
    assert found == wanted, changed


@pytest.mark.parametrize("name", texts())
def test_estimates_of_a_pipeline_are_those_that_are_committed(name: str, tmp_path: Path) -> None:
    assert_equal(name, graph_text(name, texts()[name], tmp_path))


def test_simulated_clusters_are_those_that_are_committed() -> None:
    assert_equal("cluster", cluster_text())
