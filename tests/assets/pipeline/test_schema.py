from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.pipeline.schema import Problem, Tables


@dataclass(frozen=True, kw_only=True)
class Inner:
    depth: int = 1


@dataclass(frozen=True, kw_only=True)
class Schema(Checked):
    remedy = "raise it"

    count: int = field(metadata=within(0))
    ratio: float = field(default=0.5, metadata=within(0))
    flag: bool = False
    name: str = "x"
    fanouts: tuple[int, ...] = ()
    betas: tuple[float, float] = (0.9, 0.99)
    method: Literal["uniform", "weighted"] = "uniform"
    size: str | int | None = None
    limit: int | None = None
    path: Path | None = None
    inner: Inner = Inner()
    weights: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Inner] = field(default_factory=dict)
    anything: Any = None
    seed: int = field(default=0, metadata={"key": False})

    def problems(self) -> Iterator[KeyProblem]:
        if self.name == "12Q":
            yield KeyProblem("name", f"{self.name!r} is not a size")


def test_all_types_are_converted():
    raw = {
        "count": 3,
        "ratio": 1,
        "flag": True,
        "name": "n",
        "fanouts": [1, -1],
        "betas": [0, 0.5],
        "method": "weighted",
        "size": 5,
        "limit": 7,
        "path": "a/b",
        "inner": {"depth": 4},
        "weights": {"a": 1},
        "named": {"b": {"depth": 2}, "a": {}},
        "anything": [1, "x"],
    }
    value, problems = Tables(folder=Path("/base")).parse(Schema, raw, ("t",), {"seed": 9})
    assert problems == []
    assert value == Schema(
        count=3,
        ratio=1.0,
        flag=True,
        name="n",
        fanouts=(1, -1),
        betas=(0.0, 0.5),
        method="weighted",
        size=5,
        limit=7,
        path=Path("/base/a/b"),
        inner=Inner(depth=4),
        weights={"a": 1.0},
        named={"b": Inner(depth=2), "a": Inner()},
        anything=[1, "x"],
        seed=9,
    )
    assert type(value.ratio) is float and type(value.betas[0]) is float  # 1 and 1.0 must be one recipe


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "[t] lacks the key count (a whole number)"),
        ({"count": "3"}, 'count = "3" is not a whole number'),
        ({"count": True}, "count = true is not a whole number"),
        ({"count": 1e3}, "count = 1000.0 is not a whole number (write 1000)"),
        ({"count": 1, "ratio": float("nan")}, "ratio = nan is not a number"),
        ({"count": 1, "ratio": True}, "ratio = true is not a number"),
        ({"count": 1, "flag": 1}, "flag = 1 is not true or false"),
        ({"count": 1, "name": 1}, "name = 1 is not a text in quotes"),
        ({"count": 1, "fanouts": 5}, "fanouts = 5 is not a list, each a whole number"),
        ({"count": 1, "fanouts": [5, "x"]}, 'fanouts[1] = "x" is not a whole number'),
        ({"count": 1, "betas": [1]}, "betas = [1] has 1 entries, expected 2"),
        (
            {"count": 1, "method": "unifrom"},
            'method = "unifrom" is not one of uniform, weighted (did you mean uniform?)',
        ),
        ({"count": 1, "method": 3}, "method = 3 is not one of uniform, weighted"),
        ({"count": 1, "method": []}, "method = [] is not one of uniform, weighted"),
        ({"count": 1, "method": "walk"}, 'method = "walk" is not built yet in this version; it has uniform, weighted'),
        ({"count": 1, "size": 1.5}, "size = 1.5 is not a text in quotes or a whole number"),
        ({"count": 1, "limit": "x"}, 'limit = "x" is not a whole number'),
        ({"count": 1, "path": 5}, "path = 5 is not a path in quotes"),
        (
            {"count": 1, "path": "${UNSET_A}/x"},
            'path = "${UNSET_A}/x": ${UNSET_A} is not set; export it or write the path out',
        ),
        ({"count": 1, "inner": 5}, "[t.inner] is 5, expected a table"),
        ({"count": 1, "inner": {"dept": 5}}, "[t.inner] has no key dept (did you mean depth?)"),
        ({"count": 1, "weights": {"a": "b"}}, 'a = "b" is not a number'),
        ({"count": 1, "named": 5}, "named = 5 is not a table for each name, [t.named.NAME]"),
        ({"count": 1, "named": {"a": 5}}, "[t.named.a] is 5, expected a table"),
        ({"count": 1, "named": {"a": {"dept": 5}}}, "[t.named.a] has no key dept (did you mean depth?)"),
        ({"count": 1, "named": {"a": {"depth": "x"}}}, 't.named.a.depth = "x" is not a whole number'),
        ({"count": 1, "cuont": 5}, "[t] has no key cuont (did you mean count?)"),
        ({"count": 1, "seed": 5}, "[t] has no key seed"),
        ({"count": -1}, "count = -1 is below 0; raise it"),
    ],
)
def test_each_mistake_has_its_sentence(raw, message, monkeypatch):
    monkeypatch.delenv("UNSET_A", raising=False)
    tables = Tables(later={"method": ("walk",)})
    value, problems = tables.parse(Schema, raw, ("t",))
    assert value is None and len(problems) == 1
    assert problems[0].message.startswith(message)


def test_all_mistakes_are_found_with_their_lines():
    lines = {("t",): 1, ("t", "count"): 2, ("t", "ratio"): 3, ("t", "extra"): 4, ("t", "inner", "depth"): 5}
    raw = {"count": "a", "ratio": "b", "extra": 1, "inner": {"depth": "c"}}
    assert sorted(problem.line for problem in Tables(lines=lines).parse(Schema, raw, ("t",))[1]) == [2, 3, 4, 5]


def test_what_the_dataclass_says_stands_at_its_key():
    lines = {("t",): 1, ("t", "count"): 2, ("t", "ratio"): 3, ("t", "name"): 4}
    raw = {"count": -1, "ratio": -2, "name": "12Q"}
    assert Tables(lines=lines).parse(Schema, raw, ("t",))[1] == [
        Problem(2, "count = -1 is below 0; raise it"),
        Problem(3, "ratio = -2.0 is below 0; raise it"),
        Problem(4, "'12Q' is not a size; raise it"),
    ]
    raw = {"count": 1, "name": "12Q"}
    assert Tables(lines=lines).parse(Schema, raw, ("t",))[1] == [Problem(4, "'12Q' is not a size; raise it")]


def test_paths_expand_variables(monkeypatch):
    monkeypatch.setenv("SOME_DATA", "/data")
    tables = Tables(folder=Path("/base"))
    assert tables.convert(Path, "${SOME_DATA}/x.npz", ())[0] == Path("/data/x.npz")
    assert tables.convert(Path, "../x.npz", ())[0] == Path("/base/../x.npz")


def test_ranges_are_checked_beside_a_type_error():
    """A mistake of one kind does not hide those of another; what is said of a key with a wrong value is left out."""
    value, problems = Tables(lines={}).parse(Schema, {"count": -1, "ratio": "x", "flag": 3}, ("t",))
    texts = sorted(problem.message for problem in problems)
    assert value is None and len(texts) == 3
    assert texts[0] == "count = -1 is below 0; raise it" and texts[1].startswith("flag = 3 is not true or false")
    assert texts[2].startswith('ratio = "x" is not a number')
    value, problems = Tables(lines={}).parse(Schema, {"count": "x", "ratio": -1}, ("t",))
    assert value is None and [problem.message for problem in problems] == ['count = "x" is not a whole number']


def test_paths_are_looked_for_where_that_is_asked_for(tmp_path: Path):
    (tmp_path / "there-1.csv").touch()
    tables = Tables(folder=tmp_path, files=True)
    for given in ("there-1.csv", "there-*.csv", "."):
        assert tables.parse(Schema, {"count": 1, "path": given}, ("t",))[1] == []
    for given, what in {"gone.csv": "is not there", "gone-*.csv": "matches no file"}.items():
        value, problems = tables.parse(Schema, {"count": -1, "path": given}, ("t",))
        assert value is None
        assert {each.message for each in problems} == {
            f'path = "{given}": {tmp_path / given} {what}',
            "count = -1 is below 0; raise it",
        }
    assert Tables(folder=tmp_path).parse(Schema, {"count": 1, "path": "gone.csv"}, ("t",))[1] == []
