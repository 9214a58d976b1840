"""The mini-batches of a train table as a data set of torch, for a training loop of one's own and for the loaders of other libraries.

A batch is a function of the seed, the epoch and its position, so a data set has no state but these two, and any worker of a loader makes
any batch. Workers of a `DataLoader` share the batches of an epoch: worker w of n prepares every n-th one, from the w-th on, and the loader,
which asks its workers in turn, gives them in their order.

Nothing here trains. A missing artifact is an `InputError` with the command that builds it, except for budgets, which take seconds of
arithmetic: those that the table reads are built.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError, did_you_mean
from graphmill.kernels.sampling.epoch_plan import evaluation_plan
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.batches.source import PreparedSource
from graphmill.trainers.loop.executor import BatchExecutor
from graphmill.trainers.recipe.config import find_recipe
from graphmill.trainers.recipe.inputs import find_table_inputs
from graphmill.trainers.training.open_run import open_run

Split = Literal["train", "valid", "test"]
MOST_WORKERS = 256
"""Workers of a loader that are counted; each takes 8 bytes."""
LOADERS = 1 << 31
"""Numbers of loaders, and of epochs."""


class SharedEpochs:
    """The epochs that a process and the workers of its loaders began, in memory that all of them share; without a lock.

    A loader starts its workers anew for each iteration, or has them begin again, and does not tell the process that has the data set. So
    each worker writes what it began into a word of its own (`begun`), and reads those of the others before (`epoch_after`).
    """

    def __init__(self, epoch: int):
        self._words = torch.zeros(1 + MOST_WORKERS, dtype=torch.int64).share_memory_()
        self.set(epoch)

    @property
    def next(self) -> int:
        """The epoch that begins next, from 0."""
        return epoch_after(self._words, 0, 0)

    def set(self, epoch: int) -> None:
        """Sets the epoch that begins next."""
        self._words[:] = begun(0, epoch - 1)

    def begin(self) -> int:
        """Returns the epoch that this process, or this worker of a loader, begins now."""
        worker = get_worker_info()
        place, loader = 0, 0
        if worker is not None:
            if worker.num_workers > MOST_WORKERS:
                raise InputError(f"{worker.num_workers} workers", f"give num_workers = {MOST_WORKERS} or less")
            # Seeds of workers are numbered from a random one of the loader. One with more workers is another loader.
            place, loader = 1 + worker.id, 1 + (worker.seed - worker.id + worker.num_workers) % (LOADERS - 1)
        epoch = epoch_after(self._words.clone(), place, loader)
        self._words[place] = begun(loader, epoch)
        return epoch


def begun(loader: int, epoch: int) -> int:
    """Returns the word of a process that began an epoch, -1 for none, for a loader, 0 for none; both at once, so that none reads half."""
    return loader * LOADERS + epoch + 1


def epoch_after(words: torch.Tensor, place: int, loader: int) -> int:
    """Returns the epoch that a process begins.

    A worker that has served its loader goes on to the next epoch. Another one takes the epoch of the loader's other workers, none of which
    can be further; the first takes the one after the last epoch of all, as a process does that is not a worker.

    Args:
        words: i64[n], read before the loader's workers began, while some begin, or after it.
        place, loader: the process's own word, and the number of its loader; 0 and 0 outside of loaders.
    """
    loaders, epochs = words // LOADERS, words % LOADERS - 1
    if loader and loaders[place] == loader:
        return int(epochs[place]) + 1
    together = epochs[loaders == loader] if loader else epochs[:0]
    return int(together.max()) if len(together) else int(epochs.max()) + 1


class Batches(IterableDataset):
    """The mini-batches of a `[[train]]` table: the same seeds, blocks and input rows as in its training, to the byte.

    Each iteration is an epoch, and the next one begins the next epoch. A loader of torch takes it with `batch_size=None`; workers are not
    needed, since threads prepare batches ahead of the loop, but share the batches if there are some. What is opened for the first
    iteration is kept for the next ones; each worker opens its own.

    Args:
        epoch: training epoch of the first iteration, from 0.
        start: position of its first batch.
        seed: seed of the training; None for the table's first.
        split: "train" for the epochs of the training; "valid" or "test" for its sampled evaluation of these nodes, which is the same in
            all epochs.

    Raises:
        InputError: an artifact is missing, the table's technique does not train on mini-batches in one process, or the split is empty or
            unknown.
    """

    def __init__(
        self,
        store: Store,
        pipeline: Pipeline,
        name: str,
        epoch: int = 0,
        *,
        start: int = 0,
        seed: int | None = None,
        split: Split = "train",
    ):
        if split not in get_args(Split):
            problem = f"split = {split!r}{did_you_mean(split, get_args(Split))}"
            raise InputError(problem, 'give "train", "valid" or "test"')
        pipeline.require_one_split()
        self.split: Split = split
        self._table = (store, pipeline, name, seed)
        self._epochs = SharedEpochs(epoch)
        table, _ = find_recipe(pipeline, name, seed)
        found = find_table_inputs(pipeline, table, store, {})
        self._read = [(each.stage, each.version) for each in (*found.inputs.values(), *found.reads.values())]
        with store.lease(*self._read):
            source = self._open()
        self._kept: tuple[int, PreparedSource] | None = (os.getpid(), source)
        self._num_batches = source.batching.plan.num_batches
        self.load_state_dict({"epoch": epoch, "position": start})

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return self._num_batches

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration, from 0, whichever process began the last one."""
        return self._epochs.next

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration; some loaders do. It begins with the first batch, or where a loaded state of it says."""
        self._seek(epoch, self._first[1] if self._first[0] == epoch else 0)

    def state_dict(self) -> dict[str, int]:
        """Returns the place of the next batch: its `epoch`, and its `position` there.

        Which batches of its workers a loader has given, the data set does not know: behind a batch the place is `batch.train_epoch` and
        `batch.position + 1`.
        """
        epoch, position = self._next
        return {"epoch": epoch, "position": position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Sets the place with which the next iteration begins; raises InputError if the epoch does not have that many batches."""
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or not 0 <= position <= len(self):
            raise InputError(f"epoch {epoch}, position {position}", f"give positions in 0..{len(self)}")
        if position == len(self) and get_worker_info() is None:  # the share of a worker may end before the epoch does
            epoch, position = epoch + 1, 0
        self._seek(epoch, position)

    def _seek(self, epoch: int, position: int) -> None:
        self._epochs.set(epoch)
        self._first = self._next = epoch, position

    def __iter__(self) -> Iterator[MiniBatch]:
        epoch = self._epochs.begin()
        start = self._first[1] if self._first[0] == epoch else 0
        self._first, self._next = (epoch, 0), (epoch, start)
        return self._batches(epoch, start)

    def _batches(self, epoch: int, start: int) -> Iterator[MiniBatch]:
        """Yields the batches of an epoch from a position on; in a worker of a loader, its share of them."""
        worker = get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        number = epoch if self.split == "train" else 0
        with self._table[0].lease(*self._read):
            source = self._taken() or self._open()
            with closing(source.batches(number, min(start + first, len(self)), every)) as batches:
                for batch in batches:
                    self._next = epoch, min(self._next[1] + every, len(self))
                    yield batch
                    del batch  # its memory is used again if nobody else holds it
        self._next = epoch + 1, 0
        self._kept = os.getpid(), source

    def _taken(self) -> PreparedSource | None:
        """Returns what an earlier iteration of this process has opened, for one iteration; None if there is nothing."""
        (process, source), self._kept = self._kept or (0, None), None
        return source if process == os.getpid() else None

    def _open(self) -> PreparedSource:
        store, pipeline, name, seed = self._table
        table, semantic = find_recipe(pipeline, name, seed)
        found = find_table_inputs(pipeline, table, store, {})
        run, _ = open_run(found.inputs, found.reads, semantic, table.execution)
        executor = table.technique.load().open_executor(run)
        if not isinstance(executor, BatchExecutor):
            problem = f"{name} trains with trainer = {table.trainer!r}, which has no mini-batches of one process"
            raise InputError(problem, 'ask a table with trainer = "minibatch" or "disk"')
        if self.split == "train":
            return executor.source
        assert semantic.sampling is not None
        nodes = np.array(run.graph.splits[get_args(Split).index(self.split)])
        plan = evaluation_plan(nodes, semantic.sampling.batch_size, semantic.sampling_seed)
        return executor.evaluation_source(plan)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what is open: another process opens it anew."""
        return {**self.__dict__, "_kept": None}
