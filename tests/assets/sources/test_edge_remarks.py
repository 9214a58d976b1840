"""Edge tables, and arrays of edges, that are sound and may mean something else: what is told, and what two keys may not name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.jobs.commands.pipelines.inspect_pipeline import survey_pipeline
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build

LARGE = 1 << 24
WEIGHTS = [1, LARGE, LARGE + 1, LARGE + 2, LARGE + 3, 5]
SRC, DST = [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]
EDGES = '[graph]\nsource = "edges"\nedges = "EDGES"\nKEYS\n'
TABLES = """
[graph]
source = "tables"
[graph.nodes.a]
num_nodes = 6
[graph.edges.to]
path = "EDGES"
source_type = "a"
target_type = "a"
KEYS
"""


def notes(folder: Path, text: str, edges: str, keys: str) -> str:
    text = text.replace("EDGES", edges).replace("KEYS", keys)
    return "\n".join(survey_pipeline(parse_pipeline(folder / "p.toml", text.encode())).notes)


@pytest.mark.parametrize("text", [EDGES, TABLES])
@pytest.mark.parametrize("form", ["parquet", "csv", "float64"])
@pytest.mark.parametrize("ids", [np.arange(6), np.array(["u0", "u1", "u2", "u3", "u4", "u5"])])
def test_whole_weights_that_become_one_number_are_told(tmp_path: Path, text: str, form: str, ids: np.ndarray) -> None:
    if text is TABLES:
        ids = np.arange(6)
    name = "e.csv" if form == "csv" else "e.parquet"
    for weights, said in ((WEIGHTS, True), ([each % 7 for each in WEIGHTS], False), ([2 * LARGE] * 6, False)):
        frame = pl.DataFrame({"src": ids[SRC], "dst": ids[DST], "w": weights})
        frame = frame.with_columns(pl.col("w").cast(pl.Float64)) if form == "float64" else frame
        (frame.write_csv if form == "csv" else frame.write_parquet)(tmp_path / name)
        found = notes(tmp_path, text, name, 'weight_column = "w"')
        assert ("2 whole weights are rounded by float32, such as 16777217" in found) is said, found


@pytest.mark.parametrize("kind", [torch.int64, torch.float64])
def test_whole_weights_of_arrays_are_told(tmp_path: Path, kind: torch.dtype) -> None:
    data = {
        "edge_index": torch.tensor([SRC, DST]),
        "w": torch.tensor(WEIGHTS).to(kind),
        "num_nodes": 6,
        "y": torch.arange(6),
    }
    torch.save(data, tmp_path / "g.pt")
    found = notes(tmp_path, '[graph]\nsource = "pyg"\npath = "EDGES"\nKEYS\n', "g.pt", 'weight = "w"')
    assert "2 whole weights are rounded by float32, such as 16777217" in found


@pytest.mark.parametrize("text", [EDGES, TABLES])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_equal_files_are_told_if_edges_count_as_often_as_they_occur(tmp_path: Path, text: str, form: str) -> None:
    (tmp_path / "e").mkdir()
    for number in (1, 2, 3):
        frame = pl.DataFrame({"src": SRC[number % 2 :], "dst": DST[number % 2 :]})
        (frame.write_csv if form == "csv" else frame.write_parquet)(tmp_path / "e" / f"{number}.{form}")
    keep = text.replace("[graph]\n", '[graph]\nduplicates = "keep"\n', 1)
    assert f"1.{form} and 3.{form} are equal, and duplicates" in notes(tmp_path, keep, "e", "")
    assert "are equal" not in notes(tmp_path, text, "e", "")
    (tmp_path / "e" / f"3.{form}").unlink()
    assert "are equal" not in notes(tmp_path, keep, "e", "")


@pytest.mark.parametrize("text", [EDGES, TABLES])
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('type_column = "src"', "type_column = 'src' is also the source_column"),
        ('target_column = "src"', "target_column = 'src' is also the source_column"),
        ('weight_column = "dst"', "weight_column = 'dst' is also the target_column"),
        ('weight_column = "w"\ntype_column = "w"', "type_column = 'w' is also the weight_column"),
    ],
)
def test_one_column_has_one_role(tmp_path: Path, text: str, keys: str, words: str) -> None:
    pl.DataFrame({"src": SRC, "dst": DST, "w": WEIGHTS}).write_parquet(tmp_path / "e.parquet")
    with pytest.raises(InputError, match=words):
        notes(tmp_path, text, "e.parquet", keys)


def test_relations_with_a_slash_keep_three_parts(tmp_path: Path) -> None:
    data = pytest.importorskip("torch_geometric.data")

    def saved(relations: list[str]) -> Path:
        made = data.HeteroData()
        made["paper"].x, made["paper"].y = torch.ones(6, 2), torch.arange(6)
        for name in relations:
            made["paper", name, "paper"].edge_index = torch.tensor([SRC, DST])
        torch.save(made, tmp_path / "g.pt")
        return tmp_path / "g.pt"

    found = build(tmp_path / "home", "pyg", path=saved(["a/b", "c"]))
    assert found.numbers["edge_types"] == ["paper/a.b/paper", "paper/c/paper"]
    with pytest.raises(InputError, match=r"two relations are called paper/a\.b/paper"):
        build(tmp_path / "home", "pyg", path=saved(["a/b", "a.b"]))
