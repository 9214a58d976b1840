"""The hotness stage: exact counts, the same bytes at any thread count, one ranking a policy, nothing sampled for nothing."""

import dataclasses
from typing import get_args

import numpy as np
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.costs.needs import Sizes, known_sizes
from graphmill.assets.graph.read import open_graph
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.hotness import stage as hotness_stage
from graphmill.assets.hotness.config import HotnessTable, Policy, hotness_config
from graphmill.assets.hotness.costs import hotness_need
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling import config as sampling_config
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sizes import parse_size
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.names.user_code import Reference
from graphmill.assets.storage.store import Store
from graphmill.kernels import ranges
from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.bayes import visit_rates
from graphmill.kernels.hotness.visits import count_reference
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Stream
from tests.assets.sampling.test_sequential import graph_of
from tests.trainers.graphs import random_graph_artifacts, random_topology

SAMPLING = SamplingConfig(fanouts=(4, 3), batch_size=50)
FAR = ("mapped", "sequential")
OWN = """
import numpy as np

def first_ones(topology, node_ids, fanout, random):
    degree = np.diff(topology.indptr)[node_ids]
    counts = np.minimum(degree, fanout)
    place = np.arange(fanout)[None, :] < counts[:, None]
    return counts, topology.indices[(topology.indptr[node_ids][:, None] + np.arange(fanout))[place]]
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    config = config_class("rmat")(nodes=2000, edges=12000, features=4, train_ratio=0.1)
    return materialize(Store(tmp_path_factory.mktemp("home")), GRAPH, config, Threads(threads=1), {})


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A graph of several blocks per array."""
    return graph_of(tmp_path_factory.mktemp("large"), random_topology(300_000, 2_500_000, 1))


def build(graph, home, threads=2, sampling=SAMPLING, seed=3, **table):
    config = hotness_config(HotnessTable(**table), sampling, seed)
    return materialize(Store(home), HOTNESS, config, Threads(threads=threads), {"graph": graph})


def reference(graph, stream, epochs, seed=3):
    opened = open_graph(graph)
    plan = EpochPlan(np.array(opened.train_ids), 50, seed=seed, stream=stream)
    sampler = Sampler(opened.topology, (4, 3), seed=seed)
    batches = [sampler.sample(item.key, item.seeds) for epoch in range(epochs) for item in plan.batches(epoch)]
    return count_reference(batches, 2000, 2)


@pytest.mark.parametrize("method", ["presample", "bayes"])
@pytest.mark.parametrize("threads", [1, 2])
def test_passes_over_the_edges_count_the_same(graph, tmp_path, method, threads):
    table = {"policy": method, "rounds": 2, "evaluate_epochs": 1, "layers": "inputs"}
    far = dataclasses.replace(SAMPLING, topology="sequential", memory_limit="64MiB")
    near, made = build(graph, tmp_path / "near", **table), build(graph, tmp_path / "far", threads, far, **table)
    assert made.version == near.version and made.files == near.files and made.summary == near.summary
    assert (made.run_record()["passes"], made.run_record()["groups_by_layer"]) == (6, [3, 3])


@pytest.mark.parametrize("policy", ["bayes", "pagerank"])
@pytest.mark.parametrize(("limit", "ranges_of_sums"), [("64MiB", 1), ("4MiB", 3)])
def test_passes_read_the_edges_once_per_layer_and_range_of_sums(
    large, tmp_path, monkeypatch, policy, limit, ranges_of_sums
):
    """Each pass reads each block once; their number is that of the formula, and the ranking that of a mapped topology."""
    for module, name, value in (
        (sampling_config, "LEAST_MEMORY", 1 << 20),
        (ranges, "SUMS_AT_ONCE", 1000),
        (hotness_stage, "free_bytes", lambda: parse_size(limit)),
    ):
        monkeypatch.setattr(module, name, value)
    table = HotnessTable(policy=policy, layers="visits")
    how = {name: SamplingConfig(fanouts=(4, 3), batch_size=4096, topology=name, memory_limit=limit) for name in FAR}
    near, far = (hotness_config(table, how[name], 3) for name in FAR)
    mapped, made = (
        materialize(Store(tmp_path / name), HOTNESS, config, Threads(threads=2), {"graph": large})
        for name, config in zip(FAR, (near, far), strict=True)
    )
    assert made.version == mapped.version and made.files == mapped.files and made.summary == mapped.summary
    need, found = hotness_need(far, Threads(threads=2), known_sizes({"graph": large})), made.run_record()
    whole = sum(large.files[f"{name}.npy"]["bytes"] for name in ("indptr", "indices"))
    assert found["ranking_passes"] == (2 if policy == "bayes" else 10) * ranges_of_sums
    assert found["ranking_read_bytes"] == found["ranking_passes"] * whole
    assert need.passes is not None and need.passes.count == found["passes"] + found["ranking_passes"]
    assert need.passes.num_bytes == need.passes.count * whole
    assert found["topology_read_bytes"] <= found["passes"] * whole  # blocks without an asked row are left out
    assert hotness_need(near, Threads(threads=2), known_sizes({"graph": large})).passes is None
    assert "ranking_passes" not in mapped.run_record()


def test_at_papers100m_a_ranking_reads_the_edges_four_times():
    """111M nodes, 1.6G edges, two layers: 27 GiB in 8 GiB of memory, where a pass for each 16.8M sums would be 14 and 95 GiB."""
    how = SamplingConfig(fanouts=(10, 10), batch_size=1024, topology="sequential")
    sizes = Sizes(num_nodes=111_059_956, num_edges=1_615_685_872, num_train=1_207_179)
    need = hotness_need(hotness_config(HotnessTable(), how, 0), Threads(threads=2), sizes)
    assert need.passes is not None and need.passes.count == 4 and 26 << 30 < need.passes.num_bytes < 28 << 30
    assert need.memory_bytes < 5 << 30
    few = dataclasses.replace(how, memory_limit="64MiB")
    more = hotness_need(hotness_config(HotnessTable(), few, 0), Threads(threads=2), sizes).passes
    assert more is not None and more.count > 14


def test_counts_are_those_of_the_presampled_epochs(graph, tmp_path):
    made = open_hotness(build(graph, tmp_path, policy="presample", rounds=2, layers="inputs"))
    visits, layer_visits, layer_inputs = reference(graph, Stream.PRESAMPLE, 2)
    assert made.visits is not None and made.layer_visits is not None and made.layer_inputs is not None
    assert made.visits.tobytes() == visits.tobytes() and made.visits.dtype == np.uint32
    assert made.layer_visits.tobytes() == layer_visits.tobytes() and made.layer_visits.dtype == np.uint32
    assert made.layer_inputs.tobytes() == layer_inputs.tobytes() and made.layer_inputs.dtype == np.uint64
    assert made.order.tolist() == sorted(range(2000), key=lambda v: (-int(visits[v]), v))
    assert made.score is None


@pytest.mark.parametrize(
    "table", [{"layers": "inputs", "evaluate_epochs": 2, "rounds": 2}, {"policy": "pagerank"}, {"policy": "presample"}]
)
def test_byte_equal_at_any_thread_count(graph, tmp_path, table):
    made = [build(graph, tmp_path / str(threads), threads, **table) for threads in (1, 2, 8)]
    assert len({artifact.version for artifact in made}) == 1
    assert made[0].files == made[1].files == made[2].files
    assert made[0].summary == made[1].summary == made[2].summary
    assert made[0].verify() == [] and all(check["passed"] for check in made[0].summary["checks"])


def test_policies_rank_by_their_score(graph, tmp_path):
    topology, orders = open_graph(graph).topology, {}
    for policy in ("degree", "pagerank", "random"):
        artifact = build(graph, tmp_path, policy=policy, sampling=None)
        made = open_hotness(artifact)
        orders[policy] = made.order.tolist()
        assert sorted(orders[policy]) == list(range(2000)) and made.visits is None
        assert (made.score is None) == (policy == "random")
        if made.score is not None:
            assert made.score.dtype == np.float64
            assert orders[policy] == sorted(range(2000), key=lambda v, score=made.score: (-score[v], v))
    assert orders["degree"] == sorted(range(2000), key=lambda v: (-int(topology.out_degree[v]), v))
    optimal = open_hotness(build(graph, tmp_path, policy="optimal", evaluate_epochs=3))
    assert optimal.visits is not None
    assert optimal.visits.tobytes() == reference(graph, Stream.TRAIN, 3)[0].tobytes()


def test_the_blend_is_the_default_and_stores_only_what_was_asked_for(graph, tmp_path):
    artifact = build(graph, tmp_path)
    made, opened = open_hotness(artifact), open_graph(graph)
    visits, layer_visits, _ = reference(graph, Stream.PRESAMPLE, 1)
    score = visit_rates(
        opened.topology, np.array(opened.train_ids), (4, 3), num_batches=len(opened.train_ids) // 50, rounds=1, visits=visits,
        layer_visits=layer_visits, seed=3,
    )  # fmt: skip
    assert len(opened.train_ids) % 50 == 0 and made.score is not None and made.visits is not None
    assert made.score.tobytes() == score.tobytes() and made.visits.tobytes() == visits.tobytes()
    assert made.order.tolist() == sorted(range(2000), key=lambda v: (-score[v], v))
    assert made.layer_visits is None and made.layer_inputs is None


@pytest.mark.usefixtures("drawn")
def test_evaluation_measures_every_policy_on_training_epochs(graph, tmp_path):
    artifact = build(graph, tmp_path, policy="presample", evaluate_epochs=4, rounds=2)
    numbers, visits = artifact.summary["numbers"], reference(graph, Stream.TRAIN, 4)[0]
    order = open_hotness(artifact).order
    expected = visits[order[:200]].sum() / visits.sum()
    assert numbers["hit_ratio_presample_10_percent"] == pytest.approx(expected, abs=1e-6)
    for percent in (1, 5, 10, 20):
        by_policy = {p: numbers[f"hit_ratio_{p}_{percent}_percent"] for p in get_args(Policy) if p != "optimal"}
        assert numbers[f"hit_ratio_optimal_{percent}_percent"] >= max(by_policy.values())
        assert by_policy["bayes"] > by_policy["presample"] > by_policy["random"]
    assert 0 < numbers["evaluate_similarity"] < 1 and 0 < numbers["presample_similarity"] < 1
    assert (
        numbers["evaluate_inputs"] == visits.sum() and numbers["evaluate_batches"] == numbers["presample_batches"] * 2
    )
    assert artifact.file("hit_ratio.png").stat().st_size < 100_000


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize(("policy", "within"), [("bayes", 0.02), ("presample", 0.03)])
def test_what_a_policy_expects_of_its_caches_is_near_what_training_measures(graph, tmp_path, policy, within):
    artifact = build(graph, tmp_path, policy=policy, rounds=4)
    measured = build(graph, tmp_path, policy=policy, rounds=4, evaluate_epochs=4).summary["numbers"]
    for percent in (1, 5, 10, 20):
        expected = artifact.summary["numbers"][f"expected_hit_ratio_{percent}_percent"]
        assert expected == pytest.approx(measured[f"hit_ratio_{policy}_{percent}_percent"], abs=within)
    assert artifact.summary["figures"] == {"hit ratio": "hit_ratio.png"}
    assert 1000 < artifact.file("hit_ratio.png").stat().st_size < 100_000


def test_the_picture_compares_the_chosen_policy_with_others(graph, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "graphmill.assets.figures.visits.hit_ratio_curves", lambda path, *given, **more: drawn.append((given, more))
    )
    build(graph, tmp_path / "a")
    build(graph, tmp_path / "b", policy="presample", evaluate_epochs=1)
    build(graph, tmp_path / "c", policy="degree", layers="visits")
    build(graph, tmp_path / "d", policy="degree")
    (_, expected), (_, measured), (_, counted) = drawn  # nothing was counted for the last one
    assert [set(given[1]) for given, _ in drawn] == [
        {"bayes", "presample", "degree", "random"}, set(get_args(Policy)), {"degree", "presample", "random"},
    ]  # fmt: skip
    assert [more["chosen"] for more in (expected, measured, counted)] == ["bayes", "presample", "degree"]
    assert expected["source"].startswith("expected") and measured["source"].startswith("measured")


def test_checks_have_the_numbers_of_the_counts(graph, tmp_path):
    artifact = build(graph, tmp_path, rounds=2)
    found = {check["name"]: check["numbers"] for check in artifact.summary["checks"]}
    visits, train_ids = open_hotness(artifact).visits, open_graph(graph).train_ids
    assert visits is not None
    assert found["visits add up to the inputs"] == {"visits": visits.sum(), "inputs": visits.sum()}
    fewest = found["every training node is visited in every round"]
    assert fewest == {"fewest visits of a training node": visits[train_ids].min(), "rounds": 2}
    assert found["the ranking holds every node once"] == {"different nodes ranked": 2000, "nodes": 2000}


def test_a_user_s_own_sampling_function_is_presampled(graph, tmp_path):
    (tmp_path / "hotness_own.py").write_text(OWN)
    sampling = dataclasses.replace(SAMPLING, method=Reference("hotness_own:first_ones", tmp_path))
    artifact = build(graph, tmp_path / "home", sampling=sampling, layers="inputs")
    made = open_hotness(artifact)
    assert all(check["passed"] for check in artifact.summary["checks"])
    assert made.visits is not None and made.visits.sum() == artifact.summary["numbers"]["presample_inputs"]
    plain = open_hotness(build(graph, tmp_path / "home", policy="presample", sampling=sampling))
    assert made.order.tobytes() == plain.order.tobytes(), "the blend does not know this function: counts stand alone"
    before = HOTNESS.raw(hotness_config(HotnessTable(), sampling, 0))
    (tmp_path / "hotness_own.py").write_text(OWN + "\n# a comment\n")
    assert HOTNESS.raw(hotness_config(HotnessTable(), sampling, 0)) == before
    (tmp_path / "hotness_own.py").write_text(
        OWN.replace("np.minimum(degree, fanout)", "np.minimum(degree, fanout - 1)")
    )
    assert HOTNESS.raw(hotness_config(HotnessTable(), sampling, 0)) != before


def test_what_does_not_matter_is_no_part_of_the_recipe():
    other = dataclasses.replace(SAMPLING, batch_size=60)
    for policy in ("degree", "pagerank"):
        table = HotnessTable(policy=policy)
        assert hotness_config(table, SAMPLING, 1) == hotness_config(dataclasses.replace(table, rounds=3), other, 2)
    assert hotness_config(HotnessTable(policy="random"), None, 1) != hotness_config(
        HotnessTable(policy="random"), None, 2
    )
    reused = dataclasses.replace(SAMPLING, reuse=5)
    assert hotness_config(HotnessTable(), SAMPLING, 1) == hotness_config(HotnessTable(), reused, 1)
    assert hotness_config(HotnessTable(), SAMPLING, 1) != hotness_config(HotnessTable(), other, 1)
    assert hotness_config(HotnessTable(policy="degree", layers="visits"), SAMPLING, 1).sampling == SAMPLING


def test_a_graph_without_training_nodes_is_refused_where_epochs_are_needed(tmp_path):
    empty = random_graph_artifacts(tmp_path, num_train=0).graph
    with pytest.raises(InputError, match="no training nodes"):
        build(empty, tmp_path)
    assert len(open_hotness(build(empty, tmp_path, policy="degree")).order) == 400


RECIPE = '[graph]\nsource = "sbm"\nnodes = 100\nedges = 500\n'


@pytest.mark.parametrize(
    ("table", "messages"),
    [
        ('policy = "hottest"\nround = 2\n', ["hottest", "round"]),
        ("rounds = 0\nevaluate_epochs = -1\n", ["rounds = 0", "evaluate_epochs = -1"]),
        ('policy = "optimal"\n', ["ranks by the evaluated epochs"]),
        ("rounds = 2\n", ["needs a table [sampling]"]),
    ],
)
def test_mistakes_in_the_table_are_reported_with_their_lines(tmp_path, table, messages):
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE + "[hotness]\n" + table)
    with pytest.raises(InputError) as caught:
        load_pipeline(path)
    for message in messages:
        assert any(message in line and f"{path}:" in line for line in str(caught.value).splitlines()), caught.value


def test_a_table_is_read(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE + '[hotness]\npolicy = "degree"\n')
    assert load_pipeline(path).table("hotness") == HotnessTable(policy="degree")
    path.write_text(RECIPE)
    assert load_pipeline(path).table("hotness") is None
