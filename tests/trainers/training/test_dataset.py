"""Batches as a data set of torch: those of the training, in any process, epoch after epoch, and from any place on."""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import graphmill
from graphmill.kernels.errors import InputError
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.loop.executor import BatchExecutor, BatchGradient
from graphmill.trainers.recipe.techniques import TECHNIQUES
from graphmill.trainers.training.dataset import begun, epoch_after
from tests.jobs.conftest import quick_launches as quick_launches
from tests.recipes import PACKED, recipe, sbm

TRAINS = (
    {"name": "sage", "hidden": 8, "epochs": 2, "threads": 2},
    {"name": "disk", "trainer": "disk", "hidden": 8, "epochs": 2, "threads": 2},
    {"name": "stored", "samples": "stored", "hidden": 8, "epochs": 2, "threads": 2},
    {"name": "whole", "trainer": "fullgraph", "hidden": 8, "epochs": 2, "threads": 2},
)
NAMES = ("sage", "disk", "stored")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, quick_launches: None) -> Iterator[tuple[Path, dict[str, list]]]:
    """A pipeline file whose data are built and whose first table is trained, and the batches that this training took, by epoch."""
    folder, seen = tmp_path_factory.mktemp("dataset"), dict[int, list]()
    path, steps = folder / "mine.toml", BatchExecutor.steps
    tables = {"sampling": {"fanouts": [4, 3], "batch_size": 32, "reuse": 2}, "partitions": {"parts": 2}, "chunks": {}}
    path.write_text(recipe(*TRAINS, name="mine", seed=0, graph=sbm(), **tables, **PACKED))

    def watched(executor: BatchExecutor, epoch: int, start: int) -> Any:
        source, gradient = executor.source, executor.gradient
        executor.gradient = lambda batch: (seen.setdefault(epoch, []).append(told(batch)), gradient(batch))[1]  # pyright: ignore
        yield from steps(executor, epoch, start)
        executor.source, executor.gradient = source, gradient

    with pytest.MonkeyPatch.context() as patch:
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
            patch.setenv(name, str(folder / "home"))
        graphmill.run(path, selection="preprocess")
        patch.setattr(BatchExecutor, "steps", watched)
        train_here(path)
        yield path, seen


def train_here(path: Path) -> None:
    from graphmill.trainers.recipe.inputs import find_table_inputs
    from graphmill.trainers.run import train_table

    pipeline, store = graphmill.pipeline(path), graphmill.Store()
    found = find_table_inputs(pipeline, pipeline.train[0], store, {})
    train_table(store, found.inputs, pipeline.train[0], pipeline.sampling, pipeline.seed, report=lambda line: None)


def told(batch: MiniBatch) -> tuple[int, int, str]:
    """Epoch and position of a batch, and the digest of its arrays."""
    arrays = [batch.seeds, batch.labels, batch.x.numpy()]
    for block in batch.blocks:
        arrays += [block.src_ids, block.start, block.end, block.indices]
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    return batch.train_epoch, batch.position, hashlib.sha256(data).hexdigest()


def all_told(batches: Iterable[MiniBatch]) -> list[tuple[int, int, str]]:
    return [told(batch) for batch in batches]


def test_batches_are_those_of_the_training_to_the_byte(made: tuple[Path, dict[str, list]]) -> None:
    path, seen = made
    for name in NAMES:  # the other tables train on the same ones
        batches = graphmill.batches(path, name)
        assert isinstance(batches, IterableDataset) and len(batches) == len(seen[0]) > 4
        assert [batches.epoch, *map(all_told, (batches, batches)), batches.epoch] == [0, seen[0], seen[1], 2]
        assert [batch.position for batch in graphmill.batches(path, name, 1, start=3)] == list(range(3, len(seen[0])))


def test_a_batch_that_is_held_stays_as_it_is(made: tuple[Path, dict[str, list]]) -> None:
    """Loaders of other libraries ask for the next batch before they give one."""
    path, seen = made
    for name in NAMES:
        assert all_told(list(graphmill.batches(path, name))) == seen[0]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("start", "workers"), [("fork", 1), ("fork", 2), ("fork", 3), ("spawn", 2)])
def test_workers_share_the_batches_of_each_epoch(made: tuple[Path, dict[str, list]], start: str, workers: int) -> None:
    path, seen = made
    for name in NAMES if start == "fork" else NAMES[:1]:
        batches = graphmill.batches(path, name)
        assert all_told(batches) == seen[0]  # the parent has computed with two threads
        for kept in (False, True) if start == "fork" else (True,):
            batches.set_epoch(0)
            how: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": start, "timeout": 120}
            loader = DataLoader(batches, batch_size=None, persistent_workers=kept, **how)
            assert len(loader) == len(seen[0])
            assert [all_told(loader), all_told(loader), batches.epoch] == [seen[0], seen[1], 2]
            del loader
        assert batches.epoch == 2 and all_told(batches)[0][0] == 2


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_that_are_seeded_alike_go_on_to_the_next_epoch(made: tuple[Path, dict[str, list]]) -> None:
    path, _ = made
    batches, found = graphmill.batches(path, "sage"), []
    for workers in (2, 2, 1, 0, 3, 3):
        torch.manual_seed(0)
        loader = DataLoader(batches, batch_size=None, num_workers=workers)
        found.append({batch.train_epoch for batch in loader})
        assert batches.epoch == len(found)
    assert found == [{epoch} for epoch in range(6)]


def test_workers_agree_on_the_epoch_in_whatever_order_they_begin() -> None:
    """Each reads the words of all and then writes its own; what others do between the two is drawn."""
    generator = np.random.default_rng(0)
    for _ in range(300):
        words, wanted = torch.full((5,), begun(0, 3)), 4
        for number in range(1, 5):  # loaders, the last of which has its workers begin several times
            for _ in range(1 if number < 4 else 3):
                workers = generator.permutation(np.repeat(range(1, 1 + generator.integers(1, 5)), 2))
                workers = [1, 2, 3, 1, 2, 3] if number == 4 else workers
                read: dict[int, int] = {}
                for place in map(int, generator.permutation(workers)):
                    if place not in read:
                        read[place] = epoch_after(words.clone(), place, number)
                    else:
                        words[place] = begun(number, read[place])
                assert set(read.values()) == {wanted}
                wanted += 1
        assert epoch_after(words, 0, 0) == wanted


def test_a_state_resumes_at_the_next_batch(made: tuple[Path, dict[str, list]]) -> None:
    path, seen = made
    every = [place for epoch in (0, 1) for place in seen[epoch]]
    for stop in (0, 1, len(seen[0]) - 1, len(seen[0]), len(seen[0]) + 2):
        batches, taken = graphmill.batches(path, "sage"), []
        while len(taken) < stop:
            for batch in batches:
                taken.append(told(batch))
                if len(taken) == stop:
                    break
        checkpoint = io.BytesIO()
        torch.save({"batches": batches.state_dict()}, checkpoint)
        state = torch.load(io.BytesIO(checkpoint.getvalue()), weights_only=True)["batches"]
        resumed = graphmill.batches(path, "sage")
        resumed.load_state_dict(state)
        resumed.set_epoch(resumed.epoch)  # as loaders do; it does not forget the place
        rest = [told(batch) for _ in range(2 - resumed.epoch) for batch in resumed]
        assert taken + rest == every
        if taken:  # the place that a loop with workers keeps
            epoch, position, _ = taken[-1]
            resumed.load_state_dict({"epoch": epoch, "position": position + 1})
            loader = DataLoader(resumed, batch_size=None, num_workers=2)
            assert taken + [told(batch) for _ in range(2 - resumed.epoch) for batch in loader] == every


def test_splits_are_those_of_the_graph(made: tuple[Path, dict[str, list]]) -> None:
    path, _ = made
    graph = graphmill.open(path, "graph")
    for split, nodes in (("train", graph.train_ids), ("valid", graph.valid_ids), ("test", graph.test_ids)):
        for name in NAMES:
            batches = graphmill.batches(path, name, split=split)
            found = [all_told(batches), all_told(DataLoader(batches, batch_size=None, num_workers=2))]
            seeds = np.concatenate([batch.seeds for batch in graphmill.batches(path, name, split=split)])
            assert np.array_equal(np.sort(seeds), np.sort(nodes)) and len(batches) == len(found[0])
            assert split == "train" or found[0] == found[1]


def test_a_training_loop_of_ones_own_goes_over_them(made: tuple[Path, dict[str, list]]) -> None:
    path, _ = made
    model, losses = graphmill.open(path, "sage").model, []
    gradient, optimiser = BatchGradient(model, 0), torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in graphmill.batches(path, "sage"):
        losses.append(float(gradient(batch).loss_sum))
        optimiser.step()
        optimiser.zero_grad()
    assert len(losses) >= 2 and all(np.isfinite(losses))


def test_a_batch_goes_to_a_device_with_its_blocks_for_pyg(made: tuple[Path, dict[str, list]]) -> None:
    path, _ = made
    batch = next(iter(graphmill.batches(path, "sage")))
    assert all_told([batch.to("cpu")]) == all_told([batch])
    first, last = batch.to("meta").to_pyg()
    assert {each.device.type for each in (first.x, first.edge_index, first.n_id, last.y)} == {"meta"}


def test_mistakes_are_told_at_once(made: tuple[Path, dict[str, list]], tmp_path: Path) -> None:
    path, seen = made
    for options, said in (
        ({"name": "sgae"}, "no .* table 'sgae' the names are: sage"),
        ({"split": "vaild"}, r"split = 'vaild' \(did you mean valid\?\)"),
        ({"seed": 9}, "no seed 9"),
        ({"epoch": -1}, "epoch -1"),
        ({"start": len(seen[0]) + 1}, "position"),
        ({"name": "whole"}, "has no mini-batches of one process"),
        ({"home": tmp_path}, "graphmill build"),
    ):
        with pytest.raises(InputError) as error:
            graphmill.batches(**({"source": path, "name": "sage"} | options))
        assert re.search(said, f"{error.value.problem} {error.value.remedy}"), error.value
    assert {"minibatch", "disk"} <= TECHNIQUES.keys()  # the two that the remedy names
