"""Rounds: every ordered pair exactly once, no link with two transfers, as few rounds as possible; and the seconds of an exchange."""

import random
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.trainers.ranks import rounds as module
from graphmill.trainers.ranks.links import Interconnect, parse_links
from graphmill.trainers.ranks.rounds import (
    Rounds,
    conflict_sets,
    ends_at_once,
    fair_rates,
    faster_in_rounds,
    make_rounds,
    seconds_in_rounds,
)

FIGURE_9C = "0 1 | 2 3 @ 32GB/s | 16GB/s"


@st.composite
def texts(draw, most=8):
    """Groups of two levels and direct links between some devices."""
    count = draw(st.integers(2, most))
    bars = draw(st.lists(st.sampled_from([" ", " ", " | ", " || "]), min_size=count - 1, max_size=count - 1))
    depth = max([len(each.strip()) for each in bars], default=0)
    order = draw(st.permutations(range(count)))
    groups = "".join(f"{device}{bar}" for device, bar in zip(order, [*bars, ""], strict=True))
    speeds = " ".join(["@ 32GB/s", "| 16GB/s", "|| 8GB/s"][: depth + 1])
    pairs = [(one, other) for one in range(count) for other in range(one)]
    direct = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=4))
    return "; ".join([f"{groups} {speeds}", *(f"{one}-{other} 50GB/s" for one, other in direct)])


@st.composite
def drawn_links(draw, most):
    """Any routes over any links, as measured ones may be."""
    count, extra = draw(st.integers(2, most)), draw(st.integers(1, 8))
    pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
    routes = {pair: tuple(draw(st.sets(st.integers(0, extra - 1), min_size=1, max_size=3))) for pair in pairs}
    return Interconnect(
        names=tuple(map(str, range(extra))),
        gbps=tuple(draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=extra, max_size=extra))),
        routes=routes,
        places=tuple((device,) for device in range(count)),
    )


def check(links, found):
    """Every ordered pair exactly once, and no link with two transfers in a round."""
    once = Counter(pair for each in found.rounds for pair in each)
    assert once == dict.fromkeys(links.routes, 1)
    for each in found.rounds:
        assert each and max(Counter(link for pair in each for link in links.routes[pair]).values()) == 1
    assert max(map(len, links.users())) <= found.least <= len(found.rounds)


def least_by_trying(links):
    """The fewest rounds, found by trying all sets of transfers that may share a round."""
    conflicts = conflict_sets(links, sorted(links.routes))
    everything = (1 << len(conflicts)) - 1

    @cache
    def fits(members):
        if not members:
            return True
        first = (members & -members).bit_length() - 1
        rest = members & (members - 1)
        return not conflicts[first] & rest and fits(rest)

    @cache
    def least(left):
        if not left:
            return 0
        first = left & -left  # it is in some round; which transfers are with it?
        rest, best, subset = left ^ first, len(conflicts), left ^ first
        while True:
            if fits(subset | first):
                best = min(best, 1 + least(rest & ~subset))
            if not subset:
                return best
            subset = (subset - 1) & rest

    return least(everything)


@settings(max_examples=60, deadline=None)
@given(texts())
def test_no_link_has_two_transfers(text):
    links = parse_links(text)
    found = make_rounds(links)
    check(links, found)
    assert found.fewest and make_rounds(links) == found


@settings(max_examples=25, deadline=None)
@given(st.one_of(texts(most=3).map(parse_links), drawn_links(most=3)))
def test_rounds_are_the_fewest_of_all(links):
    found = make_rounds(links)
    check(links, found)
    assert found.fewest and len(found.rounds) == least_by_trying(links)


def test_four_devices_with_links_of_any_kind_need_the_fewest():
    draw = random.Random(4)
    for _ in range(2):
        pairs = [(one, other) for one in range(4) for other in range(4) if one != other]
        routes = {pair: (*draw.sample(range(12), 3),) for pair in pairs}
        links = Interconnect(names=("",) * 12, gbps=(1.0,) * 12, routes=routes, places=((0,), (1,), (2,), (3,)))
        assert len(make_rounds(links).rounds) == least_by_trying(links)


def test_the_exact_search_finds_what_the_others_miss(monkeypatch):
    """Five transfers in a circle of shared links: two at once, three rounds, and no more than two of them conflict."""
    around = {(0, 1): (0, 4), (1, 0): (0, 1), (0, 2): (1, 2), (2, 0): (2, 3), (1, 2): (3, 4), (2, 1): (5,)}
    links = Interconnect(names=("",) * 6, gbps=(1.0,) * 6, routes=around, places=((0,), (1,), (2,)))
    found = make_rounds(links)
    check(links, found)
    assert len(found.rounds) == found.least == 3
    monkeypatch.setattr(module, "SEARCH_STEPS", 0)
    given_up = make_rounds(links)
    assert len(given_up.rounds) == 3 and given_up.least == 2 and not given_up.fewest


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0 1 @ 1GB/s", 1),
        (FIGURE_9C, 4),
        ("0 1 2 3 @ 1GB/s", 3),
        ("0 1 2 3 4 5 6 7 @ 1GB/s", 7),
        ("0 1 2 3 | 4 5 6 7 @ 1GB/s | 1GB/s", 16),
        ("0 1 | 2 3 | 4 5 | 6 7 @ 1GB/s | 1GB/s", 12),
        ("0 1 | 2 3 || 4 5 | 6 7 @ 1GB/s | 1GB/s || 1GB/s", 16),
        (" ".join(map(str, range(32))) + " @ 1GB/s", 31),
        (" | ".join(" ".join(map(str, range(first, first + 4))) for first in (0, 4, 8, 12)) + " @ 1GB/s | 1GB/s", 48),
    ],
)
def test_common_machines_have_as_few_rounds_as_their_narrowest_link_allows(text, count):
    links = parse_links(text)
    found = make_rounds(links)
    check(links, found)
    assert found.fewest and len(found.rounds) == count == max(map(len, links.users()))


def test_rounds_pass_through_json():
    found = make_rounds(parse_links(FIGURE_9C))
    assert Rounds.of([[list(pair) for pair in each] for each in found.rounds], found.least) == found


def test_shares_are_fair():
    links = parse_links("0 1 | 2 3 @ 32GB/s | 16GB/s")
    rates = fair_rates(links, {(0, 2): 1, (1, 2): 1, (0, 1): 1})
    assert rates == {(0, 2): 8, (1, 2): 8, (0, 1): 24}  # the bridge is full first, and what is left of 0's link is 1's


@settings(max_examples=30, deadline=None)
@given(drawn_links(most=4), st.data())
def test_no_link_carries_more_than_its_speed_and_each_transfer_meets_a_full_one(links, data):
    sizes = {pair: data.draw(st.sampled_from([0, 1, 1000, 10**9])) for pair in links.routes}
    rates = fair_rates(links, {pair: size for pair, size in sizes.items() if size})
    used = [sum(rates.get(pair, 0.0) for pair in users) for users in links.users()]
    assert all(load <= speed * (1 + 1e-9) for load, speed in zip(used, links.gbps, strict=True))
    full = {link for link, load in enumerate(used) if load > links.gbps[link] * (1 - 1e-9)}
    assert all(full & {*links.routes[pair]} for pair in rates)
    ends = ends_at_once(links, sizes)
    for pair, size in sizes.items():
        assert ends[pair] >= size / links.alone_gbps(pair) * 1e-9 * (1 - 1e-6)
        assert (ends[pair] == 0) == (size == 0)


def test_rounds_gain_nothing_without_congestion_and_what_it_loses_with_it():
    """Figure 9c, 1 GB per pair: one shot and four rounds keep the bridge full for 250 ms; five rounds take longer."""
    links = parse_links(FIGURE_9C)
    order, sizes = make_rounds(links), dict.fromkeys(links.routes, 10**9)
    assert max(ends_at_once(links, sizes).values()) == pytest.approx(0.25)
    assert seconds_in_rounds(links, order, sizes) == pytest.approx([0.0625] * 4)
    assert not faster_in_rounds(links, order)
    of_paper = Rounds(
        rounds=(((0, 1), (1, 0), (2, 3), (3, 2)), *(((a, b), (b, a)) for a in (0, 1) for b in (2, 3))), least=4
    )
    check(links, of_paper)
    assert sum(seconds_in_rounds(links, of_paper, sizes)) == pytest.approx(0.25 + 0.03125)
    congested = parse_links(f"{FIGURE_9C}; efficiency 1 0.8 0.6 0.4")
    assert max(ends_at_once(congested, sizes).values()) == pytest.approx(0.625)  # four transfers share 0.4 of 16 GB/s
    assert sum(seconds_in_rounds(congested, order, sizes)) == pytest.approx(0.25)
    assert faster_in_rounds(congested, order)
