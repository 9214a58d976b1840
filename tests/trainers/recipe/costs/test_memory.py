"""The memory of a training is added up before it starts, and a queue that is too small is refused then."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.chunks.config import ChunksTable, chunks_config
from graphmill.assets.costs.needs import MARGIN, Sizes, require_fit
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.cuda.held import HeldArrays
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.recipe.costs.batch import batch_sizes
from graphmill.trainers.recipe.costs.course import KERNEL_BYTES, Case
from graphmill.trainers.recipe.costs.memory import (
    HEAP,
    READER_BYTES,
    WINDOW_BYTES,
    evaluation_terms,
    largest_batch,
    memory_terms,
    sampler_terms,
    tier_terms,
    training_case,
    training_need,
)
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.recipe import ModelRecipe
from graphmill.trainers.rows import direct
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from tests.trainers.runs import train_small

SIZES = Sizes(
    num_nodes=1_000_000,
    num_edges=8_000_000,
    num_train=10_000,
    num_classes=16,
    num_rows=1_000_000,
    width=768,
    row_bytes=3072,
)
SAMPLING = SamplingConfig(fanouts=(10, 10), batch_size=256)
BATCH = batch_sizes(SAMPLING, SIZES)


class Stored:
    """An artifact of stored samples, as far as sizes are read from it."""

    def __init__(self, count: int):
        self.config = {"epochs": 1}
        # The one batch of an evaluation, behind those of training, is larger.
        self.arrays = {
            "num_edges": np.array([[20_000, 2000]] * count + [[90_000, 9000]]),
            "num_inputs": np.array([19_000] * count + [80_000]),
        }

    def array(self, name: str) -> np.ndarray:
        return self.arrays[name]


def case(**keys: Any) -> tuple[ModelConfig, TrainExecution]:
    of_batches = {} if keys.get("trainer") == "fullgraph" else {"queue": "64MiB", "samplers": 1}
    given = {"name": "small", "hidden": 64, "eval": "sampled", "features": "direct"} | of_batches | keys
    table = TrainTable(**given)
    return ModelConfig(seed=0, train=table.config, sampling=SAMPLING), table.execution


def with_samples(count: int = -(-SIZES.num_train // SAMPLING.batch_size)) -> Sizes:
    stored: Any = Stored(count)
    return replace(SIZES, artifacts={"samples": stored})


def terms(recipe: tuple[ModelConfig, TrainExecution], sizes: Sizes) -> dict[str, int]:
    need = training_need(*recipe, sizes)
    assert need is not None
    return {term.name: term.most for term in need.memory}


def test_the_keys_that_a_user_sets_move_their_terms() -> None:
    small, large = terms(case(), with_samples()), terms(case(queue="1GiB", hidden=1024), with_samples())
    assert large["batches that wait"] > small["batches that wait"] == 0
    assert large["activations of a step"] > small["activations of a step"]
    exact = terms(case(eval="exact", eval_workspace="256MiB"), with_samples())
    assert 128 << 20 < exact["an exact evaluation"] <= 256 << 20
    assert terms(case(features="memory"), with_samples())["features in memory"] == SIZES.feature_bytes


@pytest.mark.parametrize("trainer", ["distributed", "fresh-distributed"])
def test_ranks_with_gpus_pin_the_rows_that_kernels_may_still_read(trainer: str) -> None:
    """Torch's pool lends powers of two."""
    found = [memory_terms(training_case(*case(trainer=trainer, device=device), SIZES)) for device in ("cpu", "cuda")]
    names = [{term.name: term.most for term in terms} for terms in found]
    (name,) = names[1].keys() - names[0].keys()
    batch = largest_batch(case()[0], SIZES).inputs * SIZES.row_bytes
    each = names[1][name] / (HeldArrays.MOST + 1) / training_case(*case(trainer=trainer), SIZES).ranks
    assert batch <= each < 2 * batch and each.is_integer() and int(each).bit_count() == 1


def test_sizes_of_stored_batches_are_exact_and_those_of_fan_outs_a_bound() -> None:
    stored, drawn = training_need(*case(), with_samples()), training_need(*case(), SIZES)
    assert stored and drawn
    work = [next(term for term in need.memory if term.name == "batches in work") for need in (stored, drawn)]
    assert (work[0].bound, work[1].bound) == (False, True)
    assert work[0].most < work[1].most and stored.least_bytes > drawn.least_bytes


def test_rows_of_nodes_are_counted_with_moments_and_copies() -> None:
    keys = {"input": "typed", "embedding": "node", "accumulate": 2}
    sizes = replace(SIZES, num_rows=400_000)
    none, one = terms(case(input="typed"), sizes), terms(case(**keys), sizes)
    table = 600_000 * 64 * 4
    assert {name: one[name] for name in one if name not in none} == {
        "rows of nodes and their moments": 3 * table,
        "best rows of nodes, and a checkpoint of them": 6 * table,
        "gradients of rows of nodes": 4 * min(600_000, BATCH.inputs) * 64 * 4,
    }
    scored = terms(case(**(keys | {"hidden": 128})), replace(sizes, num_valid=10))
    assert scored["best rows of nodes, and a checkpoint of them"] == (1 + 8) * 2 * table
    assert {name: one[name] for name in none} == none


@given(st.lists(st.integers(0, 300_000), min_size=3, max_size=3), st.booleans())
def test_a_sampled_evaluation_has_room_for_the_batches_of_every_split_that_is_scored(
    counts: list[int], asked: bool
) -> None:
    recipe = case(score_train=asked, queue="4GiB")
    splits = recipe[0].train.scored_splits(*counts)
    largest = max(count for split, count in zip(("train", "valid", "test"), counts, strict=True) if split in splits)
    made = training_case(*recipe, SIZES)

    def term(train: int, valid: int, test: int) -> int:
        sizes = replace(SIZES, num_train=train, num_valid=valid, num_test=test)
        return evaluation_terms(replace(made, sizes=sizes), 0)[0].most

    found, expected = term(*counts), term(0, max(1, largest), 0)
    assert found == expected > 0


@given(st.sampled_from(["device", "p2p+reuse"]), st.integers(1, 300), st.integers(16, 4096), st.integers(1, 60))
def test_batches_of_an_evaluation_take_the_memory_of_a_pass_that_is_over(
    mode: Any, hidden: int, batch_size: int, fanout: int
) -> None:
    """Never at once, so the bound has the larger of the two; of packed batches and others that share their input rows likewise."""
    keys = {"trainer": "fullgraph", "hidden": hidden, "settings": FullGraphSettings(mode=mode)}
    semantic, execution = case(**keys)
    sampling = SamplingConfig(fanouts=(fanout, fanout), batch_size=batch_size)
    sampled = replace(semantic, sampling=sampling), execution
    exact = replace(semantic, train=replace(semantic.train, eval="exact"), sampling=sampling), execution
    sizes = replace(SIZES, num_valid=20_000)
    made = replace(training_case(*sampled, sizes), batch=batch_sizes(sampling, sizes))
    found, passed = terms(sampled, sizes), terms(exact, sizes)
    (step,) = (passed[name] for name in ("activations of a step", "a chunk's rows and activations") if name in passed)
    batches = sum(term.most for term in evaluation_terms(made, 0))
    more = found["batches of an evaluation that wait"] + found["rows that batches of an evaluation share"]
    assert step + more == max(step, batches)


def test_rows_of_nodes_in_files_take_a_byte_each_and_the_records_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, Any] = {"input": "typed", "embedding": "node"}
    sizes = replace(SIZES, num_rows=400_000)
    none, files = terms(case(input="typed"), sizes), terms(case(embedding_rows="mapped", **keys), sizes)
    inputs, recent = min(600_000, BATCH.inputs) * 64 * 4, (64 << 20) + 128 * 8 * 4096
    assert {name: files[name] for name in files if name not in none} == {
        "states of the rows of nodes in files": 6 * 600_000,
        "records of a step": 9 * inputs,
        "records that were read or written last, or are on the way": recent,
        "gradients of rows of nodes": 3 * inputs,
    }
    record = 3 * 600_000 * 64 * 4
    for more, count in (({}, 3), ({"epochs": 1}, 1), ({"epochs": 1, "checkpoint_steps": 5}, 3)):
        need = training_need(*case(embedding_rows="mapped", **keys, **more), sizes)
        assert need is not None and need.scratch == count * record
    # "auto": memory where it suffices, and files are what is enough then; where it does not, files.
    found = []
    monkeypatch.setattr("graphmill.trainers.recipe.costs.course.anonymous_bytes", lambda: 0)
    for free in (1 << 40, record):
        monkeypatch.setattr("graphmill.trainers.recipe.costs.course.free_bytes", lambda free=free: free)
        need = training_need(*case(**keys), sizes)
        assert need is not None
        found.append(need)
    large, small = found
    assert large.memory_bytes - small.memory_bytes == 9 * record // 3 - 6 * 600_000 - 9 * inputs - recent
    assert large.required_bytes == small.required_bytes == small.memory_bytes


def test_ranks_share_the_cores_and_a_table_in_memory_needs_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.trainers.recipe.costs.course.usable_cores", lambda: 16)
    one, four = (
        Case(semantic=case()[0], execution=case(samplers=0)[1], sizes=SIZES, batch=BATCH, ranks=n) for n in (1, 4)
    )
    assert (one.samplers, four.samplers) == (15, 3)
    assert not any(term.bound for term in sampler_terms(one)) and all(term.bound for term in sampler_terms(four))
    budgets: Any = SimpleNamespace(summary={"numbers": {"device_rows": 10, "host_rows": 20, "automatic": ["device"]}})
    cached = replace(SIZES, artifacts={"budgets": budgets})
    for where, names in (("direct", ["device", "host"]), ("memory", ["device"])):
        recipe = case(features=where)
        found = tier_terms(Case(semantic=recipe[0], execution=recipe[1], sizes=cached, batch=BATCH))
        assert [term.name for term in found[:-1]] == [f"rows in the {name} cache" for name in names]
        assert found[0].bound and not any(term.bound for term in found[1:])


def test_an_evaluation_that_may_be_sampled_is_counted_as_a_bound() -> None:
    exact, auto = (
        ModelRecipe().need(*case(trainer="disk", eval=how, samplers=int(how == "auto")), with_samples())
        for how in ("exact", "auto")
    )
    assert exact and auto
    more = {term.name: term.bound for term in auto.memory}
    assert not any(term.name.startswith("samplers of") for term in exact.memory)
    assert more["samplers of 1 threads"] and more["batches of an evaluation that wait"]


def test_a_sum_that_does_not_fit_names_terms_and_keys() -> None:
    need = ModelRecipe().need(*case(samples="stored"), with_samples())
    assert need
    require_fit(need, need.memory_bytes)
    with pytest.raises(InputError, match=r"(?s)batches in work.*batch_size lowers it") as refused:
        require_fit(need, int(need.least_bytes / (1 + MARGIN)) - 1)
    assert "Python, torch and this project" in refused.value.problem and "the step that waits" in refused.value.problem
    assert "[sampling] batch_size" in refused.value.remedy


@pytest.mark.parametrize("trainer", ["minibatch", "disk"])
def test_a_queue_that_no_batch_fits_is_counted_as_it_grows(trainer: str) -> None:
    small, fitting, large = (
        training_need(*case(trainer=trainer, queue=queue), with_samples()) for queue in ("20", "4MiB", "1GiB")
    )
    assert small and fitting and large
    assert small.memory_bytes <= fitting.memory_bytes < large.memory_bytes
    assert small.least_bytes > 2 * 55 << 20


def test_it_is_refused_before_data_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("data were opened")

    monkeypatch.setattr("graphmill.trainers.training.stage.Training", opened)
    monkeypatch.setattr("graphmill.assets.building.materialize.sizes_of", lambda artifacts: with_samples(count=10_000))
    monkeypatch.setattr("graphmill.assets.costs.needs.free_bytes", lambda: 0)
    monkeypatch.setattr("graphmill.assets.costs.needs.anonymous_bytes", lambda: 100 << 20)
    with pytest.raises(InputError, match=r"needs .* of memory and 100.0 MiB are there") as refused:
        train_small(tmp_path, queue="64MiB", eval="sampled")
    assert "batches in work" in refused.value.problem


def test_a_run_records_what_was_said(tmp_path: Path) -> None:
    run = train_small(tmp_path, eval="sampled").run_record()
    assert run["memory_need"]["bytes"] == sum(run["memory_need"]["terms"].values())
    assert run["peak_memory_bytes"] > 0


def test_factored_counts_its_roles() -> None:
    def said(switching: bool = False, **roles: int) -> dict[str, int]:
        settings = FactoredSettings(switching=switching, **roles)
        return terms(case(trainer="factored", samplers=0, settings=settings), with_samples())

    one, three = said(samplers=1, trainers=1), said(samplers=1, trainers=3)
    assert three["rows of the trainers' batches"] == 3 * one["rows of the trainers' batches"] > 0
    assert three["activations of a step"] == 3 * one["activations of a step"]
    standby = said(samplers=1, trainers=1, switching=True)
    assert standby["activations of a step"] == 2 * one["activations of a step"]


def test_a_full_graph_training_counts_all_nodes_and_the_largest_chunk() -> None:
    """Numbers of two layers of sage, by hand: rows of 64 and 16 columns, aggregates of 768 and, of mapped rows, 16, gradients of both."""

    def said(chunks_per_part: int = 4, **settings: Any) -> dict[str, int]:
        configs = {"chunks": chunks_config(ChunksTable(chunks_per_part=chunks_per_part), 0)}
        keys = {
            "trainer": "fullgraph",
            "eval": "exact",
            "features": "mapped",
            "settings": FullGraphSettings(**settings),
        }
        return terms(case(**keys), replace(SIZES, configs=configs))

    between = "rows of all nodes between layers"
    free = 1 << 50
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmill.trainers.recipe.costs.course.free_bytes", lambda: free)
        patch.setattr("graphmill.trainers.recipe.costs.course.anonymous_bytes", lambda: 0)
        cached, kept, again = said(), said(hybrid=False), said(hybrid=False, keep_first=False)
        # Rows of the first layer, what both layers keep, the logits, gradients of them, of mapped rows and of the first layer's output.
        assert cached[between] == int(HEAP * 4 * SIZES.num_nodes * (64 + 768 + 16 + 16 + 16 + 16 + 64))
        assert kept[between] == cached[between]
        assert again[between] == int(HEAP * 4 * SIZES.num_nodes * (64 + 16 + 16 + 16 + 16 + 64))
        assert said(chunks_per_part=8)["a chunk's rows and activations"] < cached["a chunk's rows and activations"]
        uncut = said(mode="device")
        assert uncut["features on the device"] == SIZES.num_nodes * 4 * 768 and between not in uncut
        shared = said(ranks=2, hybrid=False)
        assert shared[between] == kept[between]  # the ranks together
        assert shared["places of rows"] == 2 * 4 * SIZES.num_nodes and "places of rows" not in kept
        assert shared["parameters, moments, checkpoint"] == 2 * kept["parameters, moments, checkpoint"]
        # Rows stay if they fit beside everything else, to the byte; else they are in a file.
        free = sum(cached.values()) - KERNEL_BYTES
        assert said() == cached
        free -= 1
        assert said() == cached | {between: 0}


def test_ranks_on_packed_rows_have_the_terms_of_disk_and_no_exchange() -> None:
    sizes = with_samples()
    stored: Any = sizes.artifacts["samples"]
    stored.config |= {"plan": "parts"}
    stored.summary = {"numbers": {"num_batches": len(stored.arrays["num_inputs"]) - 1}}
    disk, budgets = terms(case(trainer="disk"), sizes), {"device_rows": 100, "host_rows": 50, "automatic": []}
    told: Any = SimpleNamespace(summary={"numbers": budgets})
    sizes = replace(sizes, artifacts=sizes.artifacts | {"budgets": told})
    found = {
        rows: terms(
            case(trainer="distributed", samples="stored", settings=DistributedSettings(ranks=2, rows=rows)),  # pyright: ignore
            sizes,
        )
        for rows in ("exchange", "packed")
    }
    for name in ("staged rows of batches in work", "inputs of batches", "blocks of batches", "readers of cached rows"):
        assert found["packed"][name] == 2 * disk[name] > 0 and name not in found["exchange"]
    assert found["packed"]["rows in the host cache"] == 2 * 50 * SIZES.row_bytes
    peer = DistributedSettings(ranks=2, exchange="peer")
    on_devices = terms(case(trainer="distributed", settings=peer), sizes)  # pyright: ignore
    added = {"rows on the ranks' devices": 2 * 100 * SIZES.row_bytes, "places of rows on devices": 8 * SIZES.num_nodes}
    assert all({name: each[name] for name in added} == added for each in (on_devices, found["exchange"]))
    budgets["automatic"] = ["device"]
    measured = terms(case(trainer="distributed", settings=DistributedSettings(ranks=2)), sizes)  # pyright: ignore
    shared = added | {"rows on the ranks' devices": 100 * SIZES.row_bytes}  # what is left of one machine's memory
    assert {name: measured[name] for name in added} == shared and not any(found["packed"].get(name) for name in added)
    exchanged = {"cached rows of other ranks", "rows of other ranks for a batch", "batches in work"}
    assert exchanged <= found["exchange"].keys() and not exchanged & found["packed"].keys()


def test_readers_of_rows_are_counted_as_they_read() -> None:
    """The needs are added up without torch, which the readers' file imports."""
    assert direct.READING.depth * direct.READING.range_pages * PAGE_BYTES == READER_BYTES
    assert WINDOW_BYTES == direct.WINDOW_BYTES


@pytest.mark.parametrize("trainer", ["minibatch", "disk", "factored", "fresh", "fresh-factored"])
def test_terms_are_told_apart_by_their_names(trainer: str) -> None:
    need = training_need(*case(trainer=trainer, samplers=0), with_samples())
    assert need is not None
    names = [term.name for term in need.memory]
    assert len(names) == len(set(names))
