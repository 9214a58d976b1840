"""A package outside of graphmill adds a source by one class and one line, and one that is not sound is refused by its name."""

from __future__ import annotations

import dataclasses
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize_together, stage_version
from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.read import open_graph
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sources.registry import _found, config_class, source_names
from graphmill.assets.sources.typed_graph import TypedSource
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.pipelines.inspect_source import survey_of
from graphmill.jobs.commands.pipelines.new_pipeline import write_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

PAGE = (Path(__file__).parents[3] / "docs" / "own-sources.md").read_text()
FILES = dict(re.findall(r"```(?:toml|python)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
CLASS = FILES["graphmill_words.py"]
PIPELINE = re.findall(r"```toml\n(\[graph\].*?)```", PAGE, re.DOTALL)[0]
TEXT = "cat cot cart card cord word ward warm farm it"


def install(folder: Path, files: dict[str, str]) -> None:
    """Installs a package as pip does: its modules, and the folder that says its name, version and entry points."""
    project = tomllib.loads(files["pyproject.toml"])["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    named = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(named)
    groups = project["entry-points"].items()
    sections = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in each.items()) for group, each in groups
    )
    (info / "entry_points.txt").write_text("\n".join(sections))
    for name, text in files.items():
        if name.endswith(".py"):
            (folder / name).write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, whose modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    before = {*sys.modules}
    yield tmp_path / "site"
    for name in {*sys.modules} - before:
        if getattr(sys.modules[name], "__file__", None) in [str(path) for path in (tmp_path / "site").glob("*.py")]:
            del sys.modules[name]


def written(folder: Path, graph: str = PIPELINE) -> Path:
    (folder / "words.txt").write_text(TEXT)
    text = 'name = "w"\nseed = 0\n' + graph + "\n[sampling]\nfanouts = [2]\nbatch_size = 2\n"
    (folder / "w.toml").write_text(text)
    return folder / "w.toml"


def test_the_package_is_one_class_and_one_line() -> None:
    assert sum(text.strip().count("\n") + 1 for text in FILES.values()) <= 60


def test_a_pipeline_file_builds_a_graph_from_a_package(site: Path, tmp_path: Path) -> None:
    install(site, FILES)
    path = written(tmp_path)
    config = load_pipeline(path, TrainTable, files=True).graph
    features, graph = materialize_together(
        Store(tmp_path / "home"), [(FEATURES, features_config(config)), (GRAPH, config)], Threads(threads=2)
    )
    opened, rows = open_graph(graph), np.load(features.path / "rows.npy")
    words = sorted(set(TEXT.split()) - {"it"})
    assert opened.labels.tolist() == [len(word) - 3 for word in words]
    assert rows[words.index("cart")].nonzero()[0].tolist() == [ord(letter) - 97 for letter in "acrt"]
    pairs = {
        (a, b)
        for a in words
        for b in words
        if a < b and len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1
    }
    topology = opened.topology
    assert len(topology.indices) == 2 * len(pairs)
    neighbours = np.asarray(topology.indices[topology.indptr[0] : topology.indptr[1]])
    assert {words[node] for node in neighbours} == {a if b == words[0] else b for a, b in pairs if words[0] in (a, b)}


def test_commands_know_the_source(site: Path, tmp_path: Path) -> None:
    install(site, FILES)
    assert "words" in source_names()
    survey = survey_of(str(written(tmp_path)))
    assert survey.num_nodes == 9 and survey.lines()[0] == f"words: {tmp_path / 'words.txt'}"
    assert 'path = "words.txt"' in write_pipeline("mine", "words").read_text()
    with pytest.raises(InputError, match="shortest = 0 is below 1"):
        load_pipeline(written(tmp_path, PIPELINE + "shortest = 0\n"), TrainTable)
    with pytest.raises(InputError, match="has no key longest"):
        load_pipeline(written(tmp_path, PIPELINE + "longest = 3\n"), TrainTable)
    with pytest.raises(InputError, match=r"(?s)'word' is not known.*did you mean 'words'.*has no key letters"):
        load_pipeline(
            written(tmp_path, PIPELINE.replace('"words"', '"word"') + "letters = 3\nshortest = 3\n"), TrainTable
        )


def test_the_code_and_the_files_of_a_package_are_in_versions(site: Path, tmp_path: Path) -> None:
    install(site, FILES)
    config = load_pipeline(written(tmp_path), TrainTable, files=True).graph
    versions = [stage_version(GRAPH, config, {})]
    (tmp_path / "words.txt").write_text(f"{TEXT} wars")
    versions.append(stage_version(GRAPH, config, {}))
    (site / "graphmill_words.py").write_text(f"{CLASS}\n# changed\n")
    versions.append(stage_version(GRAPH, config, {}))
    versions.append(stage_version(FEATURES, features_config(config), {}))
    assert len({*versions}) == 4


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ('{"num_nodes": 9}', "publishes the number num_nodes, which the build counts itself"),
        ('{"class_names": "a"}', "publishes the number class_names, which the build counts itself"),
        ('{"num_ids_of_both_ends": "many"}', "its number num_ids_of_both_ends is 'many', not"),
        ('{"edge_types": 3}', "its number edge_types is 3, not"),
        ('{"letters": {1, 2}}', "{1, 2} has no canonical form"),
        ('{"letters": float("nan")}', "nan has no canonical form"),
        ('{"letters": 1 << 70}', "its number letters is"),
    ],
)
def test_numbers_of_a_source_leave_those_of_the_stage_alone(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: str, said: str
) -> None:
    install(site, FILES)
    config = load_pipeline(written(tmp_path), TrainTable, files=True).graph
    published, whole = eval(numbers), TypedSource.graph
    monkeypatch.setattr(
        TypedSource, "graph", lambda self, progress: dataclasses.replace(whole(self, progress), numbers=published)
    )
    assert any(said in problem for problem in survey_of(str(tmp_path / "w.toml")).problems)
    with pytest.raises(InputError, match="the source words publishes") as caught:
        materialize_together(Store(tmp_path / "home"), [(GRAPH, config)], Threads(threads=1))
    assert said in caught.value.problem and "another name" in caught.value.remedy


PLAIN = """
from dataclasses import dataclass, field
from graphmill.assets.sources.interface import FEATURES_TOO, GraphConfig
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module", "importing graphmill_words:WordsConfig failed: ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "failed: ZeroDivisionError: division by zero"),
        ("Words = 3", "failed: AttributeError: module 'graphmill_words' has no attribute 'WordsConfig'"),
        ("class WordsConfig: pass", "is not a subclass of GraphConfig"),
        (f"{PLAIN}class WordsConfig(GraphConfig): pass", "is not a dataclass"),
        (CLASS.replace('default="words"', 'default="wards"'), "has another name: write source: str = field"),
        (CLASS.replace("def load", "def read"), "has no method load"),
        (CLASS.replace("shortest: int", 'shortest: "Number"'), "types cannot be read: NameError: name 'Number' is not defined"),
    ],
)  # fmt: skip
def test_a_package_that_is_not_sound_is_refused_by_its_name(site: Path, tmp_path: Path, text: str, said: str) -> None:
    install(site, {**FILES, "graphmill_words.py": text})
    with pytest.raises(InputError) as caught:
        load_pipeline(written(tmp_path), TrainTable)
    assert "source = 'words' of the package graphmill-words 1.0" in str(caught.value) and said in str(caught.value)


def test_a_name_that_is_taken_is_refused(site: Path, tmp_path: Path) -> None:
    install(site, FILES)
    other = FILES["pyproject.toml"].replace("graphmill-words", "other-words")
    install(site, {"pyproject.toml": other})
    with pytest.raises(InputError, match=r"by the package .*-words 1\.0 and by the package .*-words 1\.0"):
        load_pipeline(written(tmp_path), TrainTable)
    install(site, {"pyproject.toml": other.replace("other-words", "own-sbm").replace("words =", "sbm =")})
    _found.cache_clear()  # a process finds the packages that were there when it asked first
    with pytest.raises(InputError, match=r"(?s)by graphmill and by the package own-sbm 1\.0.*uninstall own-sbm"):
        config_class("sbm")
