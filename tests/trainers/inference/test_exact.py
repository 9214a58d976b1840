"""Exact inference equals a dense pass; sampled inference repeats itself; ranges cover the nodes."""

import errno
import os
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.storage.files.digests import block_digests
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.machine import anonymous_bytes
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.direct_io import PageReader
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.types import Block, Stream, Topology
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import row_ranges
from graphmill.trainers.inference.evaluation import infer_sampled
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.gathered import EVALUATION
from graphmill.trainers.inference.spilled import ColumnRows, SpilledRows, column_blocks
from graphmill.trainers.inference.windows import APART_BYTES, CACHE_LINE, MappedRows, StreamedRows, empty_rows
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.layers.map_first import MapsFirst, mapped_first
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.products import products_of
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.record.memory import PeakMemory
from graphmill.trainers.rows.direct import DirectSource
from graphmill.trainers.rows.source import MappedSource, MemorySource, RowIds
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from graphmill.trainers.techniques.fullgraph.shares import whole_block
from tests.assets.storage.limits import file_size_limit
from tests.trainers.graphs import attributed, random_graph, random_topology
from tests.trainers.inference.infer import infer_exact


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph whose edges have weights, which few models read."""
    with attributed(relations=0, type_columns=(), weights=True):
        return random_graph(tmp_path_factory.mktemp("home"))


def dense_logits(graph: Graph, model: torch.nn.Module, name: str) -> torch.Tensor:
    """The same model over a dense adjacency matrix, in plain torch."""
    n = graph.topology.num_nodes
    adjacency = torch.zeros(n, n)
    dst = np.repeat(np.arange(n), np.diff(graph.topology.indptr))
    adjacency[torch.from_numpy(dst), torch.from_numpy(np.array(graph.topology.indices)).long()] = 1
    h = torch.from_numpy(np.array(graph.features.open()))
    d_in, d_out = adjacency.sum(1), adjacency.sum(0)
    assert isinstance(model, LayeredModel)
    outputs: list[torch.Tensor] = []
    h = h if model.projection is None else model.projection.linear(h)
    for index, layer in enumerate(model.layers):
        below = h
        if name == "sage":
            agg = adjacency @ h / d_in.clamp(min=1)[:, None]
            h = layer.own(h) + layer.neighbours(agg)
        elif name == "gcn":
            scaled = (adjacency + torch.eye(n)) / ((d_in + 1)[:, None] * (d_out + 1)[None, :]).sqrt()
            h = layer.linear(scaled @ h)
        elif name == "gin":
            h = layer.mlp((1 + layer.eps) * h + adjacency @ h)
        else:
            h = dense_attention(layer, adjacency + torch.eye(n), h)
        finish = layer.finish
        if finish.options.residual:
            h = h + (below if finish.skip is None else finish.skip(below))
        if model.readout is not None or index + 1 < len(model.layers):
            h = (h if finish.norm is None else finish.norm(h)).relu()
        outputs.append(h)
    if model.readout is None:
        return h
    jumped = {
        "none": h,
        "sum": torch.stack(outputs).sum(0),
        "max": torch.stack(outputs).amax(0),
        "cat": torch.cat(outputs, dim=1),
    }
    return model.readout.linear(jumped[model.readout.jk])


def dense_attention(layer: Any, linked: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    z = layer.projection(h).view(len(h), layer.heads, layer.depth)
    score = (z * layer.right).sum(2)[:, None, :] + (z * layer.left).sum(2)[None, :, :]
    # A self-loop and the own term are two edges: a count k adds log k to the score.
    score = torch.nn.functional.leaky_relu(score, 0.2) + linked.log()[:, :, None]
    out = torch.einsum("vuh,uhd->vhd", score.softmax(dim=1), z) + layer.bias.view(layer.heads, layer.depth)
    return out.mean(1) if layer.average else out.flatten(1)


ENDS: list[dict[str, Any]] = [
    {},
    {"residual": True},
    {"input": "linear"},
    {"head": "linear"},
    {"input": "linear", "head": "linear", "norm": "layer", "residual": True},
    *({"input": "linear", "head": "linear", "jk": jk} for jk in ("sum", "max", "cat")),
]


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("workspace_bytes", [1, 40_000, 2**30])
@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "gin"])
def test_exact_inference_equals_a_dense_pass(
    graph: Graph, name: str, workspace_bytes: int, ends: dict[str, Any], tmp_path: Path
) -> None:
    """In one range, in a few, and node by node with every layer in a file and the features read by windows."""
    heads = 2 if name == "gat" else 1
    config = TrainConfig(model=name, layers=3, hidden=8, heads=heads, dropout=0.5, input_dropout=0.5, **ends)
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.uniform_(-0.5, 0.5)
        expected = dense_logits(graph, model, name)
    features = MappedSource(graph.features)
    logits = infer_exact(model, graph.topology, features, workspace_bytes, threads=2, folder=tmp_path)
    assert logits.shape == (400, 4)
    assert float((logits - expected).norm()) <= 1e-5 * float(expected.norm())
    some = np.array([17, 3, 399, 3])
    part = infer_exact(model, graph.topology, features, workspace_bytes, threads=2, node_ids=some)
    assert torch.equal(part, logits[torch.from_numpy(some)])
    assert not list(tmp_path.iterdir())


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.trainers.recipe.costs.exact.TILE_ROWS", (64, 64))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("ends", [*ENDS[:2], *ENDS[4:5], *ENDS[7:], {"edge_weight": True}], ids=str)
@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "gin"])
@pytest.mark.parametrize("hidden", [8, 48])
def test_memory_threads_and_the_place_of_rows_change_no_bit(
    graph: Graph, name: str, hidden: int, ends: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that narrow their rows and that widen them; in one block of columns, in several, in files; the features read in order."""
    config = TrainConfig(model=name, layers=2, hidden=hidden, heads=4 if name == "gat" else 1, **ends)
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    some = np.array([17, 3, 399, 3])
    expected = infer_exact(model, graph.topology, MemorySource(graph.features), threads=1)
    monkeypatch.setattr("graphmill.trainers.inference.windows.fits_memory", lambda num_bytes: False)
    for workspace, threads, source in ((8_000, 2, MappedSource), (150_000, 1, DirectSource)):
        features = source(graph.features)
        for ids in (None, some):
            found = infer_exact(model, graph.topology, features, workspace, threads, folder=tmp_path, node_ids=ids)
            assert torch.equal(found, expected if ids is None else expected[torch.from_numpy(ids)])


@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "gin"])
@pytest.mark.parametrize("hidden", [8, 200])
def test_a_whole_pass_differs_from_ranges_by_small_products_and_the_order_of_the_first_layer(
    graph: Graph, name: str, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training leaves products with few entries to BLAS, and its first layer sums features before it maps them, narrow or not. Where both
    take products of oneDNN, in the same order, no bit differs."""
    train = TrainConfig(trainer="fullgraph", model=name, layers=2, hidden=hidden, heads=4 if name == "gat" else 1)
    model = build_model(replace(train, settings=FullGraphSettings(keep_first=False)), 12, graph.num_classes, seed=0)
    assert isinstance(model, LayeredModel) and isinstance(model.layers[1], MapsFirst if name != "gat" else GatLayer)
    assert not isinstance(model.layers[0], MapsFirst)
    model.layers[0] = mapped_first(model.layers[0])
    source, x = MemorySource(graph.features), torch.empty((graph.topology.num_nodes, 12))
    source.gather(RowIds(np.arange(len(x))), x, Ledger())
    block: Any = whole_block(SimpleNamespace(graph=graph, model=model, edge_rows=None))  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr("graphmill.trainers.models.products.LEAST_ENTRIES", 0)
    with torch.no_grad(), products_of("onednn"):
        whole = model((block, block), x, EVALUATION)
        assert torch.equal(whole, infer_exact(model, graph.topology, source))


@pytest.fixture
def streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Topology, MappedSource]:
    """A graph with features of 4 MB in a file that does not fit in memory, which is read in windows of 1 MiB."""
    monkeypatch.setattr("graphmill.trainers.inference.windows.STREAM_BYTES", 1 << 20)
    monkeypatch.setattr("graphmill.trainers.inference.windows.fits_memory", lambda num_bytes: False)
    monkeypatch.setattr("graphmill.trainers.recipe.costs.exact.TILE_ROWS", (64, 64))
    return wide_graph(tmp_path, 1500, 1400)


def test_features_in_a_file_are_read_once_in_order(
    streamed: tuple[Topology, MappedSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, source = streamed
    model = build_model(TrainConfig(layers=2, hidden=8), 1400, 4, seed=0)
    read, chunk = [], PageReader.read_chunk
    monkeypatch.setattr(
        PageReader, "read_chunk", lambda self, file, *place: read.append(place[:2]) or chunk(self, file, *place)
    )
    infer_exact(model, topology, source, 1, threads=1, folder=tmp_path)
    size = (tmp_path / "rows.npy").stat().st_size
    assert [start for start, _ in read] == list(range(0, size, 1 << 20)) and len(read) > 3
    assert sum(length for _, length in read) == size


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1), drawn=st.integers(0, 3000), seed=st.integers(0, 9))
def test_rows_in_any_order_are_read_in_order_where_they_lie_close(
    streamed: tuple[Topology, MappedSource], share: float, drawn: int, seed: int
) -> None:
    """Ids with repeats, of a part of the table: each window of the file comes once, and rows that lie apart by themselves."""
    _, source = streamed
    random = np.random.default_rng(seed)
    ids = random.integers(0, max(1, int(share * 1500)), drawn).astype(np.int32)
    rows, read, sparse = StreamedRows(source, torch.float32, MappedRows(source.rows)), [], []
    with pytest.MonkeyPatch.context() as patch:
        chunk, gathered = PageReader.read_chunk, MappedRows.gather
        patch.setattr(
            PageReader, "read_chunk", lambda self, file, *place: read.append(place[0]) or chunk(self, file, *place)
        )
        patch.setattr(MappedRows, "gather", lambda self, ids, *more: sparse.append(ids) or gathered(self, ids, *more))
        found = rows.gather(ids, 1)
    assert found.numpy().tobytes() == np.asarray(source.rows)[ids].astype(np.float32).tobytes()
    assert len(read) == len(set(read)) and (read or sparse or not drawn)  # by threads, which may overtake one another
    close = drawn and np.ptp(ids) * rows.table.row_bytes <= drawn * APART_BYTES
    assert not (close and np.ptp(ids) < (1 << 20) // rows.table.row_bytes and sparse), "close rows by page"


def test_a_damaged_block_of_features_is_an_error(streamed: tuple[Topology, MappedSource], tmp_path: Path) -> None:
    topology, source = streamed
    with (tmp_path / "rows.npy").open("r+b") as file:
        file.seek(3_000_000)
        byte = file.read(1)
        file.seek(3_000_000)
        file.write(bytes([byte[0] ^ 1]))
    model = build_model(TrainConfig(layers=2, hidden=8), 1400, 4, seed=0)
    with pytest.raises(InputError, match=r"rows\.npy is damaged: bytes 2097152 to 3145727"):
        infer_exact(model, topology, source, 1, threads=1, folder=tmp_path)


def test_without_direct_reads_the_logits_are_the_same(
    streamed: tuple[Topology, MappedSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, source = streamed
    model = build_model(TrainConfig(layers=2, hidden=8), 1400, 4, seed=0)
    expected = infer_exact(model, topology, source, 1, threads=1, folder=tmp_path)
    opened = os.open

    def refusing(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct reads here")
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.warns(RuntimeWarning, match="has no O_DIRECT; rows of an evaluation"):
        found = infer_exact(model, topology, source, 1, threads=1, folder=tmp_path)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (7, 3), (1 << 14, 65)])
def test_empty_rows_have_their_shape_and_begin_on_a_cache_line(shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows = empty_rows(*shape, dtype)
    rows[:] = 1
    assert rows.shape == shape and rows.dtype == dtype and int(rows.sum()) == shape[0] * shape[1]
    assert rows.is_contiguous() and rows.data_ptr() % CACHE_LINE == 0


def test_columns_of_rows_come_back_in_any_blocks(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    for block_bytes, unit in ((1, 0), (1000, 0), (1000, 3), (3000, 5), (5000, 40), (10**6, 7)):
        values = torch.from_numpy(draws.standard_normal((37, 35)).astype(np.float32))
        blocks = column_blocks(37, 35, torch.float32, block_bytes, unit)
        rows = ColumnRows(37, 35, tmp_path, torch.float32, blocks)
        for low in range(0, 37, 10):
            rows.write(low, values[low : low + 10])
        assert torch.equal(rows.read(5, 31), values[5:31]) and torch.equal(rows.columns(3, 33), values[:, 3:33])
        assert torch.equal(torch.cat([rows.block(number) for number in range(len(rows.blocks))], dim=1), values)
        widths = {last - first for first, last in rows.blocks}
        assert max(widths) * 37 * 4 <= block_bytes or max(widths) == 1
        if unit and max(widths) >= unit:
            assert all(first % unit == 0 for first, _ in rows.blocks)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "gin"])
def test_one_block_of_columns_of_a_set_is_in_memory_at_a_time(
    graph: Graph, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(model=name, layers=2, hidden=48, heads=4 if name == "gat" else 1)
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    block, alive, most = ColumnRows.block, dict[tuple[int, int], list[weakref.ref[torch.Tensor]]](), [0]

    def counted(self: ColumnRows, number: int) -> torch.Tensor:
        blocks = alive.setdefault((id(self), self.width), [])
        assert not [each for each in blocks if each() is not None], "a block is made while another is held"
        values = block(self, number)
        blocks.append(weakref.ref(values))
        most[0] = max(most[0], len(blocks))
        return values

    monkeypatch.setattr(ColumnRows, "block", counted)
    infer_exact(model, graph.topology, MemorySource(graph.features), 8_000, 2, folder=tmp_path)
    assert most[0] >= 2


@pytest.mark.usefixtures("small_tiles")
def test_ranges_come_in_order_with_the_rows_that_the_last_layer_read(graph: Graph, tmp_path: Path) -> None:
    config = TrainConfig(layers=2, hidden=8, norm="layer")
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    bounds = Bounds(workspace_bytes=30_000, threads=1, folder=tmp_path)
    ranges = list(Inference(model, graph.topology, MemorySource(graph.features), bounds).ranges())
    assert len(ranges) > 3 and [each.low for each in ranges[1:]] == [each.high for each in ranges[:-1]]
    assert (ranges[0].low, ranges[-1].high) == (0, 400)
    rows = ranges[0].inputs
    assert isinstance(rows, ColumnRows) and rows.width == 8
    assert float(rows.read(0, 400).min()) == 0 < float(rows.read(0, 400).max())  # after ReLU


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_windows_deliver_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    monkeypatch.setattr("graphmill.trainers.inference.windows.WINDOW_BYTES", 100_000)
    table = np.memmap(tmp_path / "x", dtype, mode="w+", shape=(5000, 33))
    table[:] = np.random.default_rng(0).standard_normal(table.shape)
    rows, ids = MappedRows(table), np.random.default_rng(1).integers(0, 5000, 9000).astype(np.int32)
    np.testing.assert_array_equal(rows.gather(ids, 2).numpy(), np.asarray(table[ids], np.float32))
    assert rows.gather(ids[:0], 1).shape == (0, 33)
    np.testing.assert_array_equal(rows.read(10, 20).numpy(), np.asarray(table[10:20], np.float32))


def test_a_layer_that_the_disk_does_not_take_is_an_error_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="larger than allowed"), file_size_limit(10_000):
        SpilledRows(1000, 100, tmp_path)


def drawing(*fanouts: int) -> Drawing:
    return Drawing(neighbours=Neighbours(fanouts=fanouts))


def test_sampled_inference_repeats_itself_and_follows_the_order_of_ids(graph: Graph) -> None:
    model = build_model(TrainConfig(layers=2, hidden=8), graph.features.width, graph.num_classes, seed=0)
    features = MemorySource(graph.features)
    ids = np.array(graph.valid_ids)

    def infer(batch_size: int, seed: int = 0, *fanouts: int) -> torch.Tensor:
        bounds = Bounds(workspace_bytes=2**20, threads=1, drawing=drawing(*(fanouts or (2, 2))))
        plan = EpochPlan(np.arange(len(ids)), batch_size, seed=seed, stream=Stream.EVAL)
        return infer_sampled(Inference(model, graph.topology, features, bounds), ids, plan)

    assert torch.equal(infer(30), infer(30))
    assert not torch.equal(infer(30), infer(30, seed=1))
    full = infer(7, 0, -1, -1)
    exact = infer_exact(model, graph.topology, features, 2**20, threads=1)[torch.from_numpy(ids).long()]
    torch.testing.assert_close(full, exact)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 60), st.integers(1, 3), st.integers(1, 3))
def test_ranges_cover_all_nodes_within_the_bound(degrees: list[int], budget: int, edge: int, node: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    ranges = list(row_ranges(indptr, budget, edge, node))
    assert [n for low, high in ranges for n in range(low, high)] == list(range(len(degrees)))

    def cost(low: int, high: int) -> int:
        return edge * sum(degrees[low:high]) + node * (high - low)

    for low, high in ranges:
        assert high - low == 1 or cost(low, high) <= budget
        assert high == len(degrees) or cost(low, high + 1) > budget


def test_paths_do_not_matter(graph: Graph, tmp_path: Path) -> None:
    """A copied store gives the same logits: nothing depends on where files lie."""
    other = random_graph(tmp_path)
    model = build_model(TrainConfig(layers=2, hidden=8), graph.features.width, graph.num_classes, seed=0)
    one, two = (infer_exact(model, g.topology, MemorySource(g.features), 2**20, threads=2) for g in (graph, other))
    assert torch.equal(one, two)


def wide_graph(folder: Path, num_nodes: int, width: int) -> tuple[Topology, MappedSource]:
    """A graph of ten edges per node, and wide rows in a file."""
    topology = random_topology(num_nodes, 10 * num_nodes, seed=3)
    rows = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float16, (num_nodes, width))
    drawn = np.random.default_rng(0)
    for low in range(0, num_nodes, 1000):
        rows[low : low + 1000] = drawn.random((min(1000, num_nodes - low), width), np.float32) - 0.5
    rows.flush()
    offset = (folder / "rows.npy").stat().st_size - rows.nbytes
    table = FeatureTable(
        path=folder / "rows.npy", offset=offset, num_rows=num_nodes, width=width, dtype="float16",
        row_bytes=2 * width, block_digest=block_digests(folder / "rows.npy"),
    )  # fmt: skip
    return topology, MappedSource(table)


@pytest.mark.parametrize(
    ("num_nodes", "width", "workspace"),
    [
        (1500, 500, 1 << 20),
        pytest.param(30_000, 8000, 512 << 20, marks=pytest.mark.slow("30,000 rows of 8,000 columns in 512 MiB")),
    ],
)
def test_wide_rows_are_projected_once_within_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_nodes: int, width: int, workspace: int
) -> None:
    monkeypatch.setattr("graphmill.trainers.recipe.costs.exact.TILE_ROWS", (64, 512))
    topology, source = wide_graph(tmp_path, num_nodes, width)
    model = build_model(TrainConfig(model="gat", layers=2, hidden=64, heads=4), width, 10, seed=0)
    assert isinstance(model, LayeredModel)
    mapped, split = [], GatLayer.split
    monkeypatch.setattr(GatLayer, "split", lambda self, rows: mapped.append(rows.shape) or split(self, rows))
    peak, before = PeakMemory(), anonymous_bytes() or 0
    with peak.watched():
        logits = infer_exact(model, topology, source, workspace, threads=2, folder=tmp_path)
    # Besides the workspace: logits, the sampler's map, and what one window of a file takes.
    assert (peak.bytes or 0) - before <= workspace + num_nodes * 100 + (64 << 20)
    counts = [count for count, columns in mapped if columns == width]
    assert sum(counts) == num_nodes and len(counts) > 1
    monkeypatch.undo()
    block = Block(
        num_dst=num_nodes, num_src=num_nodes, start=topology.indptr[:-1].astype(np.int32),
        end=topology.indptr[1:].astype(np.int32), indices=topology.indices, src_ids=np.arange(num_nodes, dtype=np.int32),
    )  # fmt: skip
    with torch.no_grad():
        x = torch.from_numpy(np.asarray(source.rows, np.float32))
        expected = model((block, block), x, StepRandom(0, training=False))
    assert float((logits - expected).norm()) <= 1e-5 * float(expected.norm())
