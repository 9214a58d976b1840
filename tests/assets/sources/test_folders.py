"""What a folder of tables is taken for: the tables of ten public sets, and folders that are drawn with planted references."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sources.folder.guess import Guess, guessed
from graphmill.assets.sources.folder.tables import find_tables, holds_tables
from graphmill.assets.sources.readers.duck import scratch_duck
from graphmill.jobs.commands.pipelines.inspect_folder import folder_values, print_folder, profile_of
from graphmill.jobs.commands.pipelines.new_pipeline import write_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.sources.folders import FOLDERS
from tests.assets.sources.own_data import build_config

RELATIONS = {
    "purchases": {("users", "items")},
    "ratings": {("users", "movies")},
    "citations": {("papers", "papers"), ("papers", "venues")},
    "transactions": {("transactions", "transactions")},
    "molecules": {("atoms", "atoms")},
    "knowledge": {("entities", "entities")},
    "roads": {("junctions", "junctions")},
    "social": {("accounts", "accounts"), ("accounts", "posts")},
    "sensors": {("sensors", "sensors")},
    "dump": {("orders", "products"), ("orders", "customers"), ("products", "categories")},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHMILL_PIPELINES", raising=False)
    return tmp_path


def ends(guess: Guess) -> set[tuple[str, str]]:
    return {(each.source.name, each.target.name) for each in guess.relations}


@pytest.mark.parametrize("name", FOLDERS)
def test_tables_of_public_sets_are_understood(name: str, folder: Path) -> None:
    made = FOLDERS[name](folder, np.random.default_rng(1))
    with guessed(folder) as guess:
        assert guess.label is not None and (guess.label[0].name, guess.label[1]) == (made.table, made.column)
        assert ends(guess) == RELATIONS[name]
        assert not guess.problems and not any(each.dangling for each in guess.relations)
        assert not profile_of(guess).leaks
        rows = {each.name: each.rows for each in guess.node_types}
        edges = sum(each.table.rows for each in guess.relations)
    write_pipeline("mine", ".")
    survey = load_pipeline("mine", TrainTable, files=True).graph.survey()
    if name == "knowledge":
        assert 'type_column = "relation"' in (folder / "pipelines/mine.toml").read_text()
    assert survey.num_nodes == sum(rows.values()) and edges <= survey.num_edges <= 2 * edges


def test_a_profile_counts_what_the_tables_hold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FOLDERS["purchases"](folder, np.random.default_rng(1))
    users = pl.read_parquet("users.parquet")
    found = folder_values(folder)
    columns = {each["name"]: each for each in found["tables"]["users"]["columns"]}
    assert columns["age"]["gaps"] == users["age"].null_count() and columns["age"]["taken_for"] == "feature by standard"
    assert columns["country"]["distinct"] == 3 and columns["country"]["low"] == "DE"
    assert float(columns["income"]["high"]) == users["income"].max()
    assert found["classes"] == dict(users["segment"].value_counts().iter_rows())
    assert found["relations"]["clicks"]["edges"] == 6000 and "users" in found["relations"]["clicks"]["source"]
    clicks, end = pl.read_parquet("clicks-*.parquet"), found["relations"]["clicks"]["ends"]["user_id"]
    degrees = (
        users["user_id"]
        .to_frame()
        .join(clicks["user_id"].value_counts(), on="user_id", how="left")["count"]
        .fill_null(0)
    )
    assert (end["least"], end["median"], end["most"]) == (
        degrees.min(),
        sorted(degrees)[(len(degrees) - 1) // 2],
        degrees.max(),
    )
    assert end["isolated"] == (degrees == 0).sum() == found["isolated"]["users"] and end["gaps"] == end["lost"] == 0
    print_folder(folder)
    said = capsys.readouterr().out
    assert "clicks: 6,000 rows, clicks-*.parquet" in said and "from user_id, which is user_id of users: 100.0%" in said
    assert tomllib.loads(said.partition("does):\n\n")[2])["graph"]["nodes"]["users"]["labels"] == "names"


def test_columns_that_tell_the_class_and_numbers_of_rows_are_named(folder: Path) -> None:
    made = FOLDERS["molecules"](folder, np.random.default_rng(1))
    atoms = pl.read_parquet("atoms.parquet").with_columns(
        code=pl.col(made.column).str.slice(0, 2), serial=pl.int_range(pl.len()) * 7
    )
    atoms.write_parquet("atoms.parquet")
    with guessed(folder) as guess:
        assert [each.split(" has ")[0] for each in profile_of(guess).leaks] == ["each value of code"]
        roles = guess.roles(next(each for each in guess.tables if each.name == made.table))
        assert (
            roles["serial"] == "a number per row"
            and roles["charge"] == "feature"
            and guess.encoders(guess.tables[0])["element"] == "onehot"
        )


def test_numbers_of_text_files_have_the_range_of_numbers(folder: Path) -> None:
    FOLDERS["ratings"](folder, np.random.default_rng(1))
    users = pl.read_csv("users.csv")
    columns = {each["name"]: each for each in folder_values(folder)["tables"]["users"]["columns"]}
    for name in ("userId", "age", "taste"):
        assert (float(columns[name]["low"]), float(columns[name]["high"])) == (users[name].min(), users[name].max())


def test_encoders_and_layers_fit_the_tables(folder: Path) -> None:
    """Amounts are taken by their logarithm, a reference of few values is a category, too, and layers lead to all tables."""
    FOLDERS["dump"](folder, np.random.default_rng(1))
    write_pipeline("mine", ".")
    loaded = load_pipeline("mine", TrainTable, files=True)
    nodes = loaded.graph.nodes  # pyright: ignore
    assert nodes["products"].encode == {"category_id": "onehot", "price": "log"}
    assert nodes["orders"].encode["total"] == "standard"
    assert loaded.sampling is not None and loaded.sampling.fanouts == (15, 10, 10, 10) and loaded.train[0].layers == 4


def test_edges_without_both_ends_are_left_out_counted_and_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FOLDERS["dump"](folder, np.random.default_rng(1))
    file = folder / "orders" / "part-00000.parquet"
    orders = pl.read_parquet(file)
    orders.with_columns(customer_id=pl.when(pl.int_range(pl.len()) > 2).then("customer_id")).write_parquet(file)
    lines = pl.read_parquet(folder / "order_lines" / "part-00001.parquet")
    gone = pl.when(pl.int_range(pl.len()) > 4).then("product_id").otherwise(-pl.int_range(pl.len()) % 2 - 1)
    lines.with_columns(product_id=gone).write_parquet(folder / "order_lines" / "part-00001.parquet")
    with guessed(folder) as guess:
        assert {each.name: each.dangling for each in guess.relations if each.dangling} == {
            "orders_customer_id": 3,
            "order_lines": 5,
        }
    print_folder(folder)
    said = capsys.readouterr().out
    assert (
        'note: 3 edges have an end without a row, and dangling = "drop" leaves them out: 3 rows have no customer_id'
        in said
    )
    write_pipeline("mine", ".")
    text = (folder / "pipelines/mine.toml").read_text()
    assert "leaves out 5 of 6,000 edges: 2 values of product_id have no row in products;" in text
    graph = load_pipeline("mine", TrainTable, files=True).graph
    built = build_config(folder / "home", graph)
    assert built.graph.summary["numbers"]["num_dropped_edges"] == 8
    assert built.numbers["num_edges"] + built.numbers["num_duplicates"] == 2 * (3000 - 3 + 6000 - 5 + 200)


def test_files_that_are_one_table_are_told_from_tables(folder: Path) -> None:
    for number in range(12):
        pl.DataFrame({"src": [number], "dst": [0]}).write_parquet(folder / f"part-{number}.parquet")
    assert not holds_tables(folder)
    pl.DataFrame({"id": [0]}).write_csv(folder / "nodes.csv")
    (folder / "model 1.csv").write_text("a,b\n1,2\n")
    (folder / "model 2.csv").write_text("c,d\n1,2\n")
    (folder / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    (folder / "notes.md").write_text("# no table")
    (folder / ".hidden.csv").write_text("a\n1\n")
    assert holds_tables(folder)
    with scratch_duck(1 << 28, "test") as duck:
        found, problems = find_tables(folder, duck)
        assert {each.name: each.rows for each in found} == {"part": 12, "nodes": 1, "model_1": 1, "model_2": 1}
    assert len(problems) == 1 and "broken.parquet" in problems[0]


def test_a_folder_without_references_is_refused_with_what_it_has(folder: Path) -> None:
    pl.DataFrame({"x": [0.5, 0.5]}).write_csv(folder / "one.csv")
    pl.DataFrame({"y": [1.5, 2.5]}).write_csv(folder / "two.csv")
    with pytest.raises(InputError, match=r"has no table whose columns name rows of others: one \(x\); two \(y\)"):
        write_pipeline("mine", ".")
    assert not (folder / "pipelines").exists()


@pytest.mark.parametrize("seed", range(12))
def test_planted_references_are_found_and_no_others(seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    names = rng.choice(["customers", "stores", "cities", "movies", "boxes", "categories", "devices"], 3, replace=False)
    ids: dict[str, pl.Series] = {}
    planted: set[tuple[str, str]] = set()
    style = int(rng.integers(0, 3))
    for place, name in enumerate(map(str, names)):
        count = int(rng.integers(30, 200))
        start = int(rng.choice([0, 1, 5_000_000]))
        numbers = pl.Series(rng.permutation(count) + start)
        ids[name] = numbers if rng.random() < 0.5 else pl.select(pl.format(f"{name[:2]}-{{}}", numbers)).to_series()
        columns = {"id" if style == 0 else key(name, style): ids[name], "size": rng.normal(size=count)}
        if place == 0:
            columns["label"] = rng.integers(0, 3, count)
        elif rng.random() < 0.5:  # a column that names another table
            other = str(names[0])
            columns[key(other, style)] = draw(rng, ids[other], count)
            planted.add((name, other))
        pl.DataFrame(columns).write_parquet(folder / f"{name}.parquet")
    left, right = map(str, rng.choice(names, 2, replace=False))
    events = {key(left, style): draw(rng, ids[left], 800), key(right, style): draw(rng, ids[right], 800)}
    pl.DataFrame(events | {"amount": rng.random(800), "count": rng.integers(0, 9, 800)}).write_parquet("events.parquet")
    with guessed(folder) as guess:
        assert ends(guess) == planted | {(left, right)}
        assert guess.label is not None and guess.label[1] == "label"


def key(name: str, style: int) -> str:
    """Returns how a column that names rows of a table may be called."""
    one = {"cities": "city", "boxes": "box", "categories": "category"}.get(name, name.removesuffix("s"))
    return (f"{one}_id", f"{one}Id", f"{one}_key")[style]


def draw(rng: np.random.Generator, ids: pl.Series, count: int) -> pl.Series:
    return ids.gather(rng.integers(0, len(ids), count))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_columns_of_every_type_and_name_are_encoded_or_left_out(form: str, folder: Path) -> None:
    """What is written validates and builds: no type and no name of a column makes a file that is refused."""
    count, rng = 60, np.random.default_rng(3)
    columns = {
        "id": pl.Series([f"n{number}" for number in range(count)]),
        "label": pl.Series(rng.integers(0, 2, count)),
        "nothing": pl.Series([None] * count, dtype=pl.Float64),
        "one": pl.Series([7] * count),
        "money": pl.Series(rng.random(count).round(2)).cast(pl.Decimal(10, 2)),
        "day": pl.Series(rng.integers(0, 20_000, count)).cast(pl.Int32).cast(pl.Date),
        "clock": pl.Series(rng.integers(0, 86_400, count) * 10**9).cast(pl.Time),
        "took": pl.Series(rng.integers(0, 10**9, count)).cast(pl.Duration("us")),
        "truth": pl.Series([None, *(rng.random(count - 1) < 0.5).tolist()]),
        "tags": pl.Series([["a", "b"][: 1 + number % 2] for number in range(count)]),
        "vector": pl.Series(rng.random((count, 3)).tolist()),
        "ragged": pl.Series([[1.0] * (1 + number % 3) for number in range(count)]),
        "nested": pl.Series([{"a": number} for number in range(count)]),
        "raw": pl.Series([bytes([number]) for number in range(count)]),
        "small": pl.Series(rng.random(count)).cast(pl.Float32),
        "kind": pl.Series(rng.choice(["x", "y"], count)).cast(pl.Categorical),
        'odd "name" = [1] # é\n': pl.Series(rng.random(count)),
        "a star *": pl.Series(rng.random(count)),
        **{f"f{number}": pl.Series(rng.random(count)) for number in range(9)},
    }
    things = pl.DataFrame(columns)
    if form == "csv":
        things.drop("tags", "vector", "ragged", "nested", "raw", "took", "a star *").write_csv(folder / "things.csv")
    else:
        things.write_parquet(folder / "things.parquet")
    ids = columns["id"].to_list()
    pl.DataFrame({"src": rng.choice(ids, 200), "dst": rng.choice(ids, 200)}).write_parquet(folder / "links.parquet")
    write_pipeline("mine", ".")
    graph = load_pipeline("mine", TrainTable, files=True).graph
    encoded = graph.nodes["things"].encode  # pyright: ignore
    lists = {"tags", "vector"} if form == "parquet" else set()
    assert {"money", "day", "truth", "small", "f*"} | lists <= encoded.keys()
    assert not {"nested", "took", "nothing"} & encoded.keys()
    built = build_config(folder / "home", graph)
    assert built.features.array("rows").shape[0] == count and np.isfinite(built.features.array("rows")).all()
