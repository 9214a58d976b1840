"""`lookahead = 1`: batches are decided one update earlier, read what the history held then, and load beside the step."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.loop.executor import BatchGradient
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import PackedLoader, Staged
from graphmill.trainers.techniques.fresh.batches import Pruner
from graphmill.trainers.techniques.fresh.history import BetweenLayers, SteppedHistory
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.recipe.test_techniques import Stop, Stopping
from tests.trainers.runs import content, train_fresh, train_packed
from tests.trainers.techniques.fresh.test_fresh import WEIGHTS, counts, epochs_of, passed, requests, sampling3

AHEAD: dict[str, Any] = {"lookahead": 1, "policy": "performance+features", "arena": "30%", "p_grad": 1, "t_stale": 6}


class Watched:
    """What a training decided, read and updated, noted beside it.

    Attributes:
        behind: (optimiser step of the batch, update that was the last one when the batch was decided, whether an epoch begins).
        ages: age of a spliced row at the step that reads it -> number.
        otherwise: rows that a lookup behind the update decides otherwise, by the arena's index: evicted, missed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.behind: list[tuple[int, int, bool]] = []
        self.ages, self.otherwise, self.updated = Counter[int](), Counter[str](), -1
        self.computed: dict[tuple[int, int], tuple[int, torch.Tensor]] = {}
        self._rows: list[tuple[int, Block, torch.Tensor]] = []
        self._now = 0
        pruned, splice_in, update, book = (
            Pruner.pruned,
            BetweenLayers.__call__,
            SteppedHistory.update,
            SteppedHistory.book,
        )

        def decided(pruner: Pruner, batch: MiniBatch, *more: Any, **how: Any) -> MiniBatch:
            before, found = self.updated, pruned(pruner, batch, *more, **how)
            step = pruner.batching.plan.step_of(batch.train_epoch, batch.position)
            self.behind.append((step, before, batch.position == 0))
            for layer, block in enumerate(found.blocks):
                for place, node in enumerate([] if block.splice is None else block.splice.hist_pos.tolist()):
                    born, row = self.computed[layer, int(block.src_ids[node])]
                    assert torch.equal(block.splice.rows[place], row)
                    self.ages[step - born] += 1
            assert self.updated == before, "the history changed while a batch was decided"
            return found

        def booked(history: SteppedHistory, batch: MiniBatch, ledger: Any) -> None:
            self._now = history.run.plan.step_of(batch.train_epoch, batch.position)
            index, age = history.arena.index, self._now - history.arena.index.born
            usable = {*index.owner[(index.owner >= 0) & (age > 0) & (age <= history.arena.t_stale)].tolist()}
            for layer, block in enumerate(batch.blocks[1 : 1 + history.layers], 1):
                hits = {*([] if block.splice is None else block.splice.hist_pos.tolist())}
                for place, node in enumerate(block.src_ids.tolist()):
                    held = (layer - 1) * history.arena.num_nodes + node in usable
                    self.otherwise["evicted"] += place in hits and not held
                    self.otherwise["missed"] += place not in hits and held
            book(history, batch, ledger)

        def spliced(between: BetweenLayers, layer: int, block: Block, h: torch.Tensor) -> torch.Tensor:
            out = splice_in(between, layer, block, h)
            self._rows.append((layer, block, out.detach().clone()))
            return out

        def changed(history: SteppedHistory, step: int, ledger: Any) -> None:
            for layer, block, rows in self._rows:
                hits = {*([] if block.splice is None else block.splice.hist_pos.tolist())}
                for place, node in enumerate(block.src_ids.tolist()):
                    if place not in hits:
                        self.computed[layer, node] = step, rows[place]
            self._rows = []
            update(history, step, ledger)
            self.updated = step

        monkeypatch.setattr(Pruner, "pruned", decided)
        monkeypatch.setattr(SteppedHistory, "book", booked)
        monkeypatch.setattr(BetweenLayers, "__call__", spliced)
        monkeypatch.setattr(SteppedHistory, "update", changed)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("policy", ["accuracy", "performance+features"])
def test_batches_read_what_the_history_held_one_update_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulate: int, policy: str
) -> None:
    """Every row that a step reads is the one that was held when the batch before was asked for, and no older than t_stale at the step."""
    seen, settings = Watched(monkeypatch), AHEAD | {"policy": policy, "t_stale": 4, "p_grad": 0.8}
    model = train_fresh(
        tmp_path, layers=3, sampling=sampling3(), dropout=0.3, accumulate=accumulate, fresh=settings, epochs=4
    )
    found = counts(model)
    assert sum(seen.ages.values()) == sum(found["history_hits", layer] for layer in (1, 2)) > 50
    first = 2 if accumulate == 1 else 1
    assert max(seen.ages) <= 4 and min(seen.ages) >= 1 and sum(seen.ages[age] for age in range(first, 5)) > 50
    for number, (step, before, begins) in enumerate(seen.behind):
        last = step if begins else seen.behind[number - 1][0]
        assert before == last - 1
    for kind in ("evicted", "missed"):
        assert seen.otherwise[kind] == sum(found[f"history_hits_{kind}", layer] for layer in (1, 2)) > 0
    assert passed(model, "ledger equals plan")


def test_the_papers_order_counts_nothing_decided_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AHEAD | {"lookahead": 0}
    model = train_fresh(tmp_path, fresh=settings)
    names = {name for name, _ in counts(model)}
    assert "history_hits" in names and not names & {"history_hits_evicted", "history_hits_missed"}


@pytest.mark.parametrize("queue", ["auto", "1", "40kB"])
def test_rows_load_while_the_batch_before_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    """No step ends before the rows of the next batch are there, also if the queue had space for one batch alone."""
    there, gather, compute, batches = threading.Semaphore(0), Pruner.gathered, BatchGradient.__call__, []

    def gathered(pruner: Pruner, *given: Any) -> Any:
        found = gather(pruner, *given)
        batches.append(pruner.batching.plan.num_batches)
        there.release()
        return found

    def late(gradient: BatchGradient, batch: MiniBatch, *more: Any) -> Any:
        if batch.position == 0:
            assert there.acquire(timeout=60)
        assert batch.position + 1 == batches[0] or there.acquire(timeout=60)
        return compute(gradient, batch, *more)

    monkeypatch.setattr(Pruner, "gathered", gathered)
    monkeypatch.setattr(BatchGradient, "__call__", late)
    train_fresh(tmp_path, fresh=AHEAD, epochs=2, queue=queue)
    assert len(batches) == 2 * batches[0] > 2


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_batch_is_decided_while_rows_of_the_one_before_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulate: int
) -> None:
    """Also the reading of its rows begins, so that the link to the device is not left idle; decisions keep their order."""
    decided, pruned, gather = {}, Pruner.pruned, Pruner.gathered
    order: list[tuple[int, int]] = []

    def noted(pruner: Pruner, batch: MiniBatch, *more: Any, **how: Any) -> MiniBatch:
        found, place = pruned(pruner, batch, *more, **how), (batch.train_epoch, batch.position)
        order.append(place)
        decided.setdefault(place, threading.Event()).set()
        return found

    def late(pruner: Pruner, batch: MiniBatch, *more: Any) -> Any:
        if batch.position + 1 < pruner.batching.plan.num_batches:
            following = decided.setdefault((batch.train_epoch, batch.position + 1), threading.Event())
            assert following.wait(60), "the next batch waits until all rows of this one are there"
        return gather(pruner, batch, *more)

    monkeypatch.setattr(Pruner, "pruned", noted)
    monkeypatch.setattr(Pruner, "gathered", late)
    train_fresh(tmp_path, fresh=AHEAD, epochs=2, accumulate=accumulate)
    assert order == sorted(order) and len(order) > 2


@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("fails_at", [0, 1, 7])
def test_windows_that_were_read_are_given_back_when_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lookahead: int, fails_at: int
) -> None:
    packed, read, released, gathered = build_packed(tmp_path, epochs=2), [], [], []
    load, release, gather = PackedLoader._load_rows, Staged.release, PackedRows.gather

    def loaded(loader: PackedLoader, *given: Any) -> Staged:
        read.append(load(loader, *given))
        return read[-1]

    def given_back(staged: Staged) -> None:
        released.append(staged)
        release(staged)

    def broken(source: PackedRows, *given: Any) -> None:
        gathered.append(source)
        if len(gathered) > fails_at:
            raise InputError("the device is gone", "find it")
        gather(source, *given)

    monkeypatch.setattr("graphmill.trainers.techniques.fresh.settings.WINDOW_BYTES", 1)
    monkeypatch.setattr(PackedLoader, "_load_rows", loaded)
    monkeypatch.setattr(Staged, "release", given_back)
    monkeypatch.setattr(PackedRows, "gather", broken)
    with pytest.raises(InputError, match="the device is gone"):
        train_fresh(tmp_path / "run", packed=packed, layers=2, fresh=AHEAD | {"lookahead": lookahead})
    assert read and len(released) >= len(read) and {*map(id, read)} <= {*map(id, released)}


def test_no_execution_changes_a_bit(tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {"samplers": 1},
        {"samplers": 5, "checkpoint_steps": 1},
        {"queue": "80kB", "workspace": "64MiB"},
        {"queue": "1"},
        {"features": "memory"},
        {"memory": {"device": "10%", "host": "20%"}, "link": "100 GB/s"},
    ]
    made = [train_fresh(tmp_path / str(i), fresh=AHEAD, model="gcn", dropout=0.3, **way) for i, way in enumerate(ways)]
    assert len({(content(each)[WEIGHTS], content(each)["metrics.jsonl"]) for each in made}) == 1
    assert len({str(content(each)) for each in made[:4]}) == 1
    assert all(passed(each, "ledger equals plan") for each in made)
    behind = train_fresh(tmp_path / "behind", fresh=AHEAD | {"lookahead": 0}, model="gcn", dropout=0.3)
    assert content(behind)[WEIGHTS] != content(made[0])[WEIGHTS] and behind.version != made[0].version


@pytest.mark.parametrize("stop_after", [1, 2, 8, 12, 13, 23, 24, 31])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path, stop_after: int, accumulate: int) -> None:
    """Also where the update of the last step evicted what the next batch reads: the checkpoint holds it."""
    settings = AHEAD | {"policy": "accuracy" if stop_after % 2 else "performance+features", "p_grad": 0.7}
    options: dict[str, Any] = {"accumulate": accumulate, "dropout": 0.3, "checkpoint_steps": 1, "fresh": settings}
    straight = train_fresh(tmp_path / "straight", **options)
    with pytest.raises(Stop):
        train_fresh(tmp_path / "stopped", progress=Stopping(stop_after), **options)
    resumed = train_fresh(tmp_path / "stopped", resume=True, **options)
    assert content(resumed) == content(straight) and counts(straight)["history_hits_evicted", 1] > 0


def test_rows_from_packed_chunks_change_no_bit(tmp_path: Path) -> None:
    packed = build_packed(tmp_path, epochs=2)
    options: dict[str, Any] = {"layers": 2, "dropout": 0.3, "packed": packed}
    chunks = train_fresh(tmp_path / "chunks", fresh=AHEAD, **options)
    table = train_fresh(tmp_path / "table", fresh=AHEAD | {"rows": "table"}, **options)
    assert content(chunks)[WEIGHTS] == content(table)[WEIGHTS] and passed(chunks, "ledger equals plan")
    assert counts(chunks)["history_hits_missed", 1] > 0 and requests(chunks) > 0
    whole = train_packed(packed, tmp_path / "disk", layers=2, dropout=0.3)
    nothing = train_fresh(tmp_path / "none", fresh=AHEAD | {"p_grad": 0.0}, **options)
    assert content(nothing)[WEIGHTS] == content(whole)[WEIGHTS] != content(chunks)[WEIGHTS]


def test_feature_rows_of_the_arena_never_move(tmp_path: Path) -> None:
    """Batches copy them beside updates: as many lie there at the end of every epoch, and embeddings take the rest alone."""
    for share in ("5%", "30%", "100%"):
        rows = epochs_of(train_fresh(tmp_path / share, fresh=AHEAD | {"arena": share}))
        assert len({row["arena_feature_bytes"] for row in rows}) == 1
        assert rows[0]["arena_feature_bytes"] + rows[-1]["history_bytes"] <= int(share[:-1]) * 400 * 48 // 100


@pytest.mark.parametrize("where", ["pruned", "gathered"])
def test_an_error_ahead_reaches_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """The update that waits for the decision does not wait for ever."""
    call = getattr(Pruner, where)

    def broken(pruner: Pruner, batch: MiniBatch, *more: Any, **how: Any) -> Any:
        if batch.position == 5:
            raise InputError("the disk is gone", "find it")
        return call(pruner, batch, *more, **how)

    monkeypatch.setattr(Pruner, where, broken)
    with pytest.raises(InputError, match="the disk is gone"):
        train_fresh(tmp_path, fresh=AHEAD)


def test_values_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="lookahead = 2 is above 1"):
        FreshSettings(lookahead=2)
    with pytest.raises(InputError, match=r"lookahead = 1 .* policy = 'accuracy\+features': take another policy"):
        FreshSettings(lookahead=1, policy="accuracy+features")
    assert FreshSettings().lookahead == 0 and np.isclose(FreshSettings(**AHEAD).p_grad, 1)
