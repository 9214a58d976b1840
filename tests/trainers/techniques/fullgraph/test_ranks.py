"""A full-graph training on ranks: the bits of one process, rows of its own nodes alone on each, and every row that crosses counted."""

import json
import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load

from graphmill.assets.chunks.read import open_chunks
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.checks import LEDGER_EQUALS_PLAN
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.fullgraph.executor import FullGraph
from graphmill.trainers.techniques.fullgraph.passes.row_passes import LogitsPass
from graphmill.trainers.techniques.fullgraph.passes.whole_pass import WholePass
from graphmill.trainers.techniques.fullgraph.rows.host_rows import KeptRows
from tests.graphs import build_graph
from tests.recipes import recipe, sbm
from tests.trainers import graphs
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import SAMPLING, Stops, build_chunks, content, train_whole

ROOT = Path(__file__).parents[4]
GRAPHMILL = str(Path(sys.executable).with_name("graphmill"))
MODELS = {
    "gcn": {"model": "gcn", "dtype": "float64"},
    "sage": {"norm": "layer", "dropout": 0.3},
    "gat": {"model": "gat", "heads": 2, "attention_dropout": 0.3, "residual": True},
    "gin": {"model": "gin", "keep_first": False},
    "normed": {"norm": "batch", "dropout": 0.3, "residual": "linear", "layers": 3},
    "max": {"aggregator": "max"},
    "jumps": {"input": "linear", "head": "linear", "jk": "cat", "input_dropout": 0.2, "layers": 3},
    "bf16": {"model": "gat", "heads": 2, "dtype": "bf16", "input": "linear", "head": "linear", "feed_forward": 2.0},
}
MODES = ("p2p+reuse", "p2p", "vanilla")
PARTS, CHUNKS, EPOCHS = 4, 3, 2


def ranked(home, world, parts=PARTS, chunks=CHUNKS, **options):
    """The model of so many ranks, which are threads."""
    options = {"epochs": EPOCHS, "threads": 1} | options
    if world == 1:
        return train_whole(home, parts, chunks, **options)
    # Threads of one process would get in each other's way; processes do not.
    build_chunks(home, random_graph_artifacts(home, **options.get("graph", {})).inputs["graph"], parts, chunks)
    return run_threads(world, lambda ranks: train_whole(home, parts, chunks, ranks=ranks, **options))[0]


def bits(model):
    return [content(model)[name] for name in ("weights.safetensors", "metrics.jsonl")]


def passes(model):
    return all(check["passed"] for check in model.summary["checks"] if check["name"] == LEDGER_EQUALS_PLAN)


def assert_same(folder, worlds=(2,), **options):
    """Ranks have the bits and the scores of one process, and the planned ledger."""
    one = ranked(folder / "one", 1, **options)
    for world in worlds:
        found = ranked(folder / f"{world} ranks", world, **options)
        assert bits(found) == bits(one) and found.version == one.version
        assert found.summary["numbers"] == one.summary["numbers"] and passes(found)


@pytest.mark.parametrize(
    ("model", "mode"),
    list(zip(("gcn", "sage", "gat", "normed"), ("p2p", "p2p+reuse", "vanilla", "p2p+reuse"), strict=True)),
)
def test_two_ranks_have_the_bits_of_one_process(tmp_path, model, mode):
    assert_same(tmp_path, mode=mode, **MODELS[model])


@pytest.mark.slow("models by mode, with and without cached aggregates, on two and four ranks")
@pytest.mark.parametrize("hybrid", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", MODELS)
def test_any_number_of_ranks_has_the_bits_of_one_process(tmp_path, model, mode, hybrid):
    assert_same(tmp_path, worlds=(2, 4), mode=mode, hybrid=hybrid, **MODELS[model])


@pytest.mark.parametrize(
    "ways",
    [
        {"link": "1000 GB/s", "peer_link": "1000 GB/s"},
        pytest.param({"devices": 2, "overlap": False, "link": "1000 GB/s"}, marks=pytest.mark.slow("devices of ranks")),
        pytest.param({"devices": 4, "workspace": "1MiB"}, marks=pytest.mark.slow("bounded devices of ranks")),
    ],
    ids=str,
)
def test_transfers_beside_computing_and_shared_devices_change_no_bit(tmp_path, ways):
    one = ranked(tmp_path / "one", 1, model="gat", heads=2)
    found = ranked(tmp_path / "ranks", 2, model="gat", heads=2, **ways)
    assert bits(found) == bits(one) and passes(found)


@pytest.mark.parametrize(
    "options",
    [
        {"eval_every": 1, "head": "linear", "jk": "max"},
        pytest.param({"model": "gat", "heads": 2, "input": "linear"}, marks=pytest.mark.slow("evaluation of GAT")),
    ],
    ids=str,
)
def test_a_rank_evaluates_the_nodes_of_its_parts(tmp_path, monkeypatch, options):
    """The bits of exact inference by ranges of nodes, which an evaluation without the pass makes."""
    asked, computed, real = [], [], LogitsPass.run

    def run(self):
        asked.append(int(self.chosen.sum()))
        computed.append(len(self.node_ids))
        real(self)

    monkeypatch.setattr(LogitsPass, "run", run)
    assert_same(tmp_path, **options)
    assert sum(computed) > 0 and max(computed) == max(asked)  # one process computes all of them
    split = sorted(each for each, of in zip(computed, asked, strict=True) if each < of)
    assert split and all(0.3 * max(asked) < each < 0.7 * max(asked) for each in split[-2:])
    by_pass = ranked(tmp_path / "pass", 1, **options)
    monkeypatch.setattr(FullGraph, "exact_logits", lambda self, node_ids: None)
    assert bits(ranked(tmp_path / "ranges", 1, **options)) == bits(by_pass)


def test_ranks_share_the_batches_of_a_sampled_evaluation(tmp_path):
    inputs = random_graph_artifacts(tmp_path).inputs
    inputs |= {"chunks": build_chunks(tmp_path, inputs["graph"], 2, 2)}
    table = TrainTable(name="x", trainer="fullgraph", eval="sampled", epochs=1, hidden=8, threads=1, eval_every=1)

    def work(ranks, home):
        return train_table(Store(home), inputs, table, SAMPLING, 5, ranks=ranks, report=lambda line: None)

    (one,), (two,) = work(ALONE, tmp_path / "one"), run_threads(2, lambda ranks: work(ranks, tmp_path / "two"))[0]
    assert bits(one) == bits(two) and one.summary["numbers"] == two.summary["numbers"]


def test_learnable_rows_of_nodes_have_the_bits_of_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "RELATIONS", 3)
    monkeypatch.setattr(graphs, "TYPE_COLUMNS", (12, 0, 5, 0))
    assert_same(tmp_path, input="typed", embedding="node", model="rgcn", bases=2)


def crossing(home, world, mode):
    """Rows that cross between ranks on the way up and down, by sets: neighbours of each chunk that are nodes of another rank."""
    graph = random_graph_artifacts(home).inputs["graph"]
    chunks, topology = (
        open_chunks(build_chunks(home, graph, PARTS, CHUNKS)),
        random_graph_artifacts(home).open().topology,
    )
    rank_of = {int(node): part * world // PARTS for part in range(PARTS) for node in chunks.nodes_of(part)}
    up = down = 0
    for part in range(PARTS):
        wanted = []
        for j in range(CHUNKS):
            found = {int(node) for node in chunks.step(part, j).dst_ids}
            found |= {int(u) for v in found for u in topology.indices[topology.indptr[v] : topology.indptr[v + 1]]}
            wanted.append({v for v in found if rank_of[v] != part * world // PARTS})
        reuse = mode == "p2p+reuse"
        up += sum(len(each - before if reuse else each) for each, before in zip(wanted, [set(), *wanted], strict=False))
        down += sum(
            len(each - after if reuse else each) for each, after in zip(wanted, [*wanted[1:], set()], strict=True)
        )
    return up, down


@pytest.mark.parametrize("mode", MODES)
def test_the_rows_that_cross_are_those_of_an_outside_count(tmp_path, mode):
    found = ranked(tmp_path, 2, aggregator="max", mode=mode)  # every layer reads 12 or 8 columns, and is computed again
    (up, down), moved = crossing(tmp_path, 2, mode), {}
    for row in json.loads(found.file("ledger.json").read_text())["moves"]:
        if row["link"] == "rank" and row["kind"] != "parameter":
            moved[row["kind"], row["phase"], row["layer"]] = row["moved_bytes"], row["requests"]

    def rows(count, columns):
        return EPOCHS * count * columns * 4, EPOCHS * count

    expected = {("neighbour", "forward", 1): rows(up, 8), ("neighbour", "backward", 1): rows(down, 8)}
    expected |= {("gradient", "backward", 1): rows(up, 8)}  # features need none
    if mode != "vanilla":  # where each rank reads the features of any node
        expected |= {("neighbour", "forward", 0): rows(up, 12), ("neighbour", "backward", 0): rows(down, 12)}
    assert moved == expected and passes(found)
    crossed = sum(each["rows_of_other_ranks"] for each in found.run_record()["executors"]["ranks"])
    assert crossed == up


@pytest.mark.parametrize("mode", ["p2p+reuse", "vanilla"])
def test_a_rank_has_the_rows_of_its_own_nodes_alone(tmp_path, monkeypatch, mode):
    held, real = [], KeptRows.__init__

    def note(self, num_rows, *arguments, **more):
        held.append(num_rows)
        real(self, num_rows, *arguments, **more)

    monkeypatch.setattr(KeptRows, "__init__", note)
    found = ranked(tmp_path, 4, model="gcn", mode=mode, input="linear")
    shares = found.run_record()["executors"]["ranks"]
    num_nodes = sum(each["nodes"] for each in shares)
    most = {each["nodes"] for each in shares}  # scored nodes are some of them
    assert most <= {*held} and max(held) == max(most) < 0.35 * num_nodes
    assert [each["parts"] for each in shares] == [[0], [1], [2], [3]]
    whole = ranked(tmp_path / "one", 1, model="gcn", mode=mode, input="linear").version
    assert whole == found.version and max(each["host_row_bytes"] for each in shares) * 4 < 1.4 * sum(
        each["host_row_bytes"] for each in shares
    )


@pytest.mark.parametrize(
    ("before", "after"), [(1, 2), pytest.param(2, 4, marks=pytest.mark.slow("from two ranks to four"))]
)
def test_a_run_goes_on_from_a_checkpoint_on_any_number_of_ranks(tmp_path, before, after):
    options = {"dropout": 0.3, "epochs": 3, "eval_every": 1, "norm": "batch"}
    straight = ranked(tmp_path / "straight", after, **options)
    with pytest.raises(ConnectionAbortedError):
        ranked(tmp_path / "home", before, progress=Stops(1), **options)
    assert len(list((tmp_path / "home" / "checkpoints").glob("*.safetensors"))) == 1
    found = ranked(tmp_path / "home", after, resume=True, **options)
    assert bits(found) == bits(straight)


@pytest.mark.slow("a published training of Minesweeper, whole and in chunks, by one, two and four ranks")
def test_a_published_training_is_the_same_in_chunks_and_on_ranks(tmp_path):
    """The first epochs of the GCN of published/minesweeper: 12 layers with batch normalisation and residuals.

    Other chunks group the rows of a sum otherwise, so bits are those of ranks alone. A bias in front of a batch normalisation has a
    gradient of nothing but rounding, which Adam scales up; the mean of its rows follows it.
    """
    if not Path(os.environ.get("GRAPHMILL_TEST_DATA", "/nowhere"), "minesweeper.npz").exists():
        pytest.skip("minesweeper is not in the folder GRAPHMILL_TEST_DATA")

    def trained(name, world, chunks, mode="p2p+reuse"):
        keys = {"epochs": 3, "threads": 1, "dtype": "float64", "eval_every": 3, "fullgraph.mode": mode}
        settings = ["graph.split=0", *(f"train.gcn.{key}={value}" for key, value in keys.items())]
        pipeline = load_pipeline("published/minesweeper", TrainTable, settings=settings)
        home, (table, *_) = tmp_path / name, pipeline.train
        graph = build_graph(Store(home), pipeline.graph)
        cut = {} if mode == "device" else {"chunks": build_chunks(home, graph.inputs["graph"], 4, chunks)}

        def work(ranks):
            return train_table(Store(home), graph.inputs | cut, table, None, 0, ranks=ranks, report=lambda line: None)

        (model,) = work(ALONE) if world == 1 else run_threads(world, work, seconds=900)[0]
        return model, [json.loads(line)["loss"] for line in model.file("metrics.jsonl").read_text().splitlines()]

    _, whole = trained("whole", 1, 1, "device")
    of_chunks = []
    for chunks in (1, 4):
        (one, losses), *others = (trained(f"{chunks} {world}", world, chunks) for world in (1, 2, 4))
        assert all(bits(one) == bits(other) and passes(other) for other, _ in others)
        assert losses == pytest.approx(whole, rel=1e-12) and losses[-1] < losses[0]
        of_chunks.append(load(one.file("weights.safetensors").read_bytes()))
    noise = ("layers.*.linear.bias", "layers.*.skip.bias", "*.running_mean")
    for name, values in of_chunks[0].items():
        if not any(fnmatch(name, each) for each in noise):
            torch.testing.assert_close(of_chunks[1][name], values, rtol=1e-9, atol=1e-11)


def test_an_error_of_one_rank_ends_all(tmp_path, monkeypatch):
    real, left = WholePass.__call__, []

    def fails(self, random):
        if self.mover.places[0].part:
            raise ZeroDivisionError("a rank that raises")
        return real(self, random)

    monkeypatch.setattr(WholePass, "__call__", fails)
    monkeypatch.setattr("tests.trainers.ranks.threads.ThreadRanks.leave", lambda self, error: left.append(self.rank))
    with pytest.raises(ZeroDivisionError, match="a rank that raises"):
        ranked(tmp_path, 2)
    assert left == [1]


def test_what_ranks_cannot_share_is_refused(tmp_path):
    for problem, options in (
        (r"2 ranks do not divide \[partitions\] parts = 3(?s:.*)as many parts", {"parts": 3}),
        (r'2 ranks, but mode = "device" does not cut', {"mode": "device"}),
        (r"devices = 1 is not a multiple of 2 ranks(?s:.*)remove the key", {"devices": 1}),
    ):
        with pytest.raises(InputError, match=problem):
            ranked(tmp_path, 2, **options)


def test_a_rank_without_nodes_is_refused_and_chunks_without_nodes_are_not(tmp_path):
    few = {"graph": {"num_nodes": 12, "num_edges": 40}, "parts": 6, "chunks": 4}
    assert bits(ranked(tmp_path / "one", 1, **few)) == bits(ranked(tmp_path / "two", 2, **few))
    with pytest.raises(InputError, match=r"the parts of rank \d+ of 24 have no node(?s:.*)fewer ranks"):
        ranked(tmp_path / "many", 24, **few | {"parts": 24, "chunks": 1})


FILE = {
    "graph": sbm(nodes=400, edges=3000, train_ratio=0.6),
    "partitions": {"method": "range", "parts": 2},
    "chunks": {"chunks_per_part": 2},
}
KEYS = {"name": "x", "trainer": "fullgraph", "hidden": 8, "epochs": 2, "threads": 1}


def run(home, text, *arguments, **variables):
    """Runs a command on a pipeline file, and returns what it said."""
    (home / "mine.toml").write_text(text)
    return subprocess.run(
        [GRAPHMILL, "--home", str(home / "home"), arguments[0], str(home / "mine.toml"), *arguments[1:]],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)} | variables, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip


@pytest.mark.slow("processes that train, predict and refuse")
def test_processes_train_by_the_command_and_one_predicts(tmp_path):
    text = recipe(KEYS, name="mine", **FILE)
    assert run(tmp_path, text, "build").returncode == 0
    for number, more in enumerate(((), ("--ranks", "2"))):
        done = run(tmp_path, text, "train", "x", "--retrain", *more)
        assert done.returncode == 0, done.stderr
        out = tmp_path / f"{number}.parquet"
        assert run(tmp_path, text, "predict", "x", "--out", str(out)).returncode == 0
    found = [pl.read_parquet(tmp_path / f"{number}.parquet") for number in (0, 1)]
    assert len(found[0]) == 400 and found[0].equals(found[1])
    refused = run(tmp_path, text, "predict", "x", "--out", str(tmp_path / "y.parquet"), "--ranks", "2")
    assert refused.returncode == 1 and "from shards" in refused.stderr
    refused = run(tmp_path, text, "train", "x", "--ranks", "3")
    assert refused.returncode == 1 and "--ranks 3 does not divide [partitions] parts = 2" in refused.stderr
    uncut = recipe(KEYS | {"fullgraph": {"mode": "device"}}, name="mine", graph=FILE["graph"])
    refused = run(tmp_path, uncut, "train", "x", "--ranks", "2")
    assert refused.returncode == 1 and "can be shared by processes" in refused.stderr


@pytest.mark.slow("a process that raises beside another")
def test_a_process_that_fails_ends_all_with_its_message(tmp_path):
    model = "tests.trainers.techniques.fullgraph.faulty_layers:layers"
    done = run(tmp_path, recipe(KEYS | {"model": model}, name="mine", **FILE), "run", "--ranks", "2", FAULT_RANK="1")
    assert done.returncode == 1 and "ZeroDivisionError: a rank that raises" in done.stderr, done.stderr
    assert "rank 1 of 2 ended with exit code 70" in done.stderr, done.stderr
