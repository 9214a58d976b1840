"""Files that `graphmill new` writes are valid, never replace one, and are found by their name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sources.registry import SOURCES, config_class
from graphmill.jobs.commands.pipelines.new_pipeline import write_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHMILL_PIPELINES", raising=False)
    return tmp_path


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_has_a_file_without_mistakes(kind: str) -> None:
    assert write_pipeline(f"my-{kind}", kind) == Path(f"pipelines/my-{kind}.toml")
    pipeline = load_pipeline(f"my-{kind}", TrainTable)
    assert pipeline.graph.source == kind and [table.name for table in pipeline.train] == ["sage"]
    if kind == "asset":  # a table that comes into the home by a run of the project
        assert 'edges = "shop/edges"    # the key of an asset of your Dagster project' in pipeline.text
    elif kind == "tables" or any(isinstance(value, str) for value in config_class(kind).example.values()):
        with pytest.raises(InputError, match="is not there"):
            load_pipeline(f"my-{kind}", TrainTable, files=True)


def test_data_are_recognised_and_named_from_where_the_file_is(folder: Path) -> None:
    np.savez("graph.npz", edge_index=np.array([[0, 1], [1, 0]]), x=np.ones((2, 3)), y=np.array([0, 1]))
    write_pipeline("archive", "graph.npz")
    pipeline = load_pipeline("archive", TrainTable, files=True)
    assert pipeline.graph.path.resolve() == folder / "graph.npz"  # pyright: ignore
    assert 'path = "../graph.npz"' in pipeline.text
    pl.DataFrame({"source": [0, 1], "target": [1, 0]}).write_parquet("edges-1.parquet")
    write_pipeline("table", "edges-*.parquet")
    table = load_pipeline("table", TrainTable, files=True)
    assert table.graph.source_column == "source"  # pyright: ignore


def test_files_of_torch_are_recognised(folder: Path) -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    torch.save({"edge_index": edges, "x": torch.ones(2, 3), "y": torch.tensor([0, 1])}, "graph.pt")
    write_pipeline("mine", "graph.pt")
    pipeline = load_pipeline("mine", TrainTable, files=True)
    assert pipeline.graph.source == "pyg" and 'path = "../graph.pt"' in pipeline.text


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("a b", "sbm", "other characters"),
        ("mine", "nothing.npz", "neither data nor a kind of source"),
    ],
)
def test_what_cannot_be_written_says_why(folder: Path, name: str, source: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        write_pipeline(name, source)
    assert not (folder / "pipelines").exists()


def test_a_table_with_other_names_gets_a_file_that_lists_its_columns() -> None:
    Path("wide.csv").write_text("a,b,when\n1,2,3\n")
    text = write_pipeline("mine", "wide.csv").read_text()
    assert 'edges = "../wide.csv"' in text and "# source_column" in text and "there are: a, b, when" in text
    with pytest.raises(InputError, match=r"(?s)2 mistakes.*'src'.*'dst'"):
        pipeline = load_pipeline("mine", TrainTable)
        GRAPH.survey(pipeline.graph)


def test_a_file_that_is_there_stays(folder: Path) -> None:
    path = write_pipeline("mine", "sbm")
    path.write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        write_pipeline("mine", "rmat")
    assert path.read_text() == "mine"


@pytest.mark.parametrize(("types", "model"), [(("people", "people"), "rows"), (("people", "items"), "sage")])
@pytest.mark.parametrize("rows", [3, 40])
def test_tables_without_classes_are_of_links_that_nodes_learn_rows_for(
    types: tuple[str, str], model: str, rows: int
) -> None:
    """Of nodes without features a model over their edges alone would see no difference; folders of few rows are such folders, too."""
    folder = Path("data")
    folder.mkdir()
    for name in dict.fromkeys(types):
        pl.DataFrame({f"{name}_id": range(rows), "size": range(rows)}).write_parquet(folder / f"{name}.parquet")
    ends = {
        f"{name}_id_{place}": [(place * each + 1) % rows for each in range(rows)] for place, name in enumerate(types)
    }
    pl.DataFrame(ends).write_parquet(folder / "pairs.parquet")
    pipeline = load_pipeline(write_pipeline("mine", "data"), TrainTable)
    (table,) = pipeline.train
    assert pipeline.graph.task == "links" and table.model == model and table.metric == "mrr"
    assert model == "rows" or table.embedding == "node"


def test_edges_are_predicted_on_request_where_a_column_looks_like_classes() -> None:
    folder = Path("data")
    folder.mkdir()
    countries = ["CH", "DE", "FR"] * 10
    pl.DataFrame({"user_id": range(30), "country": countries}).write_parquet(folder / "users.parquet")
    pl.DataFrame({"item_id": range(30), "price": range(30)}).write_parquet(folder / "items.parquet")
    bought = {"user_id": [*range(30)] * 2, "item_id": [each * 7 % 30 for each in range(60)]}
    pl.DataFrame(bought).write_parquet(folder / "purchases.parquet")
    tasks = {}
    for name, links in (("guessed", False), ("asked", True)):
        pipeline = load_pipeline(write_pipeline(name, "data", links=links), TrainTable)
        tasks[name] = pipeline.graph.task, pipeline.train[0].embedding
    assert tasks == {"guessed": ("classes", "type"), "asked": ("links", "node")}
    assert "looks like classes" not in Path("pipelines/asked.toml").read_text()
    with pytest.raises(InputError, match="--links predicts the edges of a folder of tables, and sbm is not one"):
        write_pipeline("mine", "sbm", links=True)
