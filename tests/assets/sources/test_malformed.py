"""Malformed input of every form: one clear error with the place and a remedy, and nothing left behind."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assets.storage.store import Store
from kernels.errors import InputError
from tests.assets.sources.malformed import CASES
from tests.assets.sources.own_data import FORMS, Drawn, build, staging


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Every form of one sound graph; edges also have a weight v and a text t."""
    folder, graph, keys = tmp_path_factory.mktemp("sound"), Drawn(), {}
    graph.part[0], graph.y[0] = 3, -1
    for form, (_, write) in FORMS.items():
        keys[form] = write(folder, graph)
    for number in range(2):
        path = folder / f"edges-{number}.parquet"
        table = pl.read_parquet(path)
        extra = [pl.Series("v", np.arange(len(table)) * 0.5), pl.Series("t", ["follows"] * len(table))]
        table.with_columns(extra).write_parquet(path)
    (folder / "edges.txt").write_text("src,dst\n")
    return folder, keys


def moved(value, sound, folder):
    """Returns a key's value with its paths in the copy of the folder."""
    if isinstance(value, Path):
        return folder / value.relative_to(sound) if value.is_relative_to(sound) else value
    return value


def located(keys, folder):
    for key in ("edges", "nodes", "path"):
        value = keys.get(key)
        if isinstance(value, str):
            keys[key] = folder / value
        if isinstance(value, tuple):
            keys[key] = tuple(folder / part for part in value)
    return keys


def test_a_hundred_cases():
    assert len(CASES) >= 100


@pytest.mark.parametrize("case", CASES)
def test_malformed_input_is_one_clear_error(sound, tmp_path, case):
    form, damage, pattern = CASES[case]
    folder = tmp_path / "data"
    shutil.copytree(sound[0], folder)
    keys = {name: moved(value, sound[0], folder) for name, value in sound[1][form].items()}
    if form == "Parquet" and ("weight" in case or "type is" in case):
        keys |= {"weight_column": "v", "type_column": "t"}
    damage(folder, keys)
    with pytest.raises(InputError, match=f"(?s){pattern}") as caught:
        build(tmp_path, FORMS[form][0], **located(keys, folder))
    assert caught.value.remedy and len(caught.value.problem) < 700
    # Features that were whole before the graph turned out not to be are sound, and stay.
    assert not [each for each in Store(tmp_path).artifacts() if each.stage == "graph"] and staging(tmp_path) == []


@pytest.mark.parametrize(
    ("source", "keys", "message"),
    [
        ("edges", {"features": "x"}, "features = 'x' needs node tables"),
        ("edges", {"nodes": Path("n.csv"), "num_nodes": 3}, "num_nodes = 3 beside node tables"),
        ("edges", {"num_nodes": 0}, "num_nodes = 0"),
        ("edges", {"memory_limit": "1MiB"}, "memory_limit = 1MiB is less than 128.0 MiB"),
        ("edges", {"memory_limit": "much"}, "'much' is not a size"),
        ("edges", {"memory_limit": "99999999999PB"}, "'99999999999PB' is more than"),
        ("edges", {"delimiter": "||"}, "is not one character"),
        ("edges", {"labels": "text"}, "labels = 'text' is not known"),
        ("edges", {"merge_weights": "max"}, "merge_weights = 'max'"),
        ("dgl", {"index": -1}, "index = -1 is negative"),
    ],
)
def test_impossible_keys(source, keys, message):
    from assets.sources.registry import config_class

    place = {"edges": Path("e.csv")} if source == "edges" else {"path": Path("g.bin")}
    with pytest.raises(InputError, match=message.replace("||", r"\|\|")):
        config_class(source)(**place, **keys)
