"""Laws 1 and 2 for what exists: no execution setting changes a bit, and a step group is one large batch."""

import json
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.sampling.config import SamplingConfig
from tests.trainers.runs import content, train_small

MODELS = [
    {"model": "sage", "norm": "batch", "lr_schedule": "cosine", "warmup": 1},
    {"model": "gcn", "class_weights": "balanced", "metric": "roc_auc"},
    {"model": "gat", "heads": 2, "attention_dropout": 0.4, "norm": "layer"},
    {"model": "gin", "residual": True},
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["model"])
def test_models_are_bit_equal_under_any_execution(tmp_path: Path, model: dict) -> None:
    settings = [
        {"samplers": 1},
        {"samplers": 2, "features": "memory"},
        {"samplers": 8, "queue": "60kB", "checkpoint_steps": 1},
        {"samplers": 3, "workspace": "64MiB"},
        {"samplers": 2, "memory": {"device": "10%", "host": "20%"}, "link": "100 GB/s"},
        {"features": "memory", "memory": {"device": "auto", "host": "auto", "seed": 1}, "workspace": "64MiB"},
    ]
    models = [
        content(train_small(tmp_path / str(i), **model, dropout=0.3, input_dropout=0.1, **options))
        for i, options in enumerate(settings)
    ]
    # The ledger says how rows moved, so it differs where features lie elsewhere; the model does not.
    assert len({(m["weights.safetensors"], m["metrics.jsonl"]) for m in models}) == 1
    assert models[0] == models[2] == models[3]


def test_threads_of_the_step_are_part_of_the_recipe(tmp_path: Path) -> None:
    one, two = (train_small(tmp_path, threads=threads) for threads in (1, 2))
    assert one.version != two.version
    assert one.summary["numbers"]["loss"] == pytest.approx(two.summary["numbers"]["loss"], rel=1e-3)


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_a_group_of_batches_is_one_large_batch(tmp_path: Path, model: str) -> None:
    """Without sampling and dropout, G batches of a group give the gradient of their union: equal within reordering."""
    losses = []
    for batch_size, accumulate in ((200, 1), (32, 7), (7, 40)):
        sampling = SamplingConfig(fanouts=(-1, -1), batch_size=batch_size)
        trained = train_small(tmp_path, sampling=sampling, accumulate=accumulate, dropout=0.0, epochs=6, model=model)
        rows = [json.loads(line) for line in trained.file("metrics.jsonl").read_text().splitlines()]
        losses.append(np.array([row["loss"] for row in rows]))
    for other in losses[1:]:
        assert np.linalg.norm(other - losses[0]) <= 1e-5 * np.linalg.norm(losses[0])
    assert losses[0][-1] < losses[0][0]


def test_reused_samples_train_on_and_stay_keyed_by_the_training_epoch(tmp_path: Path) -> None:
    """With reuse = 1 every epoch sees the same samples; dropout masks still differ, so losses move epoch by epoch."""
    sampling = SamplingConfig(fanouts=(2, 2), batch_size=64, reuse=1)
    model = train_small(tmp_path, sampling=sampling, epochs=3, dropout=0.5, lr=1e-12)
    losses = [json.loads(line)["loss"] for line in model.file("metrics.jsonl").read_text().splitlines()]
    assert len(set(losses)) == 3
