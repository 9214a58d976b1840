"""Shards: every row once, in the shard of its part, byte by byte; one pass over the features; a rank needs its own shard alone."""

import shutil

import numpy as np
import pytest

import graphmill.assets.shards.stage as shards_stage
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.partitions.stage import PARTITIONS
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution, part_name
from graphmill.assets.shards.read import open_shards
from graphmill.assets.shards.stage import SHARDS
from graphmill.assets.storage.files.digests import page_digests_of
from graphmill.assets.storage.local.artifact import read_artifact
from graphmill.assets.storage.local.read_verified import read_table
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.trainers.graphs import random_graph_artifacts


def build(home, parts=3, **graph):
    """Features, parts at random, and the shards."""
    made = random_graph_artifacts(home, **graph)
    config = PartitionsConfig(method="random", parts=parts, seed=3)
    cut = materialize(Store(home), PARTITIONS, config, Threads(threads=1), {"graph": made.graph})
    inputs = {"features": made.features, "partitions": cut}
    return made, cut, materialize(Store(home), SHARDS, ShardsConfig(), ShardsExecution(), inputs)


@pytest.mark.parametrize("featureless", [0, 5])
@pytest.mark.parametrize("dtype", ["float32", "uint16"])
@pytest.mark.parametrize("parts", [1, 3, 7])
def test_every_row_is_in_the_shard_of_its_part(tmp_path, parts, dtype, featureless):
    made, cut, artifact = build(tmp_path, parts, dtype=dtype, featureless=featureless)
    features, shards, part_of = made.open().features, open_shards(artifact), open_partitions(cut).part_of
    assert (shards.width, shards.dtype, shards.row_bytes) == (features.width, features.dtype, features.row_bytes)
    tables = shards.tables(range(parts))
    rows = [read_table(table) for table in tables]
    assert [len(each) for each in rows] == shards.num_rows.tolist() and shards.num_rows.sum() == features.num_rows
    for table in tables:
        np.testing.assert_array_equal(table.page_digest, page_digests_of(table.path, table.offset))
    wanted = features.open()
    for node in range(features.num_nodes):
        row = int(features.rows_of(np.array([node]))[0])
        assert (shards.row_of[node] < 0) == (row < 0)
        if row >= 0:
            assert rows[part_of[node]][shards.row_of[node]].tobytes() == wanted[row].tobytes()


def test_one_pass_writes_all_shards_and_only_missing_ones_are_written_again(tmp_path, monkeypatch):
    passes = []
    monkeypatch.setattr(shards_stage, "read_rows", lambda table, lists, read=shards_stage.read_rows: passes.append(
        [len(ids) for ids, _ in lists]) or read(table, lists))  # fmt: skip
    made, cut, artifact = build(tmp_path, 4)
    assert len(passes) == 1 and sum(passes[0]) == 400
    digest = artifact.open_part(part_name(2)).files["rows.npy"]["digest"]
    shutil.rmtree(artifact.open_part(part_name(2)).path)
    again = materialize(
        Store(tmp_path), SHARDS, ShardsConfig(), ShardsExecution(), {"features": made.features, "partitions": cut}
    )
    assert len(passes) == 2 and len(passes[1]) == 1 and not again.reused
    assert again.open_part(part_name(2)).files["rows.npy"]["digest"] == digest


def test_a_rank_needs_the_index_and_its_own_shard_alone(tmp_path):
    _, _, artifact = build(tmp_path / "all", 3)
    part = artifact.open_part(part_name(1))
    for each in (artifact, part):
        shutil.copytree(each.path, tmp_path / "rank" / "store" / each.stage / each.version)
    index = read_artifact(tmp_path / "rank" / "store" / artifact.stage / artifact.version)
    shards = open_shards(index)
    assert shards.tables([1])[0].num_rows == shards.num_rows[1]
    with pytest.raises(InputError, match=r"part part-0000 of shards/\w+ .* is missing"):
        shards.tables([0])


def test_damaged_features_end_the_pass(tmp_path):
    made = random_graph_artifacts(tmp_path)
    path = made.features.file("rows.npy")
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    with pytest.raises(InputError, match="do not match their digest"):
        build(tmp_path)
    assert not [each for each in Store(tmp_path).artifacts() if each.stage.startswith("shards")]
