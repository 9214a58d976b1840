"""The graph of installed modules, on a small made-up environment."""

import os

import numpy as np
import pytest

from graphmill.assets.building.stage import Silent
from graphmill.assets.sources.python_environment import parsing, source
from graphmill.assets.sources.python_environment.modules import describe
from graphmill.assets.sources.python_environment.source import PythonEnvironmentConfig, find_modules
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config


def install(folder, name, files, version="1.0"):
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, "../../bin/tool.py"]))


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    install(
        folder,
        "Alpha_Pkg",
        {
            "alpha/__init__.py": "from . import core\nfrom .core import run\n",
            "alpha/core.py": "import beta.tools as t, os\nfrom alpha.sub.deep import *\ndef run(speed): return t.go(speed)\n",
            "alpha/sub/__init__.py": "",
            "alpha/sub/deep.py": "from ..core import run\nfrom .... import nothing\n",
            "alpha/template-{{x}}.py": "never imported",
            "__editable__alpha.py": "PATH = '/home'",
        },
    )
    install(
        folder,
        "beta",
        {
            "beta/__init__.py": "from beta.fast import native\n",
            "beta/tools.py": "def go(speed): return speed\n",
            "beta/old.py": "print 'python 2'\n",
            "beta/latin.py": b"# -*- coding: latin-1 -*-\nname = '\xe9'\n",
            "beta/garbled.py": b"name = '\xff\xfe'\n",
            "single.py": "import alpha.core\n",
        },
    )
    return folder


def build(tmp_path, site, threads=1, **keys):
    config = PythonEnvironmentConfig(path=site, **{"min_class": 2, "features": 16} | keys)
    return build_config(tmp_path / "home", config, threads=threads)


def test_modules_edges_and_labels(tmp_path, site):
    import polars

    artifact = build(tmp_path, site, undirected=False, self_loops="keep")
    graph = artifact.opened
    names = polars.read_parquet(artifact.graph.file("nodes.parquet"))["name"].to_list()
    assert names == [
        "alpha", "alpha.core", "alpha.sub", "alpha.sub.deep",
        "beta", "beta.garbled", "beta.latin", "beta.old", "beta.tools", "single",
    ]  # fmt: skip
    indptr, indices = graph.topology.indptr, graph.topology.indices
    edges = {(names[s], names[v]) for v in range(len(names)) for s in indices[indptr[v] : indptr[v + 1]]}
    assert edges == {
        ("alpha", "alpha.core"), ("alpha.core", "beta.tools"), ("alpha.core", "alpha.sub.deep"),
        ("alpha.sub.deep", "alpha.core"), ("beta", "beta"), ("single", "alpha.core"),
    }  # fmt: skip
    assert graph.class_names == ("alpha-pkg", "beta")
    assert graph.labels.tolist() == [0] * 4 + [1] * 6
    numbers = artifact.numbers
    assert numbers["num_unparseable_modules"] == 2 and numbers["num_imports_outside"] == 1
    assert numbers["num_duplicates"] == 0


def test_words_of_imports_are_no_features(site):
    words = describe(str(site / "alpha/core.py"), "alpha.core", False, 1 << 20)
    tools = describe(str(site / "beta/tools.py"), "beta.tools", False, 1 << 20)
    both = set(words["columns"]) & set(tools["columns"])
    assert len(words["columns"]) == 3  # run, speed, go: neither t, beta, tools nor os
    assert len(both) == 2 and [v for c, v in zip(words["columns"], words["values"], strict=True) if c in both] != []


def test_counts_are_stored_as_their_bit_length(tmp_path):
    path = tmp_path / "m.py"
    path.write_text("\n".join(["x"] * 9))
    row = describe(str(path), "m", False, 8)
    assert row["values"] == [4] and len(row["columns"]) == 1
    assert describe(str(tmp_path / "gone.py"), "gone", False, 8)["problem"] == "unreadable"


def test_rare_distributions_have_no_label(tmp_path, site):
    graph = build(tmp_path, site, min_class=5).opened
    assert graph.class_names == ("beta",) and graph.labels.tolist() == [-1] * 4 + [0] * 6
    with pytest.raises(InputError, match="the largest is beta with 6"):
        build(tmp_path, site, min_class=7)


def test_the_content_of_any_module_changes_the_version(tmp_path, site):
    first = build(tmp_path, site)
    assert build(tmp_path, site).reused == (True, True)
    (site / "beta/tools.py").write_text("def gone(): pass\n")
    assert not set(build(tmp_path, site).versions) & set(first.versions)


def test_any_number_of_processes_gives_the_same(site, tmp_path):
    files = {f"many/m{n}.py": f"import many.m{n - 1}\nvalue_{n % 7} = {n}\n" for n in range(1, 200)}
    install(site, "many", files)
    modules = find_modules(site)
    tasks = [(str(site / m.relative_path), m.name, m.is_package, 32) for m in modules]
    alone, two, eight = (parsing.parse_modules(tasks, workers, Silent()) for workers in (1, 2, 8))
    assert alone == two == eight
    made = [build(tmp_path / str(threads), site, threads) for threads in (1, 2, 8)]
    assert made[0].versions == made[2].versions
    for stage in ("graph", "features"):
        one, two, eight = (getattr(built, stage) for built in made)
        assert one.files == two.files == eight.files


def deeper(frames, work):
    return work() if frames == 0 else deeper(frames - 1, work)


def test_what_a_module_is_does_not_depend_on_the_depth_of_the_call(tmp_path):
    """Python's parser counts the frames above it: some of these chains would parse at no depth and not from 300 frames deep."""
    tasks = []
    for terms in (*range(2000, 3200, 50), 100_000):
        (tmp_path / f"m{terms}.py").write_text("x = " + " + ".join(["y"] * terms) + "\n")
        tasks.append((str(tmp_path / f"m{terms}.py"), f"m{terms}", False, 8))
    shallow = parsing.parse_modules(tasks, 1, Silent())
    assert {row["problem"] for row in shallow} == {"", "syntax"}
    assert deeper(300, lambda: parsing.parse_modules(tasks, 1, Silent())) == shallow
    assert deeper(50, lambda: parsing.parse_modules(tasks * 3, 2, Silent())) == shallow * 3


def test_a_parsing_process_that_dies_is_an_error(site, monkeypatch):
    started = []

    def start():
        child = started_child()
        child.kill()
        started.append(child)
        return child

    started_child = parsing._start_child
    monkeypatch.setattr(parsing, "_start_child", start)
    with pytest.raises(InputError, match="a parsing process ended with code -9"):
        parsing.parse_modules([(str(site / "single.py"), "single", False, 8)] * 100, 2, Silent())
    assert started and all(child.returncode is not None for child in started)


@pytest.mark.parametrize("missing", [True, False])
def test_no_modules(tmp_path, missing):
    folder = tmp_path / "empty"
    if not missing:
        os.mkdir(folder)
    with pytest.raises(InputError, match="no such folder" if missing else "holds no modules"):
        build(tmp_path, folder)


def test_modules_that_do_not_import_each_other(tmp_path):
    install(tmp_path / "site", "lonely", {"one.py": "import os\n", "two.py": ""})
    with pytest.raises(InputError, match="do not import each other"):
        build(tmp_path, tmp_path / "site")


def test_the_default_is_this_interpreter():
    assert PythonEnvironmentConfig().path == source.installed_packages()
    names = {module.distribution for module in find_modules(PythonEnvironmentConfig().path)}
    assert "numpy" in names
    assert np.all(
        [not module.name.startswith("__editable__") for module in find_modules(PythonEnvironmentConfig().path)]
    )
