import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.kernels.errors import InputError


@pytest.mark.parametrize(
    ("size", "num_bytes"),
    [
        ("512", 512),
        (512, 512),
        ("64KiB", 65536),
        ("2GiB", 2**31),
        ("1.5 MB", 1_500_000),
        ("1gib", 2**30),
        ("0.1kB", 100),
    ]
    + [("10%", 25), ("5x", 1250), ("0.5x", 125), ("0", 0), ("3TiB", 3 * 2**40)],
)
def test_sizes(size, num_bytes):
    assert parse_size(size, 250) == num_bytes


@pytest.mark.parametrize("size", ["", "GiB", "-1", "2 G", "2Gi", "two", "1e3", -1, None, True, "1.", "10%", "5x"])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(InputError, match="MiB"):
        parse_size(size)


@pytest.mark.parametrize("size", ["9" * 5000, "9" * 5000 + "%", "99999999999PB", "1." + "0" * 40, 2**63, "9000000000x"])
def test_sizes_beyond_64_bits_are_refused(size):
    with pytest.raises(InputError, match="MiB"):
        parse_size(size, 2**40)
    assert parse_size(2**63 - 1) == parse_size(str(2**63 - 1)) == 2**63 - 1


@given(st.integers(0, 2**55))
def test_formatting_is_close(num_bytes):
    assert abs(parse_size(format_bytes(num_bytes)) - num_bytes) <= num_bytes * 0.05 + 1


def test_formatting_reads_well():
    assert [format_bytes(n) for n in (0, 17, 4096, 5 * 2**29)] == ["0 B", "17 B", "4.0 KiB", "2.5 GiB"]
