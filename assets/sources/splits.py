"""Train, valid and test nodes: drawn at random by class, cut by time, or checked if the source brings its own.

Within each class the labelled nodes are ordered by a keyed hash of their id (stream 5) and cut by the two ratios. A
class keeps its share in every part, and renumbering other nodes changes nothing.

Peak memory: 28 bytes per labelled node.
"""

import re
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.tasks.labels import labelled, strata
from graphmill.assets.tasks.lengths import length_size, require_dates
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.splits import cut_in_order, leave_gap
from graphmill.kernels.rng import absorb_ids, key
from graphmill.kernels.types import Array, Stream, id_dtype

Split = TypeVar("Split", int, str)

PARTS = ("train", "valid", "test")
PART_WORDS = {
    "train": ("training", "trn"),
    "val": ("valid", "validation", "dev"),
    "test": ("testing", "tst", "holdout"),
}
"""Part of a split -> other words for it."""
OF_NODES = frozenset(("mask", "masks", "id", "ids", "idx", "idxs", "index", "indices", "node", "nodes", "set", "split"))
"""Words that stand beside a part in names of its nodes, such as idx_train and Train_Mask."""


def part_meant(name: str) -> str:
    """Returns "train", "val" or "test" if a name has words for that part and for its nodes alone; "" otherwise."""
    words = {*re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("-", "_").split("_")} - OF_NODES - {""}
    return next((part for part, others in PART_WORDS.items() if len(words) == 1 and words <= {part, *others}), "")


def stratified(labels: Array, seed: int, train_ratio: float, valid_ratio: float) -> tuple[Array, Array, Array]:
    """Draws a split that has every class in the same shares; nodes with other labels than classes are drawn alike.

    Args:
        labels: labels of N nodes (assets/tasks/labels.py); nodes without one belong to no part.
        seed: any integer; the same seed draws the same split.
        train_ratio, valid_ratio: shares of each class, rounded to the nearest node, at least one for training; the rest is for testing.

    Returns:
        (train, valid, test): ids[n], ascending.
    """
    groups = strata(labels)
    known = np.flatnonzero(groups >= 0)
    part = cut_in_order([absorb_ids(key(seed, Stream.SPLITS), known)], groups[known], train_ratio, valid_ratio)
    return _of_parts(known, part, len(labels))


def by_time(
    labels: Array, times: Array | None, seed: int, train_ratio: float, valid_ratio: float, gap: float | str | None
) -> tuple[Array, Array, Array]:
    """Cuts the labelled nodes by time: the oldest are for training, the newest for testing, those of one time in a drawn order.

    Args:
        times: f64[N]; nodes without a time, NaN, belong to no part.
        gap: least time between the parts, a number in the unit of the times or a length; None for none.
        labels, seed, train_ratio, valid_ratio: as of `stratified`, the shares being those of all nodes.

    Returns:
        (train, valid, test): ids[n], ascending; a node in a gap is in none.

    Raises:
        InputError: no labelled node has a time, the gap is a length of dates and the times are none, or no node is left for training.
    """
    assert times is not None, "the source was asked for times"
    known = np.flatnonzero(labelled(labels) & np.isfinite(times))
    if not len(known):
        raise InputError(
            "[task] split = 'time', but no labelled node has a time", "give the labelled nodes their times"
        )
    own = times[known]
    order = [absorb_ids(key(seed, Stream.SPLITS), known), own]
    part = cut_in_order(order, np.zeros(len(known), np.int64), train_ratio, valid_ratio)
    if gap is not None:
        require_dates("gap", gap, (float(own.min()), float(own.max())), "nodes")
        part = leave_gap(part, own, length_size(gap))
    found = _of_parts(known, part, len(labels))
    if not len(found[0]):
        raise InputError(f"gap = {gap!r} leaves no node for training", "give a shorter gap, or a larger train_ratio")
    return found


def _of_parts(known: Array, part: Array, num_nodes: int) -> tuple[Array, Array, Array]:
    """Returns ids[n], ascending, of the nodes of each part."""
    ids = known.astype(id_dtype(num_nodes))
    train, valid, test = (ids[part == number] for number in range(3))
    return train, valid, test


def checked(parts: tuple[Array, Array, Array], labels: Array, where: str = "") -> tuple[Array, Array, Array]:
    """Returns a source's split as ids[n] in ascending order, after checking it.

    Args:
        parts: train, valid and test ids of any integer type, in any order.

    Raises:
        InputError: lists all problems: ids outside the graph, ids twice in a part or in two parts, nodes without a label.
    """
    problems = list(split_problems(parts, labels))
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        subject = f"{where}: the split" if where else "the split of the source"
        then = "" if where else ": a stratified one is then drawn from the pipeline's seed"
        raise InputError(f"{subject} does not work:{listed}", f"correct the split, or leave it out{then}")
    ids = id_dtype(len(labels))
    train, valid, test = (np.sort(part).astype(ids) for part in parts)
    return train, valid, test


def split_problems(parts: tuple[Array, Array, Array], labels: Array) -> Iterator[str]:
    """Yields the problems of a split of the nodes 0 to N-1 with labels."""
    in_range: list[Array] = []
    for name, part in zip(PARTS, parts, strict=True):
        outside = part[(part < 0) | (part >= len(labels))]
        if len(outside):
            yield f"{name}: {len(outside)} ids outside [0, {len(labels)}): {shown(outside)}"
        inside, counts = np.unique(part[(part >= 0) & (part < len(labels))], return_counts=True)
        if (counts > 1).any():
            yield f"{name}: {np.count_nonzero(counts > 1)} ids occur twice: {shown(inside[counts > 1])}"
        unknown = inside[~labelled(labels[inside])]
        if len(unknown):
            yield f"{name}: {len(unknown)} nodes have no label: {shown(unknown)}"
        in_range.append(inside)
    for one, two in ((0, 1), (0, 2), (1, 2)):
        both = np.intersect1d(in_range[one], in_range[two], assume_unique=True)
        if len(both):
            yield f"{PARTS[one]} and {PARTS[two]} overlap in {len(both)} nodes: {shown(both)}"


def mask_ids(values: Array, num_nodes: int, split: int | None, where: str, name: str, of: str = "node") -> Array:
    """Returns the ids i64[n] of the nodes, or edges, in a mask, of true and false or of 0 and 1 of any type.

    Args:
        values: [N], or several masks [S, N] or [N, S].
        split: which of several masks; None is the first.
        of: what the mask is about, "node" or "edge", for errors.

    Raises:
        InputError: the mask has another shape or other values, or there are fewer masks.
    """
    several = values if values.ndim != 1 else values[None]
    if several.ndim == 2 and several.shape[1] != num_nodes and several.shape[0] == num_nodes:
        several = several.T
    if several.ndim != 2 or several.shape[1] != num_nodes:
        remedy = (
            f"give true or false for each {of}; {of} ids become a mask by {name} = np.isin(np.arange({num_nodes}), ids)"
        )
        raise InputError(f"{where} has shape {list(values.shape)}, not [{num_nodes}] or [S, {num_nodes}]", remedy)
    chosen = split or 0
    if chosen >= len(several):
        problem = f"{where}: split = {split}, but there are {len(several)}, counted from 0"
        raise InputError(problem, "give a smaller `split`" if len(several) > 1 else "leave `split` out")
    if several.dtype.kind not in "biuf" or not np.isin(several[chosen], (0, 1)).all():
        problem = f"{where} is {values.dtype}, and not true or false for each {of}"
        raise InputError(problem, _to_mask(several[chosen], name))
    return np.flatnonzero(several[chosen])


def _to_mask(values: Array, name: str) -> str:
    """Returns the remedy for a mask [N] of other values: 255 or the like is true, and of several numbers one is the part."""
    numbers = np.unique(values).tolist() if values.dtype.kind in "iuf" else []
    if len(numbers) == 2 and np.isfinite(numbers).all():
        return f"save {name} == {numbers[1]}"
    if {1} <= {*numbers} and len(numbers) <= len(PARTS) + 1:
        return f"save {name} == 1"
    return f"save true or false for each node; node ids become a mask by {name} = np.isin(np.arange({len(values)}), {name})"


def is_mask(values: Array, num_nodes: int) -> bool:
    """Tells whether a list of nodes is a mask of them rather than their ids: true and false, or 0 and 1 with repeats, one for each node."""
    if values.dtype.kind == "b":
        return True
    zeros_and_ones = values.shape == (num_nodes,) and values.dtype.kind in "iuf" and bool(np.isin(values, (0, 1)).all())
    return zeros_and_ones and len(np.unique(values)) < num_nodes


def shown(ids: Array, most: int = 5) -> str:
    """Returns the first few ids as text."""
    return ", ".join(str(node) for node in ids[:most].tolist()) + (", ..." if len(ids) > most else "")


def split_key_problems(split: int | str | tuple[int | str, ...] | None) -> Iterator[KeyProblem]:
    """Yields the problems of one split or a list of distinct ones; numbers of splits count from 0."""
    chosen = split if isinstance(split, tuple) else (split,)
    if not chosen:
        yield KeyProblem("split", "split = [] names no split: give a list such as [0, 1, 2], or leave the key out")
    negative = [each for each in chosen if isinstance(each, int) and each < 0]
    if negative:
        yield KeyProblem("split", f"split = {negative[0]} is negative: count from 0")
    if len(set(chosen)) != len(chosen):
        yield KeyProblem("split", f"split = {list(chosen)} names a split twice: name each split once")


def one_split(split: Split | tuple[Split, ...] | None) -> Split | None:
    """Returns the key `split` of a configuration that is built; `GraphConfig.by_split` has taken lists apart before."""
    assert not isinstance(split, tuple), "a graph has one split"
    return split
