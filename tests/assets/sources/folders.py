"""Folders of tables in the shape of public sets, with planted classes: most edges join nodes of one class, and columns hint at it.

Each function of `FOLDERS` writes the tables of one folder, and returns (name of the labelled table, its column of classes). Names of
columns, types, formats and gaps are those of the sets that they look like.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from graphmill.kernels.types import Array

CLASSES = 4
HOMOPHILY = 0.85
"""Share of edges whose ends have one class."""
WORDS = np.array([f"{a}{b}" for a in ("ba", "ko", "ri", "tu", "me") for b in ("lan", "dor", "sin", "vek")])


def classes(rng: np.random.Generator, count: int, kinds: int = CLASSES) -> Array:
    """Returns a class for each of `count` nodes, i64[count]."""
    return rng.integers(0, kinds, count)


def partners(rng: np.random.Generator, of: Array, among: Array, count: int) -> tuple[Array, Array]:
    """Returns `count` pairs (place in `of`, place in `among`), most of them of one class."""
    left = rng.integers(0, len(of), count)
    return left, partners_of(rng, of[left], among)


def partners_of(rng: np.random.Generator, kinds: Array, among: Array) -> Array:
    """Returns a place in `among` for each of some classes, most of them of that class."""
    alike, places = rng.random(len(kinds)) < HOMOPHILY, rng.integers(0, len(among), len(kinds))
    for each in np.unique(kinds):
        wanted = np.flatnonzero(alike & (kinds == each))
        places[wanted] = rng.choice(np.flatnonzero(among == each), len(wanted))
    return places


def hint(rng: np.random.Generator, kinds: Array, noise: float = 1.5) -> Array:
    """Returns a number for each node that says a little about its class, f64[N]."""
    return kinds + rng.normal(0, noise, len(kinds))


def text(rng: np.random.Generator, kinds: Array, words: int = 6) -> list[str]:
    """Returns a sentence for each node, some of whose words go with its class."""
    share = len(WORDS) // (int(kinds.max()) + 1)
    own = kinds[:, None] * share + rng.integers(0, share, (len(kinds), words))
    drawn = np.where(rng.random((len(kinds), words)) < 0.4, own, rng.integers(0, len(WORDS), (len(kinds), words)))
    return [" ".join(WORDS[row]) for row in drawn]


def gaps(rng: np.random.Generator, values: Array, share: float = 0.05) -> list[float | None]:
    """Returns the values, a share of which is missing."""
    lost = rng.random(len(values)) < share
    return [None if gone else float(value) for value, gone in zip(values, lost, strict=True)]


def times(rng: np.random.Generator, count: int) -> pl.Series:
    """Returns `count` moments of a year."""
    seconds = rng.integers(1_700_000_000, 1_730_000_000, count)
    return pl.Series(seconds * 1_000_000).cast(pl.Datetime("us"))


def purchases(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """A shop: users with a segment, items, clicks with times and kinds; ids are text."""
    users, items = classes(rng, 600), classes(rng, 300)
    user_ids = [f"U-{number:05d}" for number in rng.permutation(600)]
    item_ids = [f"SKU-{number:05d}" for number in rng.permutation(300)]
    names = np.array(["basic", "family", "premium", "student"])
    pl.DataFrame(
        {
            "user_id": user_ids,
            "age": gaps(rng, 30 + 5 * hint(rng, users)),
            "country": rng.choice(["DE", "FR", "US"], 600),
            "signed_up": times(rng, 600),
            "income": hint(rng, users) * 1000,
            "segment": names[users],
        }
    ).write_parquet(folder / "users.parquet")
    pl.DataFrame(
        {
            "item_id": item_ids,
            "title": text(rng, items),
            "price": np.exp(hint(rng, items)),
            "brand": rng.choice(["x", "y", "z"], 300),
        }
    ).write_parquet(folder / "items.parquet")
    left, right = partners(rng, users, items, 6000)
    for part in range(3):
        rows = slice(part * 2000, (part + 1) * 2000)
        pl.DataFrame(
            {
                "user_id": np.array(user_ids)[left[rows]],
                "item_id": np.array(item_ids)[right[rows]],
                "time": times(rng, 2000),
                "event": rng.choice(["view", "cart", "buy"], 2000),
            }
        ).write_parquet(folder / f"clicks-{part:04d}.parquet")
    return "users", "segment"


def ratings(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Films and ratings in CSV, as MovieLens has them; films have a genre."""
    people, films = classes(rng, 500), classes(rng, 400)
    genres = np.array(["Action", "Comedy", "Drama", "Horror"])
    pl.DataFrame(
        {
            "movieId": np.arange(1, 401),
            "title": text(rng, films, 3),
            "year": 1950 + rng.integers(0, 70, 400),
            "genre": genres[films],
        }
    ).write_csv(folder / "movies.csv")
    pl.DataFrame(
        {
            "userId": np.arange(1, 501),
            "gender": rng.choice(["F", "M"], 500),
            "age": rng.integers(18, 80, 500),
            "taste": hint(rng, people),
        }
    ).write_csv(folder / "users.csv")
    left, right = partners(rng, people, films, 8000)
    pl.DataFrame(
        {
            "userId": left + 1,
            "movieId": right + 1,
            "rating": rng.integers(1, 6, 8000),
            "timestamp": rng.integers(9e8, 1e9, 8000),
        }
    ).unique(["userId", "movieId"], maintain_order=True).write_csv(folder / "ratings.csv")
    return "movies", "genre"


def citations(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Papers with titles, years and venues, and who cites whom."""
    papers = classes(rng, 900)
    pl.DataFrame(
        {"venue_id": np.arange(40), "name": [f"Venue {number}" for number in range(40)], "rank": rng.integers(1, 5, 40)}
    ).write_parquet(folder / "venues.parquet")
    pl.DataFrame(
        {
            "paper_id": np.arange(900) + 10_000,
            "title": text(rng, papers),
            "abstract": text(rng, papers, 25),
            "year": 1990 + rng.integers(0, 30, 900),
            "venue_id": np.where(
                rng.random(900) < 0.7, papers * 10 + rng.integers(0, 10, 900), rng.integers(0, 40, 900)
            ),
            "field": papers,
        }
    ).write_parquet(folder / "papers.parquet")
    left, right = partners(rng, papers, papers, 4500)
    pl.DataFrame({"citing": left + 10_000, "cited": right + 10_000}).write_parquet(folder / "citations.parquet")
    return "papers", "field"


def transactions(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Transactions with times, amounts and labels of which many are unknown, and the flow of money among them, as Elliptic has it."""
    kinds = classes(rng, 1200, 2)
    said = np.where(rng.random(1200) < 0.5, "unknown", np.array(["licit", "illicit"])[kinds])
    amounts = {f"feature_{number}": hint(rng, kinds, 3.0) for number in range(12)}
    pl.DataFrame(
        {"txId": rng.permutation(1200) + 230_000_000, "time_step": rng.integers(1, 50, 1200), **amounts, "class": said}
    ).write_csv(folder / "transactions.csv")
    ids = pl.read_csv(folder / "transactions.csv")["txId"].to_numpy()
    left, right = partners(rng, kinds, kinds, 5000)
    pl.DataFrame({"txId1": ids[left], "txId2": ids[right]}).write_csv(folder / "edges.csv")
    return "transactions", "class"


def molecules(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Atoms of molecules with their element and charge, and bonds; the class is the atom's group."""
    atoms = classes(rng, 1500)
    pl.DataFrame(
        {
            "atom_id": np.arange(1500),
            "element": rng.choice(["C", "N", "O", "S"], 1500),
            "charge": hint(rng, atoms) / 10,
            "aromatic": rng.random(1500) < 0.4,
            "group": np.array(["acid", "amine", "ring", "chain"])[atoms],
        }
    ).write_parquet(folder / "atoms.parquet")
    left, right = partners(rng, atoms, atoms, 5000)
    pl.DataFrame({"atom_1": left, "atom_2": right, "order": rng.choice([1.0, 1.5, 2.0], 5000)}).write_parquet(
        folder / "bonds.parquet"
    )
    return "atoms", "group"


def knowledge(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Entities of four kinds and triples of a head, a relation and a tail, as text."""
    entities = classes(rng, 800)
    names = np.array([f"/m/{number:04x}" for number in rng.permutation(800)])
    pl.DataFrame(
        {
            "entity": names,
            "name": text(rng, entities, 2),
            "mentions": rng.poisson(5 + 4 * entities),
            "kind": np.array(["person", "place", "work", "event"])[entities],
        }
    ).write_csv(folder / "entities.tsv", separator="\t")
    left, right = partners(rng, entities, entities, 6000)
    relations = np.array(["born_in", "made", "knows", "part_of"])[entities[left]]
    pl.DataFrame({"head": names[left], "relation": relations, "tail": names[right]}).write_csv(
        folder / "triples.tsv", separator="\t"
    )
    return "entities", "kind"


def roads(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Junctions with places and districts, and roads with lengths and kinds; in a folder of their own."""
    junctions = classes(rng, 1000)
    below = folder / "network"
    below.mkdir()
    pl.DataFrame(
        {
            "osmid": rng.permutation(1000) + 5_000_000_000,
            "lat": 48 + hint(rng, junctions) / 10,
            "lon": 11 + hint(rng, junctions) / 10,
            "street_count": rng.integers(1, 6, 1000),
            "district": junctions + 1,
        }
    ).write_parquet(below / "junctions.parquet")
    ids = pl.read_parquet(below / "junctions.parquet")["osmid"].to_numpy()
    left, right = partners(rng, junctions, junctions, 3500)
    pl.DataFrame(
        {
            "from": ids[left],
            "to": ids[right],
            "length": rng.exponential(80, 3500),
            "highway": rng.choice(["residential", "primary"], 3500),
        }
    ).write_parquet(below / "roads.parquet")
    return "junctions", "district"


def social(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Accounts, who follows whom, and posts that others liked; few accounts have a class."""
    accounts, posts = classes(rng, 700), classes(rng, 900)
    names = np.array(["art", "news", "sport", "tech"])[accounts]
    known = [name if rng.random() < 0.6 else None for name in names]
    pl.DataFrame(
        {
            "id": np.arange(700),
            "handle": [f"@user{number}" for number in range(700)],
            "created_at": times(rng, 700),
            "followers": rng.poisson(20 * (accounts + 1)),
            "verified": rng.random(700) < 0.1,
            "community": known,
        }
    ).write_parquet(folder / "accounts.parquet")
    left, right = partners(rng, accounts, accounts, 5000)
    pl.DataFrame({"follower_id": left, "followee_id": right}).write_parquet(folder / "follows.parquet")
    pl.DataFrame(
        {"id": np.arange(900) + 1_000_000, "text": text(rng, posts, 12), "words": rng.poisson(3 + 3 * posts)}
    ).write_parquet(folder / "posts.parquet")
    left, right = partners(rng, accounts, posts, 6000)
    pl.DataFrame(
        {"event_id": np.arange(6000), "account_id": left, "post_id": right + 1_000_000, "at": times(rng, 6000)}
    ).write_parquet(folder / "likes.parquet")
    return "accounts", "community"


def sensors(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Sensors with tags and places in CSV with semicolons, and which are near one another."""
    kinds = classes(rng, 600)
    names = np.array([f"S{number:04d}" for number in range(600)])
    pl.DataFrame(
        {
            "sensor": names,
            "vendor": rng.choice(["acme", "globex"], 600),
            "height": np.round(hint(rng, kinds), 3),
            "noise": np.round(hint(rng, kinds), 3),
            "installed": times(rng, 600).dt.date(),
            "status": np.array(["ok", "drift", "dead", "new"])[kinds],
        }
    ).write_csv(folder / "sensors.csv", separator=";")
    left, right = partners(rng, kinds, kinds, 3000)
    pl.DataFrame(
        {"source": names[left], "target": names[right], "distance": np.round(rng.exponential(5, 3000), 2)}
    ).write_csv(folder / "near.csv", separator=";")
    return "sensors", "status"


def dump(folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """A database as Parquet, a folder for each table: customers who churn, orders, their lines, products and categories."""
    customers, products = classes(rng, 1200, 2), classes(rng, 200, 2)
    buyer, order_of = rng.integers(0, 1200, 6000), np.repeat(np.arange(6000), 2)
    product = partners_of(rng, customers[buyer[order_of]], products)
    tables = {
        "customers": {
            "customer_id": np.arange(1200) + 1,
            "city": rng.choice(["Oslo", "Rome", "Graz"], 1200),
            "balance": hint(rng, customers),
            "since": times(rng, 1200).dt.date(),
            "churned": customers.astype(bool),
        },
        "orders": {
            "order_id": np.arange(6000) + 1,
            "customer_id": buyer + 1,
            "ordered_at": times(rng, 6000),
            "total": rng.exponential(50, 6000),
        },
        "order_lines": {"order_id": order_of + 1, "product_id": product + 1, "quantity": rng.integers(1, 5, 12_000)},
        "products": {
            "product_id": np.arange(200) + 1,
            "category_id": products * 5 + rng.integers(0, 5, 200) + 1,
            "price": np.exp(hint(rng, products)),
        },
        "categories": {"category_id": np.arange(10) + 1, "name": [f"Category {number}" for number in range(10)]},
    }
    for name, columns in tables.items():
        (folder / name).mkdir()
        frame = pl.DataFrame(columns)
        for part in range(2):
            half = frame.slice(part * frame.height // 2, (part + 1) * frame.height // 2 - part * frame.height // 2)
            half.write_parquet(folder / name / f"part-{part:05d}.parquet")
    return "customers", "churned"


FOLDERS: dict[str, Callable[[Path, np.random.Generator], tuple[str, str]]] = {
    each.__name__: each
    for each in (purchases, ratings, citations, transactions, molecules, knowledge, roads, social, sensors, dump)
}
