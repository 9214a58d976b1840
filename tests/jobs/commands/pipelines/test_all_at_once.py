"""`graphmill validate` names all mistakes of a pipeline over tables in one round: of the file, of columns, of values and of models."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tomlkit

from graphmill.jobs.commands.options import Asked
from graphmill.jobs.commands.pipelines.checked import load_checked, require_runnable
from graphmill.kernels.errors import InputError
from tests.assets.sources.folders import Planted, partners, times

SEEDS = 16


@dataclass
class Shop:
    """A shop: its tables, and the recipe of a pipeline over them."""

    frames: dict[str, pl.DataFrame]
    recipe: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in self.frames.items():
            frame.write_parquet(folder / f"{name}.parquet")
        (folder / "shop.toml").write_text(tomlkit.dumps(self.recipe))
        return folder / "shop.toml"

    def change(self, table: str, column: str, change: Callable[[pl.Expr], pl.Expr]) -> None:
        self.frames[table] = self.frames[table].with_columns(change(pl.col(column)).alias(column))


def shop(users: int, items: int, clicks: int) -> Shop:
    """Returns users with a segment, items and clicks; ids are text, and eight and six columns of features are of four kinds."""
    rng = np.random.default_rng(5)
    of_users, of_items = Planted(rng, users), Planted(rng, items)
    user_ids, item_ids = (
        np.array([f"{kind}-{number:06d}" for number in rng.permutation(count)])
        for kind, count in (("U", users), ("SKU", items))
    )
    left, right = partners(rng, of_users, of_items, clicks)
    frames = {
        "users": pl.DataFrame(
            {
                "user_id": user_ids, "age": 30 + 5 * of_users.hint(lost=0.05), "income": of_users.hint(),
                "visits": rng.poisson(4, users), "basket": rng.random(users), "score": rng.normal(size=users),
                "country": rng.choice(["DE", "FR", "US"], users), "plan": rng.choice(["a", "b"], users), "joined": times(rng, users),
                "segment": np.array(["basic", "family", "premium", "student"])[of_users.kinds],
                "part": rng.choice(["train", "valid", "test"], users, p=[0.6, 0.2, 0.2]),
            }
        ),
        "items": pl.DataFrame(
            {
                "item_id": item_ids, "price": of_items.hint().exp(), "weight": rng.random(items), "stock": rng.poisson(9, items),
                "rating": of_items.hint(lost=0.05), "returns": rng.random(items), "brand": rng.choice(["x", "y", "z"], items),
            }
        ),
        "clicks": pl.DataFrame(
            {
                "user": user_ids[left], "item": item_ids[right], "at": times(rng, clicks), "seconds": rng.random(clicks),
                "event": rng.choice(["view", "cart", "buy"], clicks),
            }
        ),
    }  # fmt: skip
    return Shop(frames)


USER_FEATURES = ["age", "income", "visits", "basket", "score", "country", "plan", "joined"]
ITEM_FEATURES = ["price", "weight", "stock", "rating", "returns", "brand"]


def as_a_new_user_writes_it(shop: Shop) -> None:
    """Fills in the template of `graphmill new shop --from tables`."""
    shop.recipe = {
        "name": "shop",
        "graph": {
            "source": "tables",
            "nodes": {
                "user": {"path": "users.parquet", "id_column": "user_id", "features": [*USER_FEATURES], "label_column": "segment"},
                "item": {"path": "items.parquet", "id_column": "item_id", "features": [*ITEM_FEATURES]},
            },
            "edges": {
                "clicks": {
                    "path": "clicks.parquet", "source_type": "user", "target_type": "item", "source_column": "user",
                    "target_column": "item", "time_column": "at", "type_column": "event",
                }
            },
        },
        "sampling": {"fanouts": [5, 5], "batch_size": 1024},
        "train": [
            {"name": name, "model": name, "layers": 2, "hidden": 32, "epochs": 2, "lr": 0.003} for name in ("rgcn", "sage")
        ],
    }  # fmt: skip


def sound_recipe(shop: Shop) -> None:
    as_a_new_user_writes_it(shop)
    graph = shop.recipe["graph"]
    flagged = {"encoder": "standard", "missing": "flag"}
    graph["nodes"]["user"] |= {
        "labels": "names",
        "encode": {"age": flagged, "country": "onehot", "plan": "onehot", "joined": "time"},
        "split_column": "part",
    }
    graph["nodes"]["item"] |= {"encode": {"rating": flagged, "brand": "onehot"}}
    del graph["edges"]["clicks"]["time_column"]
    graph["edges"]["clicks"]["weight_column"] = "seconds"
    for table in shop.recipe["train"]:
        table["input"] = "typed"


def refused(path: Path) -> str:
    """Returns what one `validate` says of a pipeline; "" if it is valid."""
    try:
        require_runnable(load_checked(Asked(str(path)), path.parent / "home"), path.parent / "home")
    except InputError as error:
        return str(error)
    return ""


def test_the_mistakes_of_a_new_user_are_named_at_once_and_their_remedies_lead_to_a_valid_file(tmp_path: Path) -> None:
    made = shop(20_000, 5_000, 200_000)
    as_a_new_user_writes_it(made)
    said = refused(made.write(tmp_path))
    assert (
        "graph.edges.clicks.time_column = 'at' has no effect: set before = 'seed' in [sampling], or split = 'time' in [task]"
        in said
    )
    for column in ("country", "plan", "joined", "brand", "age", "rating"):
        assert f"column '{column}' is " in said
    assert "column 'segment' is VARCHAR, not class numbers" in said and 'labels = "names"' in said
    assert "[[train]] sage: " in said and "[[train]] rgcn: " in said and 'input = "typed"' in said
    graph = made.recipe["graph"]
    del graph["edges"]["clicks"]["time_column"]
    graph["nodes"]["user"]["labels"] = "names"
    for node_type, columns in (("user", ("country", "plan", "joined")), ("item", ("brand",))):
        given = re.findall(r'encode = \{ ("\w+" = [^}]*(?:\}|")) \}', said)
        rules = {name: rule for each in given for name, rule in tomlkit.parse(each.strip()).unwrap().items()}
        assert {*columns} <= rules.keys()
        graph["nodes"][node_type]["encode"] = {
            name: rule for name, rule in rules.items() if name in made.frames[f"{node_type}s"].columns
        }
    for table in made.recipe["train"]:
        table["input"] = "typed"
    assert refused(made.write(tmp_path)) == ""


@dataclass(frozen=True)
class Mistake:
    """A mistake in the sound pipeline.

    Attributes:
        place: what it changes; two mistakes of one place are not drawn together.
        said: what `validate` says of it.
    """

    place: str
    said: str
    make: Callable[[Shop], object]


def user(shop: Shop) -> dict[str, Any]:
    return shop.recipe["graph"]["nodes"]["user"]


def item(shop: Shop) -> dict[str, Any]:
    return shop.recipe["graph"]["nodes"]["item"]


def clicks(shop: Shop) -> dict[str, Any]:
    return shop.recipe["graph"]["edges"]["clicks"]


def first(value: Any) -> Callable[[pl.Expr], pl.Expr]:
    """Returns the change of the first row of a column to a value."""
    return lambda column: pl.when(pl.int_range(pl.len()) == 0).then(pl.lit(value)).otherwise(column)


def as_text(column: pl.Expr) -> pl.Expr:
    return column.cast(pl.String)


def as_number(column: pl.Expr) -> pl.Expr:
    return column.str.slice(4).cast(pl.Int64)


def renamed(table: dict[str, Any], old: str, new: str) -> None:
    table[new] = table.pop(old)


def in_column(table: str, column: str, change: Callable[[pl.Expr], pl.Expr]) -> Callable[[Shop], object]:
    return lambda shop: shop.change(table, column, change)


MISTAKES = {
    "misspelt key": Mistake("label", "no key label_colum", lambda s: renamed(user(s), "label_column", "label_colum")),
    "key of another table": Mistake("lr", "no key lr: it is a key", lambda s: s.recipe["sampling"].update(lr=0.1)),
    "times of edges": Mistake("at", "time_column = 'at' has no effect", lambda s: clicks(s).update(time_column="at")),
    "wrong value": Mistake("layers", 'layers = "two"', lambda s: s.recipe["train"][0].update(layers="two")),
    "unknown model": Mistake("model", 'model = "sagee"', lambda s: s.recipe["train"][1].update(model="sagee")),
    "unknown table": Mistake("feature", "a pipeline has no feature", lambda s: s.recipe.update(feature={"dtype": "x"})),
    "unknown encoder": Mistake("plan", "'onehott' is not one of", lambda s: user(s)["encode"].update(plan="onehott")),
    "key of another source": Mistake(
        "f", r"\[graph\] has no key features", lambda s: s.recipe["graph"].update(features="f")
    ),
    "no numbers": Mistake("country", "column 'country' is VARCHAR", lambda s: user(s)["encode"].pop("country")),
    "gaps without missing": Mistake("age", "column 'age' is empty", lambda s: user(s)["encode"].update(age="standard")),
    "gaps without encoder": Mistake("rating", "column 'rating' is empty", lambda s: item(s)["encode"].pop("rating")),
    "no such feature": Mistake("stok", "has no column 'stok'", lambda s: item(s)["features"].append("stok")),
    "names of classes": Mistake("label", "'segment' is VARCHAR, not class", lambda s: user(s).pop("labels")),
    "end without a row": Mistake("user", "U-nobody", in_column("clicks", "user", first("U-nobody"))),
    "two rows of an id": Mistake(
        "item_id", "SKU-000000", in_column("items", "item_id", lambda _: pl.lit("SKU-000000"))
    ),
    "no part of a split": Mistake("part", "holds 'training'", in_column("users", "part", first("training"))),
    "weights that are texts": Mistake("seconds", "'seconds' is VARCHAR", in_column("clicks", "seconds", as_text)),
    "ids of another type": Mistake("item", "column 'item' is BIGINT", in_column("clicks", "item", as_number)),
    "not finite": Mistake("price", "column 'price'", in_column("items", "price", first(float("inf")))),
    "label as a feature": Mistake(
        "label", "'segment' is among the feat", lambda s: user(s)["features"].append("segment")
    ),
    "no such relations": Mistake("event", "has no column 'events'", lambda s: clicks(s).update(type_column="events")),
    "one column twice": Mistake("event", "'item' is also the target", lambda s: clicks(s).update(type_column="item")),
    "shares above one": Mistake(
        "shares", "do not split", lambda s: s.recipe["graph"].update(train_ratio=0.9, valid_ratio=0.5)
    ),
    "one width": Mistake("input", r"\[\[train\]\] sage: .*of one width", lambda s: s.recipe["train"][1].pop("input")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_named(name: str, tmp_path: Path) -> None:
    made = shop(300, 100, 2000)
    sound_recipe(made)
    MISTAKES[name].make(made)
    assert re.search(MISTAKES[name].said, refused(made.write(tmp_path)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_drawn_mistakes_are_named_in_one_round(seed: int, tmp_path: Path) -> None:
    draw, made = random.Random(seed), shop(300, 100, 2000)
    sound_recipe(made)
    chosen: dict[str, Mistake] = {}
    for name in draw.sample([*MISTAKES], draw.randint(2, 8)):
        if MISTAKES[name].place not in {each.place for each in chosen.values()}:
            chosen[name] = MISTAKES[name]
    for each in chosen.values():
        each.make(made)
    said = refused(made.write(tmp_path))
    assert not [name for name, each in chosen.items() if not re.search(each.said, said)], said


def test_the_sound_pipeline_is_valid(tmp_path: Path) -> None:
    made = shop(300, 100, 2000)
    sound_recipe(made)
    assert refused(made.write(tmp_path)) == ""


def test_gaps_of_large_parquet_files_are_told_by_their_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmill.assets.sources.tables.mistakes.READ_BYTES", 0)
    monkeypatch.setattr("graphmill.jobs.commands.pipelines.inspect_pipeline.CHECKED_EDGES", 0)
    made = shop(300, 100, 2000)
    sound_recipe(made)
    for name in ("gaps without missing", "gaps without encoder", "not finite"):
        MISTAKES[name].make(made)
    made.change("items", "item_id", first(None))
    made.change("clicks", "user", first(None))
    said = refused(made.write(tmp_path))
    for table, column in (("users", "age"), ("items", "rating"), ("items", "item_id"), ("clicks", "user")):
        row = made.frames[table][column].is_null().arg_max()
        assert f"{table}.parquet: row {row}: column '{column}' is empty" in said
    assert "price" not in said  # only a build reads the values
