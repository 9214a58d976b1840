"""The technique `fresh`: embeddings of earlier steps in place of computed ones, never older than asked, never another node's."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.hotness.config import HotnessTable
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.samples.read import open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.history.csr2 import Pruned, prune
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block
from graphmill.trainers.models.layer import seed_rows
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.rows.packed_loader import PackedLoader, Staged
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.fresh.arena_rows import WINDOW_ROWS
from graphmill.trainers.techniques.fresh.history import BetweenLayers, SteppedHistory
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.laws.test_disk_damage import flip
from tests.recipes import recipe, sbm
from tests.trainers.graphs import random_graph_artifacts, random_topology
from tests.trainers.recipe.test_techniques import Stop, Stopping
from tests.trainers.runs import SAMPLING, content, count_inputs, train_fresh, train_packed, train_small

WEIGHTS = "weights.safetensors"
MODELS = [
    {"model": "sage", "norm": "batch", "jk": "cat", "head": "linear"},
    {"model": "gcn", "input": "linear", "residual": True},
    {"model": "gat", "heads": 2, "attention_dropout": 0.4, "norm": "layer", "jk": "max", "head": "linear"},
    {"model": "gin", "dtype": "bf16"},
]


@pytest.mark.parametrize("jk", ["cat", "sum", "max"])
def test_a_head_that_reads_all_layers_gets_the_rows_of_the_seeds(tmp_path: Path, jk: str) -> None:
    """With three layers a seed's rows of the middle ones are computed, since its embedding of the highest says nothing of those below."""
    deep = {"layers": 3, "sampling": replace(SAMPLING, fanouts=(4, 3, 3)), "epochs": 3, "hidden": 8}
    model = train_fresh(
        tmp_path, jk=jk, head="linear", model="sage", fresh={"t_stale": "forever", "p_grad": 1.0}, **deep
    )
    assert counts(model)["history_hits", 1] > 0 and counts(model)["history_hits", 2] > 0
    assert all(np.isfinite(row["loss"]) for row in epochs_of(model))


@pytest.mark.parametrize("seed", range(5))
def test_seeds_are_found_among_the_rows_of_pruned_blocks(seed: int) -> None:
    generator, seeds = np.random.default_rng(seed), np.arange(8, dtype=np.int32)
    blocks = Sampler(random_topology(60, 300, seed), (4, 3, 3, 2), seed=seed).sample(BatchKey(0, 0, 0), seeds)
    slots = [np.where(generator.random(block.num_src) < 0.5, 5, -1).astype(np.int32) for block in blocks[1:]]
    for found in slots[1:]:
        found[: len(seeds)] = -1
    pruned = prune(blocks, slots).blocks
    assert any(block.dst_pos is not None for block in pruned) and all(block.splice is not None for block in pruned[1:])
    for layer in range(1, 4):
        rows = torch.as_tensor(pruned[layer].src_ids)[:, None].float()
        assert seed_rows(rows, pruned[layer:])[:, 0].tolist() == seeds.tolist()


def counts(model: Artifact) -> Counter[tuple[str, int]]:
    rows = json.loads(model.file("ledger.json").read_text())["counts"]
    return Counter({(row["name"], row["layer"]): row["n"] for row in rows})


def epochs_of(model: Artifact) -> list[dict[str, Any]]:
    return [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]


def passed(model: Artifact, name: str) -> bool:
    return next(check["passed"] for check in model.summary["checks"] if check["name"] == name)


SLOW_MODELS = [pytest.param(each, marks=pytest.mark.slow("every model with an empty history")) for each in MODELS[1:]]


@pytest.mark.parametrize("model", [MODELS[0], *SLOW_MODELS], ids=lambda model: model["model"])
def test_with_nothing_cached_the_bits_are_those_of_minibatch(tmp_path: Path, model: dict) -> None:
    options = model | {"dropout": 0.3, "input_dropout": 0.1, "epochs": 2}
    plain = train_small(tmp_path, **options)
    for settings in ({"p_grad": 0.0}, {"t_stale": 0, "policy": "accuracy"}, {"stabilise": 1000}):
        none = train_fresh(tmp_path, fresh=settings, **options)
        assert content(none)[WEIGHTS] == content(plain)[WEIGHTS] and none.version != plain.version
        assert [row["loss"] for row in epochs_of(none)] == [row["loss"] for row in epochs_of(plain)]
    kept = train_fresh(tmp_path, **options)
    assert content(kept)[WEIGHTS] != content(plain)[WEIGHTS]
    assert counts(kept)["history_hits", 1] > 0 and passed(kept, "ledger equals plan")


def test_no_execution_changes_a_bit(tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {"samplers": 1},
        {"samplers": 5, "checkpoint_steps": 1},
        {"queue": "80kB", "workspace": "64MiB"},
        {"features": "memory"},
        {"memory": {"device": "10%", "host": "20%"}, "link": "100 GB/s"},
    ]
    made = [train_fresh(tmp_path / str(i), model="gcn", dropout=0.3, **way) for i, way in enumerate(ways)]
    assert len({(content(each)[WEIGHTS], content(each)["metrics.jsonl"]) for each in made}) == 1
    assert content(made[0]) == content(made[1]) == content(made[2])
    held = made[4].run_record()["peak_bytes"]["cache"]
    arena = 400 * 12 * 4 * 60 // 100  # FRESH
    assert held == arena + made[4].run_record()["cache"]["device_rows"] * 48
    assert counts(made[4])["hits_host", 0] > 0 and all(passed(each, "ledger equals plan") for each in made)


@pytest.mark.parametrize(
    ("stop_after", "accumulate", "policy"),
    [(2, 1, "accuracy+features"), (8, 3, "accuracy"), (12, 1, "performance+features"), (15, 3, "performance+features")],
)
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path, stop_after: int, accumulate: int, policy: str) -> None:
    settings = {"policy": policy, "arena": "30%" if policy.startswith("perf") else "60%", "p_grad": 1, "t_stale": 6}
    options: dict[str, Any] = {"accumulate": accumulate, "dropout": 0.3, "checkpoint_steps": 1, "fresh": settings}
    straight = train_fresh(tmp_path / "straight", **options)
    with pytest.raises(Stop):
        train_fresh(tmp_path / "stopped", progress=Stopping(stop_after), **options)
    resumed = train_fresh(tmp_path / "stopped", resume=True, **options)
    assert content(resumed) == content(straight) and counts(straight)["history_hits", 1] > 0


def survivors(blocks: Sequence[Block], slots: Sequence[np.ndarray]) -> set[int]:
    """Global ids of the inputs that a batch needs, found node by node from the seeds downwards."""
    wanted = set(range(blocks[-1].num_dst))
    for layer in reversed(range(len(blocks))):
        block = blocks[layer]
        read = wanted | {int(j) for i in wanted for j in block.indices[block.start[i] : block.end[i]]}
        wanted = read if layer == 0 else {i for i in read if slots[layer - 1][i] < 0}
    return {int(blocks[0].src_ids[i]) for i in wanted}


def test_rows_that_move_are_the_survivors_and_come_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger's input rows are counted outside: every survivor comes once, from the arena or from below."""
    expected, sampled = [], []

    def counted(blocks: Sequence[Block], slots: Sequence[np.ndarray], *more: Any) -> Pruned:
        pruned, left = prune(blocks, slots, *more), survivors(blocks, slots)
        assert {*pruned.blocks[0].src_ids.tolist()} == left
        expected.append(len(left))
        sampled.append(blocks[0].num_src)
        return pruned

    monkeypatch.setattr("graphmill.trainers.techniques.fresh.batches.prune", counted)
    model = train_fresh(tmp_path, layers=3, sampling=sampling3(), epochs=2)
    found = counts(model)
    assert found["inputs", 0] == sum(expected) < sum(sampled) == found["inputs", 0] + found["pruned_nodes", 0]
    moves = json.loads(model.file("ledger.json").read_text())["moves"]
    rows = {row["link"]: row["moved_bytes"] // 48 for row in moves if row["kind"] == "feature" and row["moved_bytes"]}
    assert rows["h2d"] + rows["d2d"] == sum(expected) and rows["d2d"] == found["hits_arena", 0] > 0
    hits = {layer: found["history_hits", layer] * 8 * 4 for layer in (1, 2)}
    read = {
        row["layer"]: row["moved_bytes"] for row in moves if (row["kind"], row["phase"]) == ("embedding", "forward")
    }
    assert read == {layer: num for layer, num in hits.items() if num}


def sampling3() -> Any:
    return SamplingConfig(fanouts=(3, 3, 2), batch_size=32)


@pytest.mark.parametrize(
    "t_stale",
    [
        4,
        *(
            pytest.param(each, marks=pytest.mark.slow("rows that are one step old, or of any age"))
            for each in (1, "forever")
        ),
    ],
)
def test_spliced_rows_are_those_that_were_computed_for_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, t_stale: Any
) -> None:
    """Every row that a step reads is the newest that was computed of the node, no older than t_stale, and of small gradient then."""
    computed: dict[tuple[int, int], list[tuple[int, torch.Tensor]]] = {}
    ages, order = Counter[int](), []
    splice_in, update, slots = BetweenLayers.__call__, SteppedHistory.update, SteppedHistory.slots

    def spliced(between: Any, layer: int, block: Block, h: torch.Tensor) -> torch.Tensor:
        out, self = splice_in(between, layer, block, h), between.history
        at = [] if block.splice is None else block.splice.hist_pos.tolist()
        for place in at:
            step, row = computed[layer, int(block.src_ids[place])][-1]
            assert torch.equal(out[place], row) and (t_stale == "forever" or 0 < self.now - step <= t_stale)
            ages[self.now - step] += 1
        self.rows = [*getattr(self, "rows", []), (layer, block, out.detach(), {*at})]
        return out

    def looked_up(self: Any, blocks: Any, step: int, ends: int = 0) -> Any:
        self.now = step
        order.append(("lookup", step))
        return slots(self, blocks, step, ends)

    def updated(self: Any, step: int, ledger: Any) -> None:
        order.append(("update", step))
        for layer, block, rows, cached in self.rows:
            for place, node in enumerate(block.src_ids.tolist()):
                if place not in cached:
                    computed.setdefault((layer, node), []).append((step, rows[place].clone()))
        self.rows = []
        update(self, step, ledger)

    monkeypatch.setattr(BetweenLayers, "__call__", spliced)
    for name, function in (("update", updated), ("slots", looked_up)):
        monkeypatch.setattr(SteppedHistory, name, function)
    # A node that two batches of a group compute is kept as the later one computed it, and so it is noted here.
    train_fresh(tmp_path, layers=3, sampling=sampling3(), dropout=0.3, accumulate=2, fresh={"t_stale": t_stale})
    assert sum(ages.values()) > 50 and (t_stale == "forever" or max(ages) <= t_stale)
    # All batches of a group look up before the group's one update, and the next group's after it.
    steps = [step for _, step in order]
    assert steps == sorted(steps) and all(
        [each for each, step in order if step == one] in (["lookup", "update"], ["lookup", "lookup", "update"])
        for one in set(steps)
    )


@pytest.mark.parametrize(
    "arena",
    [
        "0",
        "100",
        *(
            pytest.param(each, marks=pytest.mark.slow("arenas of a row, of bytes and of more than all rows"))
            for each in ("32", "1kB", "400%")
        ),
    ],
)
def test_any_arena_trains_down_to_one_row_and_none(tmp_path: Path, arena: str) -> None:
    model = train_fresh(tmp_path, fresh={"arena": arena}, epochs=2)
    size = {"0": 0, "32": 32, "100": 96, "1kB": 1000, "400%": 4 * 400 * 48}[arena]
    assert all(row["history_bytes"] + row["arena_feature_bytes"] <= size for row in epochs_of(model))
    assert (counts(model)["history_admitted", 1] > 0) == (size >= 32)


@pytest.mark.parametrize("dtype", ["float16", "uint16", "float64"])
def test_feature_rows_of_the_arena_are_the_tables(tmp_path: Path, dtype: str) -> None:
    """Whatever type they are stored in, and whichever nodes have none: with nothing else in the arena, bits are those of minibatch."""
    graph = random_graph_artifacts(tmp_path, featureless=5, dtype=dtype)
    table = TrainTable(name="plain", layers=1, hidden=8, epochs=1)
    fresh = replace(table, trainer="fresh", settings=FreshSettings(arena="30%"), cache="none")
    sampling = SamplingConfig(fanouts=(4,), batch_size=32)
    inputs = {"hotness": count_inputs(tmp_path, graph.inputs, sampling)}
    models = [
        train_table(Store(tmp_path), graph.inputs | more, each, sampling, 5, report=lambda line: None)[0]
        for each, more in ((table, {}), (fresh, inputs))
    ]
    assert content(models[0])[WEIGHTS] == content(models[1])[WEIGHTS]
    assert counts(models[1])["hits_arena", 0] > 0 and passed(models[1], "ledger equals plan")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return build_packed(tmp_path_factory.mktemp("packed"), epochs=2)


def test_rows_from_packed_chunks_change_no_bit(packed: Packed, tmp_path: Path) -> None:
    options: dict[str, Any] = {"layers": 2, "dropout": 0.3}
    chunks = train_fresh(tmp_path / "chunks", packed=packed, **options)
    table = train_fresh(tmp_path / "table", packed=packed, fresh={"rows": "table"}, **options)
    whole = train_packed(packed, tmp_path / "disk", **options)
    assert content(chunks)[WEIGHTS] == content(table)[WEIGHTS] != content(whole)[WEIGHTS]
    by_reads = build_packed(tmp_path, epochs=2, order="reads")
    ordered = train_fresh(tmp_path / "reads", packed=by_reads, **options)
    assert content(ordered)[WEIGHTS] == content(chunks)[WEIGHTS] and passed(ordered, "ledger equals plan")
    assert content(train_packed(by_reads, tmp_path / "whole", **options))[WEIGHTS] == content(whole)[WEIGHTS]
    assert passed(chunks, "ledger equals plan")
    levels = ("hits_device", "hits_host", "hits_disk_cache", "hits_packed", "hits_arena")
    assert sum(counts(chunks)[level, 0] for level in levels) == counts(chunks)["inputs", 0]
    assert counts(chunks)["inputs", 0] + counts(chunks)["pruned_nodes", 0] == counts(whole)["inputs", 0]
    nothing = train_fresh(tmp_path / "none", packed=packed, fresh={"p_grad": 0.0}, **options)
    assert content(nothing)[WEIGHTS] == content(whole)[WEIGHTS]


def test_evaluation_of_packed_batches_has_the_bits_of_drawn_ones(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated, loaded, load = build_packed(tmp_path, epochs=2, evaluate=True), [], PackedLoader.load
    monkeypatch.setattr(PackedLoader, "load", lambda loader, *given: loaded.append(given) or load(loader, *given))
    options: dict[str, Any] = {"eval": "sampled", "eval_every": 0}
    drawn, stored = (
        train_fresh(tmp_path / each.samples.version, packed=each, **options) for each in (packed, evaluated)
    )
    for name in (WEIGHTS, "metrics.jsonl"):
        assert content(drawn)[name] == content(stored)[name]
    assert drawn.summary["numbers"] == stored.summary["numbers"]
    batches, samples = [number for number, origin, *_ in loaded if origin is None], open_samples(evaluated.samples)
    _, _, valid, test, end = samples.starts.tolist()
    assert sorted(batches) == sorted([*range(valid, end), *range(valid, test)])


@pytest.mark.parametrize("fresh", [{}, {"rows": "table"}, {"policy": "accuracy"}], ids=["packed", "table", "no hits"])
def test_rows_that_come_in_windows_change_no_bit(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: dict[str, Any]
) -> None:
    """Batches of several windows get the rows that those of one window get, and no window is larger than asked.

    Rows of a table in memory come without windows, beside those of the arena, and are the same.
    """
    table = fresh.get("rows") == "table"
    options: dict[str, Any] = {"packed": packed, "fresh": fresh} | ({"features": "direct"} if table else {})
    whole, waiting = train_fresh(tmp_path / "whole", **options), []
    load = PackedLoader._load_rows

    def watched(self: PackedLoader, place: Any, slots: np.ndarray, *rest: Any) -> Staged:
        waiting.append(len(slots))
        return load(self, place, slots, *rest)

    monkeypatch.setattr("graphmill.trainers.techniques.fresh.settings.WINDOW_BYTES", 1)
    monkeypatch.setattr(PackedLoader, "_load_rows", watched)
    windows = train_fresh(tmp_path / "windows", **options)
    assert content(windows)[WEIGHTS] == content(whole)[WEIGHTS]
    if table:
        at_once = train_fresh(tmp_path / "at once", **options | {"features": "memory"})
        assert content(at_once)[WEIGHTS] == content(whole)[WEIGHTS]
    assert counts(windows) == counts(whole) and passed(windows, "ledger equals plan")
    assert requests(windows) > requests(whole)
    if not table:
        assert max(waiting) == WINDOW_ROWS and len(waiting) > counts(whole)["batches", 0]


def requests(model: Artifact) -> int:
    moves = json.loads(model.file("ledger.json").read_text())["moves"]
    return sum(row["requests"] for row in moves if (row["link"], row["kind"]) == ("h2d", "feature"))


@pytest.mark.parametrize("device", ["10%", "45%"])
def test_packed_rows_have_the_devices_cache_to_themselves(tmp_path: Path, device: str) -> None:
    """The pipeline has budgets for the plan of the packed rows; no second cache is filled of them."""
    packed = build_packed(tmp_path, epochs=2, width=60, memory={"device": device})
    model = train_fresh(tmp_path / "packed", packed=packed, memory={"device": device})
    assert counts(model)["hits_device", 0] > 0 and passed(model, "ledger equals plan")
    assert model.run_record()["cache"] == {}
    table = train_fresh(tmp_path / "table", packed=packed, memory={"device": device}, fresh={"rows": "table"})
    assert content(table)[WEIGHTS] == content(model)[WEIGHTS] and table.run_record()["cache"]["device_rows"] > 0
    settings = FreshSettings(rows="packed")
    read = TrainTable(name="x", trainer="fresh", samples="stored", settings=settings).reads
    assert read == ("samples", "cache_plan", "packed_chunks")
    plain = [TrainTable(name="x", trainer="fresh", samples=samples).reads for samples in ("online", "stored")]
    assert plain == [("budgets",), ("budgets", "samples")]  # nothing is packed for who reads no packed rows


def test_a_flipped_bit_in_a_chunk_never_reaches_a_step(tmp_path: Path) -> None:
    packed = build_packed(tmp_path, epochs=2, width=60, groups=1)
    sound = content(train_fresh(tmp_path / "sound", packed=packed, epochs=2))[WEIGHTS]
    (part,) = packed.packed_chunks.parts
    path, noticed = packed.packed_chunks.open_part(part).file("chunks.npy"), 0
    path.chmod(0o644)
    for number, bit in enumerate(np.linspace(8 * 4096, 8 * path.stat().st_size - 1, 6).astype(int).tolist()):
        flip(path, bit)
        try:
            made = train_fresh(tmp_path / str(number), packed=packed, epochs=2)
            assert content(made)[WEIGHTS] == sound
        except InputError as error:
            assert "chunk of batch" in error.problem
            noticed += 1
        flip(path, bit)
    assert noticed > 0


def test_packed_rows_need_stored_batches(packed: Packed, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'rows = "packed", but .* with samples = "online" draws batches'):
        train_fresh(tmp_path, packed=packed, samples="online")


def test_a_probe_compares_cached_rows_with_authentic_ones(tmp_path: Path) -> None:
    """Rows that never grow too old drift away; a drawing of other neighbours says what is no drift."""
    kept = epochs_of(train_fresh(tmp_path, epochs=6, lr=0.05, fresh={"probe": 200, "t_stale": "forever", "p_grad": 1}))
    young = epochs_of(train_fresh(tmp_path, epochs=6, lr=0.05, fresh={"probe": 200, "t_stale": 1}))
    for row in (*kept, *young):
        assert 0 <= row["cached_cosine"] <= 1 and 0 < row["redrawn_cosine"] <= 1 and row["probed"] > 0
    assert kept[-1]["mean_age"] > young[-1]["mean_age"] == 1
    assert kept[-1]["cached_cosine"] < young[-1]["cached_cosine"]
    assert kept[-1]["cached_norm_error"] > kept[-1]["redrawn_norm_error"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"p_grad": 1.5}, "p_grad = 1.5 is above 1"),
        ({"t_stale": "epoch"}, "t_stale = 'epoch' is not a number of steps"),
        ({"t_stale": -1}, "t_stale = -1 is not a number of steps"),
        ({"t_stale": 10**20}, "t_stale = 100000000000000000000 is above 1,000,000,000,000,000,000"),
        ({"stabilise": "forever"}, "stabilise = 'forever' is not a number of steps"),
        ({"arena": "auto"}, "arena = 'auto' would let the machine decide"),
        ({"arena": "12 apples"}, "'apples'"),
        ({"probe": -1}, "probe = -1 is below 0"),
    ],
)
def test_values_out_of_range_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        FreshSettings(**settings)


@pytest.mark.parametrize(
    ("t_stale", "per_epoch", "steps"),
    [
        ("epoch/6", 100, 16),
        ("epoch/6", 5, 0),
        ("epoch/6", 5000, 200),
        (300, 10, 300),
        ("epoch / 2", 10, 5),
        ("forever", 9, None),
    ],
)
def test_a_share_of_an_epoch_is_at_most_200_steps(t_stale: Any, per_epoch: int, steps: int | None) -> None:
    assert FreshSettings(t_stale=t_stale).stale_steps(per_epoch) == steps


RECIPE = recipe(
    {"name": "one", "trainer": "fresh"},
    name="toy",
    seed=5,
    graph=sbm(nodes=100, edges=400),
    sampling={"fanouts": [4, 3], "batch_size": 32},
)


def test_hotness_is_counted_by_layer_and_decides_weights(tmp_path: Path) -> None:
    def steps(tail: str = "") -> dict[str, Any]:
        pipeline = parse_pipeline(tmp_path / "toy.toml", (RECIPE + tail).encode(), TrainTable)
        return {step.name: step for step in preprocessing_steps(pipeline)}

    assert steps()["hotness"].configs[0].hotness == HotnessTable(layers="inputs")
    assert steps('[hotness]\npolicy = "degree"\n')["hotness"].configs[0].hotness == HotnessTable(
        policy="degree", layers="inputs"
    )
    assert "hotness" not in {*steps()} - {*steps("[memory]\n")}
    with pytest.raises(InputError, match="19: arena = 'auto' would let the machine decide"):
        steps('[train.fresh]\narena = "auto"\n')
    with pytest.raises(InputError, match=r"policy = .best. is not one of accuracy, "):
        steps('[train.fresh]\npolicy = "best"\n')


def test_hotness_that_counts_no_layers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.trainers.runs.HotnessTable", lambda **table: HotnessTable(**(table | {"layers": "visits"}))
    )
    with pytest.raises(InputError, match="layer_inputs"):
        train_fresh(tmp_path)
