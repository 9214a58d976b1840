"""The links of a graph: which edges are predicted, their split, and the edges that are left for messages.

Edges are read in the order of the source, before they are compressed, so a link keeps its direction, and a split that the source gives is
checked with its rows. The edges of the links that are held out, their copies and their reverses are then taken out of the source's edges,
and everything that is compressed afterwards is an edge that a model may see.

In a graph that is made undirected an edge and its reverse are one link. Otherwise a relation's reverse is the one whose name says so
(assets/tasks/relations.py), or the relation itself if each of its edges is there in both directions and no given split has the two in
different parts, as those of knowledge graphs have.

Edges that have labels to learn are split alike, each copy and each direction with its own label and those of one link in one part. Edges
whose label is not known are not links: they stay messages.

If neighbours are drawn as of the times of seeds, a link has a time: the first one of its edges, so that none of them is in its own past.

Peak memory: `LINK_BYTES` per edge of the relations that are predicted, beside the source's own edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Check
from graphmill.assets.graph.candidates import link_candidates, save_candidates
from graphmill.assets.graph.remarks import raw_edges
from graphmill.assets.sources.interface import GraphConfig, RawGraph
from graphmill.assets.sources.task_table import TaskTable
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.tasks.labels import OF_LABEL, STORED, Kind, column_counts
from graphmill.assets.tasks.lengths import length_size, require_dates
from graphmill.assets.tasks.links import Links
from graphmill.assets.tasks.relations import named_relations, reverse_pairs
from graphmill.kernels.errors import InputError, one_line
from graphmill.kernels.links.splits import GAP, PARTS, TEST, TRAIN, VALID, check_split, split_edges, stored_edges
from graphmill.kernels.links.triples import NO_REVERSE, KnownEdges, Triples, contains
from graphmill.kernels.types import Array, Topology, id_dtype

HELD_OUT, ODD = "held-out links are not stored", "links can be learnt and tested"
SAYS = {
    HELD_OUT: "Links are predicted: no link to validate or to test is an edge of the stored topology, in either direction.",
    ODD: "Links are predicted: each part has at least ten links, their ends have edges, and no other relation tells a tested link.",
}
"""Name of a check -> the sentence about it."""
LINK_BYTES = 132
"""Most bytes that finding and splitting links takes for an edge of the source: its number and row, and the sort of links."""
FEW_LINKS, MANY = 10, 0.5
"""Number of links of a part below which its score says little, and share of its links from which an oddity is told."""

Known = tuple[Links, KnownEdges]
"""The links of a graph, and the edges that its topology must not have."""


def take_links(raw: RawGraph, config: GraphConfig) -> Known:
    """Finds and splits the links, and takes the edges of those that are held out from the source's graph, with its labels and node split.

    Args:
        raw: the source's graph; it is changed.

    Raises:
        InputError: `[task]` names a relation that the graph lacks, a given split has an edge in two parts, no link is for training, or
            candidates do not fit the links.
    """
    task = config.links
    assert task is not None, "links are predicted"
    labelled = task.kind in OF_LABEL
    raw.labels, raw.splits = np.full(raw.num_nodes, -1, np.int32), None
    raw.class_names = raw.class_names if labelled else ()
    names = list(raw.numbers.get("edge_types", ()))
    predicted = named_relations(task.relations, names, "[task] relations") if names or task.relations else [0]
    numbers, rows = _numbers(raw, predicted, max(1, len(names)))
    triples = Triples(num_nodes=raw.num_nodes, reverse_of=_reverse_of(raw, config, names, predicted, numbers, rows))
    if not len(numbers):
        problem = "no edge of a predicted relation joins two nodes"
        raise InputError(problem, "leave [task] relations out, or name others")
    labels = None
    if labelled:
        numbers, rows = _labelled(raw, numbers, rows)
    edges = rows
    present, rows, part = _split(raw, task, config.seed, triples, numbers, rows)
    between = present[part == GAP]
    if len(between):
        raw.numbers = {**raw.numbers, "num_gap_links": len(np.unique(triples.links(*triples.parts(between))))}
        present, rows, part = (each[part != GAP] for each in (present, rows, part))
    if labelled:
        labels = _labels(raw, task.kind, rows)
    if not len(present):
        raise InputError(f"[task] split = '{task.split}', but no edge is in a part", "give edges their part or time")
    _require_links(task, names, predicted, triples.parts(present)[2])
    links = _links(triples, present, part, labels, typed=bool(names))
    if config.times:
        assert raw.edge_marks is not None, "edges have times"
        own = raw.edge_marks.values
        times = own[rows] if labelled else _first_times(triples, links, numbers, own[edges])
        links = replace(links, times=times)
    if not (links.split == TRAIN).any():
        raise InputError("no link is for training", "put edges of a predicted relation into train")
    links = replace(links, candidates=link_candidates(raw, task, links), uniform=task.uniform_candidates)
    held_out = links.split >= (VALID if task.message_edges == "train" else TEST)
    tested = (None if each is None else each[held_out] for each in (links.source, links.target, links.relation))
    known = KnownEdges(triples, *triples.parts(np.concatenate([triples.numbers(*tested), between])))
    _take_out(raw, known)
    return links, known


def _labelled(raw: RawGraph, numbers: Array, rows: Array) -> tuple[Array, Array]:
    """Returns the numbers and places of the edges whose label is known; raises InputError if there is none."""
    marks = raw.edge_marks
    assert marks is not None and marks.labels is not None, "edges have labels"
    known = ~np.isnan(marks.labels[rows])
    if not known.any():
        raise InputError("no edge of a predicted relation has a label", "name the column that has them, or fill it")
    return numbers[known], rows[known]


def _labels(raw: RawGraph, kind: Kind, rows: Array) -> Array:
    """Returns the labels of edges by their places i64[n], as they are stored: i32[n] or f32[n, 1]."""
    assert raw.edge_marks is not None and raw.edge_marks.labels is not None
    found = raw.edge_marks.labels[rows]
    dtype, dimensions = STORED[OF_LABEL[kind]]
    return found.astype(dtype).reshape((-1,) + (1,) * (dimensions - 1))


def _links(triples: Triples, present: Array, part: Array, labels: Array | None, *, typed: bool) -> Links:
    """Returns the links of the numbers u64[n] of edges in parts u8[n], each link once if edges have no labels."""
    source, target, relation = triples.parts(present)
    first = np.arange(len(present))
    if labels is None:
        first = np.sort(np.unique(triples.links(source, target, relation), return_index=True)[1])
    ids = id_dtype(triples.num_nodes)
    return Links(
        source=source[first].astype(ids),
        target=target[first].astype(ids),
        relation=relation[first].astype(np.uint8) if typed else None,
        split=part[first],
        reverse_of=triples.reverse_of,
        predicted=tuple(np.unique(relation).tolist()),
        labels=labels,
    )


def _first_times(triples: Triples, links: Links, numbers: Array, times: Array) -> Array:
    """Returns f64[E], the first time of each link's edges, which have the numbers u64[n] and the times f64[n]."""
    of_edge = triples.links(*triples.parts(numbers))
    order = np.lexsort((times, of_edge))
    ascending = of_edge[order]
    return times[order][np.searchsorted(ascending, triples.links(links.source, links.target, links.relation))]


def _require_links(task: TaskTable, names: Sequence[str], predicted: Sequence[int], relation: Array) -> None:
    """Refuses a relation that `[task]` names and that has no links."""
    for number in sorted({*predicted} - {*relation.tolist()}) if task.relations else ():
        problem = f"[task] relations names {names[number]!r}, of which no edge is in a part of the split"
        raise InputError(problem, "leave it out, or give its edges a time or a part")


def _numbers(raw: RawGraph, predicted: Sequence[int], num_relations: int) -> tuple[Array, Array]:
    """Returns (u64[n] numbers, i64[n] places in the source's order) of the edges that may be links: not of a node with itself."""
    triples, wanted = Triples(num_nodes=raw.num_nodes, reverse_of=(NO_REVERSE,) * num_relations), np.zeros(256, bool)
    wanted[predicted] = True
    numbers, rows, first = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], 0
    for source, target, relation in raw_edges(raw):
        kept = np.flatnonzero((source != target) & (True if relation is None else wanted[relation]))
        numbers.append(triples.numbers(source[kept], target[kept], None if relation is None else relation[kept]))
        rows.append(first + kept)
        first += len(source)
    return np.concatenate(numbers), np.concatenate(rows)


def _reverse_of(
    raw: RawGraph, config: GraphConfig, names: Sequence[str], predicted: Sequence[int], numbers: Array, rows: Array
) -> tuple[int, ...]:
    """Returns the relation of the reverse of each relation's edges.

    Raises:
        InputError: the source has a relation of reverse edges, and `undirected = true` adds reverse edges of both once more.
    """
    pairs, num_relations = reverse_pairs(names), max(1, len(names))
    own = getattr(config, "reverse_types", "same") == "own" and names
    if config.undirected and not own:
        for forward, backward in pairs.items():
            problem = f"{names[backward]!r} is the reverse of {names[forward]!r}, and undirected = true adds reverse edges to both"
            raise InputError(
                problem, "set undirected = false in [graph], so that an edge which is held out has one reverse"
            )
        return tuple(range(num_relations))
    found = [NO_REVERSE] * num_relations
    for forward, backward in pairs.items():
        found[forward], found[backward] = backward, forward
    alone = Triples(num_nodes=raw.num_nodes, reverse_of=(NO_REVERSE,) * num_relations)
    present = np.unique(numbers)
    source, target, relation = alone.parts(present)
    back = contains(present, alone.numbers(target, source, relation))
    for number in predicted:
        both = back[relation == number]
        if (
            found[number] == NO_REVERSE
            and len(both)
            and both.all()
            and not _crosses(raw, config, number, numbers, rows)
        ):
            found[number] = number
    return tuple(found)


def _crosses(raw: RawGraph, config: GraphConfig, number: int, numbers: Array, rows: Array) -> bool:
    """Returns whether a given split has an edge of a relation and its reverse in different parts."""
    if raw.edge_marks is None or config.links is None or config.links.split != "given":
        return False
    alone = Triples(num_nodes=raw.num_nodes, reverse_of=(NO_REVERSE,) * (number + 1))
    source, target, relation = alone.parts(numbers)
    own = (relation == number) & ~np.isnan(raw.edge_marks.values[rows])
    ends = np.minimum(source[own], target[own]), np.maximum(source[own], target[own])
    _, link = np.unique(alone.numbers(*ends), return_inverse=True)
    part, first = raw.edge_marks.values[rows[own]], np.zeros(len(own))
    first[link] = part  # of the edges of a link the part of one
    return bool(np.any(first[link] != part))


def _split(
    raw: RawGraph, task: TaskTable, seed: int, triples: Triples, numbers: Array, rows: Array
) -> tuple[Array, Array, Array]:
    """Returns (u64[n] numbers, ascending, i64[n] places, u8[n] parts) of the edges that are in a part, copies only if edges have labels."""
    ratios: Any = {"seed": seed, "train_ratio": task.train_ratio, "valid_ratio": task.valid_ratio}
    if task.split == "random":
        first = _first(numbers, task)
        present = numbers[first]
        return present, rows[first], split_edges(triples, *triples.parts(present), **ratios)
    marks = raw.edge_marks
    if marks is None:
        problem = f"[task] split = '{task.split}', but the edges have no marks"
        raise InputError(problem, "draw the split: split = 'random'")
    place, marked = marks.place, ~np.isnan(marks.values[rows])
    numbers, rows = numbers[marked], rows[marked]
    values = marks.values[rows]
    if task.split == "given":
        part = values.astype(np.int64)
        source, target, relation = triples.parts(numbers)
        check_split(triples, source, target, part, relation, place=lambda row: place(int(rows[row])))
    else:
        if task.gap is not None:
            ends = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
            require_dates("gap", task.gap, ends)
            ratios["gap"] = length_size(task.gap)
        part = split_edges(triples, *triples.parts(numbers), times=values, **ratios)
    first = _first(numbers, task)
    return numbers[first], rows[first], part[first].astype(np.uint8)


def _first(numbers: Array, task: TaskTable) -> Array:
    """Returns i64[k], the places of numbers u64[n] in ascending order: the first one of each, or all if edges have labels."""
    return np.argsort(numbers, kind="stable") if task.kind in OF_LABEL else np.unique(numbers, return_index=True)[1]


def _take_out(raw: RawGraph, known: KnownEdges) -> None:
    def kept(source: Array, target: Array, relation: Any) -> Array:
        return ~known.contains(source, target, relation)

    if raw.spool is not None:
        raw.spool.keep(
            lambda batch: kept(
                batch["src"], batch["dst"], batch["type"] if "type" in (batch.dtype.names or ()) else None
            )
        )
    else:
        stays = kept(raw.src, raw.dst, None)
        raw.src, raw.dst = raw.src[stays], raw.dst[stays]
        if raw.edge_marks is not None:
            raw.edge_marks = replace(raw.edge_marks, values=raw.edge_marks.values[stays])


def save_links(links: Links, writer: Writer) -> None:
    """Writes the arrays of the links."""
    writer.save("link_ends", np.stack([links.source, links.target], axis=1))
    writer.save("link_split", links.split)
    for name, array in (("link_labels", links.labels), ("link_times", links.times)):
        if array is not None:
            writer.save(name, array)
    if links.relation is not None:
        writer.save("link_relation", links.relation)
    if links.candidates is not None:
        save_candidates(links.candidates, writer)


def link_numbers(links: Links, num_columns: int) -> dict[str, Any]:
    """Returns the numbers of the summary about links.

    Args:
        num_columns: number of classes or targets of their labels.
    """
    counts = np.bincount(links.split, minlength=len(PARTS)).tolist()
    sizes = {f"num_{part}_links": count for part, count in zip(PARTS, counts, strict=True)}
    given = links.candidates
    ends = 0 if given is None else sum(map(len, given.ends.values())) + (0 if given.pairs is None else len(given.pairs))
    more = {"num_given_candidates": ends, "num_uniform_candidates": links.uniform}
    return {
        "num_links": len(links.split),
        **sizes,
        "reverse_of": list(links.reverse_of),
        "predicted": list(links.predicted),
        **{name: count for name, count in more.items() if count},
        **({} if links.labels is None else {"class_counts": column_counts(links.labels, num_columns).tolist()}),
    }


def held_out_check(topology: Topology, known: KnownEdges) -> Check:
    """Counts the edges of a topology that are held out."""
    found = sum(int(np.count_nonzero(gone)) for *_, gone in stored_edges(topology, known))
    return Check(
        name=HELD_OUT,
        passed=not found,
        detail=f"{found:,} of {topology.num_edges:,} stored edges are among the {len(known.ascending):,} that are held out",
        numbers={"held-out edges stored": found, "allowed": 0},
    )


def odd_links(links: Links, degree: Array) -> Check:
    """Warns of parts with few links, of links whose ends have no edge left, and of directed links whose reverse is trained on.

    Args:
        degree: integers[N], edges of the nodes in the stored topology.
    """
    found = [*_few(links), *_cold(links, degree), *_told(links)]
    return Check(
        name=ODD,
        passed=not found,
        detail=one_line("; ".join(found)) or f"0 findings among {len(links.split):,} links",
        numbers={"findings": len(found), "allowed findings": 0},
        blocking=False,
    )


def _few(links: Links) -> Iterator[str]:
    for part, name in enumerate(PARTS):
        if (count := int(np.count_nonzero(links.split == part))) < FEW_LINKS:
            little = "nothing is tested" if not count else "a score of so few says little"
            yield f"{count} link{'s' * (count != 1)} in {name}: {little}; give more edges, or other ratios in [task]"


def _cold(links: Links, degree: Array) -> Iterator[str]:
    for part, name in enumerate(PARTS):
        chosen = links.split == part
        ends = degree[links.source[chosen]] == 0, degree[links.target[chosen]] == 0
        cold = int(np.count_nonzero(ends[0] | ends[1]))
        if part != TRAIN and cold and cold >= MANY * np.count_nonzero(chosen):
            yield f"{cold:,} of {np.count_nonzero(chosen):,} {name} links have an end without any edge that is left"


def _told(links: Links) -> Iterator[str]:
    """Yields a sentence about tested links whose reverse is trained on, as a link of its own."""
    order = Triples(num_nodes=1 + int(max(links.source.max(), links.target.max())))
    train = np.unique(order.numbers(*(each[links.split == TRAIN] for each in (links.source, links.target))))
    test = [each[links.split == TEST] for each in (links.source, links.target)]
    told = contains(train, order.numbers(*test[::-1]))
    if told.any() and told.mean() >= MANY:
        yield f"{np.count_nonzero(told):,} of {len(told):,} test links are trained on the other way round: set undirected = true"
