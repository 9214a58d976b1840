"""The forward pass of a module as a graph of operations, and the pieces of it that belong to one layer each.

torch.fx reads the pass; modules of torch and convolutions of PyG and DGL are single operations. An operation over blocks belongs to the
last block that it depends on. One over a graph belongs to the layer after as many exchanges with neighbours as lie before it: an exchange
takes rows of nodes and something of each edge, and returns rows of nodes. Matrices with a row per node that a later layer reads pass the
border between them; everything else, such as messages along edges or numbers of rows, is computed in the layer that reads it. A pass over
a small graph shows by the shapes of values which of them are rows of nodes.
"""

from __future__ import annotations

import copy
import operator
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from graphmill.kernels.blocks.pyg_blocks import Subgraph
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.own import FORMS, OwnModule, is_from

SINGLE = ("torch.nn.", "torch_geometric.nn.", "dgl.nn.")
"""Places of modules that are one operation."""
READ = ("torch.nn.modules.container.", "torch_geometric.nn.models.", "torch_geometric.nn.sequential.")
"""Places among them of modules whose own forward is read."""
WEIGHTS, RELATIONS = {"edge_weight", "weight", "self_weight", "share"}, {"edge_type"}
"""Names under which a module reads the weights and the relations of edges."""
GIVEN = "given"
_reading = threading.Lock()


MAKERS = (torch.zeros, torch.ones, torch.empty, torch.full, torch.arange)
"""Functions that may be called with numbers of rows, which are known only when a pass runs."""


FILLED = {
    torch.zeros_like,
    torch.ones_like,
    torch.empty_like,
    torch.full_like,
    "new_zeros",
    "new_ones",
    "new_empty",
    "new_full",
}
"""Operations that read nothing but the shape of a value."""


class CutError(InputError):
    """A module cannot be cut between its layers."""


def first_line(error: Exception) -> str:
    """Returns the kind of an error and the first line of its text."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


class Root(nn.Module):
    """The module as torch.fx reads it: forward(x, given), in which the blocks, or the attributes of a graph, are taken from `given`."""

    def __init__(self, module: OwnModule):
        super().__init__()
        self.inner, self.form, self.depth = module.inner, module.form, module.depth
        self.more, self.takes_data = module.more, module.takes_data

    def forward(self, x: Any, given: Any) -> Any:
        """Returns the result of the module."""
        if self.form != "subgraph":
            return self.inner([given[index] for index in range(self.depth)], x)
        if not self.takes_data:
            return self.inner(x, given.edge_index, **{name: getattr(given, name) for name in self.more})
        names = ("edge_index", "batch_size", "n_id", "edge_weight", "edge_type")
        return self.inner(Subgraph(x=x, **{name: getattr(given, name) for name in names}))


class LayerGraph(NamedTuple):
    """The operations of one layer.

    Attributes:
        graph: takes the values that enter, then the layer's block, or the graph; returns the values that leave.
        entering: number of values that enter.
        modules: PyG's and DGL's convolutions in it; without one, its other modules.
    """

    graph: fx.Graph
    entering: int
    modules: list[nn.Module]

    def reads(self, names: set[str]) -> bool:
        """Tells whether it reads an attribute of edges that has one of these names."""
        return any(isinstance(each, str) and each in names for node in self.graph.nodes for each in node.args)


def read(root: Root, given: Any, training: bool) -> fx.Graph:
    """Returns the forward pass of a module while it trains, or while it is evaluated.

    Args:
        given: what the module takes of a small graph, whose blocks show which attributes a block has.

    Raises:
        CutError: it cannot be read, for instance since it branches by values.
    """
    root = copy.deepcopy(root).train(training)  # reading may change what the module counts
    try:
        with _reading, _traced_lengths(root):
            return _Tracer(given).trace(root)
    except Exception as error:
        problem = f"its forward cannot be read without values: {first_line(error)}"
        raise CutError(problem, "compute without branches that depend on rows") from error


@contextmanager
def _traced_lengths(root: Root) -> Iterator[None]:
    """Has `len` of a value that is not known yet be an operation, in the modules of the user's classes."""

    def length(value: Any) -> Any:
        return (
            value.tracer.create_proxy("call_function", len, (value,), {}) if isinstance(value, fx.Proxy) else len(value)
        )

    classes = {each for module in root.inner.modules() if not is_single(module) for each in type(module).__mro__}
    own = {each.__module__ for each in classes if not f"{each.__module__}.".startswith(("builtins.", *SINGLE))}
    places = [vars(sys.modules[name]) for name in own if "len" not in vars(sys.modules[name])]
    for place in places:
        place["len"] = length
    try:
        yield
    finally:
        for place in places:
            del place["len"]


def pieces(root: Root, graph: fx.Graph, x: Tensor, given: Any, num_edges: int) -> list[LayerGraph]:
    """Returns the pieces of a forward pass, one per layer.

    Args:
        x: float[n, F], rows of a small graph.
        given: what the module takes of it, blocks or a graph; each block has all nodes as destinations.
        num_edges: number of its edges, which is not n.

    Raises:
        CutError: the pass has another number of layers, or reads a block in another layer.
    """
    start, taken = (node for node in graph.nodes if node.op == "placeholder")
    (output,) = (node.args[0] for node in graph.nodes if node.op == "output")
    runner = _Shapes(copy.deepcopy(root), graph)
    runner.extra_traceback = False
    with torch.no_grad():
        runner.run(x, given)
    shapes = runner.shapes
    of_nodes = {node for node in _dependent(graph, start) if shapes.get(node, ())[:1] == (len(x),)}
    if root.form == "subgraph":
        found = {node: shape for node, shape in shapes.items() if node.op != "get_attr"}
        of_edges = {node for node, shape in found.items() if shape[:1] == (num_edges,) or shape == (2, num_edges)}
        levels = _levels_of_graph(graph, of_nodes, of_edges)
    else:
        levels = _levels_of_blocks(graph, taken)
    if output not in of_nodes:
        raise CutError("it does not return one row of logits per node", "return the logits alone")
    if levels[output] + 1 != root.depth:
        count = levels[output] + 1
        raise CutError(f"its logits have passed {count} layers, and layers = {root.depth}", f"set layers = {count}")
    passing = {node for node in of_nodes if len(shapes[node]) == 2 and node.target not in FILLED}
    called = ("call_function", "call_method", "call_module")
    unread = [node for node in graph.nodes if node.op in called and not node.users]  # which change buffers
    made, leaving = [], [output]
    for index in reversed(range(root.depth)):
        wanted = [*leaving, *(node for node in unread if levels[node] == index)]
        entering, inside = _closure(wanted, index, start, taken, {each for each in passing if levels[each] < index})
        made.append(_piece(root, graph, entering, inside, leaving, taken))
        leaving = entering
    return made[::-1]


class _OfBlock(fx.Proxy):
    """Stands for a block, or a graph, and has no attributes that the given one lacks."""

    def __init__(self, node: fx.Node, tracer: fx.Tracer, given: Any):
        super().__init__(node, tracer)
        self._given = given

    def __getattr__(self, k: str) -> Any:
        if not hasattr(self.__dict__["_given"], k):
            raise AttributeError(f"{type(self._given).__name__} has no attribute {k}")
        return super().__getattr__(k)


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True  # what changes a buffer is an operation, too

    def __init__(self, given: Any) -> None:
        super().__init__(autowrap_functions=MAKERS)
        self._autowrap_search.append(torch)  # in which the functions are found by their names
        self._given, self._thread = given, threading.get_ident()

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        # While it reads, torch.fx gets the calls of all modules of the process.
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        listed = isinstance(self._given, list)
        if listed and node.target is operator.getitem and getattr(node.args[0], "target", None) == GIVEN:
            return _OfBlock(node, self, self._given[0])
        return _OfBlock(node, self, self._given) if node.target == GIVEN and not listed else super().proxy(node)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_single(m)


def is_single(module: nn.Module) -> bool:
    """Tells whether a module is one operation: one of torch, or a convolution or other part of PyG or DGL."""
    place = f"{type(module).__module__}."
    return is_convolution(module) or (place.startswith(SINGLE) and not place.startswith(READ))


def is_convolution(module: nn.Module) -> bool:
    """Tells whether a module is a convolution of PyG or DGL, or derived from one."""
    return any(is_from(module, place) for place, _ in FORMS.values())


def _dependent(graph: fx.Graph, source: fx.Node) -> set[fx.Node]:
    """Returns the nodes of a graph that depend on one of them."""
    found = {source}
    for node in graph.nodes:
        if found.intersection(node.all_input_nodes):
            found.add(node)
    return found


def _block_of(node: fx.Node, given: fx.Node) -> int | None:
    """Returns the number of the block that an operation takes from the list; None for other operations."""
    takes = node.target is operator.getitem and node.args[0] is given
    return node.args[1] if takes else None  # pyright: ignore[reportReturnType]


def _levels_of_blocks(graph: fx.Graph, given: fx.Node) -> dict[fx.Node, int]:
    levels: dict[fx.Node, int] = {}
    for node in graph.nodes:
        block = _block_of(node, given)
        below = max((levels[each] for each in node.all_input_nodes), default=0)
        levels[node] = below if block is None else block
    return levels


class _Shapes(fx.Interpreter):
    """Runs a graph, and remembers the shapes of the tensors."""

    def __init__(self, root: Root, graph: fx.Graph):
        super().__init__(root, graph=graph)
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        if isinstance(found, Tensor) and found.dim():
            self.shapes[n] = tuple(found.shape)
        return found


def _levels_of_graph(graph: fx.Graph, of_nodes: set[fx.Node], of_edges: set[fx.Node]) -> dict[fx.Node, int]:
    exchanges: dict[fx.Node, int] = {}
    for node in graph.nodes:
        below = max((exchanges[each] for each in node.all_input_nodes), default=0)
        exchanges[node] = below + (node in of_nodes and not of_edges.isdisjoint(node.all_input_nodes))
    return {node: max(count - 1, 0) for node, count in exchanges.items()}


def _closure(
    wanted: Sequence[fx.Node], index: int, start: fx.Node, taken: fx.Node, below: set[fx.Node]
) -> tuple[list[fx.Node], set[fx.Node]]:
    """Returns the values that enter a layer, and its operations, for what is wanted of it.

    Args:
        start, taken: the module's two arguments.
        below: rows of nodes that layers below compute.
    """
    entering, inside, waiting = {start} if index == 0 else set(), set(), [*wanted]
    while waiting:
        node = waiting.pop()
        if node is taken or node in inside:
            continue
        if node is start or node in below:
            entering.add(node)
            continue
        if (block := _block_of(node, taken)) is not None and block != index:
            raise CutError(f"layer {index} reads block {block}", "read the block of a layer in this layer alone")
        inside.add(node)
        waiting += node.all_input_nodes
    if not entering:
        raise CutError(f"layer {index} reads no rows of the layer below", "write one layer per block")
    return [node for node in start.graph.nodes if node in entering], inside


def _piece(
    root: Root,
    graph: fx.Graph,
    entering: Sequence[fx.Node],
    inside: set[fx.Node],
    leaving: Sequence[fx.Node],
    given: fx.Node,
) -> LayerGraph:
    made = fx.Graph()
    copies = {node: made.placeholder(f"entering_{number}") for number, node in enumerate(entering)}
    copies[given] = block = made.placeholder("given")
    for node in graph.nodes:
        if node in inside:
            taken = _block_of(node, given) is not None
            copies[node] = block if taken else made.node_copy(node, lambda each: copies[each])
    made.output(tuple(copies[node] for node in leaving))
    called = [root.get_submodule(str(node.target)) for node in made.nodes if node.op == "call_module"]
    convolutions = [each for each in called if is_convolution(each)]
    return LayerGraph(made, len(entering), convolutions or called)
