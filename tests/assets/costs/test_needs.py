from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Check, Stage, Summary
from graphmill.assets.costs.needs import MARGIN, Need, Sizes, Speed, Term, known_sizes, require_fit, sizes_of
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.toy_stage import Execution, Semantic, ToyStage

NEED = Need(
    name="samples",
    phases=(
        (
            Term("records", 3 << 20, "[sampling] batch_size"),
            Term("Python and libraries", 1 << 20),
            Term("rows", 2 << 20, "[memory] host"),
        ),
    ),
)


class Graph(ToyStage):
    """A stage in the place of the graph's, with the numbers that sizes are read from."""

    name = "graph"

    def build(self, building):
        summary = super().build(building)
        numbers = {"num_nodes": 70, "num_edges": 500, "num_train": 7, "num_classes": 3}
        return replace(summary, numbers=numbers)


class Costly(Stage):
    """A stage that reads the graph and takes so many bytes per edge."""

    name, code_version = "costly", 1
    Semantic, Execution = Semantic, Execution
    reads_stages = ("graph",)
    speed = Speed(per_second=1e6)
    bytes_per_edge, seen = 1, None

    def need(self, semantic, execution, sizes: Sizes) -> Need:
        self.seen = sizes
        term = Term("edges", self.bytes_per_edge * sizes.num_edges, "[graph] edges")
        return Need(name=self.name, phases=((term,),), work=sizes.num_edges)

    def build(self, building):
        return Summary(checks=[Check(name="built", passed=True)])


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


def test_a_sum_that_does_not_fit_names_each_term_and_the_keys_that_lower_it():
    require_fit(NEED, int(6 * 2**20 / (1 + MARGIN)) + 1)
    with pytest.raises(InputError) as refused:
        require_fit(NEED, int(6 * 2**20 / (1 + MARGIN)))
    lines = refused.value.problem.splitlines()
    assert lines[0] == "samples needs 6.0 MiB of memory and 5.2 MiB are there:"
    words = [line.split("B  ")[1] for line in lines[1:]]
    assert words == [
        "records   ([sampling] batch_size lowers it)",
        "rows   ([memory] host lowers it)",
        "Python and libraries",
    ]
    assert refused.value.remedy == "lower [sampling] batch_size or [memory] host"


def test_bounds_are_not_refused():
    bounds = tuple(replace(term, bound=True) for term in NEED.memory)
    require_fit(replace(NEED, phases=(bounds,)), 0)
    require_fit(NEED, None)


def test_a_phase_that_is_certain_is_refused_though_another_may_take_more():
    bound = (Term("batches", 8 << 20, bound=True),)
    two = replace(NEED, phases=(bound, *NEED.phases))
    assert (two.memory_bytes, two.least_bytes, two.is_bound) == (8 << 20, 6 << 20, True)
    with pytest.raises(InputError, match=r"needs 6\.0 MiB of memory and 1\.0 MiB(?s:.*)records"):
        require_fit(two, 1 << 20)
    more = two.beside(Term("a command that waits", 1 << 20))
    assert (more.memory_bytes, more.least_bytes) == (9 << 20, 7 << 20)


def test_sizes_come_from_the_graph_and_what_was_built_from_it(store):
    graph = materialize(store, Graph(), Semantic(), Execution(), {})
    costly = materialize(store, Costly(), Semantic(), Execution(), {"graph": graph})
    for inputs in ({"graph": graph}, {"costly": costly}):
        sizes = sizes_of(inputs)
        assert sizes is not None and sizes.exact
        assert (sizes.num_nodes, sizes.num_edges, sizes.num_train, sizes.num_valid) == (70, 500, 7, 0)
        assert sizes.artifacts["graph"].version == graph.version
    assert sizes_of({}) is None


def test_a_build_that_does_not_fit_is_refused_before_it_begins(store):
    graph, stage = materialize(store, Graph(), Semantic(), Execution(), {}), Costly()
    stage.bytes_per_edge = 1 << 60
    with pytest.raises(InputError, match=r"(?s)costly needs .* edges   \(\[graph\] edges lowers it\)"):
        materialize(store, stage, Semantic(), Execution(), {"graph": graph})
    assert not list(store.root.glob("costly/*"))


def test_a_build_records_its_work_and_seconds(store):
    graph = materialize(store, Graph(), Semantic(), Execution(), {})
    costly = materialize(store, Costly(), Semantic(), Execution(), {"graph": graph})
    work = costly.run_record()["work"]
    assert work["units"] == work["memory_bytes"] == 500 and work["seconds"] >= 0
    assert "work" not in graph.run_record()


@pytest.mark.parametrize(
    ("limit", "said"), [(1 << 20, "of this container (control group), which is 1.0 MiB, to"), (None, "use a machine")]
)
def test_where_no_key_helps_the_limit_is_named(limit, said, monkeypatch):
    monkeypatch.setattr("graphmill.assets.costs.needs.limit_bytes", lambda: limit)
    terms = (Term("Python", 4 << 20), Term("rows", 1 << 20, "queue"))
    with pytest.raises(InputError) as told:
        require_fit(replace(NEED, phases=(terms,)), 1 << 20)
    assert said in told.value.remedy and "at least 4.0 MiB: no key of the file lowers that" in told.value.remedy
    with pytest.raises(InputError) as told:
        require_fit(replace(NEED, phases=(terms,)), int(4.2 * 2**20))
    assert told.value.remedy == "lower queue"


@pytest.mark.parametrize("value", ["..", None, True, 0.5, -1, [1]])
def test_a_graph_that_says_nonsense_about_its_size_is_damaged(value: Any) -> None:
    graph: Any = SimpleNamespace(
        summary={"numbers": {"num_nodes": value}}, path=Path("home/store/graph/0123456789abcdef")
    )
    with pytest.raises(InputError, match=r"manifest\.json is damaged: num_nodes is ") as refused:
        known_sizes({"graph": graph})
    assert "graphmill repair graph/0123456789ab" in refused.value.remedy
