import os
import platform
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.building.materialize import materialize, stage_version
from graphmill.assets.building.stage import Silent, Summary
from graphmill.assets.storage.local.require import require
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.machine import processor_name
from graphmill.kernels.errors import InputError
from tests.assets.building.toy_stage import Execution, Semantic, ToyStage


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


def test_equal_recipes_are_built_once(store):
    stage = ToyStage()
    first = materialize(store, stage, Semantic(), Execution(), {})
    again = materialize(store, stage, Semantic(), Execution(threads=8), {})
    assert stage.num_builds == 1 and not first.reused and again.reused and again.path == first.path
    assert first.version == stage_version(stage, Semantic(), {})
    assert materialize(store, stage, Semantic(rows=6), Execution(), {}).version != first.version
    assert stage.num_builds == 2


def test_the_run_record_holds_what_is_not_content(store, tmp_path):
    made = materialize(store, ToyStage(), Semantic(path=tmp_path), Execution(threads=3), {})
    run = made.run_record()
    assert run["execution"] == {"threads": 3} and run["locations"] == {"path": str(tmp_path)} and run["seconds"] >= 0
    assert str(tmp_path) not in (made.path / "manifest.json").read_text()
    assert made.manifest["raw"] == {"source": "ab" * 32}


def test_the_run_record_names_the_processor(store, tmp_path, monkeypatch):
    """Weights are equal on one kind of processor; whoever finds other ones looks there."""
    made = materialize(store, ToyStage(), Semantic(), Execution(), {})
    assert made.run_record()["host"]["processor"] == processor_name() != ""
    cores = tmp_path / "cpuinfo"
    for text, name in (
        (
            "processor\t: 0\nmodel name\t: Ours (R) 7 @ 2.1GHz\n\nprocessor\t: 1\nmodel name\t: Other\n",
            "Ours (R) 7 @ 2.1GHz",
        ),
        ("cpu family\t: 25\nmodel\t\t: 1\nmodel name\t: Theirs\n", "Theirs (family 25, model 1)"),
        ("processor\t: 0\n", platform.processor() or platform.machine()),
    ):
        cores.write_text(text)
        monkeypatch.setattr("graphmill.assets.storage.system.machine.PROCESSORS", cores)
        assert processor_name.__wrapped__() == name


def test_where_raw_bytes_lie_does_not_matter(store):
    stage = ToyStage()
    materialize(store, stage, Semantic(path=Path("a")), Execution(), {})
    assert materialize(store, stage, Semantic(path=Path("b")), Execution(), {}).reused


def test_a_path_without_a_raw_digest_is_a_defect(store):
    stage = ToyStage()
    stage.raw = lambda semantic: {}
    with pytest.raises(AssertionError, match="without a raw digest"):
        materialize(store, stage, Semantic(path=Path("a")), Execution(), {})


def test_a_failed_check_publishes_nothing(store):
    with pytest.raises(InputError, match=r"stage toy failed 1 check, .*\n  rows are even: 5 rows"):
        materialize(store, ToyStage(), Semantic(passes=False), Execution(), {})
    assert store.folders() == [] and os.listdir(store.root / ".staging") == []


def test_wrong_inputs_are_refused(store):
    graph = materialize(store, ToyStage(), Semantic(), Execution(), {})
    with pytest.raises(InputError, match=r"reads \{\}, but was given \{'graph': 'toy'\}"):
        materialize(store, ToyStage(), Semantic(), Execution(), {"graph": graph})


def test_a_summary_that_is_not_exact_publishes_nothing(store):
    stage = ToyStage()
    stage.build = lambda *rest: Summary(numbers={"ratio": float("nan")})
    with pytest.raises(TypeError, match="nan"):
        materialize(store, stage, Semantic(), Execution(), {})
    assert store.folders() == []


def test_progress_reaches_the_build(store):
    class Listener(Silent):
        pass

    seen, stage, listener = [], ToyStage(), Listener()
    real = stage.build
    stage.build = lambda building: seen.append(building.progress) or real(building)
    materialize(store, stage, Semantic(), Execution(), {}, listener)
    assert seen == [listener]


def test_require_reports_everything_at_once(store):
    made = materialize(store, ToyStage(), Semantic(), Execution(), {})
    require(
        made,
        {
            "stage": "toy",
            "arrays": {"features": {"dtype": ("float16", "float32"), "shape": (None, 3)}, "nothing": {"ndim": 2}},
            "files": ["figures/note.txt"],
            "config": {"rows": 5},
            "numbers": {"num_rows": np.int64(5)},
        },
    )
    needs = {
        "stage": "graph",
        "arrays": {"features": {"dtype": "float64", "shape": (5, 4)}, "labels": {}, "nothing": {"ndim": 1}},
        "files": ["none.txt"],
        "config": {"rows": 6, "colour": "red"},
        "inputs": {"graph": made},
        "numbers": {"num_rows": 7},
    }
    with pytest.raises(InputError) as caught:
        require(made, needs, "graphmill run demo --to graph")
    assert str(caught.value).splitlines() == [
        f"{made.label} is not what is needed here:",
        "  stage: stored toy, expected graph",
        "  array features: stored float32, expected float64",
        "  array features: stored shape [5, 3], expected [5, 4]",
        "  array labels: stored none, expected one",
        "  array nothing: stored shape [0, 4], expected 1 dimensions",
        "  file none.txt: stored none, expected one",
        f"  input graph: stored none, expected {made.version[:12]}",
        "  config rows: stored 5, expected 6",
        "  config colour: stored None, expected 'red'",
        "  numbers num_rows: stored 5, expected 7",
        "  remedy: build what fits: graphmill run demo --to graph",
    ]
    with pytest.raises(InputError, match="array labels"):
        require(made, {"arrays": ["features", "labels"]})
