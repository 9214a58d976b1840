"""Sampling whole epochs for their counts alone (FGNN, section 6.3: PreSC).

Nothing is gathered and no transpose is built, so an epoch costs its sampling. Batches go to threads as they come; every one is named by
its key and counts are sums, so the result is the same bytes at any number of threads. With several threads the calling thread samples
nothing: it reports every batch, so a listener may end the work by raising.

Known as presampling. Not checked: that the samplers sample the same graph with the same fanouts.

Memory: per thread one batch of blocks and the sampler's own map, and the counter.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeGuard

from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Sampler


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of sampled batches, of their inputs (a row each) and of their edges of all layers."""

    num_batches: int = 0
    num_inputs: int = 0
    num_edges: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.num_batches + other.num_batches, self.num_inputs + other.num_inputs, self.num_edges + other.num_edges
        )


def count_batches(
    samplers: Sequence[AnySampler],
    planned: Iterable[PlannedBatch],
    counter: VisitCounter,
    advance: Callable[[int], None] = lambda num_batches: None,
) -> Tally:
    """Samples batches and counts their nodes.

    Args:
        counter: counter of the visits, which are complete when this returns.
        advance: function that gets the number of new batches, on the calling thread; an error that it raises ends the work.

    Returns:
        The tally of all batches.
    """
    tally = Tally()
    work = _sampled(samplers[0], planned, counter) if len(samplers) == 1 else _on_threads(samplers, planned, counter)
    with closing(work):  # at once, threads included, when `advance` raises
        for each in work:
            tally += each
            advance(1)
    for sampler in samplers:
        if counts_itself(sampler):
            sampler.take_visits(counter.visits)
    return tally


def counts_itself(sampler: AnySampler) -> TypeGuard[Sampler]:
    """Returns whether the sampler counts visits in its own map; batches of the others are counted here."""
    return isinstance(sampler, Sampler) and sampler.counts_visits


def _sampled(
    sampler: AnySampler, planned: Iterable[PlannedBatch], counter: VisitCounter
) -> Generator[Tally, None, None]:
    """Samples and counts batches one after the other; yields the tally of each."""
    count = counter.add_layers if counts_itself(sampler) else counter.add
    for item in planned:
        blocks = sampler.sample(item.key, item.seeds, transpose="none")
        count(blocks)
        yield Tally(1, blocks[0].num_src, sum(len(block.indices) for block in blocks))


def _on_threads(
    samplers: Sequence[AnySampler], planned: Iterable[PlannedBatch], counter: VisitCounter
) -> Generator[Tally, None, None]:
    """Yields the tally of each batch as threads finish it."""
    source, done, stop = _Shared(iter(planned)), queue.SimpleQueue[Tally | BaseException | None](), threading.Event()

    def work(sampler: AnySampler) -> None:
        try:
            for tally in _sampled(sampler, source, counter):
                done.put(tally)
                if stop.is_set():
                    break
        except BaseException as error:  # a worker's error belongs to the calling thread
            done.put(error)
        done.put(None)

    threads = [threading.Thread(target=work, args=(sampler,), daemon=True) for sampler in samplers]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            if result is None:
                running -= 1
            else:
                yield result
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class _Shared:
    """An iterator that several threads draw from."""

    def __init__(self, inner: Iterator[PlannedBatch]):
        self._inner, self._lock = inner, threading.Lock()

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> PlannedBatch:
        with self._lock:
            return next(self._inner)
