"""The bytes of an exact evaluation in one process, from the shape of the model and the sets of rows that are alive together.

trainers/inference/exact.py says how the workspace W is divided. A set of rows of all nodes is in memory if it fits its share, and else in a
file; what a layer sums is in memory as far as W / 2 allows, the rest of its columns in a file. Rows of nodes that the scored ones do not
reach are counted, too: how many they are is known when an evaluation has walked the graph.
"""

from __future__ import annotations

from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.step import item_bytes, layer_widths
from graphmill.trainers.recipe.techniques import find_technique

WINDOW_BYTES = 16 << 20
"""Windows of a file of features that is read in order: one is read while another is computed with."""
TILE_BYTES = 8 << 20
"""Rows of a tile, and as much for its aggregates and results, if a row has few columns: each thread has one, and one more is read."""
EDGE_BYTES = 32
"""Bytes of an edge of a range of destinations: its ids in the graph and in the block, its place in the order of reading, its weight."""
LOGIT_COPIES = 3
"""Copies of the scored nodes' logits: of all ranges, in the order that was asked for, and for the score."""


def exact_bytes(case: Case, workspace: int = 0) -> int:
    """Returns the most bytes that one process takes for an exact evaluation, 0 if every evaluation is sampled.

    Args:
        workspace: bytes of the workspace; 0 for `eval_workspace`.
    """
    train, sizes = case.semantic.train, case.sizes
    workspace = workspace or parse_size(train.eval_workspace)
    if train.eval == "sampled":
        return 0
    layers, item = train.layers, item_bytes(train)
    found = _whole_bytes(case, workspace) if _in_memory(case) else _gathered_bytes(case, workspace)
    sets = sizes.num_nodes * (3 * layers + 11) // 8
    scored = sizes.num_train + sizes.num_valid + sizes.num_test
    return found + sets + LOGIT_COPIES * scored * case.num_classes * item


def _in_memory(case: Case) -> bool:
    """Returns whether layers sum their sources where they are (`sums_in_memory`, trainers/inference/whole.py)."""
    train, sampling = case.semantic.train, case.semantic.sampling
    drawn = sampling is not None and sampling.method not in ("uniform", "")
    shared = find_technique(train.trainer).own_shards
    other = train.aggregator == "max" or train.dtype == "bf16"
    return train.model in ("sage", "gcn", "gin", "gat") and not (drawn or shared or other)


def _whole_bytes(case: Case, workspace: int) -> int:
    """Returns the bytes of the sets of rows of the layer that has the most, and of a tile."""
    train, item, nodes = case.semantic.train, item_bytes(case.semantic.train), case.sizes.num_nodes

    def kept(width: int) -> int:
        num_bytes = nodes * width * item
        return num_bytes if num_bytes <= workspace // 8 else 0

    def summed(width: int) -> int:
        return min(workspace // 2, nodes * width * item)

    most, inputs = 0, kept(train.hidden) if train.projects else 0
    for number, (wide, out) in enumerate(layer_widths(train, case.sizes.width, case.num_classes)):
        narrow, own = layer_rows(train, number, wide, out)
        scores = kept(train.heads) if train.model == "gat" else 0
        # Rows of a layer below are summed where they are.
        held = summed(narrow) + kept(own) + scores if narrow else max(0, summed(wide) - inputs)
        result = kept(out) * (number + 1 < train.layers)
        most = max(most, inputs + held + result * (2 if train.head == "linear" else 1))
        inputs = result
    return most + _work_bytes(case, workspace, max(1, min(case.threads, workspace // 4 // TILE_BYTES)))


def layer_rows(train: TrainConfig, number: int, wide: int, out: int) -> tuple[int, int]:
    """Returns (columns of the rows that a layer sums in place of its inputs, those of its nodes' terms); (0, 0) if it sums its inputs.

    Args:
        wide, out: columns that it reads and gives.
    """
    kind, residual = train.model, out * bool(train.residual)
    if kind == "gat":
        averaged = number + 1 == train.layers and train.head != "linear"
        return out * (train.heads if averaged else 1), train.heads + residual
    if kind not in ("sage", "gcn", "gin") or out >= wide:
        return 0, 0
    return out, {"sage": out, "gcn": residual, "gin": out + residual}[kind]


def _work_bytes(case: Case, workspace: int, threads: int = 1) -> int:
    """Returns the bytes of rows that are read and mapped at one time, of the threads' tiles, and of the windows of the features' file."""
    item, nodes, width = item_bytes(case.semantic.train), case.sizes.num_nodes, case.sizes.width
    read = min(workspace // 12, nodes * width * item)
    windows = WINDOW_BYTES if case.execution.features != "memory" else 0
    return read + min(TILE_BYTES * (1 + 2 * threads), 3 * nodes * width * item) + min(windows, case.sizes.feature_bytes)


def _gathered_bytes(case: Case, workspace: int) -> int:
    """Returns the bytes of a range that gathers its sources, and of the sets of rows of this process's nodes."""
    train, item, sizes = case.semantic.train, item_bytes(case.semantic.train), case.sizes
    ranks = max(1, case.ranks)
    nodes, edges = -(-sizes.num_nodes // ranks), -(-sizes.num_edges // ranks)
    if is_reference(train.model):
        return min(workspace // 2, (edges + nodes) * max(sizes.width, train.hidden) * item)
    share, most, inputs = workspace // 12, 0, 0
    for number, (wide, out) in enumerate(layer_widths(train, sizes.width, case.num_classes)):
        narrow, own = layer_rows(train, number, wide, out)
        width = narrow or wide
        sets = [width * bool(narrow), own, out * (number + 1 < train.layers)]
        held = sum(num_bytes for each in sets if (num_bytes := nodes * each * item) <= share)
        counted = min(edges, workspace // 2 // (2 * item * width + EDGE_BYTES))
        ending = -(-nodes * counted // max(1, edges))
        # Rows of sources are there once as they are read and once in the order of the block.
        rows = 2 * min(sizes.num_nodes, counted + ending) * width + 4 * ending * out
        most = max(most, inputs + held + min(workspace // 2, rows * item + counted * EDGE_BYTES))
        inputs = nodes * out * item if nodes * out * item <= share else 0
    return most + _work_bytes(case, workspace)
