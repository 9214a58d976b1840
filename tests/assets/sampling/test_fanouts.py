"""Tables of relations among fan-outs: names, numbers, versions, estimates, and mistakes of a pipeline file."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.settings import with_settings
from graphmill.assets.sampling.bounds import batch_bound
from graphmill.assets.sampling.config import FanoutStep, SamplingConfig
from graphmill.assets.sampling.fanouts import entry_text, least_drawn, most_drawn, resolved, spelled
from graphmill.assets.storage.names.version import canonical, canonical_json
from graphmill.assets.tasks.relations import middle_part
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable, model_configs

NAMES = (
    "paper/cites/paper",
    "author/writes/paper",
    "author/writes/book",
    "reverse of author/writes/paper",
    "plain",
)
TEXT = """
name = "mine"
[graph]
source = "typed_citation"
nodes = 1000
edges = 5000
[sampling]
fanouts = [{ writes = 5, cites = 10, "*" = 3 }, 10]
[[train]]
name = "a"
model = "rgcn"
[[train]]
name = "b"
model = "rgcn"
layers = 3
fanouts = { "author/writes/paper" = 2, "*" = -1 }
"""


@pytest.mark.parametrize(
    ("table", "numbers"),
    [
        ({"writes": 5, "cites": 10, "*": 3}, (10, 5, 5, 3, 3)),
        ({"writes": 5, "author/writes/book": -1}, (0, 5, -1, 0, 0)),
        ({"author/writes/book": 0, "*": 2}, (2, 2, 0, 2, 2)),
        ({"reverse of writes": 4, "plain": 1}, (0, 0, 0, 4, 1)),
        ({"reverse of author/writes/paper": 4, "*": -1}, (-1, -1, -1, 4, -1)),
    ],
)
def test_names_mean_relations(table: dict[str, int], numbers: tuple[int, ...]) -> None:
    assert resolved((table, 7), NAMES) == (numbers, 7)


def test_names_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InputError, match=r"names the relation 'wirtes'.*did you mean writes\?") as error:
        resolved(({"wirtes": 2},), NAMES)
    assert error.value.remedy == f"its relations are: {', '.join(NAMES)}"
    with pytest.raises(InputError, match="the edges of the graph have no relations"):
        resolved(({"*": 2},), ())
    assert resolved((3, -1), ()) == (3, -1)
    assert [middle_part(name) for name in ("a/b/c", "reverse of a/b/c", "a/b", "reverse of x")] == [
        "b",
        "reverse of b",
        "a/b",
        "reverse of x",
    ]


def test_a_list_is_spelled_as_in_a_file() -> None:
    fanouts = ({"*": 3, "b c": 1, "a": -1}, 4)
    assert spelled(fanouts) == '[{ a = -1, "b c" = 1, "*" = 3 }, 4]' and entry_text({}) == "{}"


def test_numbers_hash_as_before_and_tables_in_any_order() -> None:
    assert canonical(SamplingConfig(fanouts=(4, 3)))["fanouts"] == [4, 3]
    one, other = (SamplingConfig(fanouts=(table, 3)) for table in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert canonical_json(one) == canonical_json(other) and one == other
    assert canonical_json(one) != canonical_json(SamplingConfig(fanouts=({"a": 1, "b": 3}, 3)))


def test_estimates_bound_what_a_row_draws() -> None:
    table = {"writes": 5, "*": 3}
    assert most_drawn(table, NAMES) == 3 + 5 + 5 + 3 + 3 and most_drawn(7, NAMES) == 7
    assert most_drawn(table) == 5 * 256 and most_drawn({"a/b/c": 5}) == 5
    assert most_drawn({"a/b/c": 5, "*": -1}) == most_drawn({"cites": -1}, NAMES) == -1
    assert [least_drawn(each) for each in (4, table, {"a": -1})] == [4, 8, -1]
    how = SamplingConfig(fanouts=({"a/b/c": 2}, {"a/b/c": 3}))
    sizes = Sizes(num_nodes=1000, num_edges=5000)
    assert batch_bound(how, 10, sizes) == batch_bound(SamplingConfig(fanouts=(2, 3)), 10, sizes)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"fanouts": ({"a": -2}, 1)}, "a relation has a number of 0 or more"),
        ({"fanouts": ({"a": 0}, 1)}, "{ a = 0 } draws no neighbours"),
        ({"fanouts": ({}, 1)}, "{} draws no neighbours"),
        ({"fanouts": ({"a": 1}, 0)}, "is not a list of numbers from 1"),
        ({"fanouts": ({"a": 1}, 1), "method": "weighted"}, "numbers per relation, which are for method = 'uniform'"),
        ({"fanouts": ({"a": 1}, 1), "method": "random_walk"}, "not for 'random_walk'"),
        ({"fanouts": ({"a": 1}, 1), "method": "mine:draw"}, "not for 'mine:draw'"),
        ({"fanouts": ({"a": 1}, 1), "schedule": (FanoutStep(epoch=2, fanouts=(2, 2)),)}, "leave one of them out"),
    ],
)
def test_mistakes_are_told(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        SamplingConfig(**keys)


def _load(folder: Path, *settings: str) -> Any:
    (folder / "mine.toml").write_text(with_settings(TEXT, settings))
    return load_pipeline(folder / "mine.toml", TrainTable)


def test_a_file_has_tables_in_both_places(tmp_path: Path) -> None:
    pipeline = _load(tmp_path, 'train.a.fanouts=[4, { cites = 2, "reverse of writes" = 1 }]')
    assert pipeline.sampling.fanouts == ({"writes": 5, "cites": 10, "*": 3}, 10)
    used: list[Any] = [model_configs(table, pipeline.sampling, 0)[0].sampling for table in pipeline.train]
    whole = {"author/writes/paper": 2, "*": -1}
    assert [each.fanouts for each in used] == [(4, {"cites": 2, "reverse of writes": 1}), (whole, whole, whole)]


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        (["sampling.fanouts=[{ cites = 0.5 }, 10]"], ["cites = 0.5 is not a whole number"]),
        (["sampling.fanouts=[{ cites = 1 }]"], ["layers = 2, but [sampling] has 1 fanouts"]),
        (["train.a.model=gcn"], ['fanouts has numbers per relation, but model = "gcn" sums neighbours']),
        (["sampling.fanouts=4", "train.b.model=gin"], ['fanouts has numbers per relation, but model = "gin"']),
        (
            ["sampling.fanouts=4", "sampling.method=random_walk", "train.a.model=sage", "train.b.model=sage"],
            ["numbers per relation, which are for [sampling] method"],
        ),
    ],
)
def test_what_contradicts_tables_is_told(tmp_path: Path, settings: list[str], problems: list[str]) -> None:
    with pytest.raises(InputError) as error:
        _load(tmp_path, *settings)
    lines = [line for line in str(error.value).splitlines() if "mine.toml:" in line][: len(problems)]
    assert all(problem in line for problem, line in zip(problems, lines, strict=True)), lines


def test_a_device_may_draw_them(tmp_path: Path) -> None:
    _load(tmp_path, "train.device=cuda", "train.topology=device")


def test_numbers_of_a_train_table_replace_those_per_relation(tmp_path: Path) -> None:
    """A rule that refuses tables of relations asks for the fan-outs that a train table draws with."""
    with pytest.raises(InputError, match='model = "gcn" sums neighbours'):
        _load(tmp_path, "train.model=gcn", "train.b.fanouts=[4, 4, 4]")
    _load(tmp_path, "train.model=gcn", "train.a.fanouts=[4, 4]", "train.b.fanouts=[4, 4, 4]")
