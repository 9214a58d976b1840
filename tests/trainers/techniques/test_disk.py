"""The disk trainer: losses of `minibatch` to the bit, exact counts, bounded queues, exact resume, and errors that name what is damaged."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.building.stage import Silent
from graphmill.assets.features.read import open_features
from graphmill.assets.samples.read import Samples, open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.types import Array
from graphmill.trainers.batches.source import NUM_LOADERS, DiskSource
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.memory import WATCHER
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import PackedLoader, Staged
from graphmill.trainers.run import train_table
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.assets.storage.damage import flip
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.runs import TABLE, content, stored_rows, train_packed

EPOCHS = 3
made = DiskSource.__init__


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return build_packed(tmp_path_factory.mktemp("home"), epochs=2)


def train(packed: Packed, home: Path, trainer: str = "disk", **options: Any) -> Artifact:
    return train_packed(packed, home, trainer, **({"epochs": EPOCHS} | options))


def rows_of(model: Artifact) -> list[dict[str, Any]]:
    return [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_losses_and_weights_are_those_of_minibatch(packed: Packed, tmp_path: Path, model: str) -> None:
    online = train(packed, tmp_path, "minibatch", model=model)
    disk = train(packed, tmp_path, model=model)
    assert rows_of(disk) == rows_of(online)
    assert disk.files["weights.safetensors"]["digest"] == online.files["weights.safetensors"]["digest"]
    assert disk.version != online.version


@pytest.mark.parametrize(
    "options",
    [{"io": "pread"}, {"io": "buffered"}, {"io_depth": 1}, {"io_window": "8KiB"}, {"queue": "2MB"}, {"link": "1 GB/s"}],
)
def test_how_it_is_read_changes_no_bit(packed: Packed, tmp_path: Path, options: dict[str, Any]) -> None:
    one, other = train(packed, tmp_path / "one"), train(packed, tmp_path / "other", **options)
    assert one.version == other.version
    for name in ("weights.safetensors", "metrics.jsonl"):
        assert one.files[name]["digest"] == other.files[name]["digest"]


@pytest.mark.parametrize("window", ["8191", "2GiB", "0"])
def test_a_window_that_holds_no_two_pages_or_too_much_is_refused(window: str) -> None:
    with pytest.raises(InputError, match=r"io_window = .* is not between"):
        TrainTable(**(TABLE | {"io_window": window}))


def expected_traffic(packed: Packed) -> dict[str, int]:
    """What the training epochs move, counted from the plan and the samples alone."""
    row_bytes = open_features(packed.features).row_bytes
    rows, pages = (np.asarray(packed.cache_plan.array(name)) for name in ("tier_rows", "pages"))
    samples = open_samples(packed.samples)
    per_epoch = samples.num_batches
    times = np.repeat([2, 1], per_epoch)  # three training epochs take sampling epochs 0, 1, 0
    device, host, cached, chunk = (rows.astype(np.int64) * times[:, None]).sum(axis=0).tolist()
    moved = (padded_bytes(rows[:, 3].astype(np.int64) * row_bytes) + pages * PAGE_BYTES) * times
    ids = (padded_bytes(4 * rows.sum(axis=1, dtype=np.int64)) + padded_bytes(4 * rows[:, 2].astype(np.int64))) * times
    return {
        "hits_device": device,
        "hits_host": host,
        "hits_disk_cache": cached,
        "hits_packed": chunk,
        "disk asked": (cached + chunk) * row_bytes,
        "disk moved": int(moved.sum()),
        "ids moved": int(ids.sum()),
        "h2d": (host + cached + chunk) * row_bytes,
        "topology": int((np.asarray(samples.num_bytes) * times).sum()),
    }


def test_the_ledger_is_the_plans_arithmetic(packed: Packed, tmp_path: Path) -> None:
    model = train(packed, tmp_path)
    ledger = json.loads(model.file("ledger.json").read_text())
    counts = {row["name"]: row["n"] for row in ledger["counts"] if row["layer"] == 0}
    lines = {(row["link"], row["kind"]): row for row in ledger["moves"]}
    found = {name: counts[name] for name in ("hits_device", "hits_host", "hits_disk_cache", "hits_packed")}
    found |= {
        "disk asked": lines["disk", "feature"]["asked_bytes"],
        "disk moved": lines["disk", "feature"]["moved_bytes"],
        "ids moved": lines["disk", "ids"]["moved_bytes"],
        "h2d": lines["h2d", "feature"]["moved_bytes"],
        "topology": lines["disk", "topology"]["moved_bytes"],
    }
    assert found == expected_traffic(packed)
    assert min(found.values()) > 0  # every tier took part
    assert sum(found[name] for name in counts if name.startswith("hits_")) == counts["inputs"]


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(packed: Packed, tmp_path: Path) -> None:
    whole = train(packed, tmp_path / "whole")

    class Stop(Exception):
        pass

    class Stopping(Silent):
        steps = 0

        def advance(self, n: int) -> None:
            self.steps += n
            if self.steps >= 11:
                raise Stop

    table = TrainTable(**(TABLE | {"trainer": "disk", "epochs": EPOCHS, "checkpoint_steps": 1}))
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=32, reuse=2)
    run: dict[str, Any] = {"reads": stored_rows(packed), "report": lambda line: None}
    store = Store(tmp_path / "stopped")
    with pytest.raises(Stop):
        train_table(store, packed.inputs, table, sampling, 5, progress=Stopping(), **run)
    again = train_table(store, packed.inputs, table, sampling, 5, resume=True, **run)[0]
    for name in ("weights.safetensors", "metrics.jsonl", "ledger.json"):
        assert again.files[name]["digest"] == whole.files[name]["digest"]


def test_stages_overlap_on_the_time_line(packed: Packed, tmp_path: Path) -> None:
    record = train(packed, tmp_path).run_record()["timeline"]
    loaders = {f"feature loader {number}" for number in range(NUM_LOADERS)}
    assert {span[0] for span in record["spans"]} == {"step", "graph loader", *loaders, "assembler"}


def test_an_abandoned_epoch_closes_the_files_after_the_threads_that_read_them(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_work() -> int:
        return sum(thread.name != WATCHER for thread in threading.enumerate())

    sources, alive, close = [], [], PackedRows.close
    monkeypatch.setattr(DiskSource, "__init__", lambda self, *given: sources.append(self) or made(self, *given))
    monkeypatch.setattr(PackedRows, "close", lambda rows: alive.append(at_work()) or close(rows))
    train(packed, tmp_path, epochs=1)
    before = at_work()
    for position, batch in enumerate(sources[0].batches(0)):
        del batch
        if position == 2:
            break
    assert alive == [before, before] and at_work() == before


def test_every_graph_is_asked_for_once_ahead_of_its_rows(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, loaded, lock = [], [], threading.Lock()
    load = PackedLoader.load

    def noted(loader: PackedLoader, number: int, origin: Array | None = None) -> Staged:
        with lock:
            loaded.append(number)
            assert asked.count(number) == loaded.count(number)  # stored batches come again in later epochs
        return load(loader, number, origin)

    def will_read(samples: Samples, epoch: int, step: int) -> None:
        asked.append(epoch * samples.num_batches + step)

    monkeypatch.setattr(Samples, "will_read", will_read)
    monkeypatch.setattr(PackedLoader, "load", noted)
    train(packed, tmp_path)
    assert sorted(asked) == sorted(loaded) and len(asked) > NUM_LOADERS


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return build_packed(tmp_path_factory.mktemp("home"), epochs=2, evaluate=True)


def staged_numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the packed chunks that are read from now on."""
    numbers, load = [], PackedLoader.load

    def noted(loader: PackedLoader, number: int, origin: Array | None = None) -> Staged:
        numbers.append(number)
        return load(loader, number, origin)

    monkeypatch.setattr(PackedLoader, "load", noted)
    return numbers


def scored(packed: Packed, home: Path, **options: Any) -> dict[str, Any]:
    model = train(packed, home, eval="sampled", **options)
    return model.summary["numbers"] | {name: content(model)[name] for name in ("weights.safetensors", "metrics.jsonl")}


def test_evaluation_of_packed_batches_has_the_bits_of_drawn_ones(
    packed: Packed, evaluated: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, samples = scored(packed, tmp_path / "drawn"), open_samples(evaluated.samples)
    numbers = staged_numbers(monkeypatch)
    assert scored(evaluated, tmp_path / "packed", queue="2MB") == drawn
    uses, (_, _, valid, test, end) = np.bincount(numbers, minlength=samples.num_stored), samples.starts.tolist()
    assert valid < test < end == samples.num_stored
    assert (uses[valid:test] == EPOCHS + 1).all() and (uses[test:] == 1).all()  # after each epoch, and at the end


def test_a_budget_that_binds_holds_the_rows_of_evaluations_too(evaluated: Packed, tmp_path: Path) -> None:
    tight = build_packed(tmp_path / "tight", epochs=2, evaluate=True, memory={"disk": "110%"})
    numbers, wide = tight.cache_plan.summary["numbers"], evaluated.cache_plan.summary["numbers"]
    assert numbers["disk_bytes"] <= numbers["disk_budget_bytes"] < wide["disk_bytes"] <= wide["disk_budget_bytes"]
    for name in ("slot", "device_ids", "host_ids"):  # of training batches alone
        assert tight.cache_plan.files[f"{name}.npy"] == evaluated.cache_plan.files[f"{name}.npy"]
    assert scored(tight, tmp_path / "1") == scored(evaluated, tmp_path / "2")


def test_a_stopped_run_goes_on_with_packed_evaluations(evaluated: Packed, tmp_path: Path) -> None:
    whole = scored(evaluated, tmp_path / "whole")

    class Stop(Exception):
        pass

    class Stopping(Silent):
        """Stops inside the second evaluation."""

        started = 0

        def start(self, label: str, total: int, unit: str) -> None:
            self.started += label == "evaluate"
            if self.started == 2:
                raise Stop

    options: dict[str, Any] = {"checkpoint_steps": 1}
    with pytest.raises(Stop):
        train(evaluated, tmp_path / "stopped", eval="sampled", progress=Stopping(), **options)
    assert scored(evaluated, tmp_path / "stopped", resume=True, **options) == whole


DAMAGES = ("bit", "truncated", "sample", "cache", "device_image", "host_image", "index")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_ends_the_run_before_a_wrong_row_is_used(tmp_path: Path, damage: str) -> None:
    packed = build_packed(tmp_path / "home", epochs=2)
    part = packed.packed_chunks.open_part(next(iter(packed.packed_chunks.parts)))
    batches = packed.samples.open_part(next(iter(packed.samples.parts))).file("batches.npy")
    chunks, bounds = part.file("chunks.npy"), part.array("bounds")
    images = {name: (part.file(f"{name}.npy"), PAGE_BYTES + 5) for name in ("device_image", "host_image")}
    flipped = images | {
        "bit": (chunks, int(bounds[3]) - PAGE_BYTES - 7),
        "sample": (batches, PAGE_BYTES + 50),
        "cache": (part.file("caches.npy"), int(part.array("cache_bounds")[0]) + 1000),
        "index": (packed.packed_chunks.file("num_cached.npy"), PAGE_BYTES + 8),
    }
    if damage == "truncated":
        chunks.chmod(0o644)
        with chunks.open("r+b") as file:
            file.truncate(int(bounds[2]) + 100)
    else:
        path, byte = flipped[damage]
        path.chmod(0o644)
        flip(path, 8 * byte)
    with pytest.raises(InputError) as caught:
        train(packed, tmp_path / "models")
    text = str(caught.value)
    assert "digest" in text or "instead of" in text
    assert "samples" in text or "packed_chunks" in text
    assert "graphmill repair" in text or "only this part will be rebuilt" in text
    if damage == "cache":
        assert "disk cache of batch" in text and "graphmill repair packed_chunks.parts/" in text


def test_without_packed_rows_or_with_other_samples_it_says_so(packed: Packed, tmp_path: Path) -> None:
    table = TrainTable(**(TABLE | {"trainer": "disk"}))
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=32, reuse=2)

    def run(reads: dict[str, Artifact], sampling: SamplingConfig = sampling) -> None:
        train_table(Store(tmp_path), packed.inputs, table, sampling, 5, reads=reads, report=lambda line: None)

    with pytest.raises(InputError, match="no samples were given"):
        run({})
    with pytest.raises(InputError, match="no cache_plan and packed_chunks were given"):
        run({"samples": packed.samples})
    whole = stored_rows(packed)
    with pytest.raises(InputError):
        run(whole, SamplingConfig(fanouts=(4, 2), batch_size=32, reuse=2))
    with pytest.raises(InputError, match="2 epochs"):
        run(whole, SamplingConfig(fanouts=(4, 3), batch_size=32, reuse=0))


def test_rows_of_other_features_are_refused(packed: Packed, tmp_path: Path) -> None:
    """They have as many nodes and columns, so nothing but the version tells that the rows are not those of this training."""
    others = random_graph_artifacts(tmp_path, width=300, dtype="float16").features
    with pytest.raises(InputError, match=r"packed_chunks/.* is not what is needed here:\n  input features: stored"):
        train_packed(packed._replace(features=others), tmp_path)
    assert not [each for each in Store(tmp_path).artifacts() if each.stage == "model"]


@pytest.mark.parametrize("trainer", ["disk", "minibatch"])
def test_a_queue_makes_room_for_batches_that_are_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    """Wide rows, or a large batch: a given size, and the default, are where the queue begins; it ends at half of the memory."""
    packed = build_packed(tmp_path / "packed")
    plain = content(train_packed(packed, tmp_path / "plain", trainer))
    monkeypatch.setattr("graphmill.trainers.recipe.queue_bytes.AUTO_BYTES", 3000)
    small = content(train_packed(packed, tmp_path / "small", trainer))
    assert small["weights.safetensors"] == plain["weights.safetensors"]
    given = content(train_packed(packed, tmp_path / "given", trainer, queue="3000"))
    assert given["weights.safetensors"] == plain["weights.safetensors"]
    monkeypatch.setattr("graphmill.trainers.recipe.queue_bytes.memory_bytes", lambda: 6000)
    with pytest.raises(OverBudget, match="lower `batch_size` or `fanouts`"):
        train_packed(packed, tmp_path / "none", trainer, queue="3000")
