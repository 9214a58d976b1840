"""The parts of a model as torch programs, which run without graphmill, on blocks and graphs of any size.

A list of layers gives a program for each layer, and for its ends: rows go from one to the next, so that a reader may run a layer on the
whole graph, or on sampled blocks. A module over a graph or over PyG's blocks gives one program. All are in evaluation: nothing is dropped.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from graphmill.kernels.blocks.edge_index import EdgeIndexBlock
from graphmill.kernels.blocks.pyg_blocks import PygBlock, Subgraph
from graphmill.trainers.models.ends import TypedProjection
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.rgat import RgatLayer
from graphmill.trainers.models.layers.rgcn import RgcnLayer
from graphmill.trainers.models.links.heads import LinkHead
from graphmill.trainers.models.own import OF_EDGES, Model, OwnModule, dtype_of
from graphmill.trainers.models.own_layers import WholeLayer
from graphmill.trainers.models.products import products_of

WITH_OWN = ("gcn", "mean with self")
"""Ends of the kinds of edge weights with which a destination's own row has a weight, too."""
SIZES = (5, 9, 12), (8, 13, 21)
"""Destinations, sources and edges of the blocks that a program is made from, and compared on."""

Values = Mapping[str, Any]
"""Name -> tensor, or tensors in a list: the arguments of a program."""


class NoMasks:
    """The masks of a layer (`LayerRandom`) in an exported program: it draws none, and no kernel computes what follows.

    Args:
        node_ids: int64[n], nodes of the rows, for a projection by node type.
    """

    training = held = before_norm = False

    def __init__(self, node_ids: Tensor | None = None):
        self.node_ids = node_ids

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Returns x."""
        return x

    def relu_dropout(self, x: Tensor, bias: Tensor | None, p: float) -> Tensor:
        """Returns the positive part of x, float[n, F], after a bias float[F]."""
        return torch.relu(x if bias is None else x + bias)

    def inner(self) -> NoMasks:
        """Returns the masks themselves."""
        return self

    def edge_mask(self, block: EdgeIndexBlock, num_heads: int, p: float) -> None:
        """Returns None, no mask."""


class Part(NamedTuple):
    """A part of a model that becomes a program.

    Attributes:
        sample: function (destinations, sources, edges) -> arguments of drawn rows and edges.
    """

    name: str
    module: nn.Module
    sample: Callable[[int, int, int], Values]


class LayerPart(nn.Module):
    """A layer as a function of tensors."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(
        self,
        h: Tensor,
        own: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        self_weight: Tensor | None = None,
        edge_type: Tensor | None = None,
    ) -> Tensor:
        """Returns float[num_dst, H] from h: float[num_src, F]; the others are the fields of an `EdgeIndexBlock`, `own` its `dst_pos`."""
        layer, masks = self.layer, NoMasks()
        if isinstance(layer, WholeLayer):
            return layer.inner((h, h[own]), edge_index)
        block = EdgeIndexBlock(
            edge_index=edge_index, dst_pos=own, weight=edge_weight, self_weight=self_weight, edge_type=edge_type
        )
        halves: Any = layer
        aggregate = AGGREGATES.get(type(layer), type(halves).aggregate)
        return halves.update(aggregate(layer, block, h, masks), h[own], masks)


class InputPart(nn.Module):
    """The projection of the features."""

    def __init__(self, projection: Any):
        super().__init__()
        self.projection = projection
        if isinstance(projection, TypedProjection) and projection.nodes is not None:
            self.register_buffer("rows", projection.nodes.table.values)

    def forward(self, x: Tensor, node_ids: Tensor | None = None) -> Tensor:
        """Returns float[n, H] from the features x: float[n, F]; of node types, of the nodes int64[n]."""
        projection = self.projection
        if not isinstance(projection, TypedProjection):
            return projection(x, NoMasks())
        assert node_ids is not None
        h, first = x.new_zeros((x.shape[0], projection.width)), 0
        for each, columns in enumerate(projection.types.columns):
            low, high = projection.types.starts[each : each + 2]
            if columns:
                rows = projection.maps[str(each)](x[:, :columns])
            elif projection.nodes is None:
                rows = projection.embeddings[str(each)]
            else:
                assert isinstance(self.rows, Tensor)
                rows = self.rows[(node_ids - low).clamp(0, max(0, high - low - 1)) + first]
                first += high - low
            h = torch.where(((node_ids >= low) & (node_ids < high))[:, None], rows, h)
        return h if projection.activation is None else projection.activation(h)


class HeadPart(nn.Module):
    """The linear head."""

    def __init__(self, model: LayeredModel):
        super().__init__()
        assert model.readout is not None
        self.readout = model.readout

    def forward(self, outputs: list[Tensor]) -> Tensor:
        """Returns float[n, num_classes] from float[n, H] each: the outputs of all layers if the head reads them, else of the last."""
        rows = None
        for h in outputs:
            rows = self.readout.jump(rows, h)
        return self.readout(rows)


class GraphPart(nn.Module):
    """A module over a graph."""

    def __init__(self, module: OwnModule):
        super().__init__()
        self.module = module

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, edge_type: Tensor | None = None
    ) -> Tensor:
        """Returns float[n, num_classes] from x: float[n, F]."""
        ids = torch.arange(x.shape[0], device=x.device)
        more = {"edge_weight": edge_weight, "edge_type": edge_type}
        return self.module.of_graph(Subgraph(edge_index=edge_index, batch_size=x.shape[0], n_id=ids, **more), x)


class BlocksPart(nn.Module):
    """A module over PyG's blocks."""

    def __init__(self, module: OwnModule):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, edges: list[Tensor], nodes: list[Tensor]) -> Tensor:
        """Returns float[num_seeds, num_classes].

        Args:
            x: float[n, F], rows of the sources of the first block.
            edges: int64[2, E] of each block.
            nodes: int64[n], ids of the sources of the first block and of the destinations of each.
        """
        sizes = [each.shape[0] for each in nodes]
        blocks = [
            PygBlock(edge_index=each, size=(sizes[i], sizes[i + 1]), n_id=nodes[i]) for i, each in enumerate(edges)
        ]
        return self.module.inner(blocks, x)


def relations_of(layer: Any) -> int:
    """Returns the number of relations of a layer, 0 if it reads none."""
    found = getattr(layer, "coefficients", None)
    found = getattr(layer, "matrices", ()) if found is None else found
    return len(found)


def _sums_by_relation(layer: RgcnLayer, block: EdgeIndexBlock, h: Tensor, rng: NoMasks) -> Tensor:
    """Returns the aggregate of `RgcnLayer`: float[num_dst, H]; a mean by weights is 0 if these sum to 0."""
    total = h.new_zeros((block.num_dst, layer.width))
    for relation in range(relations_of(layer)):
        some = block.of_relation(relation)
        means = some.aggregate(h, "mean" if some.weight is None else "weighted")
        if some.weight is not None:
            weights = some.summed(some.weight)[:, None]
            means = torch.where(weights != 0, means / torch.where(weights != 0, weights, 1), 0)
        total = total + means @ layer.matrix(relation).T
    return total


def _attended_by_relation(layer: RgatLayer, block: EdgeIndexBlock, h: Tensor, rng: NoMasks) -> Tensor:
    """Returns the aggregate of `RgatLayer`: float[num_dst, heads * depth]."""
    total = h.new_zeros((block.num_dst, layer.heads * layer.depth))
    for relation, matrix in enumerate(layer.matrices):
        z = h @ matrix.T
        rows = z.view(z.shape[0], layer.heads, layer.depth)
        left, right = (each[relation].view(layer.heads, layer.depth) for each in (layer.left, layer.right))
        halves = (rows * left).sum(2), (rows[block.dst_pos] * right).sum(2)
        total = total + block.of_relation(relation).attend(z, *halves, own=False)
    return total


AGGREGATES: Mapping[type[nn.Module], Callable[..., Tensor]] = {
    RgcnLayer: _sums_by_relation,
    RgatLayer: _attended_by_relation,
}
"""Layers whose first half sorts the edges of a block by relation -> the same by torch's operations."""


def arguments_of_layer(layer: Any) -> tuple[str, ...]:
    """Returns the names of the tensors of edges that a layer's program reads, besides its `edge_index`."""
    kind = layer.edge_weight or ""
    found = {"edge_weight": kind, "self_weight": kind.endswith(WITH_OWN), "edge_type": relations_of(layer)}
    return tuple(name for name, there in found.items() if there)


def parts_of(model: Model, in_width: int, edge_values: tuple[str, ...] = ()) -> Iterator[Part]:
    """Yields the parts of a model that become programs, in the order in which they run.

    Args:
        edge_values: those of `edge_weight` and `edge_type` that the edges of the graph have.
    """
    rows = _Rows(dtype_of(model))
    if isinstance(model, LayeredModel):
        in_width = yield from _layered_parts(model, in_width, rows)
    elif getattr(model, "form", "") == "subgraph":
        taken = inspect.signature(model.inner.forward).parameters
        names = tuple(each for each in OF_EDGES if each in taken or (each in edge_values and "data" in taken))
        yield Part("model", GraphPart(model), lambda _, n, edges: rows.of(n, in_width, n, edges, names))
    elif getattr(model, "form", "") == "pyg":
        yield Part("model", BlocksPart(model), lambda *sizes: rows.of_blocks(model.depth, in_width, *sizes))
    head = getattr(model, "link_head", None)
    if isinstance(head, LinkHead):
        width = getattr(model, "nodes", None)
        columns = in_width if width is None else width.table.shape[1]
        yield Part("score", head, lambda n, *_: rows.of_pairs(n, columns, head.reads_relations))


class _Rows(NamedTuple):
    """Arguments of drawn rows and edges."""

    dtype: torch.dtype

    def drawn(self, *shape: int) -> Tensor:
        """Returns float[shape]."""
        return torch.rand(shape, dtype=self.dtype)

    def of(
        self, num_src: int, width: int, num_dst: int, edges: int, names: tuple[str, ...], relations: int = 1
    ) -> dict:
        """Returns rows x of the sources, edges, and the tensors of edges that are named."""
        ends = [torch.randint(count, (edges,)) for count in (num_src, num_dst)]
        values = {
            "edge_weight": self.drawn(edges),
            "self_weight": self.drawn(num_dst),
            "edge_type": torch.randint(max(1, relations), (edges,)),
        }
        return {"x": self.drawn(num_src, width), "edge_index": torch.stack(ends)} | {n: values[n] for n in names}

    def of_layer(self, layer: Any, width: int, num_dst: int, num_src: int, edges: int) -> dict:
        """Returns the arguments of the program of a layer."""
        values = self.of(num_src, width, num_dst, edges, arguments_of_layer(layer), relations_of(layer))
        return {"h": values.pop("x"), "own": torch.arange(num_dst), **values}

    def of_blocks(self, depth: int, width: int, num_dst: int, num_src: int, edges: int) -> dict:
        """Returns the arguments of the program of a module over blocks."""
        sizes = [num_src + 3 * place for place in range(depth)][::-1] + [num_dst]
        found = [self.of(sizes[i], width, sizes[i + 1], edges + i, ()) for i in range(depth)]
        nodes = [torch.arange(size) for size in sizes]
        return {"x": found[0]["x"], "edges": [each["edge_index"] for each in found], "nodes": nodes}

    def of_pairs(self, n: int, width: int, relations: bool) -> dict:
        """Returns the arguments of the program of a head of links."""
        ends = {"source": self.drawn(n, width), "target": self.drawn(n, width)}
        return ends | ({"relation": torch.zeros(n, dtype=torch.int64)} if relations else {})


def _layered_parts(model: LayeredModel, width: int, rows: _Rows) -> Iterator[Part]:
    """Yields the parts of a list of layers, and returns the columns of the last one's rows."""
    if model.projection is not None:
        last = model.projection.types.starts[-1] if isinstance(model.projection, TypedProjection) else 0

        def sample(n: int, *_: int, columns: int = width) -> Values:
            return {"x": rows.drawn(n, columns)} | ({"node_ids": torch.arange(n) * last // n} if last else {})

        yield Part("input", InputPart(model.projection), sample)
        width = model.projection.width
    for index, layer in enumerate(model.layers):
        part = LayerPart(layer)

        def sample_layer(*sizes: int, layer: Any = layer, columns: int = width) -> Values:
            return rows.of_layer(layer, columns, *sizes)

        yield Part(f"layer-{index + 1}", part, sample_layer)
        with torch.no_grad():
            width = part.eval()(**sample_layer(*SIZES[0])).shape[1]
    if model.readout is not None:
        count = len(model.layers) if model.jumps else 1
        yield Part("head", HeadPart(model), lambda n, *_: {"outputs": [rows.drawn(n, width) for _ in range(count)]})
    return width


def write_part(part: Part, folder: Path) -> str:
    """Writes a part as NAME.pt2 or, if `torch.export` cannot follow it, as TorchScript, NAME.pt.

    Returns:
        The reason why it is neither, "" if it is written. A program whose rows differ on a block of other sizes is not written.
    """
    module, problems = part.module.eval(), []
    with torch.random.fork_rng(devices=[]), torch.no_grad(), products_of("blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small, other = (part.sample(*sizes) for sizes in SIZES)
        expected = module(**other)
        for name, suffix, write in (("torch.export", ".pt2", _exported), ("TorchScript", ".pt", _traced)):
            path = folder / f"{part.name}{suffix}"
            try:
                torch.testing.assert_close(write(module, small, path)(**other), expected)
                return ""
            except Exception as error:  # of torch and of the user's own code, of any class
                path.unlink(missing_ok=True)
                first = (str(error).strip().splitlines() or [""])[0]
                problems.append(f"{name}: {type(error).__name__}: {first[:200]}")
    return "; ".join(problems)


def _exported(module: nn.Module, sample: Values, path: Path) -> Callable[..., Tensor]:
    varying = tree_map(lambda each: {each.dim() - 1 if _is_edges(each) else 0: torch.export.Dim.AUTO}, dict(sample))
    program = torch.export.export(module, (), dict(sample), dynamic_shapes=varying, strict=False)
    torch.export.save(program, path)
    return torch.export.load(path).module()


def _traced(module: nn.Module, sample: Values, path: Path) -> Callable[..., Tensor]:
    program: Any = torch.jit.trace(module, example_kwarg_inputs=dict(sample), check_trace=False)
    program.save(path)
    return torch.jit.load(path)


def _is_edges(tensor: Tensor) -> bool:
    return tensor.dtype == torch.int64 and tensor.dim() == 2
