"""A replica of the model: computes the gradients of whole batches on the weights that the last update left.

With synchronous updates the parameters are those of the model itself, since no replica computes during an update. Asynchronous replicas get
a copy of every update. A replica on another accelerator than the model's copies the weights when it first trains behind an update, and its
results to the model's device when a batch is done; both cross from device to device, beside the batches' traffic.

Running statistics of batch normalisation follow from the order of batches. A replica has its own and returns the input of each
normalisation; the main thread normalises it once more, in the order of batches, which moves the model's statistics as one model would have
done. One case differs: a normalisation of a single row uses the running statistics, here those of the last update, and not those of the
batch before within the same step group.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.assets.storage.names.user_code import is_reference
from graphmill.kernels.errors import InputError
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import BatchGradient, Done, Gradients, Run, taken_gradients
from graphmill.trainers.models.layer import Between
from graphmill.trainers.models.layers.finish import BatchNorm
from graphmill.trainers.models.own import Model
from graphmill.trainers.record.ledger import Line

PARAMETERS, GRADIENTS = Line("d2d", "parameter"), Line("d2d", "gradient")
NORM_INPUTS, LOSS = Line("d2d", "output"), Line("d2d", "loss")


class Weights(NamedTuple):
    """Parameters and buffers of the model after an update, for the replicas."""

    parameters: Sequence[Tensor]
    buffers: Sequence[Tensor]


def weights_of(model: Model, *, copied: bool) -> Weights:
    """Returns the weights of a model: copies of its parameters, or the parameters themselves, which change with it."""
    parameters = [parameter.detach() for parameter in model.parameters()]
    problem = [each.clone() for each in parameters] if copied else parameters
    return Weights(problem, [buffer.detach().clone() for buffer in model.buffers()])


class Replica:
    """Computes gradients on one device.

    A replica on an accelerator that is not the model's has memory of its own for the weights from its first batch on.

    Args:
        own_code: lock held while a user's own model computes, since its draws from torch's generator are seeded for one batch at a time.
    """

    def __init__(self, run: Run, device: Device, own_code: threading.Lock):
        self.device, self._home, self._weights = device, run.features.device, None
        self._apart = device.torch_device != run.features.device.torch_device
        self.model, loss = _without_weights(run.model, device), run.loss
        self._buffers: Sequence[Tensor] = ()
        if self._apart:
            loss = loss.sent(lambda tensor: device.send_tensor(tensor, PARAMETERS, device.traffic))
        self._gradient = BatchGradient(self.model, run.semantic.seed, loss, run.semantic.train.dtype)
        self._alone: AbstractContextManager[Any] = own_code if is_reference(run.semantic.train.model) else nullcontext()
        # Counting every storage takes time, so it is done only with a bound.
        self._counted = isinstance(device, LogicalDevice) and device.work_bytes is not None
        self._norm_inputs: list[Tensor] = []
        for norm in norms(self.model):
            norm.register_forward_pre_hook(lambda _, read: self._norm_inputs.append(read[0].detach()))

    def follow(self, weights: Weights) -> None:
        """Computes with these weights from now on."""
        if weights is not self._weights:
            parameters, self._buffers = (self._here(each, PARAMETERS) for each in weights)
            for parameter, value in zip(self.model.parameters(), parameters, strict=True):
                parameter.data = value
            if self._counted:
                self.device.adopt(parameters, "parameters")
            self._weights = weights
        # A batch moves the statistics of a normalisation, so each begins with those of the update.
        for buffer, value in zip(self.model.buffers(), self._buffers, strict=True):
            buffer.copy_(value)

    def _here(self, tensors: Sequence[Tensor], line: Line) -> Sequence[Tensor]:
        """Returns tensors of the model's device on the replica's."""
        if not self._apart:
            return tensors
        return [self.device.send_tensor(tensor, line, self.device.traffic) for tensor in tensors]

    def _sent(self, tensor: Tensor, line: Line) -> Tensor:
        """Returns a tensor of the replica's device on the model's."""
        return self._home.send_tensor(tensor, line, self._home.traffic) if self._apart else tensor

    def __call__(self, batch: MiniBatch, between: Between | None = None) -> tuple[Done, Gradients, Sequence[Tensor]]:
        """Returns the finished batch, its gradients and the rows that each batch normalisation read, all on the model's device.

        Args:
            between: a function between the layers of a layered model, or None.
        """
        self._norm_inputs = []
        with self._alone, self.device.active() if self._counted else nullcontext():
            done = self._gradient(batch, between)
        gradients = taken_gradients(self.model)
        if not self._apart:
            return done, gradients, self._norm_inputs
        assert isinstance(done.loss_sum, Tensor) and not gradients.rows, "rows of nodes are on the model's device alone"
        parameters = [None if each is None else self._sent(each, GRADIENTS) for each in gradients.parameters]
        norm_inputs = [self._sent(rows, NORM_INPUTS) for rows in self._norm_inputs]
        return done._replace(loss_sum=self._sent(done.loss_sum, LOSS)), Gradients(parameters), norm_inputs


def _without_weights(model: Model, device: Device) -> Model:
    """Returns a copy of a model with parameters and buffers on a device that no value was copied to."""
    memo: dict[int, Any] = {id(each): torch.empty_like(each, device=device.torch_device) for each in model.buffers()}
    for each in model.parameters():
        memo[id(each)] = nn.Parameter(torch.empty(0, dtype=each.dtype, device=device.torch_device), each.requires_grad)
    return copy.deepcopy(model, memo)


def norms(model: Model) -> list[BatchNorm]:
    """Returns the batch normalisations of a model, in the order in which it calls them."""
    return [module for module in model.modules() if isinstance(module, BatchNorm)]


def move_statistics(model: Model, norm_inputs: Sequence[Tensor]) -> None:
    """Moves the running statistics of a model by a replica's batch, float[n, F], the input of each normalisation."""
    with torch.no_grad():
        for norm, rows in zip(norms(model), norm_inputs, strict=False):
            if len(rows) > 1:
                functional.batch_norm(
                    rows,
                    norm.running_mean,
                    norm.running_var,
                    norm.weight,
                    norm.bias,
                    True,
                    norm.momentum or 0.1,
                    norm.eps,
                )


def require_replicable(run: Run) -> None:
    """Refuses models that a batch may change by more than gradients.

    Raises:
        InputError: a user's own model has buffers that each batch changes.
    """
    if buffers := run.model.changed_buffers:
        problem = (
            f"model = {run.semantic.train.model!r} has buffers ({', '.join(buffers[:3])}), which a batch changes, and "
            f'trainer = "{run.semantic.train.trainer}" computes batches on replicas'
        )
        raise InputError(problem, "use a model without running statistics, or a trainer with one model")
