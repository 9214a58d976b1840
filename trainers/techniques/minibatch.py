"""The technique `minibatch`: mini-batches are sampled while the model trains, or read from stored samples.

Rows come from the table, or from a cache in front of it (trainers/rows/cache.py). Stored samples have the bytes of sampled ones, so neither
affects a weight.
"""

from graphmill.trainers.batches.source import OnlineSource
from graphmill.trainers.loop.executor import BatchExecutor, Run
from graphmill.trainers.techniques.openings import open_samplers


def open_executor(run: Run) -> BatchExecutor:
    """Returns the executor of training on mini-batches; raises InputError if it needs stored batches that are missing or another run's."""
    return BatchExecutor(run, OnlineSource(run.batching, run.features.source, open_samplers(run), run.in_turn))
