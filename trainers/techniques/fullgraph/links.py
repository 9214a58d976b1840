"""The bytes of an epoch of a full-graph training by link, as its passes book them.

They are volumes x columns x layers (HongTu, section 5.3), by the widths of layers. Beside the rows of chunks' neighbours, each pass of a
layer moves rows of all N nodes: its outputs to the host, and back for the layer above; aggregates that are kept between the passes; own
rows, if a layer reads them apart from its buffer; and gradients. layer_passes.py and row_passes.py book them, and a test compares these
formulas with a ledger. Rows of edges come once for each pass over a layer's chunks that computes aggregates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from graphmill.assets.storage.names.user_code import is_reference
from graphmill.kernels.rows.pages import padded_bytes
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.step import item_bytes, parameter_bytes
from graphmill.trainers.techniques.fullgraph.memory import LayerShape, Way, fixed_first, layer_shapes, reads_own
from graphmill.trainers.techniques.fullgraph.volumes import shares, volumes


def edge_columns(case: Case) -> int:
    """Returns the columns of the rows of edges that a training reads, 0 without."""
    return case.sizes.edge_width * case.semantic.train.edge_features


class _Booked:
    """Sums of bytes by link, as the passes of a training book them; `features` are those of the feature file among them."""

    def __init__(self, case: Case):
        self.features = 0.0
        self.case, self.links = case, defaultdict[str, float](float)
        self.volumes, self.value = volumes(case), item_bytes(case.semantic.train)
        self.on_device, self.on_host = shares(case)

    def _load(self, num_bytes: float) -> None:
        """Adds rows of the feature file: those on devices do not cross the link, and those in neither tier are read."""
        self.links["h2d"] += (1 - self.on_device) * num_bytes
        self.links["d2d"] += self.on_device * num_bytes
        self.features += (1 - self.on_device - self.on_host) * num_bytes

    def own(self, link: str, columns: int, *, features: bool = False, times: int = 1) -> None:
        """Adds rows of all nodes; features that come from a mapped file are asked of it, too."""
        sizes = self.case.sizes
        if not features:
            self.links[link] += times * sizes.num_nodes * columns * self.value
            return
        num_bytes = times * sizes.num_nodes * sizes.row_bytes
        self._load(num_bytes)
        if self.case.execution.features != "memory" and self.case.fits:
            self.links["mapped"] += (1 - self.on_device - self.on_host) * num_bytes

    def neighbours(self, columns: int, *, features: bool = False, back: bool = False) -> None:
        """Adds rows that enter buffers, or `back` the gradients that leave them."""
        row_bytes = self.case.sizes.row_bytes if features and not back else columns * self.value
        if features and not back:
            self._load(self.volumes.loaded * row_bytes)
        else:
            self.links["d2h" if back else "h2d"] += self.volumes.loaded * row_bytes
        # With a rank per part all rows of other parts are those of other ranks.
        ranks, parts = self.case.ranks, self.volumes.parts
        between = (ranks - 1) / max(1, parts - 1) if parts > 1 else 0
        self.links["rank"] += self.volumes.fetched * row_bytes * between
        self.links["d2d"] += self.volumes.fetched * row_bytes * (1 - between)

    def edges(self, times: int) -> None:
        """Adds the rows of all edges, each in every chunk that has it, as often as aggregates are computed."""
        case, sizes = self.case, self.case.sizes
        if edge_columns(case):
            rows = times * sizes.num_edges
            self.links["h2d"] += rows * sizes.edge_row_bytes
            where = "mapped" if case.edges_fit else "disk"
            self.links[where] += rows * (sizes.edge_row_bytes if case.edges_fit else padded_bytes(sizes.edge_row_bytes))

    def layer(self, shape: LayerShape, *, features: bool, summed: bool) -> None:
        """Adds both passes of a layer."""
        case, train = self.case, self.case.semantic.train
        own, again = reads_own(train), shape.again(Way(hybrid=case.settings.hybrid))
        known = summed or not again
        needed = shape.needed
        if shape.apart:
            self.own("h2d", shape.width, features=features, times=2)
            self.own("d2h", shape.read)
            self.own("h2d", shape.read)
        if own and (shape.apart or summed):
            self.own("h2d", shape.width, features=features)
        if own and (shape.apart or known):
            self.own("h2d", shape.width, features=features)
        self.edges(0 if summed else 1 + again)
        if summed:
            self.own("h2d", shape.aggregate, times=2)
        else:
            self.neighbours(shape.read, features=features and not shape.apart)
            if again:
                self.neighbours(shape.read, features=features and not shape.apart)
            else:
                self.own("d2h", shape.aggregate)
                self.own("h2d", shape.aggregate)
        self.own("d2h", shape.depth)
        self.own("h2d", shape.depth)
        if shape.batch_norm:  # read for the moments and for the end; with the gradient, for its factors and its rows
            self.own("d2h", shape.out, times=2)
            self.own("h2d", shape.out, times=6)
            self.links["d2h"] += self.volumes.steps * self.volumes.parts * 2 * shape.out * 8  # moments, float64
        if shape.apart and needed:
            self.own("d2h", shape.width, times=1 + own)
        if shape.apart or needed:
            self.neighbours(shape.read, back=True)


def pass_links(case: Case) -> tuple[Mapping[str, float], bool]:
    """Returns (link -> bytes of an epoch, whether they are exact)."""
    return ({}, True) if case.settings.mode == "device" else booked_links(case)[:2]


def booked_links(case: Case) -> tuple[Mapping[str, float], bool, float]:
    """Returns (link -> bytes of an epoch in chunks, whether they are exact, bytes of rows of the feature file among them)."""
    train, settings, sizes = case.semantic.train, case.settings, case.sizes
    booked, classes, ranks = _Booked(case), case.num_classes, case.ranks
    for index, shape in enumerate(layer_shapes(train, sizes.width, classes, edge_columns(case))):
        features = index == 0 and not train.projects
        booked.layer(shape, features=features, summed=features and settings.keep_first and fixed_first(train))
    if train.projects:
        booked.own("h2d", sizes.width, features=True, times=2)
        booked.own("d2h", train.hidden)
        booked.own("h2d", train.hidden)
    # Of links the outputs of all ends leave, and through a head their gradients come back.
    rows = min(sizes.num_nodes, 2 * case.batch.pairs) * (1 + (train.head == "linear")) or sizes.num_train
    logits = rows * classes * booked.value
    if ranks > 1:
        num_bytes = parameter_bytes(train, sizes.width, classes)
        booked.links["rank"] += ranks * (ranks - 1) * booked.volumes.steps * num_bytes * booked.volumes.parts // ranks
    booked.links["h2d"] += logits
    booked.links["d2h"] += logits
    plain = train.head != "linear" and not train.feed_forward and not is_reference(train.model)
    exact = booked.volumes.exact and ranks == 1 and plain and case.row_of is None and not train.predicts_links
    exact = exact and not booked.on_device + booked.on_host + edge_columns(case)
    return {link: float(num_bytes) for link, num_bytes in booked.links.items()}, exact, booked.features
