"""Rows of edges from packed chunks: the weights of `minibatch`, each row from one tier, bytes as planned, damage and mistakes told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.cache_plan.read import open_segment_plan, wanted_counts
from graphmill.assets.features.config import EDGES
from graphmill.assets.features.read import open_features
from graphmill.assets.graph.read import open_graph
from graphmill.assets.samples.read import open_samples
from graphmill.assets.samples.wanted import WantedRows
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.batches.edge_rows import place_edges
from graphmill.trainers.recipe.costs import memory
from graphmill.trainers.recipe.inputs import TableInputs, find_table_inputs
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows import open as opening
from graphmill.trainers.rows.direct import DirectSource
from graphmill.trainers.training import open_rows
from tests.assets.storage.damage import flip
from tests.laws.asked import ASKED, PACKED_ROWS, Ask
from tests.laws.made import Made

PLAN, CHUNKS = "cache_plan.edges", "packed_chunks.edges"
TIERS = ("hits_device", "hits_host", "hits_disk_cache", "hits_packed")
PACKED: dict[str, Any] = {"device": "10%", "host": "20%", "disk": "9x"}
EDGE_BUDGETS = [
    {"edge_disk": "90x"},
    {"edge_disk": "90x", "edge_host": "30%"},
    {"edge_disk": "3x", "edge_host": "10%"},
    {"edge_disk": 62_000},
    {"edge_disk": "90x", "edge_host": "100%"},
]


def ask(**budgets: Any) -> Ask:
    return ASKED["edge_features"] | Ask(tables={"memory": PACKED | budgets})


def found_inputs(made: Made, text: str) -> TableInputs:
    pipeline = made.parse(text)
    return find_table_inputs(pipeline, pipeline.train[0], made.store, {})


def text_of(made: Made, trainer: str, asked: Ask, **keys: Any) -> str:
    from tests.laws.asked import pipeline_text

    return pipeline_text(trainer, asked, **keys)


def weights(model: Artifact) -> dict[str, torch.Tensor]:
    from safetensors.torch import load

    return load(model.file("weights.safetensors").read_bytes())


def ledger(model: Artifact) -> dict[str, Any]:
    return json.loads(model.file("ledger.json").read_text())


def counts(model: Artifact) -> dict[str, int]:
    return {row["name"]: row["n"] for row in ledger(model)["counts"]}


def moves(model: Artifact, kind: str) -> dict[str, int]:
    return {row["link"]: row["moved_bytes"] for row in ledger(model)["moves"] if row["kind"] == kind}


def passed(model: Artifact, name: str) -> bool:
    return {check["name"]: check["passed"] for check in model.summary["checks"]}[name]


def equal(one: Artifact, other: Artifact) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(each, second[name]) for name, each in first.items())


@pytest.mark.parametrize("budgets", EDGE_BUDGETS, ids=str)
def test_each_row_of_an_edge_comes_from_one_tier_and_the_weights_are_those_of_minibatch(
    budgets: dict[str, Any], tmp_path: Path
) -> None:
    made = Made(tmp_path)
    expected = made.straight("minibatch", ASKED["edge_features"])
    model = made.straight("disk", ask(**budgets))
    assert equal(model, expected)
    found = counts(model)
    of_tiers = {name: found.get(f"edge_{name}", 0) for name in TIERS}
    assert sum(of_tiers.values()) == found["edge_feature_rows"] == counts(expected)["edge_feature_rows"]
    assert of_tiers["hits_device"] == 0 and (of_tiers["hits_host"] > 0) == ("edge_host" in budgets)
    assert passed(model, "ledger equals plan")
    predicted, epochs = model.run_record()["prediction"], model.summary["numbers"]["epochs_run"]
    links = Ledger.from_rows(ledger(model)).bytes_by_link()
    assert predicted["exact"]
    assert predicted["bytes_per_epoch"] == {link: each / epochs for link, each in links.items() if each}


@pytest.mark.parametrize("model", ["gcn", "gin", "gat", "rgcn", "rgat"])
def test_every_model_has_the_weights_of_minibatch(model: str, tmp_path: Path) -> None:
    made = Made(tmp_path)
    expected = made.straight("minibatch", ASKED["edge_features"], model=model)
    assert equal(made.straight("disk", ask(edge_disk="4x", edge_host="10%"), model=model), expected)


def test_roles_that_read_packed_rows_read_those_of_edges(tmp_path: Path) -> None:
    made, asked = Made(tmp_path), ask(edge_disk="3x", edge_host="10%")
    expected = made.straight("minibatch", ASKED["edge_features"])
    model = made.straight("factored", asked | Ask(keys=PACKED_ROWS.keys, own=PACKED_ROWS.own) | tables_of(asked))
    assert equal(model, expected) and passed(model, "ledger equals plan")
    assert counts(model)["edge_hits_packed"] and "disk" in moves(model, "edge_feature")


def tables_of(asked: Ask) -> Ask:
    return Ask(tables={**PACKED_ROWS.tables, **asked.tables})


def test_a_sampled_evaluation_of_stored_batches_reads_packed_rows(tmp_path: Path) -> None:
    made, keys = Made(tmp_path), {"eval": "sampled"}
    asked = ask(edge_disk="9x") | Ask(tables={"samples": {"evaluate": True}})
    expected, model = made.straight("minibatch", ASKED["edge_features"], **keys), made.straight("disk", asked, **keys)
    assert equal(model, expected)
    scores = [each.file("metrics.jsonl").read_text() for each in (expected, model)]
    assert scores[0] == scores[1]


def test_a_plan_is_about_the_edges_of_each_batch_in_the_order_of_their_places(tmp_path: Path) -> None:
    made = Made(tmp_path)
    asked = ask(edge_disk="3x", edge_host="10%")
    made.straight("disk", asked)
    found = found_inputs(made, text_of(made, "disk", asked))
    samples, table = open_samples(found.reads["samples"]), open_features(found.inputs[EDGES])
    wanted, plan = WantedRows(samples, table.num_rows), open_segment_plan(found.reads[PLAN])
    sizes = wanted_counts(found.reads[PLAN], found.reads["samples"])
    host = set(found.reads[PLAN].array("host_ids").tolist())
    uses = np.zeros(table.num_rows, int)
    for number in range(samples.num_stored):
        blocks = samples.batch(*samples.place_of(number))[1]
        ids = place_edges(blocks)
        np.testing.assert_array_equal(wanted.ids(number), ids)
        assert sizes[number] == len(ids)
        uses[ids] += samples.place_of(number)[0] < samples.num_epochs
        segment = int(plan.segment_of[number])
        on_disk = {*plan.packed(number).tolist(), *plan.cache(segment)[plan.cached(number)].tolist()}
        assert on_disk == set(ids.tolist()) - host
    assert host and min(uses[list(host)]) >= np.delete(uses, list(host)).max()
    topology = open_graph(found.inputs["graph"]).topology
    assert topology.edge_ids is not None and topology.edge_ids.max() < table.num_rows


def test_a_flipped_bit_of_a_packed_row_of_an_edge_is_told(tmp_path: Path) -> None:
    made, asked = Made(tmp_path), ask(edge_disk="90x")
    text = text_of(made, "disk", asked)
    made.build(made.parse(text))
    chunks = found_inputs(made, text).reads[CHUNKS]
    (part,) = chunks.parts
    path = chunks.open_part(part).file("chunks.npy", verified=False)
    flip(path, 8 * (path.stat().st_size - 5000))
    with pytest.raises(InputError, match=r"the chunk of batch .* does not match its digest"):
        made.straight("disk", asked)


def test_rows_that_do_not_fit_are_read_directly_beside_the_step_and_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of narrow rows a batch moves its pages; the forecast says so from drawn batches."""
    made = Made(tmp_path)
    plain = made.straight("minibatch", ASKED["edge_features"])
    edges = found_inputs(made, text_of(made, "minibatch", ASKED["edge_features"])).inputs[EDGES]
    size = open_features(edges).num_bytes

    def fits(num_bytes: int, reserved: int = 0) -> bool:
        return num_bytes != size

    for module in (opening, memory, open_rows):
        monkeypatch.setattr(module, "fits_memory", fits)
    monkeypatch.setattr("graphmill.trainers.batches.edge_rows.fits_memory", fits)
    opened: list[str] = []
    monkeypatch.setattr(DirectSource, "__init__", counting(DirectSource.__init__, opened))
    model = made.straight("minibatch", ASKED["edge_features"], epochs=4)
    assert opened and moves(model, "edge_feature").keys() == {"disk", "h2d"}
    predicted = model.run_record()["prediction"]["bytes_per_epoch"]
    links = Ledger.from_rows(ledger(model)).bytes_by_link()
    assert predicted["disk"] == pytest.approx(links["disk"] / model.summary["numbers"]["epochs_run"], rel=0.1)
    assert predicted["h2d"] == pytest.approx(links["h2d"] / model.summary["numbers"]["epochs_run"], rel=0.05)
    terms = model.run_record()["memory_need"]["terms"]
    assert terms["readers of rows of edges"] and not equal(model, plain)


def counting(made: Any, opened: list[str]) -> Any:
    def init(self: DirectSource, *given: Any, **more: Any) -> None:
        made(self, *given, **more)
        opened.append("direct")

    return init


@pytest.mark.parametrize(
    ("memory", "keys", "problem"),
    [
        ({"edge_host": "10%"}, {}, "edge_disk is not given"),
        ({"edge_disk": "4"}, {}, 'edge_disk = "4" has no unit'),
        ({"edge_disk": "auto"}, {}, "edge_disk = 'auto'"),
        ({"edge_disk": "4x", "edge_host": "200%"}, {}, "no more than all of them"),
        ({"edge_disk": "4x"}, {"edge_features": False}, "no training reads packed rows with edge_features = true"),
    ],
)
def test_mistakes_are_told_at_their_keys(
    memory: dict[str, Any], keys: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    made = Made(tmp_path)
    with pytest.raises(InputError, match=problem) as told:
        made.parse(text_of(made, "disk", ask(**memory), **keys))
    assert str(told.value).count(problem) == 1


def test_a_budget_that_cannot_hold_the_rows_names_its_key(tmp_path: Path) -> None:
    made = Made(tmp_path)
    with pytest.raises(InputError, match="too small") as told:
        made.build(made.parse(text_of(made, "disk", ask(edge_disk=5000))))
    assert "set edge_disk = " in told.value.remedy and "edge_host" in told.value.remedy


def test_budgets_of_edges_change_no_version_of_another_artifact(tmp_path: Path) -> None:
    made = Made(tmp_path)
    texts = [text_of(made, "disk", asked) for asked in (ask(edge_disk="4x"), ask(edge_disk="5x"))]
    plain = text_of(made, "disk", ASKED["edge_features"])
    inputs = []
    for text in (*texts, plain):
        made.build(made.parse(text))
        inputs.append(found_inputs(made, text))
    for role in ("budgets", "samples", "cache_plan", "packed_chunks"):
        versions = {found.reads[role].version for found in inputs if role in found.reads}
        assert len(versions) <= 1, role
    assert inputs[0].reads[PLAN].version != inputs[1].reads[PLAN].version and PLAN not in inputs[2].reads
