"""The graph of installed modules, classes and packages, on a small made-up environment."""

import numpy as np
import pytest

from graphmill.assets.features.read import NodeTypes, node_types
from graphmill.assets.sources.python_environment.modules import describe
from graphmill.assets.sources.python_environment.typed import TypedEnvironmentConfig
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config
from tests.assets.sources.test_python_environment import install

FILES = {
    "alpha/__init__.py": "from .core import *\nfrom . import core as engine\n",
    "alpha/core.py": "class Base: pass\nclass Deep(Base): pass\nif Base:\n    class Deep(int): pass\n    class Other(Deep): pass\n",
    "alpha/users.py": """
import alpha
import alpha.core as c
import numpy as np
from alpha import Deep as Named, engine
from beta.loop import round
class A(alpha.Base): width = height = 1
class B(c.Deep[int], Named): pass
class C(engine.Other, ValueError, np.ndarray, make()): pass
class D(round.Nothing): pass
def f():
    class Hidden(A): pass
""",
}
BETA = {
    "beta/first.py": "from .loop import *\nfrom .last import *\nclass E(Missing): pass\nclass F(Last): pass\n",
    "beta/loop.py": "from .first import *\nfrom .loop import round\nfrom . import loop as round\nclass G(Last): pass\n",
    "beta/last.py": "class Last: pass\n",
}


@pytest.fixture
def site(tmp_path):
    install(tmp_path / "site", "alpha", FILES)
    install(tmp_path / "site", "beta", BETA)
    return tmp_path / "site"


def build(tmp_path, site, **keys):
    config = TypedEnvironmentConfig(path=site, **{"min_class": 2, "features": 16, "class_features": 8} | keys)
    return build_config(tmp_path / "home", config)


def edges_of(artifact):
    """Returns relation -> set of (source, destination), by the names of the nodes."""
    import polars

    graph, names = artifact.opened, polars.read_parquet(artifact.graph.file("nodes.parquet"))["name"].to_list()
    dst = np.repeat(np.arange(len(names)), np.diff(graph.topology.indptr))
    found: dict[str, set[tuple[str, str]]] = {name: set() for name in graph.relations}
    for source, target, kind in zip(graph.topology.indices, dst, graph.topology.edge_types, strict=True):
        found[graph.relations[kind]].add((names[source], names[target]))
    return found


def test_classes_packages_and_relations(tmp_path, site):
    artifact = build(tmp_path, site, undirected=False)
    types = NodeTypes(starts=(0, 6, 17, 19), columns=(16, 8, 0))
    assert node_types(artifact.opened.topology, artifact.table) == types
    assert artifact.numbers["node_types"] == ["module", "class", "package"]
    found = edges_of(artifact)
    assert found["class/inherits/class"] == {
        ("alpha.core.Deep", "alpha.core.Base"), ("alpha.core.Other", "alpha.core.Deep"), ("alpha.users.A", "alpha.core.Base"),
        ("alpha.users.B", "alpha.core.Deep"), ("alpha.users.C", "alpha.core.Other"),
        ("beta.first.F", "beta.last.Last"), ("beta.loop.G", "beta.last.Last"),
    }  # fmt: skip
    assert found["package/contains/module"] == {
        ("alpha", "alpha"), ("alpha", "alpha.core"), ("alpha", "alpha.users"),
        ("beta", "beta.loop"), ("beta", "beta.first"), ("beta", "beta.last")
    }  # fmt: skip
    assert found["package/contains/package"] == set()
    assert ("alpha.users", "alpha.users.D") in found["module/contains/class"]
    assert ("alpha.users", "alpha.core") in found["module/imports/module"]
    # ValueError, numpy's, a name that leads back to itself, and two that nobody defines
    assert artifact.numbers["num_bases_outside"] == 4
    assert artifact.opened.labels.tolist() == [0] * 3 + [1] * 3 + [-1] * 13


def test_reverse_edges_are_relations_of_their_own(tmp_path, site):
    found = edges_of(build(tmp_path, site))
    forward = [name for name in found if not name.startswith("reverse of ")]
    assert len(forward) == 5
    assert all({(d, s) for s, d in found[name]} == found[f"reverse of {name}"] for name in forward)


def test_features_of_two_widths(tmp_path, site):
    table = build(tmp_path, site).table
    rows = np.asarray(table.open())
    assert table.num_rows == 17 and rows.shape == (17, 16) and not rows[6:, 8:].any()
    described = describe(str(site / "alpha/users.py"), "alpha.users", False, 16, 8)
    _, bases, columns, values = described["classes"][1]
    assert bases == ["c.Deep", "Named"]
    # B, and the words of its bases that no import mentions: `c` and `Deep` are in one
    assert sum(values) == 2 and len(columns) == 2
    assert described["stars"] == [] and described["aliases"]["Named"] == "alpha.Deep"


def test_a_module_of_too_few_classes_is_told(tmp_path, site):
    with pytest.raises(InputError, match="no distribution has so many modules"):
        build(tmp_path, site, min_class=50)
