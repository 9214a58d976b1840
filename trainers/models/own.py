"""A user's own model: `model = "package.module:name"` in a train table.

`name` is a class or function that is called with (in_width, num_classes, config), where config is the whole `TrainConfig`; one with a
parameter `hidden_channels`, like the models of `torch_geometric.nn`, is called with the names of its parameters. If links are
predicted, the second number is `hidden`, the columns of a node's row, and the head of the table scores pairs of rows. It returns

- a list of `Layer`s: modules with the halves `aggregate` and `update`, or whole ones, `forward((h, own), edge_index)` as PyG's bipartite
  convolutions are. It runs in every trainer. A `LayeredModel` of them may also have a projection of the features and a linear head.
- any `torch.nn.Module` whose forward(blocks, x) takes blocks, `config.layers` of them, and the input rows. `config.blocks` says which:
  those of DGL, or bipartite edges as PyG's convolutions take them.
- any `torch.nn.Module` whose forward(x, edge_index) or forward(data) takes a graph, as in PyG's tutorials: a batch as one graph.

The two last run in the trainers that train on mini-batches, and on the uncut graph; others cut such a module between its layers
(trainers/models/cut/), if that can be.

Its own initial values are drawn from torch's generator, and so is its dropout. Both are seeded here, from the run's seed and from the
step's place in the run, so the same recipe gives the same model and a resumed run continues with the same bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphmill.assets.storage.names.user_code import load_reference
from graphmill.kernels.blocks.dgl_blocks import to_dgl
from graphmill.kernels.blocks.pyg_blocks import Subgraph, to_pyg, to_subgraph
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key as rng_key
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Block, Stream
from graphmill.trainers.models.layer import Between, LayeredModel, initialise
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own_layers import checked_layers
from graphmill.trainers.recipe.techniques import find_technique

if TYPE_CHECKING:
    from graphmill.trainers.recipe.config import TrainConfig

FORMS = {"dgl": ("dgl.nn.pytorch.conv.", to_dgl), "pyg": ("torch_geometric.nn.conv.", to_pyg)}
"""Value of the key `blocks` -> where the convolutions stand that read such blocks, and the function that makes them."""
OF_EDGES = ("edge_weight", "edge_type", "edge_attr")
"""Parameters of forward(x, edge_index) for attributes of edges, which are given where the graph has them."""


class WidthError(InputError):
    """A model returned another number of columns than the labels, or the rows that a head of links scores, have."""


def require_width(outputs: Tensor, width: int, name: str, *, links: bool = False) -> None:
    """Raises WidthError if the outputs [n, columns] of a model have not `width` columns: those of the labels, or of rows for links."""
    if outputs.shape[1] != width:
        problem = f"{name} returned {outputs.shape[1]} columns, and"
        if links:
            remedy = "make its last layer as wide as its second argument or `out_channels`"
            raise WidthError(f"{problem} the head of links scores rows of hidden = {width}", remedy)
        raise WidthError(f"{problem} the labels have {width}", "make its last layer num_classes wide")


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
        """Returns float[num_seeds, C] from x: float[num_src of blocks[0], F]."""
        self.train(rng.training)
        with seeded(rng):
            return super().forward(blocks, x, rng, between, summed)


class OwnModule(nn.Module):
    """A user's module over whole blocks or a graph, behind the interface of a `LayeredModel`; it has no halves and no layers to call.

    Args:
        inner: the module; its forward takes a list of blocks and the input rows, or a graph.
        name: the reference that led to it.
        config: the train table, whose key `blocks` says what it takes, and `layers` how far it sees.
        width: number of columns that it is to return.
        link_head: the head by which a loss scores pairs of its outputs; None for other losses.

    Attributes:
        changed_buffers: as of `LayeredModel`.
        uncut: why it cannot be cut between its layers, for a trainer that cuts the graph into chunks; None if it was not tried.

    Raises:
        InputError: a part of the module is of a library that reads other blocks, or keeps what it computes of the first batch.
    """

    edge_weight: str | None = None
    transpose: Transposes = "none"
    changed_buffers: Sequence[str] = ()
    uncut: InputError | None = None

    def __init__(
        self, inner: nn.Module, name: str, config: TrainConfig, width: int, link_head: nn.Module | None = None
    ):
        super().__init__()
        self.inner, self.name, self.depth, self.width = inner, name, config.layers, width
        self.links, self.link_head = config.predicts_links, link_head
        parameters = [*inspect.signature(inner.forward).parameters]
        self.form = form_of(parameters, config.blocks, name)
        self.more = [each for each in OF_EDGES if each in parameters]
        self.takes_data = self.form == "subgraph" and parameters == ["data"]
        self._kept: tuple[Block, Any] | None = None
        if self.form == "subgraph":
            _require_uncached(inner, config, name)
        for other, (place, _) in FORMS.items() if self.form != "subgraph" else ():
            found = next((each for each in inner.modules() if is_from(each, place)), None)
            if other != self.form and found is not None:
                problem = (
                    f'{name} has a {type(found).__name__} inside, which does not read what blocks = "{self.form}" gives'
                )
                raise InputError(problem, f'set blocks = "{other}" in its [[train]] table')

    @property
    def convolutions(self) -> list[str]:
        """Names of the classes of DGL's and PyG's convolutions inside."""
        places = [place for place, _ in FORMS.values()]
        return sorted(
            {type(each).__name__ for each in self.inner.modules() if any(is_from(each, place) for place in places)}
        )

    @property
    def takes_graph(self) -> bool:
        """Whether it takes a batch as one graph, instead of blocks."""
        return self.form == "subgraph"

    @property
    def hops(self) -> int:
        """Number of blocks with which its logits are exact; a graph has one more, since convolutions count the edges of a source."""
        return self.depth + self.takes_graph

    def forward(self, blocks: tuple[Block, ...], x: Tensor, rng: StepRandom) -> Tensor:
        """Returns float[num_seeds, width] from x: float[num_src of blocks[0], F].

        Raises:
            InputError: DGL is missing, or the module returns another shape.
        """
        self.train(rng.training)
        made, num_seeds = self._made(blocks), blocks[-1].num_dst
        with seeded(rng):
            logits = self.of_graph(made, x) if self.takes_graph else self.inner(made, x)
        if self.takes_graph and isinstance(logits, Tensor) and len(logits) == blocks[0].num_src:
            logits = logits[:num_seeds]
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != num_seeds:
            given = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            problem = f"{self.name} returned {given} for {num_seeds} seeds"
            raise InputError(problem, "return a tensor [number of seeds, number of classes]")
        require_width(logits, self.width, self.name, links=self.links)
        return logits

    def of_graph(self, graph: Subgraph, x: Tensor) -> Any:
        """Returns the result of the module for a graph and the input rows of its nodes."""
        if self.takes_data:
            graph.x = x
            return self.inner(graph)
        return self.inner(x, graph.edge_index, **{name: getattr(graph, name) for name in self.more})

    def _made(self, blocks: Sequence[Block]) -> Any:
        """Returns the blocks in the form that the module takes; that of the whole graph, one block for all layers, is made once."""
        if self._kept is not None and self._kept[0] is blocks[0]:
            return self._kept[1]
        whole = len(blocks) > 1 and blocks[0] is blocks[-1]
        if self.takes_graph:
            made: Any = to_subgraph(blocks[:1] if whole else blocks)
        elif whole:
            made = [FORMS[self.form][1](blocks[0])] * len(blocks)
        else:
            made = [FORMS[self.form][1](block) for block in blocks]
        self._kept = (blocks[0], made) if whole else None
        return made


def form_of(parameters: Sequence[str], blocks: str, name: str) -> str:
    """Returns the form of a module's batches: "dgl" or "pyg" for blocks of that form, "subgraph" for a graph.

    Args:
        name: the reference that led to the module.

    Raises:
        InputError: the signature contradicts the key.
    """
    graph = parameters == ["data"] or parameters[1:2] == ["edge_index"]
    if graph and blocks == "pyg":
        problem = f'{name} has forward({", ".join(parameters)}), which takes a graph, and blocks = "pyg" gives blocks'
        raise InputError(problem, "remove the key blocks, or write forward(blocks, x)")
    return "subgraph" if graph else blocks


def _require_uncached(inner: nn.Module, config: TrainConfig, name: str) -> None:
    """Raises InputError if a part of a module keeps the normalised edges of the first graph that it sees, and batches differ."""
    kept = next((each for each in inner.modules() if getattr(each, "cached", False) is True), None)
    if kept is not None and not find_technique(config.trainer).whole_graph:
        problem = (
            f"{name} has a {type(kept).__name__} inside with cached = True, which keeps the edges of the first batch"
        )
        raise InputError(problem, "leave cached out of its arguments")


Model = LayeredModel | OwnModule


def is_from(module: nn.Module, place: str) -> bool:
    """Tells whether a module is of a class, or derived from one, whose source stands at a place."""
    return any(f"{cls.__module__}.".startswith(place) for cls in type(module).__mro__)


def build_own_model(
    config: TrainConfig,
    in_width: int,
    num_classes: int,
    seed: int,
    link_head: nn.Module | None = None,
    edge_width: int = 0,
) -> Model:
    """Makes the model that `config.model` names.

    Args:
        edge_width: columns of the rows of edges, for a class or function with a parameter `edge_width` or `edge_dim`; 0 without.
        link_head: the head that scores pairs of its outputs, without values; None for other tasks than links.

    Raises:
        InputError: the code does not exist, it fails, or its result has neither form.
    """
    name, factory, num_classes = config.model, load_reference(config.model), config.output_width(num_classes)
    if link_head is not None:
        initialise(nn.ModuleDict({"link_head": link_head}), seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng_key(seed, Stream.INIT))
        try:
            made = _call(factory, in_width, num_classes, config, edge_width)
        except Exception as error:
            problem = f"{name}({in_width}, {num_classes}, config) failed: {type(error).__name__}: {error}"
            raise InputError(problem, "it is called with in_width, num_classes and the train table's config") from error
    ends: dict[str, Any] = {"link_head": link_head}
    if isinstance(made, LayeredModel):
        ends |= {"projection": made.projection, "readout": made.readout}
        made = list(made.layers)
    if isinstance(made, list | tuple):
        if config.blocks != "dgl":
            problem = (
                f'{name} made a list of layers, which read the blocks of graphmill, and blocks = "{config.blocks}"'
            )
            raise InputError(problem, "remove the key blocks")
        return OwnLayers(checked_layers(list(made), config.layers, name), config.input_dropout, **ends)
    if isinstance(made, nn.Module):
        return OwnModule(made, name, config, num_classes, link_head)
    problem = f"{name} made {type(made).__name__}, not a model"
    raise InputError(problem, "return a list of layers, or a torch module whose forward takes blocks and rows")


def _call(factory: Callable[..., Any], in_width: int, num_classes: int, config: TrainConfig, edge_width: int) -> Any:
    """Returns what a class or function makes, called by position, or by the names of its parameters if one is `hidden_channels`."""
    parameters = inspect.signature(factory).parameters
    if "hidden_channels" not in parameters:
        more = {"edge_width": edge_width} if "edge_width" in parameters else {}
        return factory(in_width, num_classes, config, **more)
    values = {
        "in_channels": in_width,
        "hidden_channels": config.hidden,
        "out_channels": num_classes,
        "num_layers": config.layers,
        "heads": config.heads,
        "dropout": config.dropout,
        **({"edge_dim": edge_width} if edge_width else {}),
    }
    return factory(**{name: value for name, value in values.items() if name in parameters})


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
    if model.uncut is not None:
        raise model.uncut
    over = "a graph" if model.takes_graph else "whole blocks"
    problem = (
        f'model = "{model.name}" is one module over {over}, and trainer = "{trainer}" runs the two halves of each layer (aggregate, '
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
    # It seeds the generators of devices as well, which nothing else draws from.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng_key(rng.seed, Stream.DROPOUT, rng.train_epoch, rng.position))
        yield
