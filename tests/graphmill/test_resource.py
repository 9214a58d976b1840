"""The home as a resource of a Dagster project: what inputs are by the type of their argument, and which mistakes it explains."""

from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import polars
import pytest
import torch
from torch.utils.data import DataLoader

import graphmill
from tests.graphmill.test_component import COMMUNITIES, loaded, run
from tests.graphmill.test_component import project as project
from tests.jobs.conftest import quick_launches as quick_launches

SAGE = dg.AssetIn(["communities", "sage"], input_manager_key="graphmill")
GRAPH = dg.AssetIn(["communities", "graph"], input_manager_key="graphmill")


def of(given: dg.AssetIn, **metadata: Any) -> dg.AssetIn:
    return dg.AssetIn(given.key, metadata=metadata, input_manager_key="graphmill")


def given_to(instance: dg.DagsterInstance, *assets: dg.AssetsDefinition, **more: Any) -> dg.ExecuteInProcessResult:
    """Executes own assets below the project's, which stand in its history and its home already."""
    definitions = dg.Definitions.merge(loaded(), dg.Definitions(assets=assets, **more))
    selection = dg.AssetSelection.assets(*assets)
    chosen = dg.Definitions.merge(definitions, dg.Definitions(jobs=[dg.define_asset_job("below", selection=selection)]))
    return chosen.resolve_job_def("below").execute_in_process(instance=instance, raise_on_error=False)


def failure(done: dg.ExecuteInProcessResult) -> str:
    (event,) = [each for each in done.all_events if each.is_step_failure]
    said = event.step_failure_data.user_failure_data
    assert said is not None and said.description, event.step_failure_data.error
    return said.description


def test_inputs_are_what_their_arguments_are_typed_as(project: Path, quick_launches: None) -> None:
    seen: dict[str, Any] = {}

    @dg.asset(ins={"sage": SAGE})
    def frame(sage: polars.DataFrame) -> None:
        seen["frame"] = sage

    @dg.asset(ins={"sage": of(SAGE, seed=0, probabilities=True)})
    def chosen(sage: polars.DataFrame) -> None:
        seen["chosen"] = sage

    @dg.asset(ins={"sage": SAGE})
    def model(sage: graphmill.Trained) -> None:
        seen["model"] = sage

    @dg.asset(ins={"sage": of(SAGE, epoch=1)})
    def loader(sage: DataLoader) -> None:
        seen["loader"] = [[batch.seeds.copy() for batch in sage] for _ in range(2)]

    @dg.asset(ins={"sage": SAGE, "graph": GRAPH})
    def artifacts(sage: graphmill.Artifact, graph) -> None:
        seen["artifact"], seen["graph"] = sage, graph

    with dg.DagsterInstance.ephemeral() as instance:
        assert run(instance).success  # the page's own asset below the model is in the same run
        assert given_to(instance, frame, chosen, model, loader, artifacts).success
    path = project / COMMUNITIES
    trained = graphmill.open(path, "sage")
    assert seen["frame"]["class"].to_list() == trained.classes() == seen["chosen"]["class"].to_list()
    assert "probabilities" in seen["chosen"].columns and "probabilities" not in seen["frame"].columns
    assert torch.equal(seen["model"].logits(), trained.logits())
    for epoch, seeds in enumerate(seen["loader"], 1):
        wanted = [batch.seeds.copy() for batch in graphmill.batches(path, "sage", epoch)]
        assert len(wanted) > 1 and all(map(np.array_equal, seeds, wanted)) and len(seeds) == len(wanted)
    assert seen["artifact"].version == trained.artifact.version
    assert seen["graph"].topology.num_nodes == 1000


def test_predictions_as_a_table_of_arrow(project: Path, quick_launches: None) -> None:
    arrow, seen = pytest.importorskip("pyarrow"), []

    @dg.asset(ins={"sage": dg.AssetIn(SAGE.key, input_manager_key="graphmill", dagster_type=arrow.Table)})
    def table(sage) -> None:
        seen.append(sage)

    with dg.DagsterInstance.ephemeral() as instance:
        assert run(instance).success and given_to(instance, table).success
    assert seen[0]["class"].to_pylist() == graphmill.open(project / COMMUNITIES, "sage").classes()


def test_an_input_is_read_from_the_home_of_its_asset(
    project: Path, quick_launches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (project / "shop/defs/communities/defs.yaml").open("a") as file:
        file.write("  home: of_the_pipeline\n")
    seen = []

    @dg.asset(ins={"graph": GRAPH})
    def below(graph: graphmill.Artifact) -> None:
        seen.append(graph)

    with dg.DagsterInstance.ephemeral() as instance:
        assert run(instance, "*communities/graph").success
        monkeypatch.chdir(project / "shop")  # neither does the current folder matter
        assert given_to(instance, below).success
    assert seen[0].path.is_relative_to(project / "of_the_pipeline") and not (project / ".graphmill").exists()


def test_mistakes_are_one_message_with_a_remedy(project: Path) -> None:
    @dg.asset(ins={"sage": SAGE})
    def early(sage: polars.DataFrame) -> None: ...

    @dg.asset
    def own() -> int:
        return 1

    @dg.asset(ins={"own": dg.AssetIn(input_manager_key="graphmill")})
    def strange(own: polars.DataFrame) -> None: ...

    @dg.asset(io_manager_key="graphmill")
    def stored() -> int:
        return 1

    with dg.DagsterInstance.ephemeral() as instance:
        assert run(instance, '+key:"communities/features" or key:"communities/graph"').success
        assert "graphmill train" in failure(given_to(instance, early))
        assert "own is not a step of a pipeline of graphmill" in failure(given_to(instance, own, strange))
        assert "stored is not a step of a pipeline" in failure(given_to(instance, stored))
