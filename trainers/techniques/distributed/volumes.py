"""The bytes that ranks receive from each other, as formulas; tests compare them with the ledgers of trainings.

R  ranks            B  batches of an epoch, of all parts        P  parameters, of p bytes in t tensors
r  rows that batches need of other ranks, each of b bytes       C  calls of the exchange, of all ranks
S  steps of a full-graph pass                                   m  parts

rows          r b                       by `distributed` and `fresh-distributed`
requests      4 r + C (R - 1) h + 8 z (R - 1)   row numbers; a head of h bytes per call and rank; z rounds of sizes, one per epoch
gradients     B (R - 1) (16 + t + p)    per epoch, "ordered": each batch to each other rank
              2 p (R - 1) per step      "all-reduce", whatever the number of batches of a step
neighbours    4 x columns x (crossing rows)     per epoch and layer of `fullgraph`, above the first; as many bytes of gradients
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.step import item_bytes, layer_widths, parameter_bytes
from graphmill.trainers.techniques.distributed.settings import HEAD_BYTES

MEMBER_BYTES = 16
"""Position and loss of a batch, which travel with its gradients (trainers/techniques/distributed/executor.py)."""
NUMBER_BYTES, SIZE_BYTES = 4, 8
"""The number of a requested row, and the number of rows of a coming request."""


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """The size of a model's parameters.

    Attributes:
        num_bytes: bytes of all of them.
        tensors: number of tensors.
    """

    num_bytes: int
    tensors: int


def model_size(train: TrainConfig, in_width: int, num_classes: int) -> ModelSize:
    """Returns the size of a model before it is built: its matrices, with three tensors of a layer, and the biases of all of them."""
    biases = sum(out for _, out in layer_widths(train, in_width, num_classes)) + train.hidden * bool(train.projects)
    num_bytes = parameter_bytes(train, in_width, num_classes) + biases * item_bytes(train)
    return ModelSize(num_bytes=num_bytes, tensors=3 * train.layers)


def gradient_bytes(model: ModelSize, batches: int, ranks: int) -> int:
    """Returns the bytes that all ranks receive when the gradients of batches are added in order.

    Args:
        batches: number of batches of all ranks, empty ones included.
    """
    return batches * (ranks - 1) * (MEMBER_BYTES + model.tensors + model.num_bytes)


def summed_gradient_bytes(model: ModelSize, steps: int, ranks: int) -> int:
    """Returns the bytes that all ranks receive when each adds its own gradients and the library adds the sums."""
    return steps * ranks * (2 * model.num_bytes * (ranks - 1) // ranks)


def head_bytes(row_bytes: int) -> int:
    """Returns the bytes of the head of a reply: as many whole rows as a number of 8 bytes needs."""
    return -(-HEAD_BYTES // row_bytes) * row_bytes


def request_bytes(rows: int, calls: int, size_rounds: int, row_bytes: int, ranks: int) -> int:
    """Returns the bytes of requests and of the heads of their replies, of all ranks.

    Args:
        calls: exchanges, counted at each rank.
        size_rounds: rounds of sizes, counted at each rank.
    """
    if not row_bytes:  # rows without columns are not exchanged
        return 0
    return NUMBER_BYTES * rows + (ranks - 1) * (calls * head_bytes(row_bytes) + SIZE_BYTES * size_rounds)


def counted_by_formula(
    counts: Mapping[str, int], model: ModelSize, ranks: int, row_bytes: int, ordered: bool, steps: int
) -> dict[str, int]:
    """Returns kind -> bytes between ranks that follow from the counts of a ledger of `distributed`.

    Args:
        counts: name -> count of layer 0 of the ledger, all ranks and epochs together.
        row_bytes: bytes of a stored row.
        ordered: whether gradients are added in batch order.
        steps: optimiser steps of all epochs.
    """
    rows, calls = counts.get("hits_remote", 0), counts.get("rounds", 0) // 2
    found = {"feature": rows * row_bytes}
    found["ids"] = request_bytes(rows, calls, counts.get("size_rounds", 0), row_bytes, ranks)
    batches = counts.get("batches", 0)
    found["gradient"] = gradient_bytes(model, batches, ranks) if ordered else summed_gradient_bytes(model, steps, ranks)
    return {kind: num_bytes for kind, num_bytes in found.items() if num_bytes}


def between_ranks(ledger: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, int]:
    """Returns kind -> bytes that crossed between ranks, of a ledger's rows."""
    found: dict[str, int] = {}
    for row in ledger["moves"]:
        if row["link"] == "rank":
            found[row["kind"]] = found.get(row["kind"], 0) + row["moved_bytes"]
    return found
