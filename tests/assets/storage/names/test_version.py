import enum
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.storage.files.documents import seal, unseal
from graphmill.assets.storage.names.patterns import paths_in
from graphmill.assets.storage.names.version import canonical, canonical_json, locations, version_of


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Inner:
    path: Path = Path("here")
    folder: str | None = field(default=None, metadata={"hashed": False})
    lr: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Config:
    inner: Inner = Inner()
    fanouts: tuple[int, ...] = (15, -1)
    colour: Colour = Colour.RED


def test_a_config_becomes_plain_values_without_places():
    assert canonical(Config()) == {"inner": {"lr": 0.1}, "fanouts": [15, -1], "colour": "red"}
    assert locations(Config()) == {"inner.path": "here"}


PATHS = st.sampled_from([Path("a"), Path("a/b"), Path("c")])
CONFIGS = st.recursive(
    PATHS | st.integers() | st.none(),
    lambda each: (
        st.lists(each, max_size=3)
        | st.lists(each, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("xyz"), each, max_size=3)
        | st.builds(lambda path: Inner(path=path), PATHS)
    ),
)


@given(CONFIGS)
def test_every_path_is_a_location(config):
    """Digests of files are remembered by the locations of a config: with a list of files left out, another list would have its digests."""
    assert sorted(locations(config).values()) == sorted(map(str, paths_in(config)))


def test_the_version_ignores_where_and_sees_what():
    def version(config, inputs=None, raw="1", code=1):
        return version_of("graph", code, config, inputs or {}, {"npz": raw})

    base = version(Config())
    assert version(Config(inner=Inner(path=Path("there"), folder="x"))) == base
    assert version(canonical(Config())) == base
    others = [
        version(Config(inner=Inner(lr=0.2))),
        version(Config(fanouts=(15,))),
        version(Config(), raw="2"),
        version(Config(), code=2),
        version(Config(), inputs={"graph": "0"}),
    ]
    assert len({base, *others}) == 6


def test_the_version_is_pinned():
    # A changed spelling of recipes would orphan every stored artifact: change this only together with the store's format.
    version = version_of("graph", 1, {"b": 1, "a": [0.1, None, True, "é"]}, {"x": "f" * 64}, {})
    assert version == "08eff916061401449d75974b1660ad64eaf84213ea1dc381e3ccd9e01fea27fa"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), [Path("x")], {1: 2}, b"x"])
def test_values_without_an_exact_form_are_refused(value):
    with pytest.raises(TypeError):
        canonical({"key": value})


def test_numpy_scalars_are_plain_values():
    assert canonical_json({"a": np.int64(3), "b": np.float64(0.5), "c": np.bool_(True)}) == b'{"a":3,"b":0.5,"c":true}'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(document=st.dictionaries(st.text(max_size=3), VALUES, max_size=4), data=st.data())
def test_every_flipped_bit_of_a_sealed_file_shows(tmp_path_factory, document, data):
    document.pop("digest", None)
    path = tmp_path_factory.mktemp("sealed") / "file.json"
    sealed = bytearray(seal(document))
    path.write_bytes(sealed)
    read = unseal(path)
    assert {key: value for key, value in read.items() if key != "digest"} == document
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    path.write_bytes(sealed)
    with pytest.raises(ValueError, match=r"file\.json"):
        unseal(path)


@dataclass(frozen=True, kw_only=True)
class Settings:
    rate: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Grown(Config):
    dtype: str = field(default="float32", metadata={"hashed": "unless default"})
    many: tuple[int, ...] = field(default_factory=tuple, metadata={"hashed": "unless default"})
    settings: Settings | None = field(default=None, metadata={"hashed": "unless default"})


def test_a_key_that_is_added_later_is_hashed_unless_it_has_its_default():
    assert canonical(Grown()) == canonical(Config())
    changed = [Grown(dtype="float64"), Grown(many=(1,)), Grown(settings=Settings()), Grown(settings=Settings(rate=1.0))]
    versions = {version_of("model", 1, config, {}, {}) for config in (Config(), *changed)}
    assert len(versions) == 5


def config_classes():
    """Every dataclass that a stage hashes, with an example of its values."""
    from graphmill.assets.budgets.config import BudgetsConfig, MemoryConfig
    from graphmill.assets.cache_plan.config import CachePlanConfig, CachePlanTable
    from graphmill.assets.hotness.config import HotnessTable, hotness_config
    from graphmill.assets.packed_chunks.config import PackedConfig
    from graphmill.assets.samples.config import SamplesTable, samples_config
    from graphmill.assets.sampling.config import SamplingConfig
    from graphmill.assets.sources.registry import SOURCES, config_class
    from graphmill.trainers.recipe.config import ModelConfig, TrainConfig

    sampling, train = SamplingConfig(fanouts=(2, 2), batch_size=8), TrainConfig()
    yield from (sampling, train, MemoryConfig(), BudgetsConfig(memory=MemoryConfig()), PackedConfig(), CachePlanTable())
    yield hotness_config(HotnessTable(), sampling, 0)
    yield samples_config(SamplesTable(epochs=1), sampling, 0)
    yield CachePlanConfig(table=CachePlanTable(), seed=0)
    yield ModelConfig(seed=0, train=train, sampling=sampling)
    for source in SOURCES:
        yield config_class(source)


NODES = {"user": NodeTable(num_nodes=8)}
EDGES = {"follows": RelationTable(path=Path("edges.csv"), source_type="user", target_type="user")}


@pytest.mark.parametrize(
    "config", list(config_classes()), ids=lambda each: getattr(each, "__name__", type(each).__name__)
)
def test_an_added_key_changes_no_version_of_any_config(config):
    """The same values in a class that has one key more: at its default nobody's version changes, at another value it does."""
    kind = config if isinstance(config, type) else type(config)
    added = ("added_later", str, field(default="no", metadata={"hashed": "unless default"}))
    grown = make_dataclass("Grown", [added], bases=(kind,), frozen=True, kw_only=True)
    given = {} if isinstance(config, type) else {f.name: getattr(config, f.name) for f in fields(config) if f.init}
    needed = [f for f in fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING]
    examples = {"Path": Path("edges.csv"), "Mapping[str, NodeTable]": NODES, "Mapping[str, RelationTable]": EDGES}
    values = {f.name: next((v for name, v in examples.items() if name in str(f.type)), 64) for f in needed} | given
    plain = canonical(kind(**values))
    assert canonical(grown(**values)) == plain
    assert canonical(grown(**values, added_later="yes")) == plain | {"added_later": "yes"}
