"""`method = "auto"`: METIS up to a bound on its memory, by the graph alone; it is said before and after."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Silent
from graphmill.assets.costs.needs import sizes_of
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.partitions.config import Method, PartitionsTable, partitions_config
from graphmill.assets.partitions.method import AUTO_BYTES, choose_method, metis_bytes
from graphmill.assets.partitions.stage import PARTITIONS, PARTITIONS_PAGE, partitions_need
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from tests.recipes import recipe, sbm


class Told(Silent):
    """A listener that keeps the lines that are told."""

    def __init__(self):
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    made: Any = config_class("sbm")
    config = made(nodes=300, edges=2000, classes=4, p_in=0.9, features=2, seed=1)
    return materialize(Store(tmp_path_factory.mktemp("home")), GRAPH, config, Threads(threads=1), {})


def build(graph: Artifact, home: Path, method: str, progress: Silent | None = None) -> Artifact:
    config = partitions_config(PartitionsTable(method=method), 3)  # pyright: ignore[reportArgumentType]
    return materialize(Store(home), PARTITIONS, config, Threads(threads=1), {"graph": graph}, progress)


def test_the_bound_is_on_edges_in_both_directions() -> None:
    most = (AUTO_BYTES - metis_bytes(1000, 0, True)) // (metis_bytes(0, 1, True))
    assert most > 25_000_000, "graphs of this size are cut by METIS"
    assert [choose_method("auto", 1000, most + more, True).method for more in (0, 1)] == ["metis", "ldg"]
    assert [choose_method("auto", 1000, most // 2 + more, False).method for more in (0, 1)] == ["metis", "ldg"]
    assert choose_method("auto", 1 << 30, 0, True).method == "ldg", "nodes count as well"
    assert choose_method("metis", 1 << 30, 1 << 40, True) == ("metis", "")


@pytest.mark.parametrize("method", get_args(Method))
def test_one_part_takes_no_method_and_the_memory_of_none(tmp_path: Path, graph: Artifact, method: str) -> None:
    sizes = sizes_of({"graph": graph})
    assert sizes is not None
    one, random = (
        partitions_need(PartitionsTable(method=each, parts=1), None, sizes)  # pyright: ignore[reportArgumentType]
        for each in (method, "random")
    )
    assert (one.memory_bytes, one.scratch, one.work) == (random.memory_bytes, random.scratch, random.work)
    config = partitions_config(PartitionsTable(method=method, parts=1), 3)  # pyright: ignore[reportArgumentType]
    made = materialize(Store(tmp_path), PARTITIONS, config, Threads(threads=1), {"graph": graph})
    assert not np.asarray(made.array("part_of")).any()


def test_a_small_graph_has_the_parts_of_metis_and_a_large_one_those_of_the_stream(
    tmp_path: Path, graph: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {method: build(graph, tmp_path, method) for method in ("metis", "ldg")}
    assert parts["metis"].files["part_of.npy"]["digest"] != parts["ldg"].files["part_of.npy"]["digest"]
    assert not any("auto" in line for line in (PARTITIONS_PAGE.headline([each]) for each in parts.values()))
    for method, bound in (("metis", AUTO_BYTES), ("ldg", 1000)):
        monkeypatch.setattr("graphmill.assets.partitions.method.AUTO_BYTES", bound)
        found = build(graph, tmp_path / method, "auto", progress := Told())
        assert found.files["part_of.npy"]["digest"] == parts[method].files["part_of.npy"]["digest"]
        assert found.summary["numbers"]["method"] == method and f"parts by {method} (auto)" in PARTITIONS_PAGE.headline(
            [found]
        )
        assert found.summary["numbers"]["method_chosen"].startswith("METIS would take up to ")
        assert any(line.startswith(f'partitions: method = "auto" is "{method}": METIS') for line in progress.lines)


def test_a_given_method_keeps_its_version(tmp_path: Path, graph: Artifact) -> None:
    given = build(graph, tmp_path, "metis")
    assert dict(given.config) == {"method": "metis", "parts": 4, "seed": 3}
    assert PartitionsTable().method == "auto" and build(graph, tmp_path, "auto").version != given.version


def test_validate_and_inspect_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, home = tmp_path / "one.toml", ["--home", str(tmp_path / "home")]
    path.write_text(recipe(graph=sbm(nodes=600, edges=5000), partitions={}))
    rule = 'partitions: method = "auto" is "metis" if that takes at most 4.0 GiB, else "ldg"'
    assert rule in CliRunner().invoke(graphmill, [*home, "validate", str(path)]).output
    assert (
        'method = "auto" is "metis": METIS would take up to'
        in CliRunner().invoke(graphmill, [*home, "inspect", str(path)]).output
    )
    monkeypatch.setattr("graphmill.assets.partitions.method.AUTO_BYTES", 1000)
    said = CliRunner().invoke(graphmill, [*home, "inspect", str(path)]).output
    assert 'method = "auto" is "ldg": METIS would take up to' in said and 'with fewer edges it may be "metis"' in said
    path.write_text(recipe(graph=sbm(nodes=600, edges=5000), partitions={"method": "ldg"}))
    for command in ("validate", "inspect"):
        assert "METIS would" not in CliRunner().invoke(graphmill, [*home, command, str(path)]).output
