"""Bytes and seconds of a full-graph epoch: volumes x columns x layers (HongTu, section 5.3), by the widths of layers; without torch.

Beside the rows of chunks' neighbours, each pass of a layer moves rows of all N nodes: its outputs to the host, and back for the layer
above; aggregates that are kept between the passes; own rows, if a layer reads them apart from its buffer; and gradients. layer_passes.py
and row_passes.py book them, and a test compares these formulas with a ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from graphmill.assets.chunks.costs import cut_of
from graphmill.assets.chunks.read import open_chunks
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.trainers.recipe.costs.course import Case, Scored
from graphmill.trainers.recipe.costs.evaluation import FORWARD
from graphmill.trainers.recipe.costs.forecast import COMPUTING, EXCHANGING
from graphmill.trainers.recipe.costs.step import item_bytes, parameter_bytes
from graphmill.trainers.techniques.fullgraph.plan.memory import LayerShape, Way, fixed_first, layer_shapes, reads_own

ROW_COPIES = 2
"""Copies in order that take as long as one of rows, which are gathered."""


class PassVolumes(NamedTuple):
    """Rows of a pass over all chunks.

    Attributes:
        loaded: rows that come from the host.
        fetched: rows that come from the buffers of other parts.
        steps: steps of the pass.
        exact: whether the chunks are cut.
    """

    loaded: int
    fetched: int
    steps: int
    parts: int
    exact: bool


def volumes(case: Case) -> PassVolumes:
    """Returns the rows of a pass: counted ones, or those of even chunks each of whose edges brings another row, up to all nodes."""
    sizes, mode = case.sizes, case.settings.mode
    if "chunks" in sizes.artifacts:
        chunks = open_chunks(sizes.artifacts["chunks"])
        counts = chunks.counts
        volume = {"vanilla": counts.v_ori, "p2p": counts.v_p2p, "p2p+reuse": counts.v_ru}[mode]
        # Rows that a part has already from the step before are fetched anew unless they are reused.
        fetched = {"vanilla": 0, "p2p": int(counts.copies.sum()), "p2p+reuse": int(counts.fetched.sum())}[mode]
        return PassVolumes(volume, fetched, chunks.chunks_per_part, chunks.num_parts, True)
    parts, each = cut_of(sizes)
    steps = parts * each
    rows = steps * min(sizes.num_nodes, ceil((sizes.num_edges + sizes.num_nodes) / steps))
    loaded = rows if mode == "vanilla" else min(rows, rows // parts + sizes.num_nodes)
    return PassVolumes(loaded, 0 if mode == "vanilla" else rows - loaded, each, parts, False)


class _Booked:
    """Sums of bytes by link, as the passes of a training book them; `features` are those of the feature file among them."""

    def __init__(self, case: Case):
        self.features = 0.0
        self.case, self.links = case, defaultdict[str, float](float)
        self.volumes, self.value = volumes(case), item_bytes(case.semantic.train)

    def own(self, link: str, columns: int, *, features: bool = False, times: int = 1) -> None:
        """Adds rows of all nodes; features that come from a mapped file are asked of it, too."""
        sizes = self.case.sizes
        row_bytes = sizes.row_bytes if features else columns * self.value
        self.links[link] += times * sizes.num_nodes * row_bytes
        self.features += features * times * sizes.num_nodes * row_bytes
        if features and self.case.execution.features != "memory" and self.case.fits:
            self.links["mapped"] += times * sizes.num_nodes * row_bytes

    def neighbours(self, columns: int, *, features: bool = False, back: bool = False) -> None:
        """Adds rows that enter buffers, or `back` the gradients that leave them."""
        row_bytes = self.case.sizes.row_bytes if features and not back else columns * self.value
        self.links["d2h" if back else "h2d"] += self.volumes.loaded * row_bytes
        self.features += (features and not back) * self.volumes.loaded * row_bytes
        # With a rank per part all rows of other parts are those of other ranks.
        ranks, parts = self.case.ranks, self.volumes.parts
        between = (ranks - 1) / max(1, parts - 1) if parts > 1 else 0
        self.links["rank"] += self.volumes.fetched * row_bytes * between
        self.links["d2d"] += self.volumes.fetched * row_bytes * (1 - between)

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
        if shape.apart and needed:
            self.own("d2h", shape.width, times=1 + own)
        if shape.apart or needed:
            self.neighbours(shape.read, back=True)


def pass_links(case: Case) -> tuple[Mapping[str, float], bool]:
    """Returns (link -> bytes of an epoch, whether they are exact)."""
    return ({}, True) if case.settings.mode == "device" else _booked(case)[:2]


def _booked(case: Case) -> tuple[Mapping[str, float], bool, float]:
    """Returns (link -> bytes of an epoch in chunks, whether they are exact, bytes of rows of the feature file among them)."""
    train, settings, sizes = case.semantic.train, case.settings, case.sizes
    booked, classes, ranks = _Booked(case), max(2, sizes.num_classes), case.ranks
    for index, shape in enumerate(layer_shapes(train, sizes.width, classes)):
        features = index == 0 and not train.projects
        booked.layer(shape, features=features, summed=features and settings.keep_first and fixed_first(train))
    if train.projects:
        booked.own("h2d", sizes.width, features=True, times=2)
        booked.own("d2h", train.hidden)
        booked.own("h2d", train.hidden)
    logits = sizes.num_train * classes * booked.value
    if ranks > 1:
        num_bytes = parameter_bytes(train, sizes.width, classes)
        booked.links["rank"] += ranks * (ranks - 1) * booked.volumes.steps * num_bytes * booked.volumes.parts // ranks
    booked.links["h2d"] += logits
    booked.links["d2h"] += logits
    plain = train.head != "linear" and not train.feed_forward and not is_reference(train.model)
    exact = booked.volumes.exact and ranks == 1 and plain and case.row_of is None
    return {link: float(num_bytes) for link, num_bytes in booked.links.items()}, exact, booked.features


def pass_seconds(case: Case) -> tuple[Mapping[str, float], float]:
    """Returns (piece -> seconds of an epoch, seconds of an epoch): a pass over all nodes, visits to chunks, and copies of their rows."""
    speeds, ranks, threads = case.speeds, case.ranks, case.threads
    assert speeds is not None
    links, _, features = ({}, True, 0.0) if case.settings.mode == "device" else _booked(case)
    # Ranks that have fewer cores than threads take turns.
    used = min(case.cores, ranks * threads)
    grown = case.sizes.num_edges / max(1.0, speeds.edges)
    found = volumes(case) if case.settings.mode != "device" else None
    computing = grown * speeds.at("whole" if found is None else "layers", threads) * threads / used
    visits = 0.0 if found is None else speeds.at("visit", found.parts) * found.parts * found.steps / ranks
    moved = sum(links.get(link, 0.0) for link in ("h2d", "d2h", "d2d"))
    copied = ROW_COPIES * moved / speeds.copy_rate / ranks if speeds.copy_rate else 0.0
    # Each pass reads a table that does not stay in memory anew.
    away = case.feature_place != "memory" and not case.fits and speeds.disk_rate > 0
    copied += features / speeds.disk_rate if away else 0.0
    exchanging = 0.0
    if ranks > 1:
        calls = 2 * case.semantic.train.layers * (found.steps if found else 1)
        moved = links.get("rank", 0.0) / ranks / speeds.rank_rate if speeds.rank_rate else 0.0
        exchanging = moved + calls * speeds.call
    return {COMPUTING: computing + visits, EXCHANGING: exchanging}, computing + visits + copied + exchanging


def evaluated(case: Case, scored: Scored) -> float:
    """Returns the seconds of an evaluation: the forward half of a pass, of all nodes whatever is scored."""
    return FORWARD * pass_seconds(case)[1]
