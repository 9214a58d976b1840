"""The link takes the time that its speed says, however its bytes are cut and whoever sends them. The clock is a number."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.link import Link
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import LinkedSource, MappedSource, RowIds
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from tests.trainers.graphs import random_graph


class FakeTime:
    """A clock that only sleeping and working move."""

    def __init__(self):
        self.now_ns, self.slept_ns = 10**15, 0

    def sleep(self, ns: int) -> None:
        self.now_ns += ns
        self.slept_ns += ns


def open_link(gbps: float) -> tuple[Link, FakeTime]:
    time = FakeTime()
    return Link(gbps, clock=lambda: time.now_ns, sleep=time.sleep), time


@given(st.lists(st.integers(0, 10**9), max_size=60), st.sampled_from([0.1, 1.0, 12.0, 31.5, 7 / 3]))
def test_a_run_of_transfers_takes_bytes_over_rate(sizes, gbps):
    link, time = open_link(gbps)
    began = time.now_ns
    for size in sizes:
        link.carry(size, link.now())
    assert link.charged_bytes == sum(sizes)
    assert (
        0 <= time.now_ns - began - sum(sizes) / gbps <= 1 + 1e-9 * sum(sizes)
    )  # one nanosecond, and the float's own error


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=40))
def test_copying_counts_against_the_transfer_and_idle_time_is_not_saved(steps):
    """One worker that copies for some time and sends some bytes: each turn takes the longer of the two."""
    link, time = open_link(1.0)
    for work_ns, size in steps:
        since = link.now()
        time.now_ns += work_ns
        link.carry(size, since)
        assert time.now_ns - since == max(work_ns, size)
        time.now_ns += 500  # idle: the next transfer gains nothing by it


def test_workers_share_one_link():
    """Two workers who begin at once: the second waits for the first one's bytes as well."""
    link, time = open_link(2.0)
    since = link.now()
    link.carry(1000, since)
    assert time.now_ns - since == 500
    link.carry(3000, since)
    assert time.now_ns - since == 2000
    link.carry(0, link.now())
    assert time.now_ns - since == 2000


def test_threads_never_exceed_the_rate_together():
    arrivals, lock = [], threading.Lock()

    def sleep(ns: int) -> None:
        with lock:
            arrivals.append(ns)

    link = Link(1.0, clock=lambda: 0, sleep=sleep)
    threads = [threading.Thread(target=lambda: [link.carry(10, 0) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(arrivals) == list(range(10, 16_001, 10)) and link.charged_bytes == 16_000


def test_the_ledger_says_what_the_link_was_charged(tmp_path):
    table = MappedSource(random_graph(tmp_path).features)
    link, time = open_link(0.5)
    source, ledger, began = LinkedSource(table, link), Ledger(), time.now_ns
    for ids in (np.arange(7), np.arange(0), np.arange(100, 300)):
        out, plain = torch.empty(len(ids), 12), torch.empty(len(ids), 12)
        source.gather(RowIds(ids), out, ledger)
        table.gather(RowIds(ids), plain, Ledger())
        assert torch.equal(out, plain)
    assert ledger.moved_bytes("h2d") == link.charged_bytes == 207 * 48
    assert time.now_ns - began == 207 * 48 * 2
    assert (source.width, source.dtype, source.row_bytes) == (12, "float32", 48)


@pytest.mark.parametrize(
    "make",
    [
        lambda speed: TrainExecution(link=speed),
        lambda speed: DistributedSettings(rank_link=speed),
        lambda speed: FullGraphSettings(peer_link=speed),
    ],
)
@pytest.mark.parametrize("speed", ["0 GB/s", "-1 GB/s", "1 bit/s", "99999999999999 TB/s", "inf GB/s", "25", "25 Gb/s"])
def test_a_speed_at_which_nothing_would_end_or_without_a_unit_is_refused(make, speed):
    with pytest.raises(InputError, match=r"link = "):
        make(speed)
    assert make("1 kB/s") is not None and make("1000 TB/s") is not None


def test_bits_are_an_eighth_of_bytes():
    assert TrainExecution(link="25 Gbit/s").link_gbps == 25 / 8 and TrainExecution(link="25 GB/s").link_gbps == 25


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [("link_gbps", "link", ""), ("rank_gbps", "rank_link", "distributed"), ("peer_gbps", "peer_link", "fullgraph")],
)
def test_the_old_key_is_refused_with_the_factor(tmp_path, old, new, where):
    own = f'trainer = "{where}"\n[train.{where}]\n' if where else ""
    head = '[graph]\nsource = "sbm"\nnodes = 300\nedges = 900\n[sampling]\nfanouts = [2, 2]\nbatch_size = 10\n'
    text = f'{head}[partitions]\nparts = 2\n[[train]]\nname = "x"\n{own}{old} = 12\n'
    with pytest.raises(InputError, match=rf'no key {old}: {new} has the unit .* = "12 GB/s"; .* "12 Gbit/s"'):
        parse_pipeline(tmp_path / "x.toml", text.encode(), TrainTable)
