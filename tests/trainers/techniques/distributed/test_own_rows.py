"""Shards read past the page cache: the rows and weights of mapped ones on any ranks, pages compared, and the choice between the two."""

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.shards.read import open_shards
from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.models.build import build_model
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import RowIds
from graphmill.trainers.techniques.distributed import device_rows
from graphmill.trainers.techniques.distributed.device_rows import ShardArrays, ShardFiles, open_own_rows
from graphmill.trainers.techniques.distributed.executor import rank_threads
from graphmill.trainers.techniques.distributed.inference import part_nodes
from graphmill.trainers.techniques.distributed.sharded import Ownership, ShardedSource
from tests.assets.storage.damage import flip
from tests.laws.test_rows_exactly_once import expected_rows
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import SAMPLING, TABLE, build_shards, parts_inputs, train_parts
from tests.trainers.techniques.distributed.test_distributed import Stops, bits, ledger, trained

CACHE = {"device": 0, "host": "20%"}


def source_of(artifact, part_of, parts: int, ranks, where: str) -> ShardedSource:
    owned = Ownership(rank=ranks.rank, world=ranks.world, num_parts=parts, part_of=part_of)
    return ShardedSource(open_shards(artifact), owned, ranks.lane(), LogicalDevice(), where, ranks)


def on_ranks(world: int, work) -> list:
    return [work(ALONE)] if world == 1 else run_threads(world, work)


@pytest.mark.parametrize(("featureless", "dtype"), [(0, "float32"), (3, "uint16"), (1, "float16")])
@pytest.mark.parametrize("window_rows", [1 << 20, 7])
@pytest.mark.parametrize("world", [1, 2])
def test_rows_are_those_of_the_features(tmp_path, monkeypatch, world, window_rows, featureless, dtype):
    made = random_graph_artifacts(tmp_path, featureless=featureless, dtype=dtype)
    table = made.open().features
    inputs, artifact = build_shards(tmp_path, made.inputs, 4)
    part_of = open_partitions(inputs["partitions"]).part_of
    monkeypatch.setattr(device_rows, "WINDOW_BYTES", window_rows * table.row_bytes)
    kept = np.flatnonzero(table.rows_of(np.arange(400)) >= 0)[::3]

    def work(ranks):
        source = source_of(artifact, part_of, 4, ranks, "direct")
        draw, found = np.random.default_rng(ranks.rank), []
        for cached in (False, True):
            if cached:
                source.fill(kept)
            ids, out, moved = draw.permutation(400)[:300], torch.full((300, 12), torch.nan), Ledger()
            source.gather(RowIds(ids), out, moved)
            found.append((ids, out.numpy(), moved))
        own = np.flatnonzero(source.owned.ranks_of(np.arange(400)) == ranks.rank)
        rows = np.full((len(own), 12), np.nan, np.float32)
        source.gather_own(own, rows)
        return [*found, (own, rows, None)]

    for ids, out, moved in (each for found in on_ranks(world, work) for each in found):
        assert out.tobytes() == expected_rows(table, ids).tobytes()
        if moved is not None:
            links = {row["link"]: row for row in moved.rows()["moves"]}
            assert "mapped" not in links and ("disk" in links) == (table.num_rows > 0)


def test_a_page_moves_once_however_small_the_windows_are(tmp_path, monkeypatch):
    """The rows of a batch are read in the order of the file: two windows share one page at most."""
    made = random_graph_artifacts(tmp_path)
    inputs, artifact = build_shards(tmp_path, made.inputs, 1)
    source = source_of(artifact, open_partitions(inputs["partitions"]).part_of, 1, ALONE, "direct")
    pages, moved = -(-400 * 48 // 4096), []
    for window_rows in (400, 100):
        monkeypatch.setattr(source.own, "_window_rows", window_rows)
        ledger = Ledger()
        source.gather(RowIds(np.random.default_rng(0).permutation(400)), torch.empty(400, 12), ledger)
        moved.append(ledger.moved_bytes("disk") // 4096)
    assert moved[0] == pages and moved[1] <= pages + 3


@pytest.mark.parametrize(
    "more",
    [{}, {"memory": CACHE}, {"fresh": {}}, {"eval": "sampled", "featureless": 7}],
    ids=["rows", "cache", "fresh", "sampled"],
)
def test_weights_and_scores_are_those_of_mapped_shards(tmp_path, more):
    options = {"epochs": 2, **more}
    expected = bits(trained(tmp_path, 4, 1, features="mapped", **options)[0])
    for world in (1, 2):
        model, _ = trained(tmp_path, 4, world, features="direct", **options)
        assert bits(model) == expected
        assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
        moves = {row["link"]: row for row in model_moves(model)}
        assert "mapped" not in moves and moves["disk"]["moved_bytes"] >= moves["disk"]["asked_bytes"] > 0


def model_moves(model) -> list[dict]:
    import json

    return [row for row in json.loads(model.file("ledger.json").read_text())["moves"] if row["kind"] == "feature"]


def test_own_rows_are_cached_only_where_each_costs_a_read(tmp_path):
    """The rows of the cache are read once more at the start; what is cached is not read again."""
    found = {}
    for where in ("mapped", "direct"):
        model, _ = trained(tmp_path, 2, 1, memory={"device": 0, "host": "100%"}, features=where)
        found[where] = ledger(model)[0]
    assert found["mapped"]["hits_host", 0] == 0 < found["mapped"]["hits_own", 0]
    assert found["direct"]["hits_own", 0] == 0 < found["direct"]["hits_host", 0]


def test_a_wrong_bit_of_a_page_reaches_no_step(tmp_path):
    """Law 6: on one rank and on the one of two that has the part."""
    trained(tmp_path, 2, 1, features="direct")
    _, reads = parts_inputs(tmp_path, 2)
    draw = np.random.default_rng(0)
    for name in reads["shards"].parts:
        path = reads["shards"].open_part(name).path / "rows.npy"
        bit = 8 * 4096 + int(draw.integers(8 * (path.stat().st_size - 4096)))
        flip(path, bit)
        for world in (1, 2):
            with pytest.raises(InputError, match=r"rows\.npy is damaged: .* does not match"):
                trained(tmp_path, 2, world, features="direct")
        flip(path, bit)
        trained(tmp_path, 2, 1, features="direct")


def test_a_run_goes_on_in_another_way_of_reading(tmp_path):
    options = {"checkpoint_steps": 1, "dropout": 0.3, "accumulate": 1, "epochs": 2}
    expected = trained(tmp_path / "straight", 4, 1, **options)[0]
    parts_inputs(tmp_path / "home", 4)
    with pytest.raises(ConnectionAbortedError):
        run_threads(
            2, lambda ranks: train_parts(tmp_path / "home", 4, ranks, progress=Stops(5), features="direct", **options)
        )
    resumed = train_parts(tmp_path / "home", 4, resume=True, features="mapped", **options)
    assert bits(resumed) == bits(expected)


@pytest.mark.parametrize(("share", "kind"), [(2.0, ShardArrays), (1.9, ShardFiles)])
def test_auto_counts_the_shards_of_all_ranks_of_a_machine(tmp_path, monkeypatch, share, kind):
    """Two ranks, together twice the bytes of one; half of the free memory holds them or does not."""
    made = random_graph_artifacts(tmp_path)
    _, artifact = build_shards(tmp_path, made.inputs, 2)
    tables = open_shards(artifact).tables([0, 1])
    free = int(share * sum(table.num_bytes for table in tables))
    monkeypatch.setattr("graphmill.assets.storage.system.control_group.free_bytes", lambda: free)
    found = run_threads(2, lambda ranks: type(open_own_rows([tables[ranks.rank]], 400, "auto", ranks)))
    assert found == [kind, kind]
    names = {}
    monkeypatch.setattr("graphmill.trainers.ranks.group.here_and_now", lambda: names[threading.get_ident()])

    def apart(ranks):
        names[threading.get_ident()] = f"machine {ranks.rank}"
        return type(open_own_rows([tables[ranks.rank]], 400, "auto", ranks)), ranks.beside(ranks.rank)

    assert run_threads(2, apart) == [(ShardArrays, [0]), (ShardArrays, [1])]


def test_auto_maps_shards_where_no_direct_read_is_to_be_had(tmp_path, monkeypatch):
    made = random_graph_artifacts(tmp_path)
    _, artifact = build_shards(tmp_path, made.inputs, 1)
    tables = open_shards(artifact).tables([0])

    def refuse(*arguments):
        raise InputError("the file system has no O_DIRECT", "")

    monkeypatch.setattr("graphmill.assets.storage.system.control_group.free_bytes", lambda: 0)
    monkeypatch.setattr(device_rows, "DirectTables", refuse)
    with pytest.warns(RuntimeWarning, match="through the page cache, which is slow"):
        assert type(open_own_rows(tables, 400, "auto", ALONE)) is ShardArrays
    with pytest.raises(InputError, match="no O_DIRECT"):
        open_own_rows(tables, 400, "direct", ALONE)


@pytest.mark.parametrize(("cores", "world", "threads"), [(8, 2, 3), (8, 1, 7), (2, 2, 1), (8, 4, 1), (1, 1, 1)])
def test_ranks_share_the_cores_of_a_machine(monkeypatch, cores, world, threads):
    monkeypatch.setattr("graphmill.trainers.techniques.distributed.executor.usable_cores", lambda: cores)

    def work(ranks):
        run = SimpleNamespace(ranks=ranks, in_turn=False, execution=SimpleNamespace(samplers=0))
        asked = SimpleNamespace(ranks=ranks, in_turn=False, execution=SimpleNamespace(samplers=5))
        return rank_threads(run), rank_threads(asked)  # pyright: ignore

    assert on_ranks(world, work) == [(threads, 5)] * world


def test_shards_without_digests_of_pages_are_read_too(tmp_path):
    """Artifacts of the version before: their digests are computed when they are opened."""
    made = random_graph_artifacts(tmp_path)
    _, artifact = build_shards(tmp_path, made.inputs, 1)
    part = artifact.open_part("part-0000")
    assert Path(part.path, "page_digests.npy").is_file()
    del part.manifest["files"]["page_digests.npy"]  # pyright: ignore[reportIndexIssue]
    table = part.table("rows")
    assert table.page_digest is None
    own = ShardFiles([table], 400)
    slots, (rows,), _ = own.tier(np.arange(400, dtype=np.int32) | 3 << 29, Ledger())
    assert rows[slots & (1 << 29) - 1].tobytes() == np.asarray(table.open()).tobytes()


@pytest.mark.parametrize(
    "model", [{"model": "sage"}, {"model": "gat", "heads": 2, "input": "linear", "jk": "cat", "head": "linear"}]
)
@pytest.mark.parametrize("world", [1, 2, 4])
def test_some_nodes_have_the_logits_of_all_and_cost_fewer_exchanges(tmp_path, world, model):
    """Ranges without a needed node are left out at every rank, though ranks have different numbers of them."""
    made = random_graph_artifacts(tmp_path, num_edges=900)
    inputs, artifact = build_shards(tmp_path, made.inputs, 4)
    part_of, topology = open_partitions(inputs["partitions"]).part_of, made.open().topology
    (semantic,) = model_configs(TrainTable(**(TABLE | {"trainer": "distributed"} | model)), SAMPLING, 5)
    ids = np.flatnonzero(part_of == 1)[:2]

    def work(ranks):
        source = source_of(artifact, part_of, 4, ranks, "direct")
        net, calls, found = build_model(semantic.train, 12, 4, 5), [], []
        bounds = Bounds(workspace_bytes=1 << 12, threads=1)

        def counted(rows):
            gather = rows.gather
            rows.gather = lambda *given: calls.append(1) or gather(*given)
            return rows

        for wanted in (None, ids):
            nodes = part_nodes(topology, source)(bounds)
            shared = nodes.shared
            nodes.shared = lambda rows, shared=shared: counted(shared(rows))  # pyright: ignore[reportAttributeAccessIssue]
            inference = Inference(net, topology, source, bounds, nodes)
            found.append(inference.exact(wanted))
            found.append(len(calls))
        return found

    for whole, calls, some, more in on_ranks(world, work):
        assert some.numpy().tobytes() == whole[torch.from_numpy(ids)].numpy().tobytes()
        assert 0 < more - calls < calls
