"""Several mistakes of one file are told by one error, whatever the form of the data."""

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from graphmill.assets.sources.npz.source import NpzConfig
from graphmill.kernels.errors import InputError, Mistakes, each_mistake
from tests.assets.sources.own_data import FORMS, build, build_config, staging


def told(tmp_path: Path, form: str, **keys) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        build(tmp_path, FORMS[form][0], **keys)
    assert staging(tmp_path) == [] and all(each.remedy for each in each_mistake(caught.value))
    return [each.problem for each in each_mistake(caught.value)]


def test_tables_tell_columns_values_and_edges(tmp_path: Path) -> None:
    edges = {"src": ["a", "b", "c"], "dst": ["b", "c", "z"], "w": [1.0, None, 2.0]}
    pl.DataFrame(edges).write_parquet(tmp_path / "e.parquet")
    nodes = {
        "id": ["a", "b", "c"],
        "f": [1.0, 2.0, None],
        "day": [date(2024, 1, 2)] * 3,
        "y": [0.0, 0.5, 1.0],
        "s": ["train", "", "dev"],
    }
    pl.DataFrame(nodes).write_parquet(tmp_path / "n.parquet")
    keys = {"label_column": "y", "split_column": "s", "weight_column": "w", "features": ("f", "day", "g")}
    problems = told(tmp_path, "Parquet", edges=tmp_path / "e.parquet", nodes=tmp_path / "n.parquet", **keys)
    wanted = ("'g'", "'day' is DATE", "'f' is", "not whole", "'dev'", "'w' is empty", "1 of 3 edges name a node")
    assert len(problems) == len(wanted), problems
    assert all(any(each in problem for problem in problems) for each in wanted), problems


def test_archives_tell_all_arrays(tmp_path: Path) -> None:
    x, edges = np.ones((4, 2)), np.array([[0, 9], [1, 2]])
    x[3, 1] = np.nan
    np.savez(tmp_path / "g.npz", edge_index=edges, x=x, y=np.array([0.5, 1, 2, 3]), train=[0], val=[[1]], test=[0.5])
    problems = told(tmp_path, "npz", path=tmp_path / "g.npz")
    assert [next(word for word in ("x row 3", "edges have", ": y", ": val", ": test") if word in each) for each in problems] == [
        "x row 3", "edges have", ": y", ": val", ": test",
    ]  # fmt: skip


def test_dgl_tells_all_names(tmp_path: Path) -> None:
    dgl, torch = pytest.importorskip("dgl"), pytest.importorskip("torch")
    graph = dgl.graph((torch.arange(5), torch.arange(5).roll(1)))
    graph.ndata["h"], graph.ndata["y"], graph.ndata["validation_mask"] = (
        torch.rand(5, 2),
        torch.arange(5),
        torch.ones(5).bool(),
    )
    dgl.save_graphs(str(tmp_path / "g.bin"), [graph])
    guessed = told(tmp_path, "DGL", path=tmp_path / "g.bin")
    assert [key for key in ('feature = "h"', 'label = "y"', "'val_mask'") if any(key in each for each in guessed)] == [
        'feature = "h"', 'label = "y"', "'val_mask'",
    ]  # fmt: skip
    named = told(tmp_path, "DGL", path=tmp_path / "g.bin", feature="H", label="why", weight="w")
    assert (
        len(named) == 4
        and "'H'" in named[0]
        and "'why'" in named[1]
        and "'w'" in named[2]
        and "validation_mask" in named[3]
    )


def test_large_content_is_not_looked_through_again(tmp_path, monkeypatch):
    """One mistake of many GB of tables is told when it is found, and not after another pass over all of them."""
    tried = []
    monkeypatch.setattr("graphmill.assets.sources.stage._found_by_all", lambda *_: tried.append(1) or [])
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1], [1, 9]]), num_nodes=np.int64(3))
    config = NpzConfig(path=tmp_path / "g.npz")
    for most, times in ((1 << 28, 1), (10, 0)):
        tried.clear()
        monkeypatch.setattr("graphmill.assets.sources.stage.MOST_TRIED_BYTES", most)
        with pytest.raises(InputError):
            build_config(tmp_path / "home", config, threads=1)
        assert len(tried) == times
