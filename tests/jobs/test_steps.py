"""Which recipes an edit changes: the affected closure, and nothing else."""

import hashlib

import numpy as np
import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import Versions, find_inputs, joint_version, preprocessing_steps, recipe_hash
from graphmill.assets.storage.store import Store
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import load_tiny, write_tiny


def _steps(pipeline):
    data = preprocessing_steps(pipeline)
    return {step.name: step for step in [*data, *training_steps(pipeline, data)]}


def _hashes(pipeline):
    return {name: recipe_hash(step) for name, step in _steps(pipeline).items()}


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"nodes": "300 -> 301"}, {"graph", "features", "sage", "gcn"}),
        ({"seed": "0 -> 1"}, {"graph", "features", "sage", "gcn"}),
        ({"batch_size": "64 -> 65"}, {"sage", "gcn"}),
        ({"model": '"gcn" -> "sage"'}, {"gcn"}),
        ({"hidden": "8 -> 9"}, {"sage", "gcn"}),
        ({}, set()),
    ],
)
def test_an_edit_changes_the_affected_closure(tmp_path, change, affected):
    before, after = _hashes(load_tiny(tmp_path / "a")), _hashes(load_tiny(tmp_path / "b", **change))
    assert {name for name in before if before[name] != after[name]} == affected


def test_an_edit_of_hotness_leaves_graph_and_models_alone(tmp_path):
    def hashes(folder, hotness, **changes):
        path = write_tiny(tmp_path / folder, **changes)
        path.write_text(path.read_text() + hotness)
        return _hashes(load_pipeline(path, TrainTable))

    before = hashes("a", "[hotness]\nrounds = 2\n")
    assert set(before) == {"graph", "features", "hotness", "budgets", "sage", "gcn"}
    after = hashes("b", "[hotness]\nrounds = 3\n")
    assert {name for name in before if before[name] != after[name]} == {"hotness"}
    after = hashes("c", "[hotness]\nrounds = 2\n", batch_size="64 -> 65")
    assert {name for name in before if before[name] != after[name]} == {"hotness", "sage", "gcn"}
    degree = [hashes(f, '[hotness]\npolicy = "degree"\n', batch_size=f"64 -> {n}") for f, n in (("d", 64), ("e", 65))]
    assert degree[0]["hotness"] == degree[1]["hotness"], "a ranking by degree samples nothing"


def test_a_cache_is_read_and_is_no_part_of_a_model_s_version(tmp_path):
    def steps(folder, sections, train=""):
        path = write_tiny(tmp_path / folder)
        path.write_text(path.read_text().replace('name = "sage"\n', f'name = "sage"\n{train}') + sections)
        return _steps(load_pipeline(path, TrainTable))

    plain = steps("plain", "")
    cached = {
        "both": steps("both", '[hotness]\npolicy = "degree"\n[memory]\ndevice = "10%"\nhost = 0\ndisk = 0\n'),
        "hotness": steps("hotness", '[hotness]\npolicy = "degree"\n'),
        "memory": steps("memory", '[memory]\ndevice = "20%"\n'),
    }
    assert set(plain) == {"graph", "features", "sage", "gcn"} and not plain["sage"].reads
    for each in cached.values():
        assert set(each) == {"graph", "features", "hotness", "budgets", "sage", "gcn"}
        assert set(each["sage"].sources) == {"graph", "features", "hotness", "budgets"}
        assert set(each["sage"].inputs) == {"graph", "features"}
        assert [recipe_hash(each[name]) for name in ("sage", "gcn")] == [
            recipe_hash(plain[name]) for name in ("sage", "gcn")
        ]
    assert len({recipe_hash(each["budgets"]) for each in cached.values()}) == 3
    # What trainings declare enters where a level is "auto", and only there; only then does the machine.
    for sections, same in (("[memory]\ndevice = 0\nhost = 0\n", True), ("[memory]\ndevice = 0\n", False)):
        one, two = (steps(str(same) + queue, sections, f'queue = "{queue}"\n') for queue in ("1GiB", "5GiB"))
        assert (recipe_hash(one["budgets"]) == recipe_hash(two["budgets"])) is same
    assert [each["budgets"].external for each in cached.values()] == ["", "measured", "measured"]


def test_what_is_not_hashed_changes_nothing(tmp_path):
    pipeline = load_tiny(tmp_path / "a")
    path = tmp_path / "b" / "tiny.toml"
    path.parent.mkdir()
    path.write_text("# a remark\n" + pipeline.text.replace('name = "sage"\n', 'name = "sage"\nsamplers = 3\n'))
    from graphmill.assets.pipeline.file import load_pipeline
    from graphmill.trainers.recipe.config import TrainTable

    assert _hashes(load_pipeline(path, TrainTable)) == _hashes(pipeline)


def test_a_seed_more_is_another_recipe_with_a_joint_version(tmp_path):
    text = load_tiny(tmp_path / "a").text.replace('name = "gcn"\n', 'name = "gcn"\nseeds = [0, 1]\n')
    (tmp_path / "seeds.toml").write_text(text)
    from graphmill.assets.pipeline.file import load_pipeline
    from graphmill.trainers.recipe.config import TrainTable

    one, two = load_tiny(tmp_path / "a"), load_pipeline(tmp_path / "seeds.toml", TrainTable)
    assert _hashes(one)["gcn"] != _hashes(two)["gcn"] and _hashes(one)["sage"] == _hashes(two)["sage"]
    versions = Versions().of(_steps(two)["gcn"])
    assert len(set(versions)) == 2 and versions[0] == Versions().only(_steps(one)["gcn"])
    assert joint_version(versions) not in versions and joint_version(versions[:1]) == versions[0]


def test_raw_content_is_digested_once_and_enters_the_versions_downstream(tmp_path):
    arrays = {
        "edge_index": np.array([[0, 1, 2], [1, 2, 0]]),
        "x": np.eye(3, dtype=np.float32),
        "y": np.array([0, 1, 0]),
    }
    np.savez(tmp_path / "g.npz", **arrays, train=[0], val=[1], test=[2])
    text = load_tiny(tmp_path / "a").text
    start, end = text.index("[graph]"), text.index("[sampling]")
    (tmp_path / "raw.toml").write_text(text[:start] + '[graph]\nsource = "npz"\npath = "g.npz"\n' + text[end:])
    from graphmill.assets.pipeline.file import load_pipeline
    from graphmill.trainers.recipe.config import TrainTable

    steps = _steps(load_pipeline(tmp_path / "raw.toml", TrainTable))
    assert steps["graph"].external and not steps["sage"].external
    versions = Versions()
    before = {name: versions.of(step) for name, step in steps.items()}
    digest = hashlib.sha256((tmp_path / "g.npz").read_bytes()).hexdigest()
    assert digest in versions.raw(steps["graph"].recipe, steps["graph"].configs[0]).values()
    arrays["y"] = np.array([1, 1, 0])
    np.savez(tmp_path / "g.npz", **arrays, train=[0], val=[1], test=[2])
    assert {name: versions.of(step) for name, step in steps.items()} == before, "one run sees one content"
    after = {name: Versions().of(step) for name, step in steps.items()}
    assert all(after[name] != before[name] for name in steps)


def test_a_missing_input_names_the_command_that_builds_it(tmp_path):
    step = _steps(load_tiny(tmp_path))["sage"]
    with pytest.raises(InputError, match=r"tiny/sage reads graph/[0-9a-f]{12}(?s:.*)graphmill build .*tiny.toml"):
        find_inputs(Store(tmp_path / "home"), step, Versions())


def test_generators_are_sources_without_raw_content():
    from graphmill.assets.graph.stage import GRAPH
    from graphmill.assets.sources.registry import sound_classes

    generated = [each for each in sound_classes() if each.generated]
    assert len(generated) == 6
    for each in generated:
        assert GRAPH.raw(each(nodes=100, edges=10)) == {}  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(("arrays", "same"), [({"train": [0], "val": [1], "test": [2]}, True), ({}, False)])
def test_the_seed_enters_a_graph_only_where_its_split_is_drawn(tmp_path, arrays, same):
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1, 2], [1, 2, 0]]), y=np.array([0, 1, 0]), **arrays)
    versions = []
    for seed, ratio in ((0, 0.6), (1, 0.6), (1, 0.5)):
        text = f'seed = {seed}\n[graph]\nsource = "npz"\npath = "g.npz"\ntrain_ratio = {ratio}\n'
        (tmp_path / "g.toml").write_text(text)
        steps = preprocessing_steps(load_pipeline(tmp_path / "g.toml"))
        versions.append(tuple(Versions().only(step) for step in steps))
    graphs, features = zip(*versions, strict=True)
    assert len(set(graphs)) == (1 if same else 3) and len(set(features)) == 1
