"""Losses and gradients equal torch's and DGL's formulas in float64, unknown values take no part, and bits do not depend on the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphmill.trainers.models.loss import ERRORS, BinaryCrossEntropy, CrossEntropy, Loss, TargetError

NODES, COLUMNS = 37, 5
KNOWN = ["all", "some"]


def drawn(seed: int) -> tuple[torch.Tensor, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(3 * rng.normal(size=(NODES, COLUMNS))).requires_grad_(), rng


def compared(logits: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Loss and gradient are equal to 1e-10."""
    (found,), (wanted,) = (torch.autograd.grad(loss, logits) for loss in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("weighted", [False, True])
def test_several_labels_have_binary_cross_entropy(known: str, weighted: bool) -> None:
    logits, rng = drawn(1)
    labels = torch.from_numpy(rng.integers(-1 if known == "some" else 0, 2, (NODES, COLUMNS)).astype(np.int8))
    weights = torch.from_numpy(rng.random(COLUMNS) * 4 + 0.1) if weighted else None
    kept = labels >= 0
    # DGL's examples and OGB's mask unknown labels and average the rest: here over C, so that a node's weight does not depend on its gaps.
    factors = torch.ones_like(logits) if weights is None else weights.expand_as(logits)
    theirs = functional.binary_cross_entropy_with_logits(
        logits[kept], labels[kept].double(), pos_weight=factors[kept], reduction="sum"
    )
    compared(logits, BinaryCrossEntropy(weights)(logits, labels), theirs / COLUMNS)
    if known == "all":
        mean = functional.binary_cross_entropy_with_logits(logits, labels.double(), pos_weight=weights)
        compared(logits, BinaryCrossEntropy(weights)(logits, labels) / NODES, mean)


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("error", ERRORS)
def test_numbers_have_the_error_of_standardised_targets(known: str, error: str) -> None:
    logits, rng = drawn(2)
    numbers = (1e3 + 50 * rng.normal(size=(NODES, COLUMNS))).astype(np.float32)
    if known == "some":
        numbers[rng.random(numbers.shape) < 0.3] = np.nan
    labels, exact = torch.from_numpy(numbers), numbers.astype(np.float64)
    mean, deviation = np.nanmean(exact, axis=0), np.nanstd(exact, axis=0)
    wanted, kept = torch.from_numpy((exact - mean) / deviation), ~torch.isnan(labels)
    loss = TargetError(torch.from_numpy(mean), torch.from_numpy(deviation), error)  # pyright: ignore[reportArgumentType]
    formula = {"squared": functional.mse_loss, "absolute": functional.l1_loss, "huber": functional.huber_loss}[error]
    compared(logits, loss(logits, labels), formula(logits[kept], wanted[kept], reduction="sum") / COLUMNS)
    if known == "all":
        compared(logits, loss(logits, labels) / NODES, formula(logits, wanted))


def test_classes_have_cross_entropy_whatever_the_type_of_their_numbers() -> None:
    logits, rng = drawn(3)
    labels = torch.from_numpy(rng.integers(0, COLUMNS, NODES))
    weights = torch.from_numpy(rng.random(COLUMNS))
    theirs = functional.cross_entropy(logits, labels, weight=weights, reduction="sum", label_smoothing=0.1)
    compared(logits, CrossEntropy(weights, 0.1)(logits, labels), theirs)
    assert torch.equal(CrossEntropy(weights, 0.1)(logits, labels.int()), CrossEntropy(weights, 0.1)(logits, labels))


def test_nodes_without_a_known_value_have_no_loss_and_no_gradient() -> None:
    for loss, gap in ((BinaryCrossEntropy(), -1), (TargetError(torch.ones(COLUMNS), torch.ones(COLUMNS)), np.nan)):
        logits, _ = drawn(4)
        found = loss(logits, torch.full((NODES, COLUMNS), gap, dtype=torch.int8 if gap == -1 else torch.float32))
        found.backward()
        assert found.item() == 0 and logits.grad is not None and not logits.grad.any()


@pytest.mark.parametrize(
    "loss", [CrossEntropy(torch.ones(2)), BinaryCrossEntropy(torch.ones(2)), TargetError(torch.ones(2), torch.ones(2))]
)
def test_every_tensor_of_a_loss_is_sent(loss: Loss) -> None:
    sent = loss.sent(lambda tensor: tensor + 1)
    tensors = [each for each in vars(sent).values() if isinstance(each, torch.Tensor)]
    assert tensors and all((each == 2).all() for each in tensors) and type(sent) is type(loss)
