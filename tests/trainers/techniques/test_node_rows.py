"""Every trainer with a learnable row for each node of the types without features, of which this graph has two."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

from graphmill.assets.graph.read import open_graph
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.trained import load_model
from graphmill.trainers.loop import loop
from graphmill.trainers.models.node_rows import LearntRows, RowGradient
from graphmill.trainers.models.rows import records, row_file
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.rows.source import MemorySource
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.training import training
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers import graphs
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import (
    SAMPLING,
    TABLE,
    Stops,
    content,
    losses,
    parts_inputs,
    train_fresh,
    train_packed,
    train_parts,
    train_small,
    train_whole,
)

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py
KEYS: dict[str, Any] = {"input": "typed", "embedding": "node", "model": "rgcn", "bases": 2, "clip_norm": 1.0}
ROWS = "projection.nodes.rows"


@pytest.fixture(autouse=True)
def _types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "RELATIONS", 3)
    monkeypatch.setattr(graphs, "TYPE_COLUMNS", (12, 0, 5, 0))


class TorchsRows:
    """Trains the rows as torch does, with a sparse gradient of a parameter and its own optimiser, in place of `RowAdam`."""

    def __init__(self, nodes: LearntRows, betas: tuple[float, float]):
        nodes.table.values = self.rows = torch.nn.Parameter(nodes.table.values)
        self.optimiser = torch.optim.SparseAdam([self.rows], betas=betas)

    def gradient(self, seeds: int) -> RowGradient:
        assert self.rows.grad is not None
        self.rows.grad = found = self.rows.grad.coalesce() / seeds
        return RowGradient(found.indices()[0], found.values())

    def step(self, gradient: RowGradient, rate: float, number: int) -> None:
        self.optimiser.param_groups[0]["lr"] = rate
        self.optimiser.step()
        self.rows.grad = None

    def state(self) -> dict[str, torch.Tensor]:
        return {}


def weights(model: Artifact | None) -> bytes:
    assert model is not None
    return model.file("weights.safetensors").read_bytes()


def rows_of(model: Artifact) -> np.ndarray:
    return load(weights(model))[ROWS].numpy()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_training_is_torchs_own_with_sparse_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulate: int
) -> None:
    keys = KEYS | {"dtype": "float64", "accumulate": accumulate, "lr_schedule": "cosine", "weight_decay": 1e-3}
    keys["clip_norm"] = 0.1
    mine = train_small(tmp_path / "mine", **keys)
    monkeypatch.setattr("graphmill.trainers.loop.loop.RowAdam", TorchsRows)
    read = torch.nn.functional.embedding
    monkeypatch.setattr(LearntRows, "forward", lambda self, rows, training: read(rows, self.table.values, sparse=True))
    theirs = train_small(tmp_path / "theirs", **keys)
    np.testing.assert_allclose(losses(mine), losses(theirs), rtol=1e-10)
    np.testing.assert_allclose(rows_of(mine), rows_of(theirs), rtol=1e-10, atol=1e-12)
    assert len(rows_of(mine)) == 200 and losses(mine)[-1] < losses(mine)[0]


def test_rows_of_nodes_fit_better_than_one_row_per_type(tmp_path: Path) -> None:
    types, nodes = (
        train_small(tmp_path / each, **(KEYS | {"embedding": each, "epochs": 12, "dropout": 0.0}))
        for each in ("type", "node")
    )
    assert losses(nodes)[-1] < 0.9 * losses(types)[-1]
    assert nodes.summary["numbers"]["parameters"] == types.summary["numbers"]["parameters"] + (200 - 2) * 8


def test_exact_trainers_end_with_the_bits_of_minibatch(tmp_path: Path) -> None:
    plain = train_small(tmp_path / "plain", **KEYS)
    shared = [
        train_small(tmp_path / str(count), trainer="factored", settings=FactoredSettings(trainers=count), **KEYS)
        for count in (1, 3)
    ]
    one = train_parts(tmp_path / "one", 1, **KEYS)
    none = train_fresh(tmp_path / "none", fresh={"t_stale": 0}, **KEYS)
    assert {weights(each) for each in (*shared, one, none)} == {weights(plain)}
    packed = build_packed(tmp_path / "packed", epochs=2)
    online, disk = (train_packed(packed, tmp_path / name, name, **KEYS) for name in ("minibatch", "disk"))
    assert weights(online) == weights(disk)


@pytest.mark.parametrize("more", [{}, {"fresh": {}}, {"settings": {"gradients": "all-reduce"}}])
def test_ranks_hold_equal_rows(tmp_path: Path, more: dict[str, Any]) -> None:
    keys = KEYS | more | {"accumulate": 2}
    alone = train_parts(tmp_path / "alone", 2, **keys)
    parts_inputs(tmp_path / "two", 2)
    found = run_threads(2, lambda ranks: train_parts(tmp_path / "two", 2, ranks, **keys))[0]
    assert alone is not None and losses(alone)[-1] < losses(alone)[0]
    if "settings" in more:  # two summands: another order rounds alike
        np.testing.assert_allclose(rows_of(found), rows_of(alone), rtol=1e-4, atol=1e-5)
    else:
        assert weights(found) == weights(alone)


def test_a_whole_graph_in_chunks_has_the_losses_of_an_uncut_pass(tmp_path: Path) -> None:
    keys = KEYS | {"dtype": "float64"}
    uncut = train_whole(tmp_path, mode="device", **keys)
    for mode, parts, chunks in (("vanilla", 2, 3), ("p2p", 3, 1), ("p2p+reuse", 1, 4)):
        cut = train_whole(tmp_path, parts, chunks, mode=mode, **keys)
        np.testing.assert_allclose(losses(cut), losses(uncut), rtol=1e-10)
        np.testing.assert_allclose(rows_of(cut), rows_of(uncut), rtol=1e-8, atol=1e-10)


def test_products_from_bfloat16_and_embeddings_of_earlier_steps_train(tmp_path: Path) -> None:
    rough, exact = (train_small(tmp_path / dtype, **(KEYS | {"dtype": dtype})) for dtype in ("bf16", "float64"))
    np.testing.assert_allclose(losses(rough), losses(exact), rtol=0.05)
    kept = train_fresh(tmp_path / "kept", **KEYS)
    assert losses(kept)[-1] < losses(kept)[0]


@pytest.mark.parametrize("trainer", ["minibatch", "factored"])
def test_a_training_that_was_stopped_ends_with_the_same_bits(tmp_path: Path, trainer: str) -> None:
    keys = KEYS | {"trainer": trainer, "accumulate": 2, "checkpoint_steps": 1}
    straight = train_small(tmp_path / "straight", **keys)
    for stop in (5, 3):
        with pytest.raises(ConnectionAbortedError):
            train_small(tmp_path / "stopped", resume=stop < 5, progress=Stops(stop), **keys)
    assert weights(train_small(tmp_path / "stopped", resume=True, **keys)) == weights(straight)


def test_ranks_go_on_from_a_checkpoint_of_one_process_to_the_same_bits(tmp_path: Path) -> None:
    keys = KEYS | {"accumulate": 1, "checkpoint_steps": 1}
    straight = train_parts(tmp_path / "straight", 2, **keys)
    parts_inputs(tmp_path / "two", 2)

    def work(ranks: Any, **how: Any) -> Artifact | None:
        return train_parts(tmp_path / "two", 2, ranks, **keys, **how)

    with pytest.raises(ConnectionAbortedError):
        work(ALONE, progress=Stops(5))
    assert weights(run_threads(2, lambda ranks: work(ranks, resume=True))[0]) == weights(straight)


FILES = {"embedding_rows": "mapped"}


def left(home: Path) -> list[str]:
    """Files of rows and checkpoints that a home has."""
    return sorted(path.suffix for path in (home / "checkpoints").iterdir())


@pytest.fixture(params=["mapped", "past the page cache"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files are read and written; past the page cache with places for some rows in memory."""
    monkeypatch.setattr(row_file, "fits_memory", lambda num_bytes: request.param == "mapped")
    monkeypatch.setattr(row_file, "DIRTY_BYTES", 1 << 16)
    monkeypatch.setattr(records, "RECENT_BYTES", 1 << 12)
    return request.param


def test_rows_in_files_end_with_the_bits_of_rows_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(loop, "SAVING_SHARE", 0)
    factored = {"trainer": "factored", "settings": FactoredSettings(trainers=2)}
    for name, more in {
        "plain": {},
        "exact": {"eval": "exact", "dtype": "float64", "epochs": 6, "lr": 0.3},  # its best epoch is not the last
        "sampled": {"eval": "sampled", "checkpoint_steps": 1, "dtype": "bf16"},
        "unscored": {"eval_every": 0, "epochs": 1},
        "factored": factored,
    }.items():
        keys = KEYS | more
        memory = train_small(tmp_path / f"{name} memory", embedding_rows="memory", **keys)
        files = train_small(tmp_path / name, **FILES, **keys)
        assert content(files) == content(memory), name
        assert files.summary == memory.summary and not left(tmp_path / name)
    assert weights(train_fresh(tmp_path / "fresh files", **FILES, **KEYS)) == weights(
        train_fresh(tmp_path / "f", **KEYS)
    )
    packed = build_packed(tmp_path / "packed", epochs=2)
    disk, memory = (train_packed(packed, tmp_path / f"disk {len(how)}", **how, **KEYS) for how in (FILES, {}))
    assert content(disk) == content(memory)


def test_rows_in_files_go_on_from_a_checkpoint_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(loop, "SAVING_SHARE", 0)
    keys = KEYS | {"accumulate": 2, "checkpoint_steps": 1, "epochs": 4, "lr": 0.1}
    straight = train_small(tmp_path / "straight", **keys)
    for begun, ended in (("mapped", "mapped"), ("mapped", "memory"), ("memory", "mapped")):
        home = tmp_path / f"{begun} {ended}"
        for stop in (9, 4, 6):
            with pytest.raises(ConnectionAbortedError):
                where = begun if stop == 9 else ended
                train_small(home, resume=stop < 9, progress=Stops(stop), embedding_rows=where, **keys)
            assert set(left(home)) == {".safetensors", *([".npy"] if begun == "mapped" else [])}
        assert content(train_small(home, resume=True, embedding_rows=ended, **keys)) == content(straight)


def test_a_run_that_starts_over_leaves_the_rows_of_the_checkpoint_until_it_has_come_as_far(tmp_path: Path) -> None:
    keys = KEYS | FILES | {"accumulate": 1, "checkpoint_steps": 1}
    straight = train_small(tmp_path / "straight", **keys)
    with pytest.raises(ConnectionAbortedError):
        train_small(tmp_path / "home", progress=Stops(9), **keys)
    folder = tmp_path / "home" / "checkpoints"
    before = {path: path.stat().st_ino for path in folder.iterdir()}
    with pytest.raises(ConnectionAbortedError):
        train_small(tmp_path / "home", progress=Stops(4), **keys)
    assert {path: path.stat().st_ino for path in folder.iterdir()} == before
    assert weights(train_small(tmp_path / "home", resume=True, **keys)) == weights(straight)
    with pytest.raises(ConnectionAbortedError):  # nor does a training of more epochs take the files of one that ended
        train_small(tmp_path / "home", progress=Stops(2), **(keys | {"epochs": 5}))
    assert not [path for path in folder.glob("*.npy") if path in before]


def test_files_of_rows_that_are_gone_or_held_are_said(tmp_path: Path) -> None:
    keys = KEYS | FILES | {"checkpoint_steps": 1}
    with pytest.raises(ConnectionAbortedError):
        train_small(tmp_path, progress=Stops(7), **keys)
    for path in (tmp_path / "checkpoints").glob("*.npy"):
        path.unlink()
    with pytest.raises(InputError, match="with the rows of nodes of the checkpoint, is not there"):
        train_small(tmp_path, resume=True, **keys)
    parts_inputs(tmp_path / "two", 2)
    with pytest.raises(InputError, match=r'embedding_rows = "mapped" is for one process, and each of 2 ranks'):
        run_threads(2, lambda ranks: train_parts(tmp_path / "two", 2, ranks, **(KEYS | FILES)))
    with pytest.raises(InputError, match=r'"mapped", but trainer = "fullgraph" reads the rows of all nodes'):
        train_whole(tmp_path / "whole", **FILES, **KEYS)


def test_rows_go_to_files_if_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr(
        training, "RowFile", lambda *given, **how: made.append(given[0]) or row_file.RowFile(*given, **how)
    )
    plain = train_small(tmp_path / "plain", **KEYS)
    assert not made
    monkeypatch.setattr(training, "free_bytes", lambda: 200 * 8 * 4 * 12)
    short = train_small(tmp_path / "short", **KEYS)
    assert len(made) == 1 and weights(short) == weights(plain)
    train_small(tmp_path / "memory", embedding_rows="memory", **KEYS)
    train_whole(tmp_path / "whole", **KEYS)  # which has all rows in memory in any case
    assert len(made) == 1


def test_a_longer_training_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    straight = train_small(tmp_path / "straight", **(KEYS | {"epochs": 4}))
    train_small(tmp_path / "short", **(KEYS | {"epochs": 2}))
    said: list[str] = []
    longer = train_small(tmp_path / "short", report=said.append, **(KEYS | {"epochs": 4}))
    assert weights(longer) == weights(straight) and any("2" in line for line in said)


def test_the_saved_model_predicts_as_it_was_scored(tmp_path: Path) -> None:
    model = train_small(tmp_path, eval="exact", **KEYS)
    made = graphs.random_graph_artifacts(tmp_path)
    graph, features = open_graph(made.inputs["graph"]), made.open().features
    (semantic,) = model_configs(TrainTable(**(TABLE | KEYS | {"eval": "exact"})), SAMPLING, 5)
    bounds = Bounds(workspace_bytes=1 << 16, threads=2)
    inference = Inference(load_model(model, semantic, graph, features), graph.topology, MemorySource(features), bounds)
    ids = np.asarray(graph.test_ids)
    logits = inference.exact()
    found = float((logits[torch.from_numpy(ids.copy())].argmax(1).numpy() == graph.labels[ids]).mean())
    assert found == pytest.approx(model.summary["numbers"]["test_accuracy"])


def test_a_device_with_memory_of_its_own_trains_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = train_small(tmp_path / "cpu", **KEYS)
    whole_on_cpu = train_whole(tmp_path / "whole cpu", mode="device", **KEYS)
    stand_in(monkeypatch)
    keys = KEYS | {"device": "cuda", "checkpoint_steps": 1}
    found = train_small(tmp_path / "device", topology="device", **keys)
    np.testing.assert_allclose(losses(found), losses(on_cpu), rtol=1e-4)
    with pytest.raises(ConnectionAbortedError):
        train_small(tmp_path / "stopped", topology="device", progress=Stops(7), **keys)
    assert weights(train_small(tmp_path / "stopped", topology="device", resume=True, **keys)) == weights(found)
    parts_inputs(tmp_path / "two", 2)
    two = run_threads(2, lambda ranks: train_parts(tmp_path / "two", 2, ranks, **(KEYS | {"device": "cuda"})))[0]
    alone = train_parts(tmp_path / "alone", 2, **(KEYS | {"device": "cuda"}))
    assert weights(two) == weights(alone)
    for mode in ("device", "p2p"):
        whole = train_whole(tmp_path / f"whole {mode}", mode=mode, **(KEYS | {"device": "cuda"}))
        np.testing.assert_allclose(losses(whole), losses(whole_on_cpu), rtol=1e-4)
