"""Evaluations before a training: counts of rows and edges are those of the inference, and each second follows from a count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.rows.direct_io import PageReader
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.choice import scored_splits
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.models.build import build_model
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from graphmill.trainers.recipe.costs import forecast
from graphmill.trainers.recipe.costs.batch import BatchSizes
from graphmill.trainers.recipe.costs.course import Case, Scored, Speeds
from graphmill.trainers.recipe.costs.forecast import (
    cold_seconds,
    edge_elements,
    exact_seconds,
    missing_share,
    row_elements,
    spilled_bytes,
)
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.rows.source import MappedSource
from graphmill.trainers.techniques.batch_costs import Pieces
from graphmill.trainers.training import speeds
from graphmill.trainers.training.speeds import _tiles, count_scored
from tests.trainers.graphs import random_graph

SIZES = Sizes(
    num_nodes=1000,
    num_edges=9000,
    num_train=500,
    num_valid=100,
    num_classes=8,
    num_rows=1000,
    width=256,
    row_bytes=1024,
)
SPEEDS = Speeds(
    exact_rows=1e-9, exact_edges=1e-10, start=4.0, disk_rate=1e9, write_rate=5e8, faults_rate=4096e4, copy_rate=4e9
)
EVERY = Scored((100,), (1000.0,) * 3, (9000.0,) * 2, 1000.0)


def recipe(train: TrainConfig) -> ModelConfig:
    sampling = SamplingConfig(fanouts=(10,) * train.layers, batch_size=64)
    return ModelConfig(train=train, seed=0, sampling=sampling)


def case_of(train: TrainConfig | None = None, **more: Any) -> Case:
    semantic = recipe(train or TrainConfig(hidden=64))
    batch = BatchSizes(count=4, rows=(300, 100, 10), edges=(900, 90))
    return Case(
        **{"semantic": semantic, "execution": TrainExecution(), "sizes": SIZES, "batch": batch, "speeds": SPEEDS} | more
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_counts_are_those_of_the_inference(graph: Graph, layers: int) -> None:
    train = TrainConfig(layers=layers, hidden=8)
    few = replace(graph, valid_ids=np.array([5, 3, 17]), test_ids=np.array([2], np.int64))
    bounds = Bounds(workspace_bytes=1 << 30, threads=1)
    features = MappedSource(graph.features)
    model = build_model(train, features.width, graph.num_classes, 0)
    inference = Inference(model, graph.topology, features, bounds)
    valid, final = count_scored(recipe(train), few, None, 48, exact=True)
    final_ids = np.concatenate([getattr(few, f"{split}_ids") for split in scored_splits(train, few)])
    for found, ids in ((valid, few.valid_ids), (final, final_ids)):
        needed = inference.needed(np.sort(ids))
        nodes = (few.topology.num_nodes,) * (layers + 1) if needed is None else needed.num_nodes
        assert tuple(found.rows) == tuple(nodes) and found.parts == (len(ids),)
        assert found.rows[0] <= found.in_order + found.apart <= few.topology.num_nodes
    sampled = count_scored(recipe(train), few, None, 48, exact=False)
    assert sampled[0] == Scored((3,)) and sum(sampled[1].parts) >= 4


def test_rows_that_a_file_gives_in_order_are_those_that_are_counted(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes are scored: the file is read once, in order, by as many bytes as are counted."""
    monkeypatch.setattr("graphmill.trainers.rows.source.fits_memory", lambda num_bytes: False)
    monkeypatch.setattr("graphmill.trainers.inference.windows.fits_memory", lambda num_bytes: False)
    read, unwatched = [], PageReader.read_chunk

    def watched(reader: PageReader, file: Any, start: int, length: int, *more: Any) -> Any:
        read.append(length)
        return unwatched(reader, file, start, length, *more)

    monkeypatch.setattr(PageReader, "read_chunk", watched)
    train = TrainConfig(layers=2, hidden=8)
    features = MappedSource(graph.features)
    model = build_model(train, features.width, graph.num_classes, 0)
    Inference(model, graph.topology, features, Bounds(workspace_bytes=1, threads=1)).exact()
    every, _ = count_scored(
        recipe(train),
        replace(graph, valid_ids=np.arange(graph.topology.num_nodes)),
        None,
        48,
        exact=True,
    )
    assert every.in_order == graph.topology.num_nodes and not every.apart
    assert sum(read) == graph.features.offset + every.in_order * graph.features.row_bytes


@given(st.lists(st.booleans(), min_size=1, max_size=9000), st.integers(1, 1 << 16))
def test_tiles_have_each_wanted_row_once(wanted: list[bool], row_bytes: int) -> None:
    tiles = list(_tiles(lambda low, high: np.array(wanted[low:high]), len(wanted), row_bytes))
    assert sum(rows for rows, _ in tiles) == sum(wanted)
    assert all(0 < rows <= span <= 4096 for rows, span in tiles) and sum(span for _, span in tiles) <= len(wanted)


@given(st.integers(1, 40), st.integers(0, 12), st.booleans())
def test_evaluations_are_as_many_as_the_loop_makes(epochs: int, every: int, valid: bool) -> None:
    case = case_of(TrainConfig(epochs=epochs, eval_every=every), sizes=replace(SIZES, num_valid=100 * valid))
    made = sum(number == epochs or bool(every and number % every == 0) for number in range(1, epochs + 1))
    assert case.num_evaluations == made * valid


def test_rows_that_exceed_their_share_of_the_workspace_are_written_and_read() -> None:
    """GraphSAGE from 256 to 64 to 8 columns: mapped rows, sums if those are in blocks, own terms, outputs."""
    case = case_of()
    narrow, last = 1000 * 64 * 4, 1000 * 8 * 4
    assert spilled_bytes(case, EVERY, 8 * narrow) == (0, 2)
    assert spilled_bytes(case, EVERY, 8 * narrow - 8) == (2 * narrow, 2), "own terms and outputs"
    assert spilled_bytes(case, EVERY, 2 * narrow - 2) == (4 * narrow, 3), (
        "mapped rows and their sums, too, in two blocks of columns"
    )
    assert spilled_bytes(case, EVERY, 0) == (4 * narrow + 3 * last, 64 + 8), "column by column"
    few = Scored((10,), (1000.0, 100.0, 10.0), (900.0, 90.0), 1000.0)
    assert spilled_bytes(case, few, 0) < spilled_bytes(case, EVERY, 0), "rows of needed nodes alone"


def test_rows_are_read_from_a_disk_only_if_they_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "page_bytes", lambda case: 1 << 40)
    sizes = (TrainConfig(hidden=64), 256, 8)
    computed = 1e-9 * row_elements(*sizes, EVERY.rows) + 1e-10 * edge_elements(*sizes, EVERY.edges)
    assert exact_seconds(case_of(), EVERY) == pytest.approx(computed)
    slow = replace(SPEEDS, disk_rate=1e3)
    assert exact_seconds(case_of(speeds=slow), EVERY) == pytest.approx(computed)
    assert exact_seconds(case_of(speeds=slow, fits=False), EVERY) > 1000
    assert cold_seconds(case_of(fits=False)) < cold_seconds(case_of()), (
        "rows that are read directly are no part of a start"
    )


def test_mapped_rows_miss_what_memory_cannot_hold_whatever_the_page_cache_holds_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for left, share in ((1 << 40, 0.0), (SIZES.feature_bytes // 4, 0.75), (0, 1.0)):
        monkeypatch.setattr(forecast, "page_bytes", lambda case, left=left: left)
        assert missing_share(case_of()) == share


def test_a_thread_waits_for_each_page_that_it_touches_and_memory_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 microseconds a page: rows of 1,024 bytes touch (4,096 + 1,023) / 4,096 pages each."""
    monkeypatch.setattr("graphmill.trainers.techniques.batch_costs.missing_share", lambda case: 0.5)
    monkeypatch.setattr(
        Pieces, "__init__", lambda each, case: each.__dict__.update(case=case, speeds=case.speeds, count=4)
    )
    each = Pieces(case_of())
    found = each.table_read({"mapped": 4 * 300 * 1024.0})
    assert found == pytest.approx(0.5 * 300 * (4096 + 1023) / 4096 * 1e-4)


def test_pieces_of_an_evaluation_are_measured_on_a_part_of_a_graph(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run takes a second of a clock that the test moves, with edges three: rows have the one, edges the two."""
    parts = []
    monkeypatch.setattr(
        speeds,
        "_exact_seconds",
        lambda model, part, rows, threads: parts.append(part) or 1.0 + 2.0 * (part.num_edges > 0),
    )
    sizes = replace(SIZES, width=12, num_classes=graph.num_classes)
    case = case_of(TrainConfig(hidden=8), sizes=sizes)
    for most in (1 << 20, 48 * 100):
        rows, edges = speeds.measure_exact(
            case, graph.topology, build_model(case.semantic.train, 12, graph.num_classes, 0), most
        )
        part = parts[-1]
        assert part.num_nodes == min(graph.topology.num_nodes, most // 48) and part.indices.max() < part.num_nodes
        assert rows * (12 + 8) * part.num_nodes == pytest.approx(1.0)
        assert edges * edge_elements(case.semantic.train, 12, case.num_classes, [part.num_edges] * 2) == pytest.approx(
            2.0
        )


def test_the_measured_part_is_inferred(graph: Graph) -> None:
    case = case_of(TrainConfig(hidden=8), sizes=replace(SIZES, width=12, num_classes=graph.num_classes))
    model = build_model(case.semantic.train, 12, graph.num_classes, 0)
    rows, edges = speeds.measure_exact(case, graph.topology, model, 48 * 100)
    assert rows > 0 and edges >= 0
