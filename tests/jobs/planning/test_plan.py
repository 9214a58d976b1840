"""`graphmill plan`: every technique is compared or refused with a reason, the written file validates, and errors of runs are listed."""

from __future__ import annotations

import errno
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.pipeline.file import load_pipeline, parse_pipeline
from graphmill.assets.pipeline.needs import step_needs
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.pipelines import plan as plan_command
from graphmill.jobs.definitions import execution_of
from graphmill.jobs.operations import rates
from graphmill.jobs.planning.graph import scaled_sizes, stand_in
from graphmill.jobs.planning.outcome import error_lines, prediction_errors
from graphmill.jobs.planning.plan import build_seconds, make_plan
from graphmill.jobs.planning.variants import TIE, Planned, Room, TechniquePlan, Variant, variants
from graphmill.jobs.planning.variants import alone as text_alone
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.direct_io import PageReader
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.costs.course import WAITING_BYTES, Speeds
from graphmill.trainers.recipe.costs.forecast import Forecast
from graphmill.trainers.recipe.techniques import TECHNIQUES, find_technique
from tests.jobs.test_sweep import write
from tests.recipes import recipe, sbm
from tests.trainers.runs import train_small

SPEEDS = Speeds(
    step={1: 4e-3, 2: 3e-3}, draw={1: 1e-3, 2: 1e-3}, gather={1: 1e-3, 2: 1e-3}, prune=1e-4, edges=500, inputs=200,
    layers={1: 0.05}, disk_rate=1e9, copy_rate=4e9, call=1e-4, rank_rate=1e9,
)  # fmt: skip
RATES = {
    rates.COPY: 4e9,
    rates.DISK: 1e9,
    rates.WRITE: 1e9,
    rates.PAGES: 1e9,
    rates.FAULTS: 4e7,
    rates.STARTS: 0.25,
    rates.STEPS: 0.4,
}
TRAIN: dict[str, Any] = {"name": "sage", "hidden": 8, "epochs": 2}
TEXT = recipe(TRAIN, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 64})
FITS = "graphmill.trainers.recipe.costs.memory.fits_memory"
ROOM = Room(host=1 << 20, disk="3x", cores=2)


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds are given, so that no test waits for them or depends on them."""
    monkeypatch.setattr(rates, "_measured", lambda home: iter(RATES.items()))
    monkeypatch.setattr("graphmill.trainers.training.speeds.measure_speeds", lambda *given: SPEEDS)


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(graphmill, ["--home", *map(str, arguments)])


def planned(folder: Path, text: str = TEXT, *more: str) -> dict[str, Any]:
    (folder / "mine.toml").write_text(text)
    done = run(folder / "home", "plan", folder / "mine.toml", "--json", *more)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_technique_is_compared_before_anything_is_built(tmp_path: Path) -> None:
    found = planned(tmp_path)
    assert {row["trainer"] for row in found["rows"]} == set(TECHNIQUES) and not found["graph_is_built"]
    for row in found["rows"]:
        assert row["refused"] is None and row["memory_bytes"] > 100 << 20 and row["epoch_seconds"] > 0, row["name"]
        assert row["own"] == (row["name"] == "sage")
    by_name = {row["name"]: row for row in found["rows"]}
    assert {"samples", "cache_plan", "packed_chunks"} <= by_name["disk"]["prepare_seconds"].keys()
    assert (
        by_name["sage"]["prepare_seconds"].keys() == {"features", "graph"} and by_name["sage"]["paid_back_epochs"] == 0
    )
    assert found["chosen"] in by_name and "[[train]]" in found["tables"]
    assert not (tmp_path / "home" / "artifacts" / "graph").exists()


def test_links_alone_are_compared_as_classes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches have links of the drawn graph, and an evaluation compares each link of a split with all candidates of both ends."""
    speeds = replace(SPEEDS, compare=1e-6)
    monkeypatch.setattr("graphmill.trainers.training.speeds.measure_speeds", lambda *given: speeds)
    by_metric = {}
    for metric in ("mrr", "auc"):
        train = TRAIN | {"metric": metric, "exclude_targets": False, "eval_every": 1}
        tables = {"task": {"kind": "links"}, "sampling": {"fanouts": [4, 3], "batch_size": 64}}
        found = planned(tmp_path, recipe(train, graph=sbm(), **tables))
        assert {row["trainer"] for row in found["rows"] if not row["refused"]} == {*TECHNIQUES}
        by_metric[metric] = found["rows"][0]
    assert by_metric["mrr"]["memory"]["links and what is known of them"] > 0
    nodes, valid = sbm()["nodes"], 0.05 * sbm()["edges"]
    # After each of two epochs the links of validation have two ranks each; areas have no candidates.
    ranks = by_metric["mrr"]["evaluation_seconds"] - by_metric["auc"].get("evaluation_seconds", 0.0)
    assert ranks == pytest.approx(2 * valid * 2 * nodes * speeds.compare, rel=0.1)
    assert by_metric["mrr"]["scores_seconds"] == by_metric["auc"]["scores_seconds"] > 0


def test_the_written_file_validates_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    planned(tmp_path)
    out = tmp_path / "other" / "chosen.toml"
    out.parent.mkdir()
    again = run(tmp_path / "home", "plan", tmp_path / "mine.toml", "--write", out)
    assert again.exit_code == 0 and "take " in again.output, again.output
    pipeline = load_pipeline(out, TrainTable, files=True)
    assert (
        pipeline.name == "chosen"
        and len(pipeline.train) == 1
        and pipeline.graph == load_pipeline(tmp_path / "mine.toml").graph
    )
    refused = run(tmp_path / "home", "plan", tmp_path / "mine.toml", "--write", tmp_path / "mine.toml")
    assert refused.exit_code and "is there already" in str(refused.exception)
    assert (tmp_path / "mine.toml").read_text() == TEXT
    assert run(tmp_path / "home", "plan", tmp_path / "mine.toml", "--write", out, "--overwrite").exit_code == 0


def test_a_refused_technique_has_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    sampling = {"fanouts": [4, 3], "batch_size": 64, "schedule": [{"epoch": 2, "fanouts": [2, 2]}]}
    path.write_text(recipe(TRAIN, graph=sbm(), sampling=sampling))
    found = {each.technique.name: each for each in variants(load_pipeline(path, TrainTable), ROOM)}
    assert "schedule" in found["disk"].refused and found["disk"].pipeline is None
    assert found["minibatch"].own and not found["minibatch"].refused


def test_a_sampled_evaluation_is_not_asked_of_the_whole_graph(tmp_path: Path) -> None:
    text = recipe(TRAIN | {"eval": "sampled"}, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 64})
    rows = {each["trainer"]: each for each in planned(tmp_path, text)["rows"]}
    assert rows["fullgraph"]["refused"] is None and rows["fullgraph"]["memory_bytes"]


def test_a_technique_that_cannot_be_is_refused_and_ends_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(pipeline: Any, data: Any, home: Path) -> Any:
        if pipeline.train[0].technique.name == "fresh":
            raise InputError("this one cannot be", "take another")
        return training_steps(pipeline, data, home)

    monkeypatch.setattr("graphmill.jobs.planning.plan.training_steps", steps)
    rows = {each["trainer"]: each for each in planned(tmp_path)["rows"]}
    assert rows["fresh"]["refused"] == "this one cannot be" and rows["minibatch"]["refused"] is None


def test_the_file_of_a_variant_has_what_its_technique_needs(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    for each in variants(load_pipeline(path, TrainTable), ROOM):
        assert each.pipeline is not None, each.refused
        again = parse_pipeline(path, each.pipeline.text.encode(), TrainTable)
        assert [table.trainer for table in again.train] == [each.technique.name]
        assert set(each.table.needs) <= set(again.tables)
        assert tomllib.loads(each.pipeline.text)["train"][0]["hidden"] == 8


def row(
    name: str, trainer: str, seconds: float, preparing: float = 0.0, *, fits: bool = True, memory: int = 1 << 30
) -> Planned:
    return Planned(
        variant=Variant(name=name, technique=find_technique(trainer), own=True),
        forecast=Forecast(memory={"all": memory}, epoch_seconds=seconds),
        fits=fits,
        stages={"samples": preparing, "graph": 100.0} if preparing else {"graph": 100.0},
        epochs=10,
    )


def test_variants_of_a_file_with_sample_sets_read_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "sets.toml"
    sets = [{"name": "parts", "plan": "parts", "reuse": 1}, {"name": "deep", "fanouts": [3, 3, 3], "reuse": 2}]
    train = {"name": "ours", "samples": "deep", "layers": 3, "model": "sage"}
    tables = {"sampling": {"fanouts": 4, "batch_size": 64}, "partitions": {"parts": 2}, "samples": sets}
    path.write_text(recipe(train, graph=sbm(), **tables))
    pipeline = load_pipeline(path, TrainTable)
    found = {each.technique.name: each for each in variants(pipeline, ROOM)}
    assert {name: each.refused for name, each in found.items() if each.refused} == {}
    disk = found["disk"].pipeline
    assert disk is not None and disk.sampling is not None and disk.sampling.fanouts == (3, 3, 3)
    alone = parse_pipeline(path, text_alone(pipeline, "ours").encode(), TrainTable)
    assert [*alone.tables] == ["sampling", "graph", "samples.deep"]


def test_preparation_is_paid_back_by_the_seconds_that_an_epoch_spares(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    pipeline = load_pipeline(tmp_path / "mine.toml", TrainTable)
    rows = [
        row("online", "minibatch", 5.0),
        row("disk", "disk", 1.0, preparing=12.0),
        row("slow", "factored", 6.0, 1.0),
    ]
    found = TechniquePlan(pipeline=pipeline, rows=rows, memory_bytes=1 << 34, built=True)
    assert [found.paid_back(each) for each in rows] == [0.0, 3.0, None]
    assert found.chosen is rows[1], "122 s against 150 s"
    nearly = replace(found, rows=[row("online", "minibatch", 5.0), row("disk", "disk", 4.6, memory=1 << 29)])
    assert nearly.chosen is nearly.rows[1], "the least memory of both"
    more = replace(found, rows=[row("online", "minibatch", 5.0), row("disk", "disk", 4.6, memory=1 << 31)])
    assert more.chosen is more.rows[0], "146 s against 150 s are a tie, and the memory decides"
    assert "about the 150 s of online" in "\n".join(plan_command.plan_lines(nearly))
    small = replace(
        found, rows=[replace(rows[0], fits=False), replace(rows[1], fits=False), row("fresh", "fresh", 1.0)]
    )
    assert small.chosen is small.rows[2], "approximate embeddings are taken only if nothing else fits"
    assert replace(found, rows=[]).chosen is None
    assert "no training fits" in "\n".join(plan_command.plan_lines(replace(found, rows=[])))


def test_bytes_that_depend_on_timing_are_shown_with_their_range(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    pipeline = load_pipeline(tmp_path / "mine.toml", TrainTable)
    one = row("factored", "factored", 5.0)
    assert one.forecast is not None
    unsure = replace(one.forecast, links={"d2d": 2 << 20, "h2d": 1 << 20}, ranges={"d2d": (1 << 20, 3 << 20)})
    found = TechniquePlan(pipeline=pipeline, rows=[replace(one, forecast=unsure)], memory_bytes=1 << 34, built=True)
    lines = "\n".join(plan_command.plan_lines(found))
    assert "factored: d2d 2.0 MiB (1.0 MiB to 3.0 MiB), h2d 1.0 MiB an epoch, about" in lines
    assert unsure.values()["bytes_range"] == {"d2d": [1 << 20, 3 << 20]}


def test_a_large_graph_is_stood_in_for_by_one_with_as_many_edges_per_node() -> None:
    sizes = Sizes(num_nodes=1000, num_edges=8000, num_train=100, num_classes=3, num_rows=1000, width=8, row_bytes=32)
    graph = stand_in(sizes, 1, None).graph
    assert (graph.topology.num_nodes, graph.topology.num_edges, len(graph.train_ids)) == (1000, 8000, 100)
    large = scaled_sizes(replace(sizes, num_nodes=10**9, num_edges=8 * 10**9, num_train=10**8))
    assert large.num_edges == 8 * 10**6 and large.num_nodes == 10**6 and large.num_train == 10**5


def test_a_generator_stands_in_for_itself(tmp_path: Path) -> None:
    """Of a block model no node is a hub, while an R-MAT graph of the same sizes has some."""
    path = tmp_path / "mine.toml"
    path.write_text(recipe(TRAIN, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 64}))
    source: Any = replace(load_pipeline(path).graph, nodes=20_000, edges=160_000)  # pyright: ignore
    sizes = Sizes(
        num_nodes=20_000, num_edges=320_000, num_train=100, num_classes=3, num_rows=20_000, width=8, row_bytes=32
    )
    drawn, other = (stand_in(sizes, 1, None, each).graph.topology for each in (source, None))
    assert 3 * drawn.in_degree.max() < other.in_degree.max()
    large = replace(source, nodes=10**8, edges=8 * 10**8)
    wide = replace(sizes, num_nodes=large.nodes, num_edges=2 * large.edges, num_train=10**6)
    scaled = stand_in(wide, 1, None, large).graph.topology
    assert scaled.num_nodes == scaled_sizes(wide).num_nodes < 10**6
    assert scaled.num_edges == pytest.approx(scaled_sizes(wide).num_edges, rel=0.1)


def test_errors_of_runs_are_listed(tmp_path: Path) -> None:
    assert "no run of this home" in run(tmp_path / "home", "plan", "--check").output
    train_small(tmp_path / "home", asked_by="mine/sage")
    listed = run(tmp_path / "home", "plan", "--check", "--json")
    (found,) = json.loads(listed.output)
    assert found["asked_by"] == "mine/sage" and found["trainer"] == "minibatch" and found["seconds"] is None
    assert found["links"]["h2d"] == pytest.approx(1, abs=0.05)
    assert found["memory"] > 0  # the peak is that of this whole process, whatever ran in it before
    printed = run(tmp_path / "home", "plan", "--check")
    assert printed.exit_code == 0 and "mine/sage" in printed.output and "predicted / measured" in printed.output


def test_a_pipeline_must_be_named(tmp_path: Path) -> None:
    assert "no pipeline is named" in str(run(tmp_path, "plan").exception)


def test_measured_speeds_are_kept_for_the_runs(tmp_path: Path) -> None:
    planned(tmp_path)
    assert list((tmp_path / "home" / "measured" / "pieces").glob("*.json"))


def test_a_large_graph_is_planned_with_the_bytes_of_its_own_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph that stands in has features that would stay in memory, and fewer seeds than a batch."""
    monkeypatch.setattr("graphmill.jobs.planning.graph.MOST_EDGES", 500)
    monkeypatch.setattr(FITS, lambda num_bytes, reserved: num_bytes <= 300 * 8 * 4 // 2)
    text = recipe(TRAIN, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 100})
    found = next(each for each in planned(tmp_path, text)["rows"] if each["name"] == "sage")
    rows = found["bytes_per_epoch"]["h2d"] // 32
    assert found["bytes_per_epoch"]["disk"] == pytest.approx(4096 * rows, rel=0.01), "no two rows share a page"
    assert "mapped" not in found["bytes_per_epoch"]
    monkeypatch.setattr("graphmill.jobs.planning.graph.MOST_EDGES", 10**6)
    whole = next(each for each in planned(tmp_path, text)["rows"] if each["name"] == "sage")
    step = "activations of a step"
    assert found["memory"][step] >= whole["memory"][step], "a batch with few seeds is no measure of a whole one"


def test_rows_past_the_page_cache_take_a_request_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that needs a millisecond per request, however small, beside work that takes nothing."""
    idle = replace(SPEEDS, step={1: 0.0}, draw={1: 0.0}, gather={1: 0.0}, prune=0.0)
    monkeypatch.setattr("graphmill.trainers.training.speeds.measure_speeds", lambda *given: idle)
    monkeypatch.setattr(rates, "_measured", lambda home: iter((RATES | {rates.PAGES: 4096e3}).items()))
    monkeypatch.setattr(FITS, lambda num_bytes, reserved: False)
    text = recipe(
        TRAIN | {"cache": "none", "samplers": 1},
        graph=sbm(features=1024),
        sampling={"fanouts": [4, 3], "batch_size": 64},
    )
    rows = {each["trainer"]: each for each in planned(tmp_path, text)["rows"]}
    # A row of 4096 bytes starts a page of the table: two pages are assumed, since tables begin anywhere.
    requests = rows["minibatch"]["bytes_per_epoch"]["disk"] / 8192
    assert rows["minibatch"]["epoch_seconds"] == pytest.approx(1e-3 * requests, rel=0.02)
    # Ranks of a machine have one disk, and histories read after each update.
    assert rows["distributed"]["epoch_seconds"] > 0.9e-3 * requests
    left = rows["fresh"]["bytes_per_epoch"]["disk"] / rows["minibatch"]["bytes_per_epoch"]["disk"]
    assert rows["fresh"]["epoch_seconds"] > 0.9e-3 * requests * left


@pytest.mark.parametrize("gbps", [0.001, 0.01])
def test_rows_over_a_modelled_link_take_as_long_as_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gbps: float
) -> None:
    """Every technique waits for its link, beside work that takes nothing; ranks have a link of their own."""
    idle = replace(SPEEDS, step={1: 0.0}, draw={1: 0.0}, gather={1: 0.0}, layers={1: 0.0}, prune=0.0)
    monkeypatch.setattr("graphmill.trainers.training.speeds.measure_speeds", lambda *given: idle)
    ranks = {"trainer": "distributed", "distributed": {"ranks": 2, "rank_link": f"{gbps} GB/s"}}
    text = recipe(
        TRAIN | {"cache": "none", "link": f"{gbps} GB/s"},
        {"name": "ranks", "hidden": 8, "epochs": 2, "cache": "none"} | ranks,
        graph=sbm(features=256),
        sampling={"fanouts": [4, 3], "batch_size": 64},
        partitions={"parts": 2},
    )
    rows = {each["name"]: each for each in planned(tmp_path, text)["rows"] if each.get("epoch_seconds") is not None}
    assert {"sage", "ranks", "disk", "factored", "fresh", "fresh_factored", "fullgraph"} <= rows.keys()
    for name, row in rows.items():
        if row["trainer"] == "fresh-distributed":  # the file has no table of it, so it has no link
            continue
        link = "rank" if name == "ranks" else "h2d"
        # Two ranks, or two parts on devices of their own, carry halves side by side.
        sides = 2 if name in ("ranks", "fullgraph") else 1
        needed = row["bytes_per_epoch"][link] / (gbps * 1e9) / sides
        assert row["epoch_seconds"] >= 0.99 * needed, name
        assert row["epoch_seconds"] <= 1.5 * needed + 0.5, name
    needed = rows["sage"]["bytes_per_epoch"]["h2d"] / (gbps * 1e9)
    assert rows["sage"]["epoch_seconds"] == pytest.approx(needed, rel=0.01)


def test_draws_with_other_ranks_wait_for_their_calls(tmp_path: Path) -> None:
    """A network on which a call takes a tenth of a second: hybrid partitioning saves two calls for each layer but the first."""
    tables = [
        {"name": scheme, "hidden": 8, "epochs": 2, "cache": "none", "trial": scheme, "trainer": "distributed",
         "distributed": {"ranks": 2, "scheme": scheme, "latency_us": 1e5}}
        for scheme in ("hybrid", "vanilla")
    ]  # fmt: skip
    sampling, parts = {"fanouts": [4, 3], "batch_size": 64}, {"parts": 2}
    text = recipe(*tables, graph=sbm(), sampling=sampling, partitions=parts)
    hybrid, vanilla = (each for each in planned(tmp_path, text)["rows"] if each["own"])
    rounds = round(hybrid["epoch_seconds"] / 0.3)  # each has a call for its rows and two for gradients
    assert vanilla["epoch_seconds"] - hybrid["epoch_seconds"] == pytest.approx(rounds * 2 * 0.1, rel=0.2)


def test_mapped_rows_of_a_table_that_memory_cannot_hold_take_a_page_fault_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without memory for pages, whose disk gives a thread 10,000 pages a second, beside work that takes nothing."""
    idle = replace(SPEEDS, step={1: 0.0}, draw={1: 0.0}, gather={1: 0.0}, prune=0.0)
    monkeypatch.setattr("graphmill.trainers.training.speeds.measure_speeds", lambda *given: idle)
    text = recipe(
        TRAIN | {"cache": "none", "samplers": 1, "features": "mapped"},
        graph=sbm(features=1024),
        sampling={"fanouts": [4, 3], "batch_size": 64},
    )
    for memory, share in ((1 << 40, 0.0), (0, 1.0)):
        monkeypatch.setattr("graphmill.trainers.recipe.costs.forecast.memory_bytes", lambda memory=memory: memory)
        row = next(each for each in planned(tmp_path, text)["rows"] if each["name"] == "sage")
        touched = row["bytes_per_epoch"]["mapped"] / 4096 * (4096 + 4095) / 4096
        assert row["epoch_seconds"] == pytest.approx(share * touched * 4096 / RATES[rates.FAULTS], rel=0.01)


def test_the_whole_wait_is_the_sum_of_its_columns(tmp_path: Path) -> None:
    """Two seeds of two epochs: each starts, evaluates after each epoch, and is scored."""
    exact = replace(SPEEDS, exact_rows=1e-5, exact_edges=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmill.trainers.training.speeds.measure_speeds", lambda *given: exact)
        text = recipe(
            TRAIN | {"seeds": [1, 2], "eval": "exact"}, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 64}
        )
        found = planned(tmp_path, text)
    rows = {each["name"]: each for each in found["rows"] if each.get("epoch_seconds")}
    assert len(rows) > 4
    for row in rows.values():
        once = row["start_seconds"] + row["evaluation_seconds"] + row["scores_seconds"]
        whole = sum(row["prepare_seconds"].values()) + 2 * once + row["epochs"] * row["epoch_seconds"]
        assert row["whole_seconds"] == pytest.approx(whole, abs=0.02), row["name"]
        assert row["start_seconds"] >= 1 / RATES[rates.STARTS] and row["scores_seconds"] > 0
    compared = [row for row in rows.values() if row["fits"] and row["exact_epochs"]]
    least = min(row["whole_seconds"] for row in compared)
    ties = [row for row in compared if row["whole_seconds"] <= (1 + TIE) * least]
    assert found["chosen"] == min(ties, key=lambda row: row["memory_bytes"])["name"]


def test_a_training_that_may_need_all_of_the_memory_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(each for each in planned(tmp_path)["rows"] if each["name"] == "sage")
    needed = row["memory_bytes"] + WAITING_BYTES
    for limit, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr("graphmill.jobs.planning.plan.memory_bytes", lambda limit=limit: limit)
        again = next(each for each in planned(tmp_path)["rows"] if each["name"] == "sage")
        assert again["fits"] is fits


def test_techniques_that_cache_by_hotness_do_so_within_the_room(tmp_path: Path) -> None:
    """Without a table [memory] in the file; else a cache would be said to hold the whole table twice."""
    text = recipe(TRAIN, graph=sbm(features=4096), sampling={"fanouts": [4, 3], "batch_size": 64})
    rows = {each["trainer"]: each for each in planned(tmp_path, text)["rows"]}
    for name in ("fresh", "fresh-factored", "fresh-distributed"):
        cached = sum(num_bytes for what, num_bytes in rows[name]["memory"].items() if "cache" in what)
        assert cached < 300 * 4096 * 4, name


def test_pages_are_measured_past_the_page_cache_where_io_uring_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in many containers; through the page cache a file that was just written would be read from memory."""
    monkeypatch.setattr("graphmill.kernels._native.ring_errno", lambda: errno.EPERM)
    monkeypatch.setattr(rates, "PAGES_READ", 4)
    monkeypatch.setattr(rates, "SAMPLE_BYTES", 1 << 20)
    opened = []
    unwatched = PageReader.open
    monkeypatch.setattr(PageReader, "open", lambda self, path: opened.append(unwatched(self, path)) or opened[-1])
    (tmp_path / "pages").write_bytes(bytes(1 << 20))
    rates._read_pages(tmp_path / "pages")
    assert [file.direct for file in opened] == [True]


def test_a_queue_fills_only_if_batches_are_prepared_faster_than_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TRAIN | {"features": "mapped", "samplers": 1}
    text = recipe(table, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 4})
    waiting = {}
    for name, gather in (("slow", 1.0), ("half", 1e-3), ("fast", 0.0)):
        speeds = replace(SPEEDS, step={1: 4e-3}, draw={1: 1e-3}, gather={1: gather})
        monkeypatch.setattr("graphmill.trainers.training.speeds.measure_speeds", lambda *given, speeds=speeds: speeds)
        (tmp_path / name).mkdir()
        row = next(each for each in planned(tmp_path / name, text)["rows"] if each["name"] == "sage")
        waiting[name] = row["memory"].get("batches that wait", 0)
    assert waiting["slow"] == 0 < waiting["half"] < waiting["fast"]


def test_a_plan_on_a_gpu_says_its_memory_and_that_there_are_no_seconds(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        recipe(TRAIN | {"device": "cuda"}, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 64})
    )
    done = run(tmp_path / "home", "plan", tmp_path / "mine.toml")
    assert done.exit_code == 0 and "no formula covers the seconds of a GPU yet; about" in done.stdout, done.output
    assert "no training fits" not in done.stdout and "measuring batches" not in done.output


def test_stages_of_batches_that_are_not_stored_count_by_the_rows_of_drawn_ones(tmp_path: Path) -> None:
    tables = (
        '\n[samples]\nepochs = 1\n[hotness]\n[cache_plan]\n[packed]\n[memory]\ndevice = 0\nhost = "1MiB"\ndisk = "5x"\n'
    )
    pipeline = parse_pipeline(tmp_path / "p.toml", (TEXT + tables).encode(), TrainTable)
    steps = preprocessing_steps(pipeline, tmp_path / "home")
    needs = step_needs(steps, Store(tmp_path / "home"), lambda each: execution_of(each.recipe, None))
    bounded = {each.name for each in needs if each.need is not None and each.need.stored_at_most}
    assert bounded == {"graph", "samples", "cache_plan", "packed_chunks"}
    for each in needs:
        share = 0.25 if each.name in bounded - {"graph"} else 1.0
        assert build_seconds(each, 0.25) == pytest.approx(share * (each.seconds or 0.0))


def test_all_seeds_share_what_is_prepared(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        recipe(TRAIN | {"seeds": [1, 2, 3]}, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 64})
    )
    done = run(tmp_path / "home", "plan", tmp_path / "mine.toml")
    assert "6 epochs of all seeds" in done.stdout, done.output
    assert "are those of all seeds" in done.stdout


def test_a_technique_that_the_file_lacks_is_written_with_all_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "[0, 1, 2]")
    monkeypatch.setattr(
        TechniquePlan,
        "chosen",
        property(lambda plan: next(r for r in plan.rows if r.variant.pipeline and not r.variant.own)),
    )
    found = make_plan(load_pipeline(path, TrainTable), tmp_path / "home", report=lambda line: None)
    assert tomllib.loads(found.text)["graph"]["split"] == [0, 1, 2]
    assert tomllib.loads(found.text)["train"][0]["seeds"] == [3, 4]


def test_a_written_file_finds_the_files_of_its_graph(tmp_path: Path) -> None:
    graph: dict[str, Any] = {
        "path": ["a.csv", "/b.csv", "~/c.csv", "${D}/d.csv"],
        "feature_entries": "e.csv",
        "nodes": {"user": {"path": "user.csv", "id": "x"}},
        "edges": {"buys": {"path": ["one.csv"], "src": "user"}},
        "num_nodes": 3,
    }
    plan_command._move_paths(graph, tmp_path / "old", tmp_path / "new")
    assert graph == {
        "path": ["../old/a.csv", "/b.csv", "~/c.csv", "${D}/d.csv"],
        "feature_entries": "../old/e.csv",
        "nodes": {"user": {"path": "../old/user.csv", "id": "x"}},
        "edges": {"buys": {"path": ["../old/one.csv"], "src": "user"}},
        "num_nodes": 3,
    }


def test_the_name_of_a_written_file_is_one_of_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    done = run(tmp_path / "home", "plan", tmp_path / "mine.toml", "--write", tmp_path / "my.plan.toml")
    assert done.exit_code and "'my.plan'" in str(done.exception)
    assert not (tmp_path / "my.plan.toml").exists()


def test_a_home_that_cannot_be_written_is_planned_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"

    def refuse(path: Path, values: Any) -> None:
        if path.is_relative_to(home):
            raise OSError(30, "Read-only file system")

    monkeypatch.setattr("graphmill.jobs.operations.rates.keep_numbers", refuse)
    monkeypatch.setattr("graphmill.trainers.recipe.costs.known.keep_numbers", refuse)
    (tmp_path / "mine.toml").write_text(TEXT)
    done = run(home, "plan", tmp_path / "mine.toml")
    assert done.exit_code == 0 and "take " in done.stdout, done.output
    assert done.stderr.count("nothing that is measured is kept") == 1


def test_a_model_that_fails_leaves_the_plan_without_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Speeds:
        raise ZeroDivisionError("a user's own forward pass")

    monkeypatch.setattr("graphmill.trainers.training.speeds.measure_speeds", fails)
    (tmp_path / "mine.toml").write_text(TEXT)
    done = run(tmp_path / "home", "plan", tmp_path / "mine.toml")
    assert done.exit_code == 0 and "not measured: ZeroDivisionError" in done.stderr, done.output
    assert "no seconds are known" in done.stdout


def test_bytes_that_were_predicted_and_did_not_move_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_small(tmp_path / "home")
    (model,) = (each for each in Store(tmp_path / "home").artifacts() if each.stage == "model")
    record = model.run_record()
    record["prediction"]["bytes_per_epoch"]["disk"] = 4096
    monkeypatch.setattr(type(model), "run_record", lambda artifact: record)
    (found,) = prediction_errors(Store(tmp_path / "home"))
    assert found.links["disk"] is None and found.links["h2d"] is not None
    assert "disk predicted, and none moved" in "\n".join(error_lines([found]))


def test_the_way_of_evaluations_is_said_with_its_reason(tmp_path: Path) -> None:
    """By `plan`, and once the graph is built by `inspect`; nothing is said of a table that names the way."""
    path = tmp_path / "mine.toml"
    path.write_text(
        recipe(TRAIN, TRAIN | {"name": "named", "eval": "sampled"}, graph=sbm(), sampling={"fanouts": [4, 3]})
    )
    words = 'eval = "auto" evaluates by all neighbours: at most 4,000,000 edges and rows'
    lines = run(tmp_path / "home", "plan", path).stdout.splitlines()
    (line,) = (line for line in lines if "evaluates by" in line)
    assert line.endswith(words) and line.startswith("sage, ") and "named" not in line
    assert words not in run(tmp_path / "home", "inspect", path).stdout
    assert run(tmp_path / "home", "build", path).exit_code == 0
    assert f"sage: {words}" in run(tmp_path / "home", "inspect", path).stdout
