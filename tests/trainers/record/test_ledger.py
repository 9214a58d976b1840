"""The ledger adds integers and survives being written and merged."""

import json

from hypothesis import given
from hypothesis import strategies as st

from graphmill.trainers.record.ledger import Ledger, Line

lines = st.builds(
    Line,
    st.sampled_from(["disk", "mapped", "h2d"]),
    st.sampled_from(["feature", "gradient"]),
    st.sampled_from(["forward", "backward"]),
    st.integers(0, 3),
)
moves = st.lists(st.tuples(lines, st.integers(0, 5), st.integers(0, 10**12), st.integers(0, 10**12)), max_size=12)
counts = st.lists(
    st.tuples(st.sampled_from(["inputs", "edges"]), st.integers(0, 3), st.integers(0, 10**12)), max_size=12
)


def filled(move_rows: list, count_rows: list) -> Ledger:
    ledger = Ledger()
    for line, requests, asked, moved in move_rows:
        ledger.move(line, requests=requests, asked_bytes=asked, moved_bytes=moved)
    for name, layer, n in count_rows:
        ledger.count(name, layer, n)
    return ledger


@given(moves, counts, moves, counts)
def test_merging_equals_filling_one(moves_a: list, counts_a: list, moves_b: list, counts_b: list) -> None:
    merged = filled(moves_a, counts_a)
    merged.merge(filled(moves_b, counts_b))
    assert merged.rows() == filled(moves_a + moves_b, counts_a + counts_b).rows()


@given(moves, counts)
def test_rows_survive_json(move_rows: list, count_rows: list) -> None:
    rows = filled(move_rows, count_rows).rows()
    assert Ledger.from_rows(json.loads(json.dumps(rows))).rows() == rows


def test_rows_are_sums_in_a_fixed_order() -> None:
    ledger = Ledger()
    ledger.move(Line("mapped", "feature"), requests=1, asked_bytes=10, moved_bytes=0)
    ledger.move(Line("h2d", "feature"), requests=1, asked_bytes=4, moved_bytes=6)
    ledger.crossed(Line("h2d", "feature"), 1, requests=2)
    ledger.count("edges", 1, 7)
    ledger.count("edges", 0, 5)
    base = {"kind": "feature", "phase": "forward", "layer": 0}
    assert ledger.rows() == {
        "moves": [
            {"link": "h2d", "requests": 3, "asked_bytes": 5, "moved_bytes": 7} | base,
            {"link": "mapped", "requests": 1, "asked_bytes": 10, "moved_bytes": 0} | base,
        ],
        "counts": [{"name": "edges", "layer": 0, "n": 5}, {"name": "edges", "layer": 1, "n": 7}],
    }


def test_bytes_by_link_are_what_moved_and_for_mapped_files_what_was_asked() -> None:
    ledger = Ledger()
    ledger.move(Line("mapped", "feature"), requests=1, asked_bytes=10, moved_bytes=0)
    ledger.move(Line("disk", "feature"), requests=1, asked_bytes=4, moved_bytes=6)
    ledger.crossed(Line("disk", "ids"), 1, requests=2)
    assert list(ledger.bytes_by_link().items()) == [("disk", 7), ("mapped", 10)]
