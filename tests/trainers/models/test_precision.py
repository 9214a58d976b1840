"""dtype = "bf16": close to float32, repeatable, and resumed like any other training."""

import pytest
import torch

from graphmill.trainers.models.products import computing, kept_dtype, widened
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.trainers.runs import content, train_small

MODELS = {
    "sage": {},
    "gcn": {"norm": "layer"},
    "gat": {"heads": 2, "attention_dropout": 0.2},
    "gin": {"residual": True},
}


accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py


def history(model):
    return [
        float(line.split('"loss": ')[1].split(",")[0].rstrip("}"))
        for line in model.file("metrics.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("model", MODELS)
def test_losses_are_near_those_of_float32_and_repeat(tmp_path, model):
    whole = train_small(tmp_path / "whole", model=model, **MODELS[model])
    half = train_small(tmp_path / "half", model=model, dtype="bf16", **MODELS[model])
    assert half.version != whole.version
    assert history(half) == pytest.approx(history(whole), rel=0.05) and history(half) != history(whole)
    assert content(half) == content(train_small(tmp_path / "again", model=model, dtype="bf16", **MODELS[model]))


@pytest.mark.parametrize("model", MODELS)
def test_a_device_computes_the_same_within_rounding(tmp_path, monkeypatch, model):
    stand_in(monkeypatch)
    on_cpu = train_small(tmp_path / "cpu", model=model, dtype="bf16", **MODELS[model])
    found = train_small(tmp_path / "device", model=model, dtype="bf16", device="cuda", **MODELS[model])
    assert history(found) == pytest.approx(history(on_cpu), rel=0.02)


def test_sampled_evaluation_and_linear_ends(tmp_path):
    options = {"dtype": "bf16", "input": "linear", "head": "linear", "jk": "max", "epochs": 1}
    for kind in ("sampled", "exact"):
        assert train_small(tmp_path / kind, eval=kind, **options).summary["numbers"]["valid_accuracy"] >= 0


def test_what_the_key_means():
    assert (kept_dtype("bf16"), kept_dtype("float64")) == ("float32", "float64")
    x, cpu = torch.ones(2, 2), torch.device("cpu")
    with computing("bf16", cpu):
        assert (x @ x).dtype == torch.bfloat16 and widened(x @ x).dtype == torch.float32
    with computing("float32", cpu):
        assert (x @ x).dtype == torch.float32
