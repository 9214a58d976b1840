"""The forward and the backward pass of a layer over all chunks.

A device holds a buffer of neighbour rows, in the backward pass a buffer of their gradients, and the layer's results for one chunk.

The backward pass of a chunk starts from the gradients of its output rows. If the layer's aggregate has no parameters (`cacheable`) it is
loaded, or with `hybrid = false` computed again from the neighbours' rows, and only the update is differentiated by autograd; the gradient
of the aggregate then goes back to the neighbours by the kernel, without a forward pass. Both ways give the same bits, since the aggregate
is the same. If the update ends plainly, and its output lies where the device computes, its gradient follows from the output, and nothing
is computed again; the bits are those of autograd. If it has parameters (attention) the whole layer is computed again. A layer that maps
rows before it sums them has its map in a pass of its own (row_passes.py), and the chunks read mapped rows.

A backward pass begins at a gradient that is given. For that, `tensor.backward(gradient)` of torch compares shapes by its symbolic shapes,
and loads a library of algebra: 45 MiB and about a second, in each process of a full-graph training. So a pass begins at a number instead,
whose gradient is the given one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import RowMoments
from graphmill.trainers.models.masks import LayerRandom, StepRandom
from graphmill.trainers.models.ops import own_places
from graphmill.trainers.models.own import OwnLayers, seeded
from graphmill.trainers.models.products import BF16, widened
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import ChunkPass, T
from graphmill.trainers.techniques.fullgraph.rows.host_rows import HostRows, KeptRows, Place
from graphmill.trainers.techniques.fullgraph.rows.lists import Incoming
from graphmill.trainers.techniques.fullgraph.rows.supply import Supply

BUFFER, ABOVE, AGGREGATE, OWN = "neighbours", "gradients", "aggregates", "own rows"
"""What a chunk asks for: rows of the buffer; for its own nodes the gradients of outputs, known aggregates and inputs."""


@dataclass(kw_only=True)
class PassedRows:
    """The rows of a layer on the host, from its forward pass to its backward pass.

    Attributes:
        apart: whether its map is a pass of its own.
        aggregates: its aggregates, if they are known, or cached by the forward pass.
        mapped: its mapped rows, as long as a pass reads them.
        output: the rows of its output; for a backward pass that reads them.
        before_norm, moments: what its batch normalisation reads, and the moments of all of its rows; None if it has none, or in evaluation.
        ends_apart: whether its batch normalisation, and all behind it, are passes of their own (norm_passes.py).
    """

    index: int
    layer: Any
    inputs: HostRows
    apart: bool
    aggregates: KeptRows | None = None
    mapped: KeptRows | None = None
    output: KeptRows | None = None
    before_norm: KeptRows | None = None
    moments: RowMoments | None = None
    ends_apart: bool = False


@dataclass
class LayerPass(ChunkPass[T]):
    """A pass of a layer, with the masks of `random`."""

    rows: PassedRows
    random: StepRandom
    reads_blocks = True
    phase: ClassVar[Literal["forward", "backward"]] = "forward"

    def __post_init__(self) -> None:
        self.layer, self.index = self.rows.layer, self.rows.index
        # The rows of the buffers, which are not filled if aggregates are known.
        self.source: HostRows = self.rows.mapped or self.rows.inputs
        self.known = self.rows.aggregates
        self.buffers = {} if self.known is not None else self.passes.buffers(self.source.width)

    def ask(self, supply: Supply) -> None:
        """Asks for the rows of the buffer or the aggregates, and for own rows if they are not in the buffer."""
        supply.aggregates = self.known is None
        if self.known is None:
            ids = self._incoming(supply.part, supply.step).ids
            supply.ask(BUFFER, self.source, ids, self.line("h2d", "neighbour"))
        else:
            supply.ask(AGGREGATE, self.known, supply.ids, self.line("h2d", "checkpoint"))
        if self.layer.reads_own and (self.rows.apart or self.known is not None):
            supply.ask(OWN, self.rows.inputs, supply.ids, self.line("h2d", "output"))

    def begin(self, j: int, supplies: Mapping[int, Supply]) -> None:
        """Fills the buffers for a step (Algorithm 2)."""
        if not self.buffers:
            return
        lists = {part: self._incoming(part, j) for part in self.buffers}

        def fill(place: Place) -> None:
            with place.active():
                supplies[place.part].fill(BUFFER, self.buffers[place.part], lists[place.part].rows)

        self.mover.at_places.run(fill)
        self.mover.fetch(self.buffers, lists, self.line("d2d", "neighbour"), j)
        if self.passes.walk.trades:
            trade = self.passes.walk.trades[j].way(self.down)
            self.mover.receive(self.buffers, trade, self.source, self.line("h2d", "neighbour"), j)

    def line(self, link: str, kind: str) -> Line:
        """Returns a line of the ledger for this pass."""
        return Line(link, kind, self.phase, self.index)

    def _incoming(self, part: int, j: int) -> Incoming:
        """Returns the rows that enter a part's buffer in a step."""
        return self.passes.walk.lists[part][j].way(self.down).of(self.source.sharded)

    @contextmanager
    def computing(self, supply: Supply) -> Iterator[None]:
        """Returns the context in which a chunk of the layer is computed, in both passes alike.

        A user's layers draw anew from torch's generator for each chunk, and draw the same again in its backward pass. They compute on the
        CPU, one chunk at a time.
        """
        with super().computing(supply):
            if not isinstance(self.passes.model, OwnLayers):
                yield
                return
            chunk = (self.index * self.passes.walk.num_parts + supply.part) * self.passes.walk.num_steps + supply.step
            with seeded(replace(self.random, position=chunk + 1)):
                yield

    def layer_on(self, supply: Supply) -> Any:
        """Returns the layer on a part's device."""
        return self.model_on(supply).layers[self.index]

    def masks(self, block: Block) -> LayerRandom:
        """Returns the masks of a chunk."""
        found = self.random.layer(self.index + 1, block.dst_ids)
        return replace(found, before_norm=True) if self.rows.ends_apart else found

    def held(self, supply: Supply, block: Block) -> Tensor:
        """Returns float[num_src, F], the rows of the buffer that belong to a chunk."""
        return self.buffers[supply.part][: block.num_src]

    def aggregated(self, layer: Any, block: Block, rows: Tensor) -> Tensor:
        """Returns the aggregate of a chunk from the rows of its sources, which are mapped already if the map is apart."""
        if not self.rows.apart:
            return layer.aggregate(block, rows, self.masks(block))
        # If products are computed from bfloat16, their results were bfloat16; the values are the same.
        mapped = rows.to(torch.bfloat16) if self.passes.dtype == BF16 else rows
        return layer.aggregate_projected(block, mapped, self.masks(block))

    def own_of_buffer(self, supply: Supply, block: Block, held: Tensor) -> Tensor | None:
        """Returns the rows of a chunk's own nodes, which the buffer holds among others; None if nothing reads them, or they are apart."""
        if self.rows.apart or not self.layer.reads_own:
            return None
        found = self.rows.inputs.in_place(supply.ids, supply.place.device)
        return held[own_places(block)] if found is None else found


class SumPass(LayerPass[Tensor]):
    """Computes the aggregates of a layer whose map is not apart, without its update."""

    def chunk(self, supply: Supply) -> Tensor:
        """Returns the aggregate of a chunk."""
        with supply.block() as block, self.computing(supply):
            return widened(self.aggregated(self.layer_on(supply), block, self.held(supply, block)))

    def leave(self, supply: Supply, found: Tensor) -> None:
        """Keeps the aggregate."""
        self.rows.aggregates = self.rows.aggregates or self.passes.new_rows(found.shape[1])
        self.store(supply, found, self.rows.aggregates, self.line("d2h", "checkpoint"))


@dataclass
class ForwardPass(LayerPass[tuple[Tensor | None, Tensor]]):
    """Computes the output rows of a layer; `caches` says whether aggregates are cached if the layer allows it."""

    caches: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self.caches = self.known is None and self.caches and splits(self.layer, self.rows.apart)
        if self.caches:
            self.rows.mapped = None  # nothing reads them after this pass

    def chunk(self, supply: Supply) -> tuple[Tensor | None, Tensor]:
        """Returns a chunk's aggregate, if it is cached, and its output."""
        layer = self.layer_on(supply)
        with supply.block() as block:
            agg, own = supply.take(AGGREGATE), supply.take(OWN)
            with self.computing(supply):
                if agg is None:
                    held = self.held(supply, block)
                    agg = self.aggregated(layer, block, held)
                    own = self.own_of_buffer(supply, block, held) if own is None else own
                out = widened(layer.update(agg, agg[:, :0] if own is None else own, self.masks(block)))
            return widened(agg) if self.caches else None, out

    def leave(self, supply: Supply, found: tuple[Tensor | None, Tensor]) -> None:
        """Keeps the output and the aggregate."""
        (agg, out), rows = found, self.rows
        rows.output = rows.output or self.passes.new_rows(out.shape[1])
        self.store(supply, out, rows.output, self.line("d2h", "output"))
        if agg is not None:
            rows.aggregates = rows.aggregates or self.passes.new_rows(agg.shape[1])
            self.store(supply, agg, rows.aggregates, self.line("d2h", "checkpoint"))


@dataclass
class BackwardPass(LayerPass[Tensor | None]):
    """Adds the gradients of a layer's parameters to the model, and those of its input rows to the host's."""

    # Gradients of its output rows.
    above: KeptRows
    # Receives the gradients of the rows of the buffers; None if they are not needed.
    below: KeptRows | None
    # Receives the gradients of own rows if the map is apart, and else is `below`; None if they are not needed.
    sums: KeptRows | None
    down = differentiates = True
    phase = "backward"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gradients = {} if self.below is None else self.passes.buffers(self.below.width)

    def ask(self, supply: Supply) -> None:
        """Asks for the gradients of output rows, too."""
        supply.ask(ABOVE, self.above, supply.ids, self.line("h2d", "gradient"))
        super().ask(supply)

    def chunk(self, supply: Supply) -> Tensor | None:
        """Differentiates a chunk; returns the gradient of its own rows if these are apart from the buffer."""
        apart, gradients = self.rows.apart, self.gradients.get(supply.part)
        with supply.block() as block:
            of_rows, of_own = self._differentiated(supply, block)
            if gradients is not None and of_rows is not None:
                gradients[: block.num_src] += of_rows
                if of_own is not None and not apart:
                    gradients[own_places(block)] += of_own
        return of_own if apart else None

    def _differentiated(self, supply: Supply, block: Block) -> tuple[Tensor | None, Tensor | None]:
        """Returns the gradients of a chunk's rows of the buffer and of its own rows, which may be among them."""
        layer, above, agg, own = self.layer_on(supply), supply.take(ABOVE), supply.take(AGGREGATE), supply.take(OWN)
        assert above is not None
        needed, computing = (self.below is not None, self.sums is not None), partial(self.computing, supply)
        if agg is None:
            held = self.held(supply, block)
            own = self.own_of_buffer(supply, block, held) if own is None else own
            if not splits(layer, self.rows.apart):
                return differentiated(computing(), partial(self._updated, layer, block), held, own, above, needed)
            with computing(), torch.no_grad():
                agg = self.aggregated(layer, block, held)
        out, masks = self._output(supply), self.masks(block)
        if out is None:
            of_agg, of_own = differentiated(
                computing(), lambda rows, own: layer.update(rows, own, masks), agg, own, above, needed
            )
        else:
            with computing(), torch.no_grad():
                of_agg, of_own = layer.update_backward(above, out, agg, own, masks, needed)
        return layer.aggregate_backward(block, of_agg) if needed[0] and of_agg is not None else None, of_own

    def _updated(self, layer: Any, block: Block, rows: Tensor, own: Tensor) -> Tensor:
        """Returns the layer's output for a chunk."""
        return layer.update(self.aggregated(layer, block, rows), own, self.masks(block))

    def _output(self, supply: Supply) -> Tensor | None:
        """Returns the output rows of a chunk, if the gradient of the update follows from them; else None.

        Nothing is booked as crossing: they are kept if the device computes in the memory in which they are.
        """
        layer, output = self.layer, self.rows.output
        tells = hasattr(layer, "update_backward") and layer.finish.tells_gradient and self.passes.dtype != BF16
        return output.stage(supply.ids, supply.place.device, Ledger())[0] if tells and output is not None else None

    def leave(self, supply: Supply, found: Tensor | None) -> None:
        """Stores the gradients of own rows, if these are apart: they are the first, and the layer's own map adds to them."""
        assert found is not None or self.sums is None or not (self.rows.apart and self.layer.reads_own)
        if found is not None and self.sums is not None:
            self.store(supply, found, self.sums, self.line("d2h", "own_gradient"))

    def end(self, j: int) -> None:
        """Adds the gradients of parameters, and moves those of the buffers' rows (Algorithm 3).

        These go to their owners, and to the host if the next step does not need them.
        """
        super().end(j)
        below = self.below
        if below is None:
            return
        walk, line = self.passes.walk, self.line("d2d", "gradient")
        up = {part: walk.lists[part][j].up.of(below.sharded) for part in self.gradients}
        trade = walk.trades[j].up if walk.trades else None
        came = self.mover.pull(self.gradients, up, line, j, walk.num_parts, trade)
        for part in range(walk.num_parts):
            if part in self.gradients:
                self.mover.flush(self.gradients[part], up[part], below, self.line("d2h", "gradient"), part, j)
            elif part in came:
                self.mover.add_from_rank(came[part], below, part, j)


def differentiated(
    context: AbstractContextManager[None],
    function: Callable[[Tensor, Tensor], Tensor],
    rows: Tensor,
    own: Tensor | None,
    above: Tensor,
    needed: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Adds the gradients of a function's parameters; returns those of its arguments.

    Args:
        rows, own: its arguments; no columns stand for own rows that nothing reads.
    """
    with torch.enable_grad():
        with context:
            rows = rows.detach().requires_grad_(needed[0])
            own = None if own is None else own.detach().requires_grad_(needed[1])
            out = function(rows, rows[:, :0] if own is None else own)
        backward_from(widened(out), above)
    return rows.grad, None if own is None else own.grad


def splits(layer: Any, apart: bool) -> bool:
    """Returns whether the gradient of a layer's aggregate needs no forward pass, so that the update alone is differentiated.

    Args:
        apart: whether its map is a pass of its own, and the aggregate is that of mapped rows.
    """
    free = getattr(layer, "sums_projected", False) if apart else layer.cacheable
    return free and hasattr(layer, "aggregate_backward")


class _Given(torch.autograd.Function):
    """A number that has a given gradient with respect to a tensor."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(gradient)
        return out.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.saved_tensors[0], None


def backward_from(out: Tensor, gradient: Tensor) -> None:
    """Adds the gradients of all that a tensor was made of, as `out.backward(gradient)` does, to the bit."""
    given_gradient(out, gradient).backward()


def given_gradient(out: Tensor, gradient: Tensor) -> Tensor:
    """Returns a number that has a given gradient with respect to a tensor."""
    assert out.shape == gradient.shape and out.dtype == gradient.dtype, "a gradient is of another tensor"
    number: Any = _Given.apply(out, gradient)
    return number
