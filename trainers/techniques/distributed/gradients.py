"""Gradients of the batches of a step of all ranks, in batch order: those of parameters on devices, and those of learnable rows of nodes.

Parameters: gathered and added on the devices, one parameter at a time. The bits are those of the way through the host: each element is the
sum of the same values in the same order. A device holds the gradients of one parameter of all batches of a step at once.

Rows: every rank holds the whole table and its moments, and makes the same update of it, to the bit. A step moves the gradients of the rows
that its batches read to each rank, 8 + H x bytes of a value for a row of H columns.

Running statistics of batch normalisations: each batch is normalised by its own statistics, and those of all ranks' batches then move the
running ones in batch order, at every rank.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import Gradients
from graphmill.trainers.models.layers.finish import BatchNorm
from graphmill.trainers.models.node_rows import RowGradient
from graphmill.trainers.models.own import Model
from graphmill.trainers.ranks.group import Lane
from graphmill.trainers.ranks.tensors import TensorLane
from graphmill.trainers.record.ledger import Ledger, Line

ROWS = Line("rank", "embedding", "backward")
STATISTICS, FETCHED, SENT = (Line(link, "parameter") for link in ("rank", "d2h", "h2d"))


class Member(NamedTuple):
    """A computed batch of a step.

    Attributes:
        loss_sum: sum of the losses of its seeds; a float64[] of the device if no other rank gets it.
        statistics: number of a batch normalisation -> mean and variance of the batch, float[2, F]; none of a single row.
    """

    position: int
    loss_sum: float | Tensor
    gradients: Gradients
    statistics: Mapping[int, Tensor] = {}


class _Head(NamedTuple):
    """A batch of any rank, and where its gradients are: the place among those of its rank, and which parameters it reached."""

    position: int
    loss_sum: float
    rank: int
    place: int
    reached: list[bool]


def add_gathered(
    model: Model, members: list[Member], lane: Lane, tensors: TensorLane
) -> tuple[list[tuple[int, float]], int]:
    """Adds the gradients of all ranks' batches to a model's, in batch order; all ranks call it.

    Args:
        model: the model, whose parameters have no gradients.
        members: batches of this rank, as many as every rank has; gradients on the device.
        lane: the lane of the thread that trains: all ranks have come when it is done.

    Returns:
        Position and loss of each batch, in order, and the bytes that this rank sent to each other one.
    """
    parameters = list(model.parameters())
    heads, sent = _gathered_heads(members, lane)
    for number, parameter in enumerate(parameters):
        if not any(head.reached[number] for head in heads):
            continue
        zeros = torch.zeros_like(parameter)
        own = [each.gradients.parameters[number] for each in members]
        stacked = torch.stack([zeros if gradient is None else gradient.detach() for gradient in own])
        sent += stacked.nbytes
        found = tensors.gather(stacked)
        for head in heads:
            if head.reached[number]:
                gradient = found[head.rank][head.place]
                parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad.add_(gradient)
    return [(head.position, head.loss_sum) for head in heads], sent


def _gathered_heads(members: list[Member], lane: Lane) -> tuple[list[_Head], int]:
    """Returns the batches of all ranks, in batch order, and the bytes that told of this rank's."""
    reached = [[gradient is not None for gradient in each.gradients.parameters] for each in members]
    numbers = np.array([[each.position, each.loss_sum] for each in members], np.float64)
    packed = np.concatenate([numbers.reshape(-1).view(np.uint8), np.array(reached, np.uint8).reshape(-1)])
    heads = []
    for rank, piece in enumerate(lane.gather(packed)):
        told = piece[: numbers.nbytes].view(np.float64).reshape(-1, 2).tolist()
        flags = piece[numbers.nbytes :].view(np.bool_).reshape(len(members), -1).tolist()
        for place, ((position, loss), which) in enumerate(zip(told, flags, strict=True)):
            heads.append(_Head(int(position), loss, rank, place, which))
    return sorted(heads, key=lambda head: head.position), len(packed)


def waiting_norms(model: Model) -> list[BatchNorm]:
    """Returns the batch normalisations of a model, whose batches from now on leave the running statistics as they are."""
    found = [module for module in model.modules() if isinstance(module, BatchNorm)]
    for norm in found:
        norm.waiting = []
    return found


def taken_statistics(norms: Sequence[BatchNorm]) -> dict[int, Tensor]:
    """Returns the statistics of the batch that was computed last, as `Member` has them, and removes them from the model."""
    return {number: norm.waiting.pop() for number, norm in enumerate(norms) if norm.waiting}


def move_together(
    norms: Sequence[BatchNorm], members: Sequence[Member], lane: Lane, device: Device, ledger: Ledger
) -> None:
    """Moves running statistics by the batches of a step of all ranks, in batch order; all ranks call it."""
    found = {f"{each.position:012} {n}": values for each in members for n, values in each.statistics.items()}
    if lane.world > 1:
        packed = save({name: device.fetch(values, FETCHED, device.traffic) for name, values in found.items()})
        ledger.crossed(STATISTICS, len(packed) * (lane.world - 1))
        found = {name: values for piece in lane.gather_any(packed) for name, values in load(piece).items()}
    for name in sorted(found):
        norm = norms[int(name.partition(" ")[2])]
        norm.follow(*device.send_tensor(found[name], SENT, device.traffic))


class Placed(NamedTuple):
    """The gradient of a batch, on the host, and the position of the batch in its epoch."""

    position: int
    gradient: RowGradient


def exchange_rows(lane: Lane, own: Sequence[Placed], ledger: Ledger) -> list[RowGradient]:
    """Returns the gradients of all ranks' batches in batch order, from those of this one's; all ranks call it."""
    packed = pack_rows(own)
    ledger.crossed(ROWS, len(packed) * (lane.world - 1))
    found = [placed for piece in lane.gather_any(packed) for placed in unpack_rows(piece)]
    return [placed.gradient for placed in sorted(found, key=lambda placed: placed.position)]


def pack_rows(own: Sequence[Placed]) -> bytes:
    """Returns position, number of rows, bytes of a value, rows and values of each gradient."""
    pieces: list[Array] = []
    for position, (rows, values) in own:
        pieces += [np.array([position, *values.shape, values.element_size()], np.int64), rows.numpy(), values.numpy()]
    return b"".join(piece.tobytes() for piece in pieces)


def unpack_rows(packed: bytes) -> Iterator[Placed]:
    """Yields the gradients that `pack_rows` packed."""
    low = 0
    while low < len(packed):
        position, count, width, size = np.frombuffer(packed, np.int64, 4, low).tolist()
        rows = np.frombuffer(packed, np.int64, count, low + 32)
        values = np.frombuffer(packed, f"f{size}", count * width, low + 32 + rows.nbytes).reshape(count, width)
        low += 32 + rows.nbytes + values.nbytes
        yield Placed(position, RowGradient(torch.from_numpy(rows.copy()), torch.from_numpy(values.copy())))
