"""Parts that another machine built are found by the object store, and only what is read is fetched."""

import pytest

from graphmill.assets.building.build import Build
from graphmill.assets.building.materialize import materialize
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.parted_stage import PARTED, Execution, Semantic
from tests.assets.storage.tiny_artifacts import present


class Nowhere:
    """Progress that a process without a screen gives."""

    def start(self, label, total, unit): ...
    def advance(self, n): ...
    def done(self): ...
    def tell(self, line): ...


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """Two homes, and a folder as their object store."""
    monkeypatch.setenv("GRAPHMILL_STORE", (tmp_path / "shared").as_uri())
    return Store(tmp_path / "a"), Store(tmp_path / "b")


def build(store, **trouble):
    return Build(store=store, stage=PARTED, semantic=Semantic(), execution=Execution(**trouble), inputs={})


def test_the_parts_of_another_home_are_not_built_again(homes):
    one, other = homes
    for part in ("p0", "p2"):
        build(one).publish(Nowhere(), part=part)
    assert [build(other).find(part) is not None for part in PARTED.parts({}, Semantic())] == [True, False, True, False]
    assert present(other) == set(), "they are known by their manifests"
    # Were they built again, this would fail.
    made = materialize(other, PARTED, Semantic(), Execution(trouble=("p0", "error")), {})
    assert made.array("sums").tolist() == [1000, 2001, 3003, 4006]
    again = materialize(one, PARTED, Semantic(), Execution(trouble=("p1", "error")), {})
    assert again.reused and again.content == made.content and len(present(one)) == 2


def test_a_part_that_fails_leaves_the_others_in_the_object_store(homes):
    one, other = homes
    with pytest.raises(InputError, match="a row is wrong"):
        materialize(one, PARTED, Semantic(), Execution(trouble=("p3", "error")), {})
    assert [build(other).find(part) is not None for part in PARTED.parts({}, Semantic())] == [True] * 3 + [False]
    assert build(other).find() is None


def test_inputs_that_only_the_object_store_has_are_there(homes):
    one, other = homes
    made = materialize(one, PARTED, Semantic(), Execution(), {})
    found = other.find("parted", made.version)
    step = Build(
        store=other, stage=PARTED, semantic=Semantic(), execution=Execution(), inputs={}, reads={"before": found}
    )
    step.require_inputs()
    assert present(other) == set()
    assert found.array("sums").tolist()[0] == 1000
