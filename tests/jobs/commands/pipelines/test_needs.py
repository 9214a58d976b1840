"""What steps will take, before and after parts of a pipeline are there; what cannot fit is refused."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from graphmill.assets.costs.needs import Need, Term
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sizes import format_bytes
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.pipelines import needs as module
from graphmill.jobs.commands.pipelines.needs import pipeline_needs
from graphmill.jobs.launch import Launch, launch
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

MIB = 1 << 20
RECIPE = """
[graph]
source = "rmat"
nodes = 2000
edges = 9000
features = 8
labelled = 0.5
[sampling]
fanouts = [3, 3]
batch_size = 64
reuse = 1
[samples]
[hotness]
[memory]
device = "3%"
host = "6%"
disk = "20x"
[cache_plan]
[packed]
[partitions]
method = "ldg"
[[train]]
name = "sage"
epochs = 1
"""


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return load_pipeline(path, TrainTable)


def needs_of(pipeline, home):
    found = pipeline_needs(pipeline, home)
    return found, {each.name: each for each in found.steps}


def test_every_stage_says_what_it_takes_before_anything_is_built(pipeline, tmp_path):
    found, steps = needs_of(pipeline, tmp_path / "home")
    assert not (tmp_path / "home").exists()
    data = set(steps) - {"sage"}
    assert {"graph", "features", "hotness", "samples", "cache_plan", "packed_chunks", "partitions", "budgets"} == data
    for name in data:
        need = steps[name].need
        assert need is not None and need.memory_bytes >= 100 * MIB and steps[name].missing == 1, name
        assert name == "budgets" or (need.stored and need.work), name
    features, samples = steps["features"].need, steps["samples"].need
    assert features is not None and features.stored == 2000 * 8 * 4 + 2000 * 32 // 512 and not features.stored_at_most
    assert samples is not None and samples.stored_at_most
    assert not any(each.measured for each in found.steps)
    lines = list(found.lines())
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)
    for line, each in zip(lines[1:], found.steps, strict=False):
        assert line.split()[0] == each.name and each.need is not None
        ends = format_bytes(each.need.least_bytes), format_bytes(each.need.memory_bytes)
        assert (".." in line) == (ends[0] != ends[1]) and ends[1] in line and ends[0].split()[0] in line
    assert found.values()["steps"][0]["step"] == "graph" and found.values()["steps"][0]["memory"][0]["what"]


def test_passes_over_the_edges_are_told_with_their_bytes_and_seconds(pipeline, tmp_path):
    mapped, _ = needs_of(pipeline, tmp_path / "home")
    assert not any("over the edges" in line for line in mapped.lines())
    path = tmp_path / "passes.toml"
    path.write_text(RECIPE.replace("reuse = 1", 'reuse = 1\ntopology = "sequential"'))
    found, steps = needs_of(load_pipeline(path, TrainTable), tmp_path / "home")
    lines = [line for line in found.lines() if "over the edges" in line]
    assert [line.split(":")[0] for line in lines] == ["hotness", "samples"] and all(len(line) <= 80 for line in lines)
    (samples,) = [each for each in found.values()["steps"] if each["step"] == "samples"]
    edges = 8 * 2001 + 4 * 18_000  # each with its reverse, and the ends of rows
    assert samples["passes"] == 2 and samples["pass_bytes"] == 2 * edges
    assert steps["samples"].seconds > next(each.seconds for each in mapped.steps if each.name == "samples")


def test_what_is_there_is_exact_and_speeds_are_measured(pipeline, tmp_path, monkeypatch):
    home = tmp_path / "home"
    launch(Launch(pipeline=pipeline, selection="preprocess", home=home, report=lambda line: None))
    found, steps = needs_of(pipeline, home)
    assert all(steps[name].missing == 0 and steps[name].need is None for name in set(steps) - {"sage"})
    assert any("is there" in line for line in found.lines()) and found.disk_needed == module.total_stored(found.steps)
    other = replace(pipeline, text=pipeline.text)
    changed = tmp_path / "other.toml"
    changed.write_text(RECIPE.replace("[3, 3]", "[2, 2]"))
    other = load_pipeline(changed, TrainTable)
    _, again = needs_of(other, home)
    assert again["graph"].missing == 0 and again["samples"].missing == 1
    # What a toy took says nothing of the speed; with the least time away, it does.
    assert not again["samples"].measured and (again["samples"].seconds or 0) > 0
    monkeypatch.setattr("graphmill.assets.pipeline.needs.LEAST_SECONDS", 0.0)
    _, again = needs_of(other, home)
    assert again["samples"].measured and (again["samples"].seconds or 0) > 0
    assert again["hotness"].measured and again["packed_chunks"].need is not None


def test_edges_that_may_merge_are_bounds(tmp_path):
    """The source has a million edges and the graph of 200 nodes at most 40,000: a disk that holds these holds the tables."""
    path = tmp_path / "merging.toml"
    chunked = RECIPE.replace("nodes = 2000", "nodes = 200").replace("edges = 9000", "edges = 1_000_000") + "[chunks]\n"
    path.write_text(chunked.replace("reuse = 1", 'reuse = 1\nmethod = "weighted"\nweights = "node:out_degree"'))
    _, steps = needs_of(load_pipeline(path, TrainTable), tmp_path / "home")
    chunks, tables = steps["chunks"].need, steps["sampling_tables"].need
    assert chunks is not None and tables is not None and tables.stored_at_most
    fewer = RECIPE.replace("nodes = 2000", "nodes = 200").replace("edges = 9000", "edges = 2000") + "[chunks]\n"
    path.write_text(fewer.replace("reuse = 1", 'reuse = 1\nmethod = "weighted"\nweights = "node:out_degree"'))
    _, small = needs_of(load_pipeline(path, TrainTable), tmp_path / "home")
    for name in ("chunks", "sampling_tables"):
        many, few = steps[name].need, small[name].need
        assert many is not None and few is not None and many.least_bytes == few.least_bytes


def test_json_of_a_pipeline_that_cannot_fit_ends_with_1(pipeline, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "memory_bytes", lambda: 64 * MIB)
    ended = CliRunner().invoke(graphmill, ["--home", str(tmp_path / "home"), "inspect", str(pipeline.path), "--json"])
    assert ended.exit_code == 1 and '"needs"' in ended.output


def test_a_step_that_cannot_fit_the_memory_is_refused_with_its_terms(pipeline, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "memory_bytes", lambda: 64 * MIB)
    found, _ = needs_of(pipeline, tmp_path / "home")
    with pytest.raises(InputError, match=r"graph needs .* of memory and 64.0 MiB are there:\n.*Python and libraries"):
        found.require_fit()
    bound = Need(name="graph", phases=((Term("all", 128 * MIB, bound=True),),))
    doubtful = replace(found, steps=[replace(found.steps[0], need=bound)])
    doubtful.require_fit()
    assert "note: graph may not fit the memory" in list(doubtful.lines())


def test_a_disk_that_cannot_hold_it_is_refused_and_a_bound_is_told(pipeline, tmp_path):
    found, steps = needs_of(pipeline, tmp_path / "home")
    features = steps["features"].stored
    with pytest.raises(InputError, match=r"building takes at least .* of disk"):
        replace(found, disk_bytes=features - 1).require_fit()
    least = module.total_stored(found.steps, least=True)
    assert features <= least < found.disk_needed
    enough = replace(found, disk_bytes=least)
    enough.require_fit()
    assert "note: the disk may not hold all of it" in list(enough.lines())
