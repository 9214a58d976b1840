"""A record holds a batch to the byte, whatever the sampler made; damaged bytes are refused, and never read beyond."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.samples.record import decode, encode, input_ids_place
from graphmill.assets.storage.files.records import PAGE
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.own_sampling import OwnSampler
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import assert_same_blocks, random_topology, topologies

FIELDS = ("start", "end", "indices", "src_ids", "weight", "edge_type", "edge_id")


@given(st.data())
def test_a_record_holds_what_was_sampled(data):
    graph = data.draw(topologies())
    kinds = data.draw(st.sets(st.sampled_from(["weights", "edge_types", "edge_ids"])))
    count = len(graph.indices)
    values = {"weights": np.linspace(0, 1, count, dtype=np.float32), "edge_types": np.arange(count).astype(np.uint8)}
    values["edge_ids"] = np.arange(count)[::-1].astype(np.int64) + 2**40
    for kind in kinds:
        object.__setattr__(graph, kind, values[kind])
    fanouts = data.draw(st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3))
    seeds = np.array(sorted(data.draw(st.sets(st.integers(0, graph.num_nodes - 1)))), np.int64)
    key = BatchKey(0, data.draw(st.integers(0, 9)), data.draw(st.integers(0, 2**40)))
    blocks = Sampler(graph, fanouts, seed=3).sample(key, seeds, transpose="all", edge_ids=True)
    record = encode(key, blocks)
    assert len(record) % PAGE == 0 and record.dtype == np.uint8
    found = decode(record)
    assert (found.epoch, found.step) == (key.epoch, key.step)
    assert_same_blocks(blocks, found.blocks, FIELDS)
    np.testing.assert_array_equal(found.seeds, seeds)
    offset, length, dtype = input_ids_place(record[:PAGE])
    np.testing.assert_array_equal(np.frombuffer(record, dtype, length, offset), blocks[0].src_ids)
    assert record.tobytes() == encode(key, found.blocks).tobytes()


def test_arrays_are_views_where_they_can_be_and_ends_may_be_pruned():
    graph = random_topology(200, 2000)
    record = encode(BatchKey(0, 0, 0), Sampler(graph, (4, 3), seed=1).sample(BatchKey(0, 0, 0), np.arange(30)))
    block = decode(record).blocks[0]
    assert np.shares_memory(block.indices, record) and np.shares_memory(block.src_ids, record)
    before = block.start.copy()
    block.end[:] = block.start
    np.testing.assert_array_equal(block.start, before)


@pytest.mark.parametrize(("degree", "width"), [(255, 1), (256, 2), (65536, 4)])
def test_degrees_take_the_narrowest_type(degree, width):
    def draw(topology, node_ids, fanout, random):
        return (
            np.full(len(node_ids), degree),
            np.zeros(len(node_ids) * degree, np.int64),
            np.ones(len(node_ids) * degree),
        )

    graph = random_topology(10, 20)
    blocks = OwnSampler(graph, (2,), draw, seed=0, name="draw").sample(BatchKey(0, 0, 0), [3, 4], transpose="none")
    record = encode(BatchKey(0, 0, 0), blocks)
    assert record[8 * 11] == width
    assert_same_blocks(blocks, decode(record).blocks, FIELDS)


def test_damaged_headers_are_refused():
    """Every byte of the header set to every one of some values: an error, or a record inside its bytes."""
    graph = random_topology(50, 400)
    whole = encode(BatchKey(0, 1, 2), Sampler(graph, (3, 2), seed=1).sample(BatchKey(0, 1, 2), np.arange(9)))
    refused = 0
    for place in range(8 * 16):
        for value in (0, 1, 127, 128, 255):
            record = whole.copy()
            record[place] = value
            try:
                decode(record)
            except InputError as error:
                assert "this is no stored mini-batch" in str(error)
                refused += 1
    assert refused > 300
    for length in (0, 8, 63, 100, len(whole) - PAGE):
        with pytest.raises(InputError, match="no stored mini-batch"):
            decode(whole[:length])
