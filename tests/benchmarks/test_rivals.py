"""Rivals in processes of their own compute what ours computes, another model is refused, and who is not there is left out aloud."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import rival_process, rivals, rivals_epoch
from benchmarks.limited_home import GRAPHBOLT
from benchmarks.record import in_turn
from benchmarks.rival_child import with_own_edges
from benchmarks.rival_environment import older_python, works
from benchmarks.rival_process import RivalProcess, contestants, ratios, spec_of
from benchmarks.rivals_accuracy import until
from benchmarks.rivals_pyg import check, first_batch
from benchmarks.rivals_sampling import _check
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.blocks.pyg_blocks import to_subgraph
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.recipe.config import TrainConfig
from tests.graphs import GraphArtifacts, build_graph

FANOUTS = (4, 3)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> GraphArtifacts:
    """A graph of which two thirds train."""
    config = config_class("sbm")(
        seed=1, nodes=300, edges=1500, features=6, classes=3, noise=1.0, train_ratio=0.6, valid_ratio=0.2
    )
    return build_graph(Store(tmp_path_factory.mktemp("home")), config)


@pytest.mark.parametrize("system", ["dgl", "graphbolt"])
@pytest.mark.parametrize("model", ["sage", "gat"])
def test_a_rival_computes_what_ours_computes_and_trains(
    system: str, model: str, graph: GraphArtifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = contestants(system, quick=True)
    if not found:
        pytest.skip(f"{system} is not there")
    (_, python, kept) = found[0]
    config = TrainConfig(
        model=model,
        hidden=8,
        norm="layer" if model == "sage" else "none",
        heads=2 if model == "gat" else 1,
        threads=1,
        lr=0.03,
    )
    with RivalProcess(python, spec_of(graph, config, FANOUTS, 64) | {"system": system}, kept) as rival:
        assert rival.compare(graph, config) < 1e-5
        losses = [rival.ask("epoch")["loss"] for _ in range(8)] + [rival.ask("whole_epoch")["loss"]]
        assert losses[-1] < losses[0] and rival.ask("accuracy") > 0.45
        if model == "sage":
            np.save(tmp_path / "seeds.npy", np.arange(40).reshape(2, 20))
            way = "fused" if system == "dgl" else system
            _check(graph.open().topology, FANOUTS, rival, way, tmp_path)
            with pytest.raises(AssertionError, match="rows of other lengths"):
                _check(graph.open().topology, (5, 2), rival, way, tmp_path)
        monkeypatch.setattr(rival_process, "_gap", lambda one, other: float(np.abs(1.1 * one - other).max()))
        with pytest.raises(AssertionError, match="differs from ours"):
            rival.compare(graph, config)


@pytest.mark.parametrize("form", ["pyg", "pyg blocks"])
def test_pygs_module_is_trained_to_the_same_numbers(form: str, graph: GraphArtifacts) -> None:
    """Without a sampler, too: blocks are given, and whole graphs need none."""
    pytest.importorskip("torch_geometric")
    config = replace(rivals_epoch.PYG_MODELS[form][0], layers=2, hidden=8, threads=1, lr=0.03)
    spec = spec_of(graph, config, FANOUTS, 64) | {"system": "pyg"}
    with RivalProcess(sys.executable, spec, kept=False) as rival:
        assert rival.compare(graph, config) < 1e-5
        losses = [rival.ask("whole_epoch")["loss"] for _ in range(60)]
        assert losses[-1] < losses[0] and rival.ask("accuracy") > 0.45
    ours = rivals_epoch.OurEpochs(graph.open(), config, FANOUTS)
    before = [each.detach().clone() for each in ours.model.parameters()]
    ours.epoch()
    assert ours.edges_per_epoch() > 0
    assert not any(torch.equal(*pair) for pair in zip(before, ours.model.parameters(), strict=True))


def test_pygs_loader_draws_the_neighbours_that_it_says(graph: GraphArtifacts, tmp_path: Path) -> None:
    found = contestants("pyg", quick=True)
    if not found:
        pytest.skip("PyG's sampler is not there")
    config = replace(rivals_epoch.PYG_MODELS["pyg"][0], layers=2, hidden=8, threads=1, lr=0.03)
    np.save(tmp_path / "seeds.npy", np.arange(40).reshape(2, 20))
    with RivalProcess(found[0][1], spec_of(graph, config, FANOUTS, 64) | {"system": "pyg"}, kept=True) as rival:
        check(graph.open().topology, FANOUTS, first_batch(rival, tmp_path))
        assert rival.ask("sample", seeds=str(tmp_path / "seeds.npy"), way="pyg")["edges"] > 40
        losses = [rival.ask("epoch")["loss"] for _ in range(12)]
        assert losses[-1] < losses[0] and "torch_sparse" in rival.ask("versions")


def test_a_batch_with_rows_of_other_lengths_is_refused(graph: GraphArtifacts) -> None:
    topology = graph.open().topology
    drawn = Sampler(topology, (4,), seed=1).sample(BatchKey(Stream.PROBE, 0, 0), np.arange(20, dtype=np.int32))
    batch = to_subgraph(drawn)
    check(topology, (4,), batch)
    for fanouts in ((3,), (4, 2)):
        with pytest.raises(AssertionError, match="rows of other lengths at hop"):
            check(topology, fanouts, batch)
    others = torch.cat([batch.n_id[:20], batch.n_id[20:].flip(0)])
    with pytest.raises(AssertionError, match="that the graph does not have"):
        check(topology, (4,), replace(batch, n_id=others))


def test_a_rival_that_fails_is_told(graph: GraphArtifacts) -> None:
    spec = spec_of(graph, TrainConfig(hidden=8, threads=1), FANOUTS, 64) | {"system": "dgl"}
    with RivalProcess(sys.executable, spec, kept=False) as rival, pytest.raises(ChildProcessError, match="'nonsense'"):
        rival.ask("nonsense")


def test_an_interpreter_that_is_not_named_is_left_out_aloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(GRAPHBOLT, raising=False)
    assert contestants("graphbolt", quick=False) == []
    assert "graphbolt: left out, GRAPHBOLT_PYTHON names no interpreter" in capsys.readouterr().out


def test_a_rival_imports_nothing_of_ours() -> None:
    code = "import sys, benchmarks.rival_child; print('graphmill' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_environment_needs_an_interpreter_that_runs(tmp_path: Path) -> None:
    assert not works(tmp_path / "bin" / "python")
    assert Path(older_python()).exists()


def test_every_row_begins_with_the_node_itself() -> None:
    indptr, indices = with_own_edges(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0], dtype=torch.int32))
    assert indptr.tolist() == [0, 3, 4, 6] and indices.tolist() == [0, 1, 2, 1, 2, 0]


def test_seconds_are_summed_up_to_the_first_score_at_the_threshold() -> None:
    found = until([1.0, 2.0, 4.0, 8.0], [0.1, 0.5, 0.4, 0.9], 0.5)
    assert found == {"seconds": 3.0, "epochs": 2, "best": 0.9}
    assert until([1.0], [0.1], 0.5) == {"seconds": None, "epochs": None, "best": 0.1}


def test_the_first_round_is_not_counted_and_ratios_are_of_medians() -> None:
    told = {"ours": iter([9.0, 1.0, 2.0, 3.0]), "other": iter([9.0, 4.0, 4.0, 7.0])}
    seconds = in_turn({name: lambda each=each: next(each) for name, each in told.items()}, 3)
    assert seconds == {"ours": [1.0, 2.0, 3.0], "other": [4.0, 4.0, 7.0]}
    assert ratios(seconds) == {"other / ours": 2.0}


def test_parts_are_chosen_by_name_or_by_how_they_begin() -> None:
    assert rivals.chosen(["epoch", "sampling"], quick=False) == ["sampling", "epoch_sage", "epoch_gat"]
    assert rivals.chosen(["accuracy", "limited"], quick=True) == ["accuracy_citation"]
    with pytest.raises(AssertionError, match="parts are sampling"):
        rivals.chosen(["epo"], quick=False)
