"""Ranks with an accelerator each: what is exchanged goes through the host, and the bits are those of one rank."""

import pytest

from assets.sampling.config import SamplingConfig
from tests.accelerator.test_training import assert_close, moves
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import content, parts_inputs, train_parts
from tests.trainers.techniques.distributed.test_distributed import ledger


@pytest.mark.parametrize("gradients", ["ordered", "all-reduce"])
def test_two_ranks_on_accelerators_are_one(tmp_path, place, gradients):
    parts_inputs(tmp_path, 2)
    options = {"settings": {"gradients": gradients}, "epochs": 2, "norm": "layer", "dropout": 0.3, "retrain": True}
    on_cpu = train_parts(tmp_path, 2, **options)
    one = train_parts(tmp_path, 2, device="cuda", **options)
    place.begin()
    two = run_threads(2, lambda ranks: train_parts(tmp_path, 2, ranks, device="cuda", **options))[0]
    crossed = place.crossed()
    assert on_cpu and one and two
    assert_close(one, on_cpu)
    if gradients == "ordered":
        assert content(one)["weights.safetensors"] == content(two)["weights.safetensors"]
    else:
        assert_close(two, one)
    sent = moves(two.run_record()["traffic_besides_batches"], "h2d")
    assert sent["gradient"] > 0 and (crossed is None or sent["gradient"] <= crossed.h2d_bytes)


def test_histories_of_parts_on_accelerators_are_those_of_one_rank(tmp_path, place):
    parts_inputs(tmp_path, 4)
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=8, reuse=2)
    options = {"fresh": {}, "sampling": sampling, "accumulate": 1, "epochs": 2, "dropout": 0.3, "retrain": True}
    on_cpu, one = (train_parts(tmp_path, 4, device=kind, **options) for kind in ("cpu", "cuda"))
    assert on_cpu and one and ledger(on_cpu)[0]["history_hits", 1] > 0
    assert_close(one, on_cpu)
    alone = content(one)["weights.safetensors"]
    two = run_threads(2, lambda ranks: train_parts(tmp_path, 4, ranks, device="cuda", **options))[0]
    assert two and content(two)["weights.safetensors"] == alone
