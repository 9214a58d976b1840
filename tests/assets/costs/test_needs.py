import subprocess
import sys
from dataclasses import replace

import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize, materialize_together
from graphmill.assets.building.stage import Check, OnePass, Stage, Summary
from graphmill.assets.costs import needs
from graphmill.assets.costs.needs import MARGIN, Need, Sizes, Speed, Term, require_fit, sizes_of
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.toy_stage import Execution, Semantic, ToyStage
from tests.assets.storage.system.test_control_group import memory_group
from tests.assets.storage.tiny_artifacts import numbers_of

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
        numbers = {"num_nodes": 70, "num_edges": 500, "num_train": 7, "num_valid": 0, "num_classes": 3}
        return replace(summary, numbers=numbers_of("graph") | numbers)


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
    assert refused.value.remedy == (
        "lower [sampling] batch_size or [memory] host, in the file or by --set; GRAPHMILL_ANY_MEMORY=1 begins all the same"
    )


def test_a_variable_begins_all_the_same(monkeypatch):
    monkeypatch.setenv("GRAPHMILL_ANY_MEMORY", "0")
    with pytest.raises(InputError):
        require_fit(NEED, 0)
    monkeypatch.setenv("GRAPHMILL_ANY_MEMORY", "1")
    require_fit(NEED, 0)


GENERATED = 'name = "g"\n[graph]\nsource = "rmat"\nnodes = 4096\nedges = 400_000\nfeatures = 4\n'


def test_a_generated_graph_is_refused_before_it_is_drawn(store, monkeypatch, tmp_path):
    """The sum that `validate` knows; nothing but the keys is read for it."""
    pipeline = parse_pipeline(tmp_path / "g.toml", GENERATED.encode())
    steps = preprocessing_steps(pipeline, store.home)
    asked = [(step.recipe, step.configs[0]) for step in steps if isinstance(step.recipe, OnePass)]
    assert {stage.name for stage, _ in asked} == {"graph", "features"}
    monkeypatch.setattr(needs, "free_bytes", lambda: 0)
    monkeypatch.setattr(needs, "anonymous_bytes", lambda: 20 << 20)
    with pytest.raises(InputError, match=r"needs .* of memory and 20\.0 MiB are there:\n.*Python and libraries"):
        materialize_together(store, asked, Threads(threads=1))
    assert store.artifacts() == []
    monkeypatch.setattr(needs, "free_bytes", lambda: 1 << 40)
    assert len(materialize_together(store, asked, Threads(threads=1))) == 2


def test_a_prediction_is_refused_before_torch_is_loaded(tmp_path):
    """In a process of its own, which has not loaded torch."""
    code = (
        "import sys; from graphmill.assets.costs import needs; needs.free_bytes = needs.anonymous_bytes = lambda: 1 << 20\n"
        "from graphmill.jobs.cli import main; code = main(['predict', 'cora', 'gcn', '--out', 'x.parquet'])\n"
        "sys.exit(code or 5 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "a prediction needs" in done.stderr and "GRAPHMILL_ANY_MEMORY" in done.stderr


def test_a_step_in_a_small_group_ends_by_a_message_and_is_not_killed(tmp_path):
    (tmp_path / "g.toml").write_text(GENERATED.replace("400_000", "40_000_000"))
    with memory_group(300 << 20) as procs:
        code = (
            f"import os, sys; open({str(procs)!r}, 'w').write(str(os.getpid()))\n"
            f"from graphmill.jobs.cli import main; sys.exit(main(['--home', 'home', 'build', 'g.toml']))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "of memory and" in done.stderr, done.stderr


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
    assert told.value.remedy.startswith("lower queue, in the file or by --set; ")
