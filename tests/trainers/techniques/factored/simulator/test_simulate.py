"""The simulator: epochs that can be worked out by hand, exactly-once, and 1,000 drawn workloads."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.factored_simulated import compare, told
from graphmill.kernels.errors import InputError
from graphmill.trainers.techniques.factored.simulator.simulate import formula_samplers, profit, simulate, time_shared
from graphmill.trainers.techniques.factored.simulator.workload import Workload


def test_the_formula_of_the_paper() -> None:
    """N_s = ceil(N_g / (K + 1)); two samplers of eight devices where training takes three to four times as long."""
    assert [formula_samplers(8, 1.0, k) for k in (0.1, 1, 3, 7, 7.5, 100)] == [8, 4, 2, 1, 1, 1]
    assert formula_samplers(6, 0.1, 0.2) == 2 and formula_samplers(1, 5, 1) == 1 and formula_samplers(3, 0, 1) == 1


def test_the_profit_of_the_paper() -> None:
    assert profit(6, 2, 3.0, 8.0) == 1.0 and profit(0, 2, 3.0, 8.0) == -8.0 and profit(1, 0, 3.0, 8.0) == float("inf")


@pytest.mark.parametrize(
    ("work", "samplers", "trainers", "switching", "seconds"),
    [
        # One sampler keeps one trainer waiting: 10 samples, and the last batch's training.
        ({"sample": 2.0, "train": 1.0}, 1, 1, False, 21.0),
        # The trainer is what takes long: the first sample, then ten batches.
        ({"sample": 1.0, "train": 2.0}, 1, 1, False, 21.0),
        # Extraction is hidden behind training but for the first batch's.
        ({"sample": 1.0, "extract": 1.0, "train": 2.0}, 1, 1, False, 22.0),
        # Two trainers halve it; the last of ten batches is sampled at 10 and trained on at 12.
        ({"sample": 1.0, "train": 2.0}, 1, 2, False, 12.0),
        # One device alternates: it samples everything, then trains.
        ({"sample": 1.0, "extract": 1.0, "train": 2.0}, 1, 0, True, 40.0),
        # The same with a queue of three: it switches in between, and nothing is lost.
        ({"sample": 1.0, "extract": 1.0, "train": 2.0, "queue": 3}, 1, 0, True, 40.0),
        # With one batch per update a second trainer has nothing to do.
        ({"sample": 0.0, "train": 2.0, "group": 1}, 1, 2, False, 20.0),
        # With two they share each step; updates cost half a second each.
        ({"sample": 0.0, "train": 2.0, "group": 2, "update": 0.5}, 1, 2, False, 12.5),
        # A bound of one on staleness lets two trainers work again.
        ({"sample": 0.0, "train": 2.0, "group": 1, "staleness": 1}, 1, 2, False, 10.0),
    ],
)
def test_epochs_worked_out_by_hand(work: dict, samplers: int, trainers: int, switching: bool, seconds: float) -> None:
    found = simulate(Workload(batches=10, **work), samplers, trainers, switching=switching)
    assert found.seconds == pytest.approx(seconds)


def test_time_sharing_adds_the_stages() -> None:
    assert time_shared(Workload(batches=10, sample=1, extract=1, train=2, standby=3), 2) == pytest.approx(30)
    assert time_shared(Workload(batches=4, sample=1, train=2, group=2, update=0.5), 2) == pytest.approx(6.5)


def test_switching_is_never_worse_than_one_task() -> None:
    assert min(compare(60)) >= 1


@pytest.mark.slow("a thousand workloads instead of sixty")
def test_switching_is_never_worse_than_one_task_on_a_thousand_workloads() -> None:
    ratios = compare(1000)
    print("the formula's epochs, with switching, relative to the best:", told(ratios))
    assert min(ratios) >= 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_batch_goes_through_every_stage_once_and_executors_do_one_thing_at_a_time(data: st.DataObject) -> None:
    seconds = st.floats(0, 5, allow_nan=False)
    work = Workload(
        batches=data.draw(st.integers(1, 30)), sample=data.draw(seconds), extract=data.draw(seconds), train=data.draw(seconds),
        standby=data.draw(seconds), group=data.draw(st.integers(0, 5)), staleness=data.draw(st.integers(0, 2)),
        queue=data.draw(st.integers(0, 5)), jitter=data.draw(st.sampled_from((0.0, 0.5))), update=data.draw(seconds),
    )  # fmt: skip
    trainers, switching = data.draw(st.integers(0, 5)), data.draw(st.booleans())
    found = simulate(work, data.draw(st.integers(1, 5)), trainers, switching=switching or not trainers)
    for stage in ("sample", "extract", "train"):
        assert Counter(span[2] for span in found.spans if span[1] == stage) == Counter(range(work.batches))
    by_thread: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for who, stage, _, begin, end in found.spans:
        by_thread.setdefault((who, who.startswith("trainer") and stage == "extract"), []).append((begin, end))
    for spans in by_thread.values():
        spans.sort()
        assert all(one[1] <= two[0] + 1e-9 for one, two in itertools.pairwise(spans))


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"batches = 0 is below 1; jitter = 1 is not in \[0, 1\)"):
        Workload(batches=0, jitter=1)
