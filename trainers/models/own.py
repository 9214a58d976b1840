"""A user's own model: `model = "package.module:name"` in a train table.

`name` is a class or function that is called with (in_width, num_classes, config), where config is the whole `TrainConfig`, and returns

- a list of `Layer`s: modules with the halves `aggregate` and `update`. It runs in every trainer. A `LayeredModel` of them may also have a
  projection of the features and a linear head.
- any `torch.nn.Module` whose forward(blocks, x) takes blocks, `config.layers` of them, and the input rows. `config.blocks` says which:
  those of DGL, or bipartite edges as PyG's convolutions take them. It runs in the trainers that train on mini-batches; others cut a
  layer into its two halves, which such a module does not expose.

Its own initial values are drawn from torch's generator, and so is its dropout. Both are seeded here, from the run's seed and from the
step's place in the run, so the same recipe gives the same model and a resumed run continues with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphmill.assets.storage.names.user_code import load_reference
from graphmill.kernels.blocks.dgl_blocks import to_dgl
from graphmill.kernels.blocks.pyg_blocks import to_pyg
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key as rng_key
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Block, Stream
from graphmill.trainers.models.layer import Between, LayeredModel
from graphmill.trainers.models.masks import StepRandom

if TYPE_CHECKING:
    from graphmill.trainers.recipe.config import TrainConfig

HALVES = ("aggregate", "update")
FORMS = {"dgl": ("dgl.nn.pytorch.conv.", to_dgl), "pyg": ("torch_geometric.nn.conv.", to_pyg)}
"""Value of the key `blocks` -> where the convolutions stand that read such blocks, and the function that makes them."""


class WidthError(InputError):
    """A model returned logits of another number of columns than the labels have."""


def require_width(logits: Tensor, num_classes: int, name: str) -> None:
    """Raises WidthError if the logits [n, columns] of a model have not a column for each class."""
    if logits.shape[1] != num_classes:
        problem = f"{name} returned {logits.shape[1]} columns, and the labels have {num_classes}"
        raise WidthError(problem, "make its last layer num_classes wide")


class OwnLayers(LayeredModel):
    """A user's list of layers; their draws from torch's generator are seeded by the step."""

    def forward(
        self,
        blocks: tuple[Block, ...],
        x: Tensor,
        rng: StepRandom,
        between: Between | None = None,
        summed: Tensor | None = None,
    ) -> Tensor:
        """Returns float[num_seeds, num_classes] from x: float[num_src of blocks[0], F]."""
        self.train(rng.training)
        with seeded(rng):
            return super().forward(blocks, x, rng, between, summed)


class OwnModule(nn.Module):
    """A user's module over whole blocks, behind the interface of a `LayeredModel`; it has no halves and no layers to call separately.

    Args:
        inner: the module; its forward takes a list of blocks and the input rows.
        name: the reference that led to it.
        blocks: their form, one of `FORMS`.
        num_classes: number of columns that it is to return.

    Raises:
        InputError: a part of the module is of a library that reads other blocks.
    """

    edge_weight: str | None = None
    transpose: Transposes = "none"

    def __init__(self, inner: nn.Module, name: str, depth: int, blocks: str, num_classes: int):
        super().__init__()
        self.inner, self.name, self.depth, self.num_classes = inner, name, depth, num_classes
        self._form = FORMS[blocks][1]
        for other, (place, _) in FORMS.items():
            found = next((each for each in inner.modules() if _is_from(each, place)), None)
            if other != blocks and found is not None:
                problem = (
                    f'{name} has a {type(found).__name__} inside, which does not read what blocks = "{blocks}" gives'
                )
                raise InputError(problem, f'set blocks = "{other}" in its [[train]] table')

    def forward(self, blocks: tuple[Block, ...], x: Tensor, rng: StepRandom) -> Tensor:
        """Returns float[num_seeds, num_classes] from x: float[num_src of blocks[0], F].

        Raises:
            InputError: DGL is missing, or the module returns another shape.
        """
        self.train(rng.training)
        with seeded(rng):
            logits = self.inner([self._form(block) for block in blocks], x)
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != blocks[-1].num_dst:
            given = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            problem = f"{self.name} returned {given} for {blocks[-1].num_dst} seeds"
            raise InputError(problem, "return a tensor [number of seeds, number of classes]")
        require_width(logits, self.num_classes, self.name)
        return logits


Model = LayeredModel | OwnModule


def _is_from(module: nn.Module, place: str) -> bool:
    """Tells whether a module is of a class, or derived from one, whose source stands at a place."""
    return any(f"{cls.__module__}.".startswith(place) for cls in type(module).__mro__)


def build_own_model(config: TrainConfig, in_width: int, num_classes: int, seed: int) -> Model:
    """Makes the model that `config.model` names.

    Raises:
        InputError: the code does not exist, it fails, or its result has neither form.
    """
    name, factory = config.model, load_reference(config.model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng_key(seed, Stream.INIT))
        try:
            made = factory(in_width, num_classes, config)
        except Exception as error:
            problem = f"{name}({in_width}, {num_classes}, config) failed: {type(error).__name__}: {error}"
            raise InputError(problem, "it is called with in_width, num_classes and the train table's config") from error
    ends: dict[str, Any] = {}
    if isinstance(made, LayeredModel):
        made, ends = list(made.layers), {"projection": made.projection, "readout": made.readout}
    if isinstance(made, list | tuple):
        if config.blocks != "dgl":
            problem = (
                f'{name} made a list of layers, which read the blocks of graphmill, and blocks = "{config.blocks}"'
            )
            raise InputError(problem, "remove the key blocks")
        return OwnLayers(_checked(list(made), config, name), config.input_dropout, **ends)
    if isinstance(made, nn.Module):
        return OwnModule(made, name, config.layers, config.blocks, num_classes)
    problem = f"{name} made {type(made).__name__}, not a model"
    raise InputError(problem, "return a list of layers, or a torch module whose forward takes blocks and rows")


def dtype_of(model: Model) -> torch.dtype:
    """Returns the type that a model computes in; float32 for a model without parameters."""
    return next((parameter.dtype for parameter in model.parameters()), torch.float32)


def require_layers(model: Model, trainer: str) -> LayeredModel:
    """Returns the model for a trainer that calls the halves of its layers separately.

    Raises:
        InputError: the model is a module over whole blocks; the message explains why that is not enough.
    """
    if isinstance(model, LayeredModel):
        return model
    problem = (
        f'model = "{model.name}" is one module over whole blocks, and trainer = "{trainer}" runs the two halves of each layer (aggregate, '
        "update) at different times"
    )
    raise InputError(
        problem, "return a list of layers from it (docs/own-models.md), or use a trainer that takes whole mini-batches"
    )


@contextmanager
def seeded(rng: StepRandom) -> Iterator[None]:
    """Seeds torch's generator by the step and restores its state afterwards; evaluation leaves it alone."""
    if not rng.training:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng_key(rng.seed, Stream.DROPOUT, rng.train_epoch, rng.position))
        yield


def _checked(layers: list[Any], config: TrainConfig, name: str) -> list[nn.Module]:
    """Returns the layers, with defaults for missing `cacheable`, `reads_own` and `edge_weight`."""
    problems = [] if len(layers) == config.layers else [f"it has {len(layers)} layers, the train table {config.layers}"]
    for index, layer in enumerate(layers):
        missing = [half for half in HALVES if not callable(getattr(layer, half, None))]
        if not isinstance(layer, nn.Module) or missing:
            lacks = f"has no {' and no '.join(missing)}" if missing else "is no torch module"
            problems.append(f"layer {index} ({type(layer).__name__}) {lacks}")
            continue
        # Missing attributes get the safe values: parameters inside aggregate, own rows read, plain edges.
        for attribute, value in (("cacheable", False), ("reads_own", True), ("edge_weight", None)):
            if not hasattr(layer, attribute):
                setattr(layer, attribute, value)
    if problems:
        raise InputError(f"{name}: {'; '.join(problems)}", "each layer is a torch module with aggregate(block, h_src, rng) "
                         "and update(agg, h_dst, rng)")  # fmt: skip
    return layers
