"""Full-graph training: the losses of a pass that is not cut, equal bits however it is carried out, and every byte as planned."""

import json
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load

from graphmill.assets.chunks.read import open_chunks
from graphmill.assets.storage.names.user_code import Reference
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.checks import LEDGER_EQUALS_PLAN
from graphmill.trainers.record.class_scores import read_scores
from graphmill.trainers.techniques.fullgraph.executor import Uncut
from graphmill.trainers.techniques.fullgraph.memory import largest
from graphmill.trainers.techniques.fullgraph.shares import cut_counts, needed_bytes
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.runs import build_chunks, content, train_whole

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py
EPOCHS = 2
MODELS = {
    "gcn": {"epochs": EPOCHS, "model": "gcn"},
    "sage": {"epochs": EPOCHS, "norm": "layer"},
    "gin": {"epochs": EPOCHS, "model": "gin", "residual": True},
    "gat": {"epochs": EPOCHS, "model": "gat", "heads": 2, "attention_dropout": 0.3},
    "pinsage": {"epochs": EPOCHS, "model": "pinsage"},
    "mean with self": {"epochs": EPOCHS, "aggregator": "gcn", "residual": "linear"},
    "sum": {"epochs": EPOCHS, "aggregator": "sum", "activation": "tanh", "clip_norm": 0.5},
    "max": {"epochs": EPOCHS, "aggregator": "max", "label_smoothing": 0.1},
    "feed-forward": {
        "epochs": EPOCHS,
        "feed_forward": 2.0,
        "norm": "layer",
        "input": "linear",
        "head": "linear",
        "activation": "gelu",
    },
}
MODES = ("vanilla", "p2p", "p2p+reuse")


def losses(model):
    return [json.loads(line)["loss"] for line in model.file("metrics.jsonl").read_text().splitlines()]


def weights(model):
    return load(model.file("weights.safetensors").read_bytes())


def checks(model):
    return {check["name"]: check for check in model.summary["checks"]}


@pytest.mark.parametrize("model", MODELS)
def test_losses_are_those_of_the_uncut_graph_in_every_mode(tmp_path, model):
    uncut = train_whole(tmp_path, mode="device", **MODELS[model])
    versions = {uncut.version}
    for mode, parts, chunks in zip(MODES, (2, 3, 1), (3, 1, 4), strict=True):
        cut = train_whole(tmp_path, parts, chunks, mode=mode, **MODELS[model])
        assert losses(cut) == pytest.approx(losses(uncut), rel=1e-4)
        assert checks(cut)[LEDGER_EQUALS_PLAN]["passed"], checks(cut)[LEDGER_EQUALS_PLAN]["detail"]
        versions.add(cut.version)
    assert len(versions) == 4


@pytest.mark.parametrize("model", MODELS)
def test_devices_and_cached_aggregates_are_execution(tmp_path, model):
    found = [
        train_whole(tmp_path / f"{devices}{hybrid}", 4, 2, devices=devices, hybrid=hybrid, **MODELS[model])
        for devices, hybrid in ((0, True), (1, False), (2, True))
    ]
    assert len({each.version for each in found}) == 1
    assert len({content(each)["weights.safetensors"] for each in found}) == 1
    assert all(checks(each)[LEDGER_EQUALS_PLAN]["passed"] for each in found)


@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "mean with self"])
@pytest.mark.parametrize("ways", [{"mode": "device"}, {"hybrid": True}, {"hybrid": False}], ids=str)
def test_kept_sums_of_the_features_change_no_bit(tmp_path, model, ways):
    kept, again = (
        train_whole(tmp_path / str(each), keep_first=each, **ways, **MODELS[model]) for each in (True, False)
    )
    assert kept.version == again.version
    for name in ("weights.safetensors", "metrics.jsonl"):
        assert content(kept)[name] == content(again)[name]
    assert all(checks(each)[LEDGER_EQUALS_PLAN]["passed"] for each in (kept, again))
    if "hybrid" in ways:  # the neighbours of the first layer are loaded once and not in every epoch
        loaded = [loaded_by_layer(each) for each in (kept, again)]
        assert loaded[0][0] == 0 < loaded[1][0] and loaded[0][1] == loaded[1][1]


def loaded_by_layer(model):
    """Bytes of neighbours that epochs loaded, for the first layer and the second."""
    rows = json.loads(model.file("ledger.json").read_text())["moves"]
    found = [row for row in rows if row["link"] == "h2d" and row["kind"] == "neighbour"]
    return [sum(row["moved_bytes"] for row in found if row["layer"] == layer) for layer in (0, 1)]


def test_two_runs_have_equal_bits_and_so_have_transfers_beside_computing(tmp_path):
    """With a link, rows come and go while a device computes; times differ, and nothing else does."""
    found = [
        train_whole(tmp_path / str(i), 2, 3, model="gat", heads=2, dropout=0.4, input_dropout=0.2, **ways)
        for i, ways in enumerate(({}, {}, {"link": "1000 GB/s"}, {"link": "1000 GB/s", "overlap": False}))
    ]
    assert all(content(each) == content(found[0]) for each in found)
    lanes = [set(each.run_record()["timeline"]["busy_seconds"]) for each in found]
    assert [any(lane.startswith("loader") for lane in each) for each in lanes] == [False, False, True, False]


def test_rows_in_files_and_blocks_made_anew_change_no_bit(tmp_path, monkeypatch):
    in_memory = train_whole(tmp_path / "memory", model="sage")
    for name in ("free_bytes", "anonymous_bytes"):
        monkeypatch.setattr(f"graphmill.trainers.recipe.costs.course.{name}", lambda: 1)
    in_files = train_whole(tmp_path / "files", model="sage")
    assert content(in_files) == content(in_memory)
    assert list((tmp_path / "files").rglob("spill")) and not list((tmp_path / "memory").rglob("spill"))


def test_a_tenth_of_the_memory_of_an_uncut_pass_trains(tmp_path):
    sizes = {"num_nodes": 3000, "num_edges": 6000, "width": 32}
    options = {
        "model": "gcn",
        "layers": 3,
        "hidden": 32,
        "dropout": 0.3,
        "epochs": 2,
        "eval_workspace": "64KiB",
        "graph": sizes,
    }
    uncut = train_whole(tmp_path, mode="device", workspace="1GiB", **options)
    peak = uncut.run_record()["peak_bytes"]["total"]
    budget = peak // 10
    cut = train_whole(tmp_path, 1, 48, workspace=str(budget), **options)
    assert cut.run_record()["peak_bytes"]["total"] <= budget
    assert losses(cut) == pytest.approx(losses(uncut), rel=1e-5)


@pytest.mark.parametrize("model", [*MODELS, "batch"])
def test_an_uncut_pass_evaluates_with_what_it_holds_as_ranges_do(tmp_path, monkeypatch, model):
    """Neither graph nor rows are read again; the scores, the best epoch and the weights are those of an evaluation that reads them.

    Logits differ in their last bits (trainers/techniques/fullgraph/executor.py), so sums of probabilities do, too; counts do not.
    """
    options = MODELS.get(model, {"norm": "batch", "model": "gcn", "layers": 3, "epochs": EPOCHS})
    ways = []
    ranges = Inference.exact
    monkeypatch.setattr(Inference, "exact", lambda *given: ways.append("ranges") or ranges(*given))
    held = train_whole(tmp_path / "held", mode="device", **options)
    assert not ways
    monkeypatch.setattr(Uncut, "exact_logits", lambda self, node_ids: None)
    read = train_whole(tmp_path / "read", mode="device", **options)
    assert len(ways) == EPOCHS + 1  # an epoch each, and the final scores
    found = [content(each) for each in (held, read)]
    assert [each.pop("scores.json") for each in found] and found[0] == found[1]
    assert held.summary["numbers"] == read.summary["numbers"]
    for name, counts in read_scores(read).splits.items():
        (*others, sums), (*held_others, held_sums) = counts.bins, read_scores(held).splits[name].bins
        np.testing.assert_array_equal(others, held_others)
        np.testing.assert_allclose(sums, held_sums, rtol=1e-6)
        assert counts.document()["right"] == read_scores(held).splits[name].document()["right"]


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_a_device_trains_alike_and_nothing_crosses_unbooked(tmp_path, monkeypatch, model):
    stand_in(monkeypatch)
    on_cpu = train_whole(tmp_path / "cpu", **MODELS[model])
    found = [train_whole(tmp_path / str(i), device="cuda", **MODELS[model]) for i in range(2)]
    assert content(found[0]) == content(found[1])
    for name, values in weights(on_cpu).items():
        np.testing.assert_allclose(weights(found[0])[name], values, rtol=2e-4, atol=2e-5, err_msg=name)
    uncut = train_whole(tmp_path / "uncut", mode="device", device="cuda", **MODELS[model])
    assert losses(uncut) == pytest.approx(losses(on_cpu), rel=1e-4)


def test_settings_left_out_are_the_defaults(tmp_path):
    one = TrainTable(name="a", trainer="fullgraph")
    assert one.config.settings is not None and one.config.settings.mode == "p2p+reuse"


def test_more_memory_than_a_device_has_is_refused_with_a_number_of_chunks(tmp_path):
    with pytest.raises(InputError, match=r"(?s)workspace allows 90\.0 KiB.*set chunks_per_part = (\d+)") as error:
        train_whole(tmp_path, 1, 1, workspace="90KiB", model="gcn")
    enough = int(str(error.value).split("chunks_per_part = ")[1].split()[0])
    peak = train_whole(tmp_path, 1, enough, workspace="90KiB", model="gcn").run_record()["peak_bytes"]["total"]
    assert peak <= 90 << 10
    with pytest.raises(InputError, match=r"remedy: raise `workspace`$"):
        train_whole(tmp_path, 1, 1, workspace="2KiB", model="gcn")


def test_the_number_of_chunks_that_is_named_is_counted_as_the_stage_cuts_and_orders(tmp_path):
    """Parts whose nodes feed the others bring rows for them, too: a buffer holds more than a chunk's own neighbours."""
    told = []

    def note(run, chunks, settings, way):
        told.extend((chunks.chunks_per_part * more, partial(cut_counts, run, chunks)) for more in (1, 2, 4))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("graphmill.trainers.techniques.fullgraph.executor.require_memory", note)
        train_whole(tmp_path, 3, 2, model="gcn", epochs=1)
    graph = random_graph_artifacts(tmp_path).inputs["graph"]
    for number, cutting in told:
        built = open_chunks(build_chunks(tmp_path, graph, 3, number)).counts
        for mode in MODES:
            assert largest(cutting(number, "best"), mode) == largest(built, mode)


WIDE = """
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer

def wide(in_width, num_classes, config):
    return [SageLayer(in_width, 6, LayerOptions()), SageLayer(6, num_classes, LayerOptions(last=True))]
"""


def test_layers_of_a_users_own_are_cut_like_ours(tmp_path):
    (tmp_path / "mine_in_chunks.py").write_text(WIDE)
    model = Reference("mine_in_chunks:wide", tmp_path)
    uncut = train_whole(tmp_path, mode="device", model=model)
    # Nobody knows what these layers hold, so nothing is refused beforehand.
    cut = train_whole(tmp_path, 2, 3, model=model, workspace="1MiB")
    assert losses(cut) == pytest.approx(losses(uncut), rel=1e-4)
    assert checks(cut)[LEDGER_EQUALS_PLAN]["passed"]


def test_chunks_without_the_nodes_own_rows_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"self_term = false.*\n.*set self_term = true"):
        train_whole(tmp_path, self_term=False)
    assert train_whole(tmp_path, self_term=False, mode="device").summary["checks"]


def test_rows_that_come_while_a_device_computes_take_memory_of_their_own(tmp_path, monkeypatch):
    needed = []

    def note(run, chunks, settings, way):
        needed.append(needed_bytes(run, largest(chunks.counts, settings.mode), way))

    with monkeypatch.context() as patched:
        patched.setattr("graphmill.trainers.techniques.fullgraph.executor.require_memory", note)
        train_whole(tmp_path, 1, 4, model="gcn", epochs=1)
    ways = {"model": "gcn", "epochs": 1, "workspace": str(needed[0]), "link": "1000 GB/s"}
    with pytest.raises(InputError, match=r"set overlap = false in \[train\.fullgraph\], or raise"):
        train_whole(tmp_path / "both", 1, 4, **ways)
    train_whole(tmp_path / "both", 1, 4, overlap=False, **ways)


NORMED = """
from torch import nn
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer

class Normed(SageLayer):
    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width, LayerOptions())
        self.norm = nn.BatchNorm1d(out_width)
    def update(self, agg, h_dst, rng):
        return self.norm(super().update(agg, h_dst, rng))

def normed(in_width, num_classes, config):
    return [Normed(in_width, 6), SageLayer(6, num_classes, LayerOptions(last=True))]
"""


def test_running_statistics_of_own_layers_are_those_of_the_whole_graph_or_refused(tmp_path):
    (tmp_path / "mine_normed.py").write_text(NORMED)
    reference = Reference("mine_normed:normed", tmp_path)
    with pytest.raises(InputError, match=r"buffers \(layers\.0\.norm\.running_mean, .*a pass in chunks"):
        train_whole(tmp_path, chunks=3, model=reference)
    whole = train_whole(tmp_path, mode="device", model=reference, epochs=2)
    # One pass per epoch, so the kept statistics count the passes up to the best epoch.
    assert weights(whole)["layers.0.norm.num_batches_tracked"] == whole.summary["numbers"]["best_epoch"]


def test_what_cannot_be_cut_is_refused(tmp_path):
    with pytest.raises(InputError, match="one step per epoch"):
        train_whole(tmp_path, accumulate=2)
    with pytest.raises(InputError, match=r"devices = 3 does not divide \[partitions\] parts = 2"):
        train_whole(tmp_path, devices=3)
