"""Rates of links: measured once, replaced only when asked, damage named; texts are three speeds or one clear error."""

import json

import pytest

from graphmill.assets.chunks.rates import PLACE, measured_rates, parse_rates
from graphmill.assets.storage.files.documents import unseal
from graphmill.kernels.chunks.counts import cost
from graphmill.kernels.chunks.rates import LinkRates, measure_rates
from graphmill.kernels.errors import InputError


@pytest.fixture
def machine(monkeypatch):
    """A machine whose links can get faster."""
    speed = {"host": 1e9}
    found = lambda: ("drawn", LinkRates(**rates(speed["host"])))  # noqa: E731
    monkeypatch.setattr("graphmill.assets.chunks.rates.measure_rates", found)
    return speed


def rates(host):
    return {"host_bytes_per_second": host, "peer_bytes_per_second": 2e9, "reuse_bytes_per_second": 4e9}


def test_links_are_measured_once_and_again_when_asked(tmp_path, machine):
    assert measured_rates(tmp_path) == ("drawn", LinkRates(**rates(1e9)))
    machine["host"] = 9e9
    assert measured_rates(tmp_path)[1].host_bytes_per_second == 1e9
    assert measured_rates(tmp_path, again=True)[1].host_bytes_per_second == 9e9
    kept = (tmp_path / PLACE).read_text()
    assert unseal(tmp_path / PLACE).items() >= ({"device": "drawn"} | rates(9e9)).items()
    (tmp_path / PLACE).write_text(json.dumps({"device": "by hand"} | rates(7e9)))  # without a seal
    assert measured_rates(tmp_path) == ("by hand", LinkRates(**rates(7e9)))
    for damage in ("{", "{}", json.dumps({"device": "x"} | rates(0)), kept.replace("9000000000.0", "8000000000.0")):
        (tmp_path / PLACE).write_text(damage)
        with pytest.raises(InputError, match=r"is damaged(?s:.*)--refresh"):
            measured_rates(tmp_path)


def test_this_machine_has_three_rates():
    device, found = measure_rates(1 << 20)
    assert device and min(found.of_rows(512)) > 0
    assert found.of_rows(512)[0] == pytest.approx(found.host_bytes_per_second / 512)


def test_texts_are_three_speeds():
    found = parse_rates("12GB/s, 200 GB/s,1.5TB/s")
    assert found.of_rows(1) == (12e9, 200e9, 1.5e12)
    # 30 rows of 100 bytes at 12 GB/s, 40 at 200 GB/s, 30 at 1.5 TB/s
    assert cost(100, 60, 30, found.of_rows(100)) == pytest.approx(3000 / 12e9 + 4000 / 200e9 + 3000 / 1.5e12)
    wrong = ("", "12GB/s", "1GB/s,2GB/s,3", "1GB/s,2GB/s,0GB/s", "1GB/s,2GB/s,-1GB/s", "1.2.3GB/s,2GB/s,3GB/s")
    for text in (*wrong, "1GB/s,2GB/s,3GB/s,4GB/s"):
        with pytest.raises(InputError, match="are not three speeds above 0"):
            parse_rates(text)
