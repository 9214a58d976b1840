"""The rows that a cache plan stores for certain are never more than those of any draw of its batches."""

from types import SimpleNamespace

import numpy as np

from graphmill.assets.budgets.config import MemoryConfig
from graphmill.assets.cache_plan.costs import disk_mistake, least_rows
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.samples.config import SamplesConfig

ROW_BYTES = 4


def drawn(seed: int) -> tuple[np.random.Generator, Sizes]:
    """Returns sizes of a step that reads a cache plan, with segments of a drawn size."""
    rng = np.random.default_rng(seed)
    nodes, batch_size, epochs = int(rng.integers(5, 80)), int(rng.integers(1, 30)), int(rng.integers(1, 5))
    levels = [int(each) * ROW_BYTES for each in rng.integers(0, 5, 2)]
    configs = {
        "samples": SamplesConfig(fanouts=(2,), batch_size=batch_size, epochs=epochs, seed=0),
        "budgets": SimpleNamespace(memory=MemoryConfig(device=levels[0], host=levels[1], disk=1)),
        "cache_plan": SimpleNamespace(table=SimpleNamespace(segment_size=int(rng.integers(0, 12)))),
    }
    train, rows = int(rng.integers(1, nodes)), nodes - int(rng.integers(0, 2))
    return rng, Sizes(
        num_nodes=nodes, num_edges=9, num_train=train, num_rows=rows, width=1, row_bytes=ROW_BYTES, configs=configs
    )


def stored_rows(rng: np.random.Generator, sizes: Sizes, size: int) -> int:
    """Draws batches that need their seeds alone, and counts the rows that segments store."""
    samples, memory = sizes.configs["samples"], sizes.configs["budgets"].memory
    count, batches = -(-sizes.num_train // samples.batch_size), []
    for _ in range(samples.epochs):
        batches += [{*part.tolist()} for part in np.array_split(rng.permutation(sizes.num_train), count)]
    held = {*range((memory.device + memory.host) // ROW_BYTES), *range(sizes.num_rows, sizes.num_nodes)}
    step = size or len(batches)
    return sum(len(set().union(*batches[low : low + step]) - held) for low in range(0, len(batches), step))


def test_no_draw_of_the_batches_stores_fewer_rows() -> None:
    near = 0
    for seed in range(200):
        rng, sizes = drawn(seed)
        size = sizes.configs["cache_plan"].table.segment_size
        least, stored = least_rows(sizes, size), stored_rows(rng, sizes, size)
        assert least <= stored, seed
        near += 2 * least >= stored
        assert (disk_mistake(sizes) is not None) == (least > 0)
    assert near > 150
