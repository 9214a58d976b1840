"""The samples step of a pipeline: mistakes in its keys, versions, and a run that trains on what it stored."""

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps, recipe_hash
from graphmill.assets.storage.store import Store
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import write_tiny

pytestmark = [pytest.mark.first, pytest.mark.usefixtures("quick_launches")]


def load(folder, samples="[samples]\n", train="", **changes):
    path = write_tiny(folder, **changes)
    text = path.read_text().replace('name = "sage"\n', f'name = "sage"\n{train}')
    path.write_text(text + samples)
    return load_pipeline(path, TrainTable)


def reused(folder, samples="[samples]\n", train='samples = "stored"\n', reuse=2, **changes):
    return load(folder, samples, train, batch_size=f"64 -> 64\nreuse = {reuse}", **changes)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"reuse": 0}, "[samples] would store no epoch: set reuse in [sampling], or epochs here, to 1 or more"),
        (
            {"samples": "[samples]\nepochs = 1\n"},
            "epochs = 1, but [sampling] has reuse = 2: training would ask for more",
        ),
        ({"samples": "[samples]\nepochs = -1\n"}, "epochs = -1 is below 0"),
        ({"samples": ""}, 'samples = "stored" needs a table [samples]'),
        (
            {"train": 'samples = "stored"\nseeds = [0, 1]\n'},
            "drawn by the pipeline's seed = 0, not by seeds = [0, 1]: set `sampling_seed` in [sampling]",
        ),
        (
            {"reuse": 0, "samples": "[samples]\nepochs = 1\n"},
            'samples = "stored" with epochs = 2, but [samples] has epochs = 1 and [sampling] has no reuse',
        ),
        ({"train": 'samples = "disk"\n'}, "disk"),
        ({"train": "", "samples": '[samples]\nplan = "parts"\n'}, 'plan = "parts" needs [partitions]'),
        (
            {"samples": '[samples]\nplan = "parts"\n[partitions]\n'},
            '[samples] plan = "parts", but trainer = "minibatch" with samples = "stored" trains on batches of all seeds',
        ),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path, given, line):
    with pytest.raises(InputError) as caught:
        reused(tmp_path, **given)
    assert line in str(caught.value) and "tiny.toml:" in str(caught.value) and "1 mistake" in str(caught.value)


def steps_of(pipeline):
    data = preprocessing_steps(pipeline)
    return {step.name: step for step in [*data, *training_steps(pipeline, data)]}


def test_samples_by_parts_read_the_partitions_and_have_another_version(tmp_path):
    plain, parts = (
        steps_of(reused(tmp_path / plan, f'[samples]\nplan = "{plan}"\n[partitions]\n', train=""))["samples"]
        for plan in ("shuffled", "parts")
    )
    assert [*plain.inputs] == ["graph"] and [*parts.inputs] == ["graph", "partitions"]
    assert recipe_hash(plain) != recipe_hash(parts)
    assert recipe_hash(plain) == recipe_hash(steps_of(reused(tmp_path / "old", train=""))["samples"])


def test_samples_follow_sampling_and_decide_no_model(tmp_path):
    plain = steps_of(load(tmp_path / "plain", "", batch_size="64 -> 64\nreuse = 2"))
    stored = steps_of(reused(tmp_path / "stored"))
    more = steps_of(reused(tmp_path / "more", "[samples]\nepochs = 3\n"))
    assert set(plain) == {"graph", "features", "sage", "gcn"} and set(stored) == {
        "graph",
        "features",
        "samples",
        "sage",
        "gcn",
    }
    for name in plain:
        assert recipe_hash(plain[name]) == recipe_hash(stored[name]) == recipe_hash(more[name])
    assert recipe_hash(stored["samples"]) != recipe_hash(more["samples"])
    assert list(stored["sage"].reads) == ["samples"] and not stored["gcn"].reads
    assert stored["samples"].configs[0].epochs == 2 and more["samples"].configs[0].epochs == 3


def test_a_run_builds_samples_before_it_trains_on_them(tmp_path):
    lines = []
    order = {"home": tmp_path / "home", "names": ("sage",), "in_process": True, "report": lines.append}
    outcome = launch(Launch(pipeline=reused(tmp_path), **order))
    (samples,), (model,) = outcome.artifacts["samples"], outcome.artifacts["sage"]
    assert [line.split(":")[0] for line in lines if "built" in line] == ["features", "graph", "samples"]
    assert samples.summary["numbers"]["num_epochs"] == 2 and samples.verify() == []
    assert model.run_record()["execution"]["samples"] == "stored"
    online = launch(Launch(pipeline=reused(tmp_path / "b", "", ""), **(order | {"home": tmp_path / "other"})))
    assert online.artifacts["sage"][0].files == model.files
    lines.clear()
    launch(Launch(pipeline=reused(tmp_path), threads=2, **order))
    assert all("reused" in line for line in lines if ":" in line)


def test_training_without_the_samples_names_the_command(tmp_path):
    home = tmp_path / "home"
    pipeline = reused(tmp_path)
    launch(Launch(pipeline=pipeline, selection="preprocess", home=home, in_process=True, report=lambda line: None))
    store = Store(home)
    (samples,) = [artifact for artifact in store.artifacts() if artifact.stage == "samples"]
    store.discard("samples", samples.version)
    with pytest.raises(
        InputError, match=r"tiny/sage reads samples/\w{12}, which .* does not have(?s:.*)graphmill build"
    ):
        launch(Launch(pipeline=pipeline, selection="train", home=home, in_process=True, report=lambda line: None))


def test_seeds_share_the_samples_of_a_sampling_seed(tmp_path):
    train = 'samples = "stored"\nseeds = [3, 4]\n'
    shared = steps_of(load(tmp_path, "[samples]\n", train, batch_size="64 -> 64\nreuse = 2\nsampling_seed = 7"))
    assert shared["samples"].configs[0].seed == 7
    assert [(config.seed, config.sampling_seed) for config in shared["sage"].configs] == [(3, 7), (4, 7)]
    plain = steps_of(reused(tmp_path / "plain"))
    assert [(config.seed, config.sampling_seed) for config in plain["sage"].configs] == [(0, 0)]
