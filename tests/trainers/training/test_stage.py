"""The model stage: what it learns, writes and refuses, and when it stops."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.results.sql import query
from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.inference.choice import scored_splits
from graphmill.trainers.loop.loop import Loop
from graphmill.trainers.models.loss import class_weights
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig, TrainTable
from graphmill.trainers.record.checkpoint_head import finished_epochs
from graphmill.trainers.run import train_table
from graphmill.trainers.training.open_run import require_range
from graphmill.trainers.training.training import Training
from tests.trainers.graphs import random_graph, random_graph_artifacts
from tests.trainers.runs import SAMPLING, train_fresh, train_small, train_whole


def rows_of(model) -> list[dict]:
    return [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]


def test_a_model_learns_and_says_what_it_did(tmp_path: Path) -> None:
    model = train_small(tmp_path, epochs=15)
    rows, numbers = rows_of(model), model.summary["numbers"]
    assert [row["epoch"] for row in rows] == list(range(1, 16)) and rows[-1]["loss"] < 0.7 * rows[0]["loss"]
    assert numbers["valid_accuracy"] == max(row["valid"] for row in rows)
    assert rows[numbers["best_epoch"] - 1]["valid"] == numbers["valid_accuracy"]
    assert numbers["test_accuracy"] > 0.45 and numbers["train_accuracy"] > 0.45  # chance is 0.25
    weights = load_file(model.file("weights.safetensors"))
    assert sum(tensor.numel() for tensor in weights.values()) == numbers["parameters"]
    counts = {row["name"]: row["n"] for row in json.loads(model.file("ledger.json").read_text())["counts"]}
    assert counts["seeds"] == 200 * 15 and counts["batches"] == 7 * 15
    run = model.run_record()
    assert len(run["epoch_seconds"]["train"]) == 15 and run["execution"]["samplers"] == 0
    assert model.verify() == []


@pytest.mark.parametrize(
    "options", [{}, {"model": "gat", "heads": 2, "eval": "sampled"}, {"class_weights": "balanced"}]
)
def test_a_model_in_float64_takes_the_same_steps_with_more_digits(tmp_path: Path, options: dict) -> None:
    single, double = (train_small(tmp_path, dropout=0.2, dtype=dtype, **options) for dtype in ("float32", "float64"))
    weights = {name: load_file(model.file("weights.safetensors")) for name, model in (("s", single), ("d", double))}
    assert {tensor.dtype for tensor in weights["d"].values()} == {torch.float64}
    for name, tensor in weights["s"].items():
        torch.testing.assert_close(tensor.double(), weights["d"][name], rtol=1e-3, atol=1e-3)
    # The parameters really have more digits than float32 holds.
    assert any(bool((tensor.float().double() != tensor).any()) for tensor in weights["d"].values())
    for one, other in zip(rows_of(single), rows_of(double), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4) and one["loss"] != other["loss"]
    assert "dtype" not in single.config["train"] and double.config["train"]["dtype"] == "float64"


def test_exact_inference_in_float64_is_that_of_a_whole_pass_to_the_last_digits(tmp_path: Path) -> None:
    models = [train_small(tmp_path / name, dtype="float64", eval_workspace=name) for name in ("40KiB", "1GiB")]
    scores = [[row["valid"] for row in rows_of(model)] for model in models]
    assert scores[0] == scores[1]


def test_the_second_time_it_is_reused(tmp_path: Path) -> None:
    lines: list[str] = []
    first = train_small(tmp_path, report=lines.append)
    again = train_small(tmp_path, report=lines.append)
    assert (first.reused, again.reused) == (False, True) and first.version == again.version
    assert [line.split()[1] for line in lines] == ["trained", "reused"]
    (checkpoint,) = (tmp_path / "checkpoints").iterdir()  # a longer training goes on from it
    assert finished_epochs(checkpoint) == 3


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"samplers": 2, "queue": "10MB", "features": "memory", "workspace": "1GiB", "checkpoint_steps": 2}, True),
        ({"name": "another"}, True),
        ({"lr": 0.021}, False),
        ({"threads": 1}, False),
        ({"accumulate": 2}, False),
        ({"seeds": (6,)}, False),
        ({"eval_workspace": "1MiB"}, False),
    ],
)
def test_only_what_decides_the_result_enters_the_version(tmp_path: Path, options: dict, same: bool) -> None:
    first = train_small(tmp_path, epochs=1)
    assert (train_small(tmp_path, **({"epochs": 1} | options)).version == first.version) is same


def test_sampling_enters_the_version(tmp_path: Path) -> None:
    first = train_small(tmp_path, epochs=1)
    other = train_small(tmp_path, epochs=1, sampling=SamplingConfig(fanouts=(4, 3), batch_size=32, reuse=1))
    assert other.version != first.version


def test_patience_stops_early_and_keeps_the_best(tmp_path: Path) -> None:
    model = train_small(tmp_path, epochs=60, patience=3, lr=0.1)
    rows, best = rows_of(model), model.summary["numbers"]["best_epoch"] - 1
    assert len(rows) == best + 4 < 60
    assert all(row["valid"] <= rows[best]["valid"] for row in rows)
    assert model.summary["numbers"]["valid_accuracy"] == rows[best]["valid"]


def test_a_model_is_trained_again_and_replaced_when_it_is_asked_for(tmp_path: Path) -> None:
    lines: list[str] = []
    first = train_small(tmp_path, report=lines.append)
    reused = train_small(tmp_path, report=lines.append)
    assert reused.reused and reused.run_record() == first.run_record()
    again = train_small(tmp_path, report=lines.append, retrain=True, features="memory")
    assert not again.reused and again.version == first.version and again.verify() == []
    assert again.run_record()["execution"]["features"] == "memory"
    links = {row["link"] for row in json.loads(again.file("ledger.json").read_text())["moves"]}
    assert links == {"h2d"}, "the ledger is that of the new training"
    assert ": trained" in lines[0] and lines[0].endswith(" s")
    assert lines[1].endswith("the same recipe is trained already (--retrain trains it again)")
    assert lines[2].endswith(", with the same weights to the bit")


def test_eval_every_skips_epochs_but_never_the_last(tmp_path: Path) -> None:
    rows = rows_of(train_small(tmp_path, epochs=5, eval_every=2))
    assert [row["epoch"] for row in rows if "valid" in row] == [2, 4, 5]


def test_eval_every_0_evaluates_after_the_last_epoch_alone(tmp_path: Path) -> None:
    model = train_small(tmp_path, epochs=4, eval_every=0)
    assert [row["epoch"] for row in rows_of(model) if "valid" in row] == [4]
    assert model.summary["numbers"]["best_epoch"] == 4
    with pytest.raises(InputError, match="patience = 3 needs evaluations on the way, and eval_every = 0 has one"):
        TrainConfig(patience=3, eval_every=0)


@pytest.mark.parametrize(
    ("train", "valid", "test", "asked", "scored"),
    [(1 << 17, 1, 1, False, True), ((1 << 17) + 1, 1, 1, False, False), ((1 << 17) + 1, 1, 1, True, True)]
    + [(1 << 18, 1 << 17, 1 << 17, False, True), (1 << 18, 0, 1, False, True), (1 << 18, 1 << 17, 0, False, False)],
)
def test_many_training_nodes_are_scored_where_it_is_asked(
    train: int, valid: int, test: int, asked: bool, scored: bool
) -> None:
    sizes = {"train_ids": range(train), "valid_ids": range(valid), "test_ids": range(test)}
    found = scored_splits(TrainConfig(score_train=asked), SimpleNamespace(**sizes))  # pyright: ignore[reportArgumentType]
    assert ("train" in found) == scored and {"valid", "test"} < {*found, ""}


def test_sampled_evaluation_scores_the_same_model_alike(tmp_path: Path) -> None:
    exact = train_small(tmp_path, epochs=10).summary["numbers"]
    sampled = train_small(tmp_path, epochs=10, eval="sampled").summary["numbers"]
    assert sampled["loss"] == exact["loss"]
    assert abs(sampled["test_accuracy"] - exact["test_accuracy"]) < 0.2


def test_the_workspace_of_training_is_not_that_of_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = train_small(tmp_path, workspace="64MiB").run_record()["peak_bytes"]["total"]

    def evaluated(self: Training) -> float:
        return float(torch.ones(10_000_000).mean()) / 2

    monkeypatch.setattr(Training, "_valid_score", evaluated)
    model = train_small(tmp_path, workspace="1MiB", retrain=True)
    assert model.run_record()["peak_bytes"]["total"] == step < 2**20
    assert model.summary["numbers"]["epochs_run"] == 3


def test_a_workspace_that_is_too_small_names_the_operation(tmp_path: Path) -> None:
    with pytest.raises(OverBudget, match="raise `workspace`"):
        train_small(tmp_path, workspace="20kB")
    assert [artifact.stage for artifact in Store(tmp_path).artifacts()] == ["features", "graph"]
    model = train_small(tmp_path, workspace="4MiB")
    peaks = model.run_record()["peak_bytes"]
    assert 0 < peaks["parameters"] < peaks["total"] <= 4 * 2**20


def test_fanouts_must_match_the_depth() -> None:
    with pytest.raises(InputError, match=r"layers = 3 but \[sampling\] fanouts = \[4, 3\] has 2 entries"):
        ModelConfig(seed=0, train=TrainConfig(layers=3), sampling=SAMPLING)


def test_a_graph_without_training_nodes_is_refused(tmp_path: Path) -> None:
    graph = random_graph_artifacts(tmp_path, num_train=0)
    with pytest.raises(InputError, match="has no training nodes"):
        train_table(Store(tmp_path), graph.inputs, TrainTable(name="x", hidden=4), SAMPLING, 0)


def test_a_graph_without_validation_nodes_keeps_the_last_weights(tmp_path: Path) -> None:
    graph = random_graph_artifacts(tmp_path, num_valid=0)
    table = TrainTable(name="x", hidden=4, epochs=2)
    (model,) = train_table(Store(tmp_path), graph.inputs, table, SAMPLING, 0, report=lambda line: None)
    numbers = model.summary["numbers"]
    assert numbers["best_epoch"] == 0 and "valid_accuracy" not in numbers and "test_accuracy" in numbers


def test_wrong_values_are_reported_together() -> None:
    with pytest.raises(InputError) as error:
        TrainTable(name="x", layers=0, hidden=-1, dropout=1.0, lr=0.0)
    for part in ("layers = 0", "hidden = -1", "dropout = 1.0", "lr = 0.0"):
        assert part in str(error.value)


def test_roc_auc_is_what_validation_maximises_and_accuracy_is_kept(tmp_path: Path) -> None:
    model = train_small(tmp_path, epochs=6, metric="roc_auc")
    numbers = model.summary["numbers"]
    assert numbers["valid_roc_auc"] == max(row["valid"] for row in rows_of(model))
    assert 0.7 < numbers["test_roc_auc"] <= 1 and 0.3 < numbers["test_accuracy"] < 1


def test_class_weights_enter_the_loss_by_class(tmp_path: Path) -> None:
    graph = random_graph(tmp_path / "g")
    counts = np.bincount(graph.labels[np.array(graph.train_ids)])
    balanced = class_weights(TrainConfig(class_weights="balanced"), graph)
    assert balanced is not None and float((balanced * torch.from_numpy(counts)).sum()) == pytest.approx(200)
    np.testing.assert_allclose(balanced.numpy() * counts, 50, rtol=1e-6)
    assert class_weights(TrainConfig(), graph) is None
    losses = [
        train_small(tmp_path / str(i), epochs=1, lr=1e-12, dropout=0.0, class_weights=weights).summary["numbers"][
            "loss"
        ]
        for i, weights in enumerate(("none", (2.0, 2.0, 2.0, 2.0), (2.0, 0.0, 0.0, 0.0), (0.0, 2.0, 2.0, 2.0)))
    ]
    assert losses[1] == pytest.approx(2 * losses[0]) and losses[2] + losses[3] == pytest.approx(losses[1])


def test_settings_that_do_not_fit_the_graph_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"class_weights = \[1.0, 2.0\] has 2 entries\n.*4 classes: a, b, c, d"):
        train_small(tmp_path, class_weights=(1.0, 2.0))
    graph = random_graph_artifacts(tmp_path / "one", num_valid=1)
    with pytest.raises(InputError, match="validation nodes are all of one class"):
        train_table(Store(tmp_path / "one"), graph.inputs, TrainTable(name="x", metric="roc_auc"), SAMPLING, 0)


def test_a_schedule_changes_the_steps_and_survives_a_restart_at_any_epoch(tmp_path: Path) -> None:
    """The rate is a function of the step: three epochs of a run of three differ from three of a run of six."""
    finals = [train_small(tmp_path, epochs=epochs, lr_schedule="linear", warmup=1, dropout=0.0) for epochs in (3, 6)]
    first, second = (rows_of(model) for model in finals)
    assert first[0]["loss"] == second[0]["loss"] and first[2]["loss"] != second[2]["loss"]


FORWARD = {"feed_forward": 1.0, "input": "linear", "head": "linear"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 2}, "heads = 2 is for gat and rgat, not for sage"),
        ({"model": "gcn", "attention_dropout": 0.1}, "attention_dropout = 0.1 is for gat and rgat, not for gcn"),
        ({"model": "gat", "hidden": 10, "heads": 4}, "hidden = 10 is not a multiple of heads = 4"),
        ({"model": "gatt"}, "model = 'gatt' is not one of sage, gcn, gat, gin"),
        ({"class_weights": (0.0,)}, "class_weights = .* negative weights or only zeros"),
        ({"warmup": -1}, "warmup = -1 is below 0"),
        ({"model": "gcn", "aggregator": "max"}, "aggregator = 'max' is for sage, not for gcn"),
        (
            {"model": "pinsage", "edge_weight": True},
            "edge_weight = true is for gcn, sage, gin, gat and rgcn, not for pinsage",
        ),
        ({"aggregator": "max", "edge_weight": True}, 'edge_weight = true multiplies messages, and aggregator = "max"'),
        (
            {"model": "mine:net", "edge_weight": True},
            "edge_weight = true is for the models of graphmill, not for mine:net",
        ),
        ({"residual": "linaer"}, "residual = 'linaer' is not true, false or \"linear\""),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum = 0.9 is for sgd, not for adam"),
        ({"optimizer": "sgd", "betas": (0.8, 0.9)}, r"betas = \[0.8, 0.9\] is for adam and adamw, not for sgd"),
        ({"betas": (0.9,)}, r"betas = \[0.9\] are not two numbers from 0 to below 1"),
        (
            {"embedding": "node"},
            "embedding = 'node' is of input = \"typed\", and input = 'none': remove the key, or write",
        ),
        (
            {"embedding": "node", "input": "typed", "optimizer": "sgd"},
            'embedding = "node" updates its rows by Adam, and optimizer = "sgd"',
        ),
        ({"label_smoothing": 1.0}, "label_smoothing = 1.0 is not below 1"),
        ({"feed_forward": 1.0}, "feed_forward = 1 makes layers of equal width, and input = 'none'"),
        (FORWARD | {"model": "pinsage"}, "feed_forward = 1 is for gcn, sage, gin and gat, not for pinsage"),
        (FORWARD | {"norm": "batch"}, "norm is 'layer' or 'none' there"),
        (FORWARD | {"residual": True}, "added to their input rows already"),
        ({"patience_epochs": 3, "eval_every": 0}, "patience_epochs = 3 needs evaluations on the way"),
    ],
)
def test_impossible_settings_are_named(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainTable(name="x", **options)


def test_features_in_memory_are_verified_with_the_rows_that_nodes_have(tmp_path: Path) -> None:
    artifacts = random_graph_artifacts(tmp_path, featureless=3)
    path = artifacts.features.file("row_of.npy")
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"row_of\.npy is damaged"):
        train_table(Store(tmp_path), artifacts.inputs, TrainTable(name="x", hidden=4, features="memory"), SAMPLING, 5)


def diverging_at(monkeypatch, epoch, position, value=float("nan")):
    """Makes the loss of a batch, and of those after it, a value that is not finite."""
    noted = Loop._note_loss

    def broken(loop, done):
        later = (loop.state.epoch, done.position) >= (epoch, position)
        return noted(loop, done._replace(loss_sum=value) if later else done)

    monkeypatch.setattr(Loop, "_note_loss", broken)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), torch.tensor(float("nan"), dtype=torch.float64)])
@pytest.mark.parametrize("options", [{"accumulate": 1}, {"accumulate": 2}])
def test_a_loss_that_is_not_finite_ends_the_training_and_keeps_the_best_model(tmp_path, monkeypatch, value, options):
    whole = train_small(tmp_path / "whole", epochs=1, **options)
    diverging_at(monkeypatch, 1, 1, value)
    model = train_small(tmp_path, epochs=40, **options)
    numbers = model.summary["numbers"]
    assert numbers["best_epoch"] == 1 and "loss" not in numbers and numbers["epochs_run"] == 1
    for file in ("weights.safetensors", "ledger.json"):
        assert model.file(file).read_bytes() == whole.file(file).read_bytes(), file
    failed = [check for check in model.summary["checks"] if not check["passed"]]
    assert [check["name"] for check in failed if check["name"] != "score above chance"] == ["loss fell"]
    step = 2 if options["accumulate"] == 1 else 1
    assert f"epoch 2 was NaN or infinite at step {step}, where the training ended" in failed[-1]["detail"]


def test_a_training_that_went_on_inside_an_epoch_ends_with_the_ledger_of_the_epochs_before(tmp_path, monkeypatch):
    whole = train_small(tmp_path / "whole", epochs=1, accumulate=1)
    stepped, steps = Loop._step, []

    def interrupted(loop, seeds):
        stepped(loop, seeds)
        steps.append(loop.state.position)
        if loop.state.epoch == 1 and loop.state.position == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_small(tmp_path, epochs=40, accumulate=1, checkpoint_steps=1)
    diverging_at(monkeypatch, 1, 3)
    model = train_small(tmp_path, epochs=40, accumulate=1, checkpoint_steps=1, resume=True)
    assert model.file("ledger.json").read_bytes() == whole.file("ledger.json").read_bytes()
    assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
    assert len(model.run_record()["epoch_seconds"]["train"]) <= model.summary["numbers"]["epochs_run"] == 1


def test_no_checkpoint_has_weights_that_are_not_finite(tmp_path, monkeypatch):
    """On a device the epoch goes on behind the first loss that is not finite."""
    saved = []
    monkeypatch.setattr(
        "graphmill.trainers.loop.loop.write_checkpoint",
        lambda path, checkpoint: saved.append(checkpoint.state.position),
    )
    diverging_at(monkeypatch, 1, 2, torch.tensor(float("nan"), dtype=torch.float64))
    train_small(tmp_path, epochs=3, accumulate=1, checkpoint_steps=1)
    first = saved.index(0)  # the end of the first epoch
    assert saved[first + 1 :] == [1, 2]


@pytest.mark.parametrize(
    "trained", [partial(train_small, trainer="factored"), train_fresh, train_whole], ids=["factored", "fresh", "whole"]
)
def test_every_technique_keeps_its_best_model_when_its_loss_is_not_finite(tmp_path, monkeypatch, trained):
    whole = trained(tmp_path / "whole", epochs=1)
    diverging_at(monkeypatch, 1, 0)
    model = trained(tmp_path / "diverged", epochs=9)
    assert model.summary["numbers"]["epochs_run"] == 1
    for file in ("weights.safetensors", "ledger.json"):
        assert model.file(file).read_bytes() == whole.file(file).read_bytes(), file


def test_features_are_checked_in_the_type_in_which_a_model_computes(tmp_path):
    features = SimpleNamespace(summary={"numbers": {"beyond_float32": "column 3 of node 7 is 1e+60"}})
    for dtype in ("float32", "bf16"):
        with pytest.raises(InputError, match=r"column 3 of node 7 is 1e.60, which float32 cannot hold") as raised:
            require_range(dtype, features)
        assert 'dtype = "float64"' in raised.value.remedy
    require_range("float64", features)
    require_range("float32", SimpleNamespace(summary={"numbers": {}}))


def test_a_loss_that_is_not_finite_before_any_evaluation_is_one_message(tmp_path, monkeypatch):
    diverging_at(monkeypatch, 0, 1)
    with pytest.raises(InputError, match=r"the loss of epoch 1, step 2 of .*, is not finite") as raised:
        train_small(tmp_path, epochs=3, accumulate=1)
    assert "lower `lr`, or scale the features" in raised.value.remedy


def test_a_diverged_training_shows_its_last_epoch_without_a_loss(tmp_path, monkeypatch):
    diverging_at(monkeypatch, 1, 0)
    model = train_small(tmp_path, epochs=2)
    weights = load(model.file("weights.safetensors").read_bytes())
    assert all(torch.isfinite(each).all() for each in weights.values())
    rows = query(Store(tmp_path), "SELECT epoch, loss FROM metrics ORDER BY epoch").rows
    assert rows[0][1] > 0 and rows[1] == (2, None)
