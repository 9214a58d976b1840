"""The sums of parts: those of their batches, the index of parts with and without them is the same, and no batch is read for it."""

import shutil

import numpy as np
import pytest

from graphmill.assets.samples.config import BatchRange
from graphmill.assets.samples.read import open_samples
from graphmill.assets.samples.tally import FILES, PartTally
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from tests.assets.samples.sampled import build_samples
from tests.assets.storage.damage import flip
from tests.object_store import new_bucket, served


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def made(home):
    return build_samples(home, epochs=2, evaluate=True)


def content_of(artifact):
    """Digests of the samples and of their parts, and the names and numbers of checks of the samples."""
    parts = [artifact.open_part(name).content for name in artifact.parts]
    return artifact.content, parts, artifact.summary


def without_sums(monkeypatch):
    """Lets parts be built as older versions did."""
    monkeypatch.setattr(PartTally, "save", lambda self, samplers, writer: ())


def test_sums_are_those_of_the_batches(made):
    samples, first = open_samples(made), 0
    for name in made.parts:
        run, part = BatchRange.of(name), made.open_part(name)
        last = first + run.high - run.low
        records = [samples.record(*samples.place_of(number)) for number in range(first, last)]
        visits = np.zeros(400, np.int64)
        for record in records if run.epoch < 2 else ():
            visits[record.blocks[0].src_ids] += 1
        np.testing.assert_array_equal(part.array("visited"), np.flatnonzero(visits))
        np.testing.assert_array_equal(part.array("visited_by"), visits[visits > 0])
        np.testing.assert_array_equal(part.array("seeds"), np.concatenate([record.seeds for record in records]))
        assert part.array("visited_by").dtype == np.uint8 and list(part.summary["derived"]) == list(FILES)
        first = last
    assert first == samples.num_stored


def test_a_sampler_that_counts_nothing_is_counted(tmp_path, made, monkeypatch):
    monkeypatch.setattr(Sampler, "counts_visits", False)
    other = build_samples(tmp_path, epochs=2, evaluate=True)
    assert [other.open_part(name).files for name in other.parts] == [made.open_part(name).files for name in made.parts]


def test_parts_of_older_versions_give_the_same_index(tmp_path, made, monkeypatch):
    without_sums(monkeypatch)
    older = build_samples(tmp_path, epochs=2, evaluate=True)
    assert older.version == made.version and content_of(older) == content_of(made)
    part = older.open_part(next(iter(older.parts)))
    assert not part.files.keys() & set(FILES) and "derived" not in part.summary
    shutil.rmtree(older.path)
    flip(part.file("batches.npy"), 8 * 4200)
    with pytest.raises(InputError, match=r"batch 0 of samples.parts/\w+ is damaged: (.|\n)*do not match their digest"):
        build_samples(tmp_path, epochs=2, evaluate=True)


@pytest.mark.parametrize("name", FILES)
def test_damaged_sums_are_not_added(tmp_path, made, name):
    shutil.copytree(made.path.parents[2], tmp_path / "home")
    store = Store(tmp_path / "home")
    damaged = store.open("samples", made.version)
    shutil.rmtree(damaged.path)
    flip(damaged.open_part(next(iter(damaged.parts))).path / name, 8 * 4096 + 3)
    with pytest.raises(InputError, match=rf"{name}(.|\n)* damaged"):
        build_samples(tmp_path / "home", epochs=2, evaluate=True)


def test_seeds_of_another_batch_fail_the_check(tmp_path, monkeypatch):
    append = PartTally.append_seeds
    monkeypatch.setattr(PartTally, "append_seeds", lambda self, seeds: append(self, np.roll(seeds, 1) | 1))
    with pytest.raises(InputError, match="every seed once an epoch: the seeds of an epoch are the 200 training nodes"):
        build_samples(tmp_path)


def test_parts_of_an_object_store_are_added_up_without_a_copy_of_their_batches(tmp_path, monkeypatch):
    with served() as endpoint:
        for name, value in new_bucket(endpoint).items():
            monkeypatch.setenv(name, value)
        from graphmill.assets.storage.remote.entries import entry_key
        from graphmill.assets.storage.remote.objects import require_objects

        made = build_samples(tmp_path / "a", epochs=2)
        require_objects().remove([entry_key((made.stage, made.version))])
        graph = Store(tmp_path / "b").open("graph", made.inputs["graph"]["version"])
        again = build_samples(tmp_path / "b", graph=graph, epochs=2)
        assert not again.reused and again.content == made.content
        assert not any((tmp_path / "b" / "store" / "samples.parts").glob("*/batches.npy"))
