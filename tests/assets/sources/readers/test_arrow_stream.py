"""Batches from DuckDB: nulls, lists, offsets, failures half-way, and errors in a sentence."""

import numpy as np
import pytest

from graphmill.assets.sources.readers.duck import Duck, explained, literal, quoted
from graphmill.kernels.errors import InputError


@pytest.fixture
def duck():
    with Duck(None, 256 << 20, 2) as opened:
        yield opened


def column(duck, sql):
    return [batch[0] for batch in duck.batches(sql)]


def test_numbers_of_every_type(duck):
    for kind, dtype in (
        ("TINYINT", "int8"), ("UTINYINT", "uint8"), ("SMALLINT", "int16"), ("USMALLINT", "uint16"), ("INTEGER", "int32"),
        ("UINTEGER", "uint32"), ("BIGINT", "int64"), ("UBIGINT", "uint64"), ("FLOAT", "float32"), ("DOUBLE", "float64"),
    ):  # fmt: skip
        found = [batch[0].values.copy() for batch in duck.batches(f"SELECT (i % 100)::{kind} FROM range(300000) t(i)")]
        assert len(found) > 1 and found[0].dtype == dtype
        assert np.array_equal(np.concatenate(found), np.arange(300000) % 100)


def test_nulls_are_bits_from_the_lowest(duck):
    seen = 0
    for batch in duck.batches("SELECT CASE WHEN i % 3 <> 1 THEN i END FROM range(300001) t(i)"):
        count = len(batch[0].values)
        assert np.array_equal(np.flatnonzero(batch[0].nulls), np.flatnonzero((np.arange(seen, seen + count)) % 3 == 1))
        seen += count
    assert seen == 300001
    assert column(duck, "SELECT i FROM range(9) t(i)")[0].nulls is None


def test_lists_of_any_and_of_fixed_length(duck):
    for batch in duck.batches("SELECT range(i) AS a, [i, NULL]::INTEGER[2] AS b FROM range(4) t(i)"):
        assert batch[0].lengths.tolist() == [0, 1, 2, 3] and batch[0].values.tolist() == [0, 0, 1, 0, 1, 2]
        assert batch[1].lengths.tolist() == [2] * 4 and batch[1].value_nulls.tolist() == [False, True] * 4
    for batch in duck.batches("SELECT CASE WHEN i <> 1 THEN [i] END FROM range(3) t(i)"):
        assert batch[0].nulls.tolist() == [False, True, False]


def test_a_failure_half_way_is_an_input_error(duck):
    with pytest.raises(InputError, match="table: cannot be read"):
        list(
            duck.batches("SELECT CASE WHEN i < 500000 THEN 1 ELSE error('broken') END FROM range(600000) t(i)", "table")
        )
    assert duck.rows("SELECT 1") == [(1,)]


def test_questions_between_batches_and_streams_that_are_left(duck):
    stream = duck.batches("SELECT i FROM range(1000000) t(i)")
    first = next(stream)[0].values[:3].tolist()
    assert duck.rows("SELECT 7") == [(7,)] and first == [0, 1, 2]
    stream.close()
    assert len(column(duck, "SELECT 1")) == 1


def test_too_little_memory_names_the_key(tmp_path):
    with Duck(None, 16 << 20, 1) as duck, pytest.raises(InputError, match=r"DuckDB cannot work in 16\.0 MiB") as caught:
        duck.rows("SELECT count(*) FROM (SELECT DISTINCT hash(i) AS h FROM range(20000000) t(i))")
    assert "memory_limit" in caught.value.remedy


def test_texts_in_sql_and_errors(duck):
    assert duck.rows(f"SELECT {literal('it' + chr(39) + 's')} AS {quoted('a' + chr(34))}") == [("it's",)]
    report = explained("IO Error: Unexpected end of GZIP stream: a.gz\n\nLINE 1: ...", "a.gz")
    assert report.problem == "a.gz: the gzip file is damaged or cut short"
