import enum
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.storage.sealed_json import seal, unseal
from assets.storage.version import canonical, canonical_json, locations, version_of


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
