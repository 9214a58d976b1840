"""The numbers of stored batches: by epoch and step, or by part, epoch and round."""

import numpy as np
import pytest

from graphmill.assets.samples.config import BatchRange
from graphmill.assets.samples.read import StoredOrder

CASES = [
    StoredOrder(num_epochs=2, num_parts=1, sizes=(7, 7)),
    StoredOrder(num_epochs=2, num_parts=1, sizes=(7, 7, 3, 0)),
    StoredOrder(num_epochs=3, num_parts=4, sizes=(20, 20, 20)),
    StoredOrder(num_epochs=1, num_parts=2, sizes=(2, 0, 5)),
]


@pytest.mark.parametrize("order", CASES, ids=str)
def test_each_batch_has_one_number(order: StoredOrder) -> None:
    places = [(epoch, step) for epoch, count in enumerate(order.sizes) for step in range(count)]
    numbers = [order.number(*place) for place in places]
    assert sorted(numbers) == list(range(len(places))) and [order.place_of(number) for number in numbers] == places
    uses = np.arange(1, order.num_epochs + 1)
    expected = [0 if epoch >= order.num_epochs else epoch + 1 for epoch, _ in map(order.place_of, range(len(places)))]
    assert order.epochs_of(uses).tolist() == expected


@pytest.mark.parametrize("order", CASES, ids=str)
def test_a_block_has_the_batches_of_one_part(order: StoredOrder) -> None:
    assert [number for block in order.blocks for number in range(*block)] == list(range(sum(order.sizes)))
    for part, block in enumerate(order.blocks if order.num_parts > 1 else ()):
        found = [order.place_of(number) for number in range(*block)]
        if part < order.num_parts:
            assert {step % order.num_parts for _, step in found} == {part} and found == sorted(found)
        else:
            assert all(epoch >= order.num_epochs for epoch, _ in found)


def test_names_tell_the_order() -> None:
    ranges = [BatchRange(epoch, low, low + 2, part) for part in range(3) for epoch in range(2) for low in (0, 2)]
    names = [each.name for each in [*ranges, BatchRange(3, 0, 5)]]
    assert [BatchRange.of(name) for name in names[:-1]] == ranges and names[0] == "part-0-epoch-0-batches-0-1"
    assert StoredOrder.of_names(names, 2, 4) == StoredOrder(num_epochs=2, num_parts=3, sizes=(12, 12, 0, 5))
