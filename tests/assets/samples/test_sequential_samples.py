"""Samples that are drawn by passes over the edges: equal bytes, whatever kills and faults there were, and what a page shows of passes."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from graphmill.assets.building.stage import Silent
from graphmill.assets.costs.needs import Sizes, sizes_of
from graphmill.assets.samples.config import SamplesConfig, SamplesExecution
from graphmill.assets.samples.costs import samples_need
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.samples.sampled import CONFIG, build_samples, contents
from tests.assets.storage.damage import flip
from tests.assets.storage.limits import file_size_limit
from tests.forks import ROOT
from tests.trainers.graphs import random_graph_artifacts

pytestmark = pytest.mark.usefixtures("drawn")
MORE = {"epochs": 2, "evaluate": True}


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    """The same samples by random reads of mapped files."""
    return build_samples(tmp_path_factory.mktemp("mapped"), topology="mapped", **MORE)


def parts_of(home):
    return {path.name: path.stat().st_mtime_ns for path in Store(home).folders() if path.parent.name == "samples.parts"}


@pytest.mark.parametrize(("threads", "workers"), [(1, 1), (2, 2)])
def test_bytes_are_those_of_mapped_reads(tmp_path, mapped, threads, workers):
    made = build_samples(tmp_path, threads=threads, workers=workers, topology="sequential", **MORE)
    assert made.version == mapped.version and len(made.parts) > 6
    assert contents(made) == contents(mapped)


def test_auto_takes_passes_where_the_topology_does_not_fit(tmp_path, mapped, monkeypatch):
    assert "passes" not in build_samples(tmp_path / "near", **MORE).run_record()
    monkeypatch.setattr("graphmill.assets.sampling.passes.fits_memory", lambda num_bytes: False)
    made = build_samples(tmp_path / "far", **MORE)
    assert contents(made) == contents(mapped)
    record = made.run_record()
    assert (record["passes"], record["groups_by_layer"]) == (2, [1, 1])
    (graph,) = [each for each in Store(tmp_path / "far").artifacts() if each.stage == "graph"]
    # Each of the two passes reads the only block of both files.
    assert record["topology_read_bytes"] == 2 * sum(
        graph.files[f"{name}.npy"]["bytes"] for name in ("indptr", "indices")
    )
    walks = SamplesConfig(**(CONFIG | {"method": "random_walk"}))
    assert SAMPLES.together({"graph": random_graph_artifacts(tmp_path / "walks").graph}, walks) == 0


def test_parts_that_were_published_before_a_kill_are_found_again(tmp_path, mapped):
    build_samples(tmp_path, topology="mapped", epochs=1)  # the graph, and nothing of the samples below
    program = textwrap.dedent(f"""
        import os, signal
        from graphmill.assets.building.stage import Silent
        from tests.assets.samples.sampled import build_samples

        class Killed(Silent):
            left = 12
            def advance(self, n):
                Killed.left -= n
                if Killed.left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        build_samples({str(tmp_path)!r}, Killed(), topology="sequential", **{MORE!r})
    """)
    before = parts_of(tmp_path)
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=dict(os.environ), check=False)
    assert ended.returncode == -signal.SIGKILL
    found = parts_of(tmp_path)
    assert before.keys() < found.keys()
    made = build_samples(tmp_path, topology="sequential", **MORE)
    assert contents(made) == contents(mapped)
    after = parts_of(tmp_path)
    assert {name: after[name] for name in found} == found and len(after) > len(found)
    assert not [path for path in (tmp_path / "store" / ".staging").glob("*") if path.is_dir()]


def test_a_damaged_graph_ends_the_build_with_one_message(tmp_path):
    graph = random_graph_artifacts(tmp_path).graph
    flip(graph.path / "indices.npy", 8 * 4200)
    with pytest.raises(InputError, match=r"indices.npy is damaged(?s:.*)graphmill repair graph"):
        build_samples(tmp_path, graph=graph, topology="sequential")
    assert not parts_of(tmp_path)


def test_a_disk_that_is_full_in_a_pass_ends_the_build_with_one_message(tmp_path, monkeypatch):
    """Others took the space since it was compared with what the pass needs."""
    monkeypatch.setattr("graphmill.assets.sampling.sequential.granted_bytes", lambda how: 1 << 15)
    graph = random_graph_artifacts(tmp_path).graph
    with file_size_limit(4096), pytest.raises(InputError, match="larger than allowed"):
        build_samples(tmp_path, graph=graph, topology="sequential")
    assert not parts_of(tmp_path)
    assert not [path for path in (tmp_path / "store" / ".staging").glob("*") if path.is_dir()]


def test_the_need_has_the_limit_and_the_spilled_edges():
    sizes = Sizes(num_nodes=1_000_000, num_edges=20_000_000, num_train=10_000)
    execution = SamplesExecution(workers=2, threads=2)
    near, far = (
        samples_need(SamplesConfig(**(CONFIG | {"topology": how, "memory_limit": "1GiB"})), execution, sizes)
        for how in ("mapped", "sequential")
    )
    assert near.scratch == 0 and far.scratch > 0 and near.stored == far.stored
    (term,) = [term for term in far.memory if term.key == "[sampling] memory_limit"]
    assert term.most == 1 << 30


@pytest.mark.parametrize("free", [1 << 40, 1 << 10])
def test_no_more_passes_are_made_than_were_planned(tmp_path, monkeypatch, free):
    """With memory for all batches in a group, and for one."""
    monkeypatch.setattr("graphmill.assets.sampling.passes.free_bytes", lambda: free)
    monkeypatch.setattr("graphmill.assets.sampling.passes.LEAST_MEMORY", 2048)
    monkeypatch.setattr("graphmill.assets.sampling.sequential.window_bytes", lambda limit: 1 << 20)
    monkeypatch.setattr("graphmill.assets.sampling.sequential.SequentialDraws._require_rows", lambda *given: None)
    made = build_samples(tmp_path, topology="sequential", **MORE)
    (graph,) = [each for each in Store(tmp_path).artifacts() if each.stage == "graph"]
    semantic = SamplesConfig(**(CONFIG | MORE | {"topology": "sequential"}))
    need = samples_need(semantic, SamplesExecution(), sizes_of({"graph": graph}))
    record = made.run_record()
    assert need.passes is not None and record["topology_read_bytes"] <= need.passes.num_bytes
    assert record["passes"] <= need.passes.count
    assert (record["passes"] > 2) == (free < 1 << 20)
    assert (record["spilled_bytes"] > 0) == (record["spill_read_bytes"] > 0) == (free < 1 << 20)


def test_progress_counts_batches_and_notices_a_cancelled_run(tmp_path):
    class Cancelled(Silent):
        def advance(self, n):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_samples(tmp_path, Cancelled(), topology="sequential")
    assert not parts_of(tmp_path)
