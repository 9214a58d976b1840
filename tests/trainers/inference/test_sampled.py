"""Sampled inference: the same bits whether batches are prepared ahead, from a cache or a table, or drawn one after the other."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.trainers.batches.source import OnlineSource, PreparedSource
from graphmill.trainers.inference import evaluation
from graphmill.trainers.inference.evaluation import infer_sampled
from graphmill.trainers.loop import executor
from graphmill.trainers.rows import shared
from graphmill.trainers.rows.cache import CachedSource
from tests.trainers.runs import train_small

MEMORY = {"device": "5%", "host": "20%", "seed": 3}


def scores(home: Path, **options: Any) -> dict[str, Any]:
    numbers = train_small(home, eval="sampled", **options).summary["numbers"]
    return {name: value for name, value in numbers.items() if "accuracy" in name} | {"loss": numbers["loss"]}


@pytest.mark.parametrize("model", [{"model": "gcn"}, {"model": "gat", "heads": 2}])
def test_batches_that_run_ahead_have_the_bits_of_those_drawn_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any]
) -> None:
    compared = []

    def both(inference: Any, node_ids: Any, plan: Any, source: PreparedSource | None, *_: Any) -> torch.Tensor:
        ahead, in_turn = infer_sampled(inference, node_ids, plan, source), infer_sampled(inference, node_ids, plan)
        assert source is not None and source.batching.transpose == "none"
        assert torch.equal(ahead, in_turn)
        compared.append(len(node_ids))
        return ahead

    monkeypatch.setattr(evaluation, "infer_sampled", both)
    train_small(tmp_path, eval="sampled", samplers=3, epochs=2, **model)
    assert len(compared) == 2 + 3  # validation twice, then every split


def test_rows_come_through_the_cache_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered, gather = [], CachedSource.gather

    def noted(source: CachedSource, batch: Any, out: torch.Tensor, ledger: Any) -> None:
        gathered.append(np.asarray(batch.input_ids).copy())
        gather(source, batch, out, ledger)

    plain = scores(tmp_path / "plain", epochs=1)
    monkeypatch.setattr(CachedSource, "gather", noted)
    assert scores(tmp_path / "cached", epochs=1, memory=MEMORY) == plain
    cached = len(gathered)
    gathered.clear()
    train_small(tmp_path / "exact", eval="exact", epochs=1, memory=MEMORY)
    assert 0 < len(gathered) < cached


def test_rows_that_batches_share_are_read_once_and_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, counts, took = [], [], OnlineSource.batches

    def noted(source: OnlineSource, *arguments: Any) -> Iterator[Any]:
        before = source.batching.ledger.moved_bytes("disk")
        yield from took(source, *arguments)
        if source.batching.transpose == "none":
            read.append(source.batching.ledger.moved_bytes("disk") - before)
            counts.append(source.shared)

    monkeypatch.setattr(OnlineSource, "batches", noted)
    options = {"epochs": 1, "features": "direct", "samplers": 2}
    plain = scores(tmp_path / "plain", **options)
    each = len(read)
    monkeypatch.setattr(executor, "SHARING", 1)
    monkeypatch.setattr(shared, "PASSES", 0)
    assert scores(tmp_path / "shared", **options) == plain
    assert each and len(read) == 2 * each and not any(counts[:each]) and all(counts[each:])
    assert all(read[:each]) and not any(read[each:])  # every row that a batch reads is held


def test_an_evaluation_takes_the_buffers_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[PreparedSource] = []
    batches = PreparedSource.batches

    def noted(source: PreparedSource, epoch: int, start_position: int = 0) -> Any:
        sources.append(source)
        return batches(source, epoch, start_position)

    monkeypatch.setattr(PreparedSource, "batches", noted)
    train_small(tmp_path, eval="sampled", epochs=1)
    training, *evaluations = sources
    assert len(evaluations) == 1 + 3
    assert all(each is not training and each.inputs is training.inputs for each in evaluations)


def test_a_batch_that_is_larger_than_the_queue_is_evaluated_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History leaves out nodes of training batches, so a queue that holds these may be too small for whole ones."""
    plain, batches = scores(tmp_path / "plain", epochs=1), PreparedSource.batches

    def squeezed(source: PreparedSource, epoch: int, start_position: int = 0) -> Any:
        if source.batching.transpose == "none":
            source.batching = replace(source.batching, queue_bytes=100)
        return batches(source, epoch, start_position)

    monkeypatch.setattr(PreparedSource, "batches", squeezed)
    assert scores(tmp_path / "squeezed", epochs=1) == plain
