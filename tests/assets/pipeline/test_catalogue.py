"""A stage is one folder and one line in the catalogue; every stage makes the checks that it declares."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BUDGETS
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.keys import Checked, within
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Building, Check, Stage, Summary
from graphmill.assets.chunks.stage import CHUNKS
from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.partitions.stage import PARTITIONS
from graphmill.assets.pipeline.catalogue import STAGES, stages
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.shown import UndeclaredCheckError, materialized
from graphmill.assets.pipeline.steps import Step, Versions, preprocessing_steps
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling_tables.config import TablesConfig
from graphmill.assets.sampling_tables.stage import SAMPLING_TABLES
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution
from graphmill.assets.shards.stage import SHARDS
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.recipe.recipe import ModelRecipe
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.sources.own_data import build_config
from tests.trainers.runs import TABLE, build_chunks, train_packed

RECIPE = '[graph]\nsource = "sbm"\nnodes = 60\nedges = 240\n[degrees]\nleast = 2\n'


@dataclass(frozen=True, kw_only=True)
class DegreesTable(Checked):
    # Nodes below this in-degree are not counted.
    least: int = field(default=1, metadata=within(0))


@dataclass(frozen=True, kw_only=True)
class DegreesExecution:
    # Native threads.
    threads: int = 1


class DegreesStage(Stage):
    """Counts the nodes of each in-degree: the toy stage that is added from outside."""

    name = table = "degrees"
    code_version = 1
    Table = Semantic = DegreesTable
    Execution = DegreesExecution
    checks = ("counts add up",)
    needs = MappingProxyType({"graph": " to count"})

    def inputs(self, semantic: DegreesTable) -> Mapping[str, str]:
        return {"graph": "graph"}

    def problems(self, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        graph = tables["graph"]
        if graph is not None and tables["degrees"].least > graph.nodes:
            yield "least", f"least = {tables['degrees'].least} is more than the {graph.nodes} nodes"

    def build(self, building: Building[DegreesTable, DegreesExecution]) -> Summary:
        degree, least = building.inputs["graph"].array("in_degree"), building.semantic.least
        counts = np.bincount(degree[degree >= least])
        building.writer.save("counts", counts)
        check = Check(name="counts add up", passed=counts.sum() == (degree >= least).sum())
        return Summary(numbers={"largest": int(degree.max())}, checks=[check])


DEGREES = DegreesStage()


@pytest.fixture
def with_degrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.assets.pipeline.catalogue.STAGES", (*STAGES, f"{__name__}:DEGREES"))


def write(folder: Path, text: str) -> Path:
    path = folder / "toy.toml"
    path.write_text(text)
    return path


@pytest.mark.usefixtures("with_degrees")
def test_a_stage_from_outside_is_parsed_built_and_an_asset(tmp_path: Path) -> None:
    from graphmill.jobs.definitions import build_defs

    pipeline = load_pipeline(write(tmp_path, RECIPE), TrainTable)
    graph, _, degrees = preprocessing_steps(pipeline)
    assert (degrees.name, degrees.configs, degrees.inputs) == ("degrees", (DegreesTable(least=2),), {"graph": graph})
    store = Store(tmp_path / "home")
    inputs = {"graph": materialize(store, GRAPH, pipeline.graph, Threads(threads=1), {})}
    made = materialize(store, DEGREES, degrees.configs[0], DegreesExecution(), inputs)
    assert made.array("counts")[:2].sum() == 0 and Versions().of(degrees) == (made.version,)
    keys = {key.to_user_string() for asset in build_defs([pipeline]).assets or () for key in asset.keys}  # pyright: ignore
    assert keys >= {"toy/graph", "toy/degrees"}


@pytest.mark.usefixtures("with_degrees")
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("least = 2", "least = -1", r"toy\.toml:6: least = -1 is below 0"),
        ("least = 2", "leest = 2", r"toy\.toml:6: \[degrees\] has no key leest .did you mean least"),
        ("least = 2", "least = 61", r"toy\.toml:6: least = 61 is more than the 60 nodes"),
        ("[degrees]", "[degreees]", r"toy\.toml:5: a pipeline has no degreees .did you mean degrees"),
    ],
)
def test_mistakes_in_the_table_of_a_stage_from_outside_have_their_line(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        load_pipeline(write(tmp_path, RECIPE.replace(old, new)), TrainTable)


def test_without_its_line_the_table_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a pipeline has no degrees"):
        load_pipeline(write(tmp_path, RECIPE), TrainTable)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return build_packed(tmp_path_factory.mktemp("home"), epochs=2)


def declared(stage: Any, artifact: Artifact, semantic: Any) -> None:
    """The checks that an artifact made are those that its stage declares for its config, each once, with numbers and a sentence."""
    made = [check["name"] for check in artifact.summary["checks"]]
    assert sorted(made) == sorted(stage.expected_checks(semantic)), stage.name
    for name in stage.expected_checks(semantic):
        assert len(stage.says[name].split()) > 5, f"{stage.name} does not say what {name} tests"
    for check in artifact.summary["checks"]:
        assert check["blocking"] == (check["name"] not in stage.warnings)
        assert len(check["numbers"]) >= 2, f"{check['name']}: what was measured, and the bound that it was held against"
        assert all(isinstance(value, int | float) for value in check["numbers"].values())
        said = check["detail"]
        assert len(said.split()) > 4 and any(letter.isdigit() for letter in said) and said != check["name"]


def test_every_stage_makes_the_checks_that_it_declares(packed: Packed, tmp_path: Path) -> None:
    store, seen = Store(tmp_path), {"model"}
    sbm = config_class("sbm")(source="sbm", nodes=60, edges=240)
    built = build_config(tmp_path, sbm)
    graph = built.graph
    declared(GRAPH, graph, sbm)
    declared(FEATURES, built.features, features_config(sbm))
    (tmp_path / "edges.csv").write_text("src,dst,w\n0,1,0.5\n1,2,2\n")
    table = config_class("edges")(source="edges", edges=tmp_path / "edges.csv", weight_column="w")
    declared(GRAPH, materialize(store, GRAPH, table, Threads(threads=1), {}), table)
    sampling = SamplingConfig(fanouts=(2, 2), batch_size=8)
    for policy in ("degree", "presample", "bayes"):
        config = hotness_config(HotnessTable(policy=policy), sampling, 0)
        declared(HOTNESS, materialize(store, HOTNESS, config, Threads(threads=1), {"graph": graph}), config)
    tables = TablesConfig(weights="node:out_degree", empty_rows="none")
    made = materialize(store, SAMPLING_TABLES, tables, Threads(threads=1), {"graph": graph})
    declared(SAMPLING_TABLES, made, tables)
    memory = BudgetsConfig(memory=MemoryConfig(device=0, host="10%", disk=0))
    declared(BUDGETS, materialize(store, BUDGETS, memory, BudgetsExecution(), {"features": built.features}), memory)
    for stage in stages():
        seen.add(stage.name)
        if stage.name in ("samples", "cache_plan", "packed_chunks"):
            declared(stage, getattr(packed, stage.name), None)
    table = TrainTable(**(TABLE | {"trainer": "disk"}))
    (model,) = model_configs(table, sampling, 5)
    declared(ModelRecipe(), train_packed(packed, tmp_path / "models"), model)
    chunks = build_chunks(tmp_path, graph, 2, 3)
    parts = store.open("partitions", chunks.inputs["partitions"]["version"])
    declared(PARTITIONS, parts, None)
    declared(CHUNKS, chunks, None)
    rows = {"features": built.features, "partitions": parts}
    declared(SHARDS, materialize(store, SHARDS, ShardsConfig(), ShardsExecution(), rows), None)
    assert seen == {
        "graph",
        "features",
        "partitions",
        "chunks",
        "shards",
        "hotness",
        "budgets",
        "samples",
        "cache_plan",
        "packed_chunks",
        "sampling_tables",
        "model",
    }


def test_a_check_that_no_artifact_made_is_an_error_and_so_is_one_that_was_not_declared(packed: Packed) -> None:
    step = Step(pipeline="p", name="samples", recipe=SAMPLES, configs=(packed.samples.config,))
    made = tuple(check["name"] for check in packed.samples.summary["checks"])
    for checks, problem in (((*made, "rows are blue"), "rows are blue"), (made[1:], made[0])):
        wrong = Step(**{**vars(step), "checks": checks})
        with pytest.raises(UndeclaredCheckError, match=problem):
            materialized(wrong, [packed.samples], Versions(), reused=False)
