"""The parent of stored samples: the place of each batch, the accesses of each node, and the checks over whole epochs.

Parts carry their own sums (assets/samples/tally.py), so no batch is read; assets/samples/__init__.py describes the arrays.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Building, Check, Progress, Summary
from graphmill.assets.graph.read import open_graph
from graphmill.assets.samples.config import BatchRange, SamplesConfig, SamplesExecution, stored_seeds
from graphmill.assets.samples.read import StoredOrder
from graphmill.assets.samples.tally import VisitSum
from graphmill.assets.sampling.passes import FACTS
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array

HOT_PERCENT = (1, 5, 10, 20)


def build_index(building: Building[SamplesConfig, SamplesExecution], names: Sequence[str]) -> Summary:
    """Writes the parent over the parts, which are among the inputs under their names; raises InputError if a part is damaged."""
    inputs, semantic, writer, threads = building.inputs, building.semantic, building.writer, building.execution.threads
    parts = [inputs[name] for name in names]
    index = _index(parts)
    for name, values in index.items():
        writer.save(name, values)
    writer.note(**_passes(parts))
    graph = open_graph(inputs["graph"], compared=False)  # no row is read
    total = VisitSum(graph.topology.num_nodes, len(semantic.fanouts))
    order = StoredOrder.of_names(names, semantic.epochs, semantic.num_stored)
    wrong = _add_up(dict(zip(names, parts, strict=True)), semantic, graph.seeds, total, threads, building.progress)
    visits = total.visits
    writer.save("visits", visits)
    curve = access_curve(visits)
    from graphmill.assets.figures.visits import access_figure

    access_figure(writer.path("access.png"), *curve)
    return Summary(
        numbers=_numbers(index, semantic, order.starts, parts, visits, curve),
        checks=[
            *_joined(parts, index),
            _seeds_check(wrong, semantic, len(graph.seeds[0]), "nodes" if graph.links is None else "links"),
        ],
        figures={"accesses": "access.png"},
    )


def _passes(parts: Sequence[Artifact]) -> dict[str, Any]:
    """Returns the numbers of passes over the edges, which one part of those drawn together has on record; {} if there were none."""
    records = [record for part in parts if "passes" in (record := part.run_record())]
    if not records:
        return {}
    values = ([record.get(name, 0) for record in records] for name in FACTS)
    return {
        name: [sum(each) for each in zip(*found, strict=True)] if name == "groups_by_layer" else sum(found)
        for name, found in zip(FACTS, values, strict=True)
    }


def access_curve(visits: Array) -> tuple[Array, Array]:
    """Returns (i64[N+1] accesses by the hottest 0, 1, ..., N nodes) as (nodes, accesses) thinned to some hundred points.

    Args:
        visits: u32[N], number of batches that ask for each node.
    """
    counts = np.zeros(int(visits.max(initial=0)) + 1, np.int64)  # nodes by their visits
    for low, high in node_ranges(len(visits)):
        counts += np.bincount(visits[low:high], minlength=len(counts))
    levels, counts = np.arange(len(counts))[::-1], counts[::-1]
    nodes, accesses = (np.concatenate([[0], np.cumsum(values)]) for values in (counts, counts * levels))
    shares = np.unique(
        np.concatenate([np.geomspace(1, max(1, len(visits)), 200), np.linspace(0, len(visits), 101)]).astype(np.int64)
    )
    places = shares[shares <= len(visits)]
    level = np.minimum(np.searchsorted(nodes, places, "right") - 1, len(levels) - 1)
    return places, accesses[level] + (places - nodes[level]) * levels[level]


def _index(parts: Sequence[Artifact]) -> dict[str, Array]:
    """Returns the arrays with the place of each batch."""
    bounds = [part.small_array("bounds") for part in parts]
    return {
        "part_of": np.repeat(np.arange(len(parts), dtype=np.int32), [len(each) - 1 for each in bounds]),
        "offsets": np.concatenate([each[:-1] for each in bounds]),
        "num_bytes": np.concatenate([np.diff(each) for each in bounds]),
    } | {
        name: np.concatenate([part.small_array(name) for part in parts])
        for name in ("digests", "num_inputs", "num_edges")
    }


def _add_up(
    parts: Mapping[str, Artifact],
    semantic: SamplesConfig,
    splits: Sequence[Array],
    total: VisitSum,
    threads: int,
    progress: Progress,
) -> int:
    """Adds up the parts, and returns the number of stored epochs whose seeds are not those of their split, each once."""
    of_epoch: list[list[str]] = [[] for _ in range(semantic.num_stored)]
    for name in parts:
        of_epoch[BatchRange.of(name).epoch].append(name)
    wrong = 0
    progress.start("count accesses", sum(_num_batches(name) for name in parts), "batches")
    with ThreadPoolExecutor(threads) as pool:
        for epoch, names in enumerate(of_epoch):
            add, seeds = partial(total.add, counted=epoch < semantic.epochs), [splits[0][:0]]
            for name, each in zip(names, pool.map(add, (parts[name] for name in names)), strict=True):
                seeds.append(each)
                progress.advance(_num_batches(name))
            wrong += not np.array_equal(np.sort(np.concatenate(seeds)), stored_seeds(semantic, splits, epoch))
    progress.done()
    return wrong


def _num_batches(name: str) -> int:
    run = BatchRange.of(name)
    return run.high - run.low


SAYS = {
    "blocks are sound": "every edge of {batches:,} batches leads to a source of its block, and the last block ends in the batch's seeds",
    "input ids are unique": "no batch of {batches:,} has a node twice among its {inputs:,} inputs",
}
"""Name of a part's check -> sentence about its test."""


def _joined(parts: Sequence[Artifact], index: Mapping[str, Array]) -> list[Check]:
    """Returns the checks of the parts, each over all of them; a part with a failed one was not published."""
    found, counts = [], {"batches": len(index["offsets"]), "inputs": int(index["num_inputs"].sum())}
    for name in (check["name"] for check in parts[0].summary["checks"]):
        made = [check for part in parts for check in part.summary["checks"] if check["name"] == name]
        failed = sum(check.get("numbers", {}).get("batches that fail", 0) for check in made)
        detail = f"{SAYS[name].format(**counts)}; tested in each of {len(parts):,} parts"
        numbers = {"batches that fail": failed, "batches": counts["batches"]}
        found.append(Check(name=name, passed=all(check["passed"] for check in made), detail=detail, numbers=numbers))
    return found


def _seeds_check(wrong: int, semantic: SamplesConfig, num_seeds: int, kind: str) -> Check:
    epochs = semantic.num_stored
    whole = f"the seeds of an epoch are the {num_seeds:,} training {kind}, each once, in {epochs - wrong:,} of {epochs:,} sampling epochs"
    if semantic.evaluate:
        whole += "; the last two are those of evaluations, of the validation and the test nodes"
    return Check(
        name="every seed once an epoch",
        passed=wrong == 0,
        detail=whole,
        numbers={"epochs with other seeds": wrong, "allowed with other seeds": 0, "seeds per epoch": num_seeds},
    )


def _numbers(
    index: Mapping[str, Array],
    semantic: SamplesConfig,
    starts: Array,
    parts: Sequence[Artifact],
    visits: Array,
    curve: tuple[Array, Array],
) -> dict[str, Any]:
    trained = int(starts[semantic.epochs])
    edges, inputs = index["num_edges"][:trained].sum(axis=1), index["num_inputs"][:trained]
    evaluated = {"num_evaluation_batches": len(index["offsets"]) - trained} if semantic.evaluate else {}
    total, num_nodes = int(inputs.sum()), len(visits)
    hot = {
        f"{percent}%": float(np.interp(num_nodes * percent / 100, *curve)) / max(1, total) for percent in HOT_PERCENT
    }
    return {
        "num_epochs": semantic.epochs,
        "num_batches": int(starts[1]),
        **evaluated,
        "num_parts": len(parts),
        "sample_bytes": int(index["num_bytes"].sum()),
        "largest_batch_bytes": int(index["num_bytes"].max()),
        "num_accesses": total,
        "num_accessed_nodes": int(np.count_nonzero(visits)),
        "edges_a_batch": _spread(edges),
        "inputs_a_batch": _spread(inputs),
        "hottest_nodes_access_ratio": hot,
    }


def _spread(values: Array) -> dict[str, float | int]:
    return {"min": int(values.min()), "mean": int(values.sum()) / len(values), "max": int(values.max())}
