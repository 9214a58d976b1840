"""Folders of tables in the shape of public sets, with planted classes: most edges join nodes of one class, and columns hint at it.

Each function of `FOLDERS` writes the tables of one folder. Names of columns, types, formats and gaps are those of the sets that they look
like. What the columns say of the classes is known, so the best score that a model can have is known, too (folder_scores.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from graphmill.kernels.types import Array

CLASSES = 4
HOMOPHILY = 0.85
"""Share of edges whose ends have one class; those of the other edges are drawn from all nodes."""
WORDS = np.array([f"{a}{b}" for a in ("ba", "ko", "ri", "tu", "me") for b in ("lan", "dor", "sin", "vek")])


class Planted:
    """Nodes with drawn classes; each column about them adds to the evidence.

    Attributes:
        kinds: i64[N], the classes.
        evidence: f64[N, C], logarithm of the likelihood of a node's columns if it were of a class.
    """

    def __init__(self, rng: np.random.Generator, count: int, num_classes: int = CLASSES):
        self.rng, self.kinds = rng, rng.integers(0, num_classes, count)
        self.evidence, self.classes = np.zeros((count, num_classes)), np.arange(num_classes)

    def hint(self, noise: float = 1.5, lost: float = 0.0) -> pl.Series:
        """Returns the number of each node's class with normal noise; a share of the values is missing."""
        values = self.kinds + self.rng.normal(0, noise, len(self.kinds))
        there = self.rng.random(len(values)) >= lost
        self.evidence -= there[:, None] * (values[:, None] - self.classes) ** 2 / (2 * noise**2)
        return pl.Series(np.where(there, values, np.nan)).fill_nan(None)

    def counts(self, first: float, step: float) -> Array:
        """Returns a whole number for each node, of a Poisson distribution with the mean first + step * class."""
        means = first + step * self.classes
        values = self.rng.poisson(means[self.kinds])
        self.evidence += values[:, None] * np.log(means) - means
        return values

    def text(self, words: int, share_own: float = 0.4) -> list[str]:
        """Returns a sentence for each node; a share of its words goes with its class."""
        share, shape = len(WORDS) // len(self.classes), (len(self.kinds), words)
        own = self.kinds[:, None] * share + self.rng.integers(0, share, shape)
        drawn = np.where(self.rng.random(shape) < share_own, own, self.rng.integers(0, len(WORDS), shape))
        chances = np.full((len(WORDS), len(self.classes)), (1 - share_own) / len(WORDS))
        chances[np.arange(share * len(self.classes)), np.repeat(self.classes, share)] += share_own / share
        self.evidence += np.log(chances)[drawn].sum(axis=1)
        return [" ".join(WORDS[row]) for row in drawn]

    def group(self, sure: float, size: int = 10) -> Array:
        """Returns a number for each node, of one of `size` that belong to its class with this chance, and of any otherwise."""
        count = size * len(self.classes)
        own = self.kinds * size + self.rng.integers(0, size, len(self.kinds))
        drawn = np.where(self.rng.random(len(own)) < sure, own, self.rng.integers(0, count, len(own)))
        self.evidence += np.log((drawn[:, None] // size == self.classes) * sure / size + (1 - sure) / count + 1e-9)
        return drawn

    def shows(self, places: Array) -> None:
        """Says that an edge tells the class of these nodes."""
        self.evidence[places] += np.log(np.eye(len(self.classes)) + 1e-9)[self.kinds[places]]


@dataclass(frozen=True)
class Folder:
    """What a folder was made from.

    Attributes:
        table, column: the table with the classes, and their column.
        nodes: name of a table -> the planted nodes, in the order of its rows.
        edges: (table, table, places, places), by which planted nodes are joined.
        of_edges: table -> f64[N, F], what the columns of edges say of its nodes.
    """

    table: str
    column: str
    nodes: Mapping[str, Planted]
    edges: Sequence[tuple[str, str, Array, Array]]
    of_edges: Mapping[str, Array] = field(default_factory=dict)


def partners(rng: np.random.Generator, of: Planted, among: Planted, count: int) -> tuple[Array, Array]:
    """Returns `count` pairs (place in `of`, place in `among`), most of them of one class."""
    left = rng.integers(0, len(of.kinds), count)
    return left, partners_of(rng, of.kinds[left], among)


def partners_of(rng: np.random.Generator, kinds: Array, among: Planted) -> Array:
    """Returns a place in `among` for each of some classes, most of them of that class."""
    alike, places = rng.random(len(kinds)) < HOMOPHILY, rng.integers(0, len(among.kinds), len(kinds))
    for each in np.unique(kinds):
        wanted = np.flatnonzero(alike & (kinds == each))
        places[wanted] = rng.choice(np.flatnonzero(among.kinds == each), len(wanted))
    return places


def times(rng: np.random.Generator, count: int) -> pl.Series:
    """Returns `count` moments of a year."""
    seconds = rng.integers(1_700_000_000, 1_730_000_000, count)
    return pl.Series(seconds * 1_000_000).cast(pl.Datetime("us"))


def purchases(folder: Path, rng: np.random.Generator) -> Folder:
    """A shop: users with a segment, items, clicks with times and kinds; ids are text."""
    users, items = Planted(rng, 1500), Planted(rng, 600)
    user_ids = np.array([f"U-{number:05d}" for number in rng.permutation(1500)])
    item_ids = np.array([f"SKU-{number:05d}" for number in rng.permutation(600)])
    names = np.array(["basic", "family", "premium", "student"])
    pl.DataFrame(
        {
            "user_id": user_ids,
            "age": 30 + 5 * users.hint(lost=0.05),
            "country": rng.choice(["DE", "FR", "US"], 1500),
            "signed_up": times(rng, 1500),
            "income": 1000 * users.hint(),
            "segment": names[users.kinds],
        }
    ).write_parquet(folder / "users.parquet")
    pl.DataFrame(
        {
            "item_id": item_ids,
            "title": items.text(3),
            "price": items.hint().exp(),
            "brand": rng.choice(["x", "y", "z"], 600),
        }
    ).write_parquet(folder / "items.parquet")
    left, right = partners(rng, users, items, 6000)
    clicks = pl.DataFrame(
        {
            "user_id": user_ids[left],
            "item_id": item_ids[right],
            "time": times(rng, 6000),
            "event": rng.choice(["view", "cart", "buy"], 6000),
        }
    )
    for part in range(3):
        clicks.slice(part * 2000, 2000).write_parquet(folder / f"clicks-{part:04d}.parquet")
    return Folder("users", "segment", {"users": users, "items": items}, [("users", "items", left, right)])


def ratings(folder: Path, rng: np.random.Generator) -> Folder:
    """Films and ratings in CSV, as MovieLens has them; films have a genre."""
    people, films = Planted(rng, 1000), Planted(rng, 1500)
    genres = np.array(["Action", "Comedy", "Drama", "Horror"])
    pl.DataFrame(
        {
            "movieId": np.arange(1, 1501),
            "title": films.text(3),
            "year": 1950 + rng.integers(0, 70, 1500),
            "genre": genres[films.kinds],
        }
    ).write_csv(folder / "movies.csv")
    pl.DataFrame(
        {
            "userId": np.arange(1, 1001),
            "gender": rng.choice(["F", "M"], 1000),
            "age": rng.integers(18, 80, 1000),
            "taste": people.hint(),
        }
    ).write_csv(folder / "users.csv")
    left, right = partners(rng, people, films, 4500)
    left, right = np.unique(np.stack([left, right]), axis=1)
    pl.DataFrame(
        {
            "userId": left + 1,
            "movieId": right + 1,
            "rating": rng.integers(1, 6, len(left)),
            "timestamp": rng.integers(9e8, 1e9, len(left)),
        }
    ).write_csv(folder / "ratings.csv")
    return Folder("movies", "genre", {"users": people, "movies": films}, [("users", "movies", left, right)])


def citations(folder: Path, rng: np.random.Generator) -> Folder:
    """Papers with titles, years and venues, and who cites whom."""
    papers = Planted(rng, 1500)
    pl.DataFrame(
        {"venue_id": np.arange(40), "name": [f"Venue {number}" for number in range(40)], "rank": rng.integers(1, 5, 40)}
    ).write_parquet(folder / "venues.parquet")
    pl.DataFrame(
        {
            "paper_id": np.arange(1500) + 10_000,
            "title": papers.text(3, 0.2),
            "abstract": papers.text(8, 0.2),
            "year": 1990 + rng.integers(0, 30, 1500),
            "venue_id": papers.group(0.3),
            "field": papers.kinds,
        }
    ).write_parquet(folder / "papers.parquet")
    left, right = partners(rng, papers, papers, 3000)
    pl.DataFrame({"citing": left + 10_000, "cited": right + 10_000}).write_parquet(folder / "citations.parquet")
    return Folder("papers", "field", {"papers": papers}, [("papers", "papers", left, right)])


def transactions(folder: Path, rng: np.random.Generator) -> Folder:
    """Transactions with times, amounts and labels of which many are unknown, and the flow of money among them, as Elliptic has it."""
    nodes = Planted(rng, 2500, 2)
    said = np.where(rng.random(2500) < 0.5, "unknown", np.array(["licit", "illicit"])[nodes.kinds])
    amounts = {f"feature_{number}": nodes.hint(5.0) for number in range(12)}
    ids = rng.permutation(2500) + 230_000_000
    pl.DataFrame({"txId": ids, "time_step": rng.integers(1, 50, 2500), **amounts, "class": said}).write_csv(
        folder / "transactions.csv"
    )
    left, right = partners(rng, nodes, nodes, 6000)
    pl.DataFrame({"txId1": ids[left], "txId2": ids[right]}).write_csv(folder / "edges.csv")
    return Folder("transactions", "class", {"transactions": nodes}, [("transactions", "transactions", left, right)])


def molecules(folder: Path, rng: np.random.Generator) -> Folder:
    """Atoms of molecules with their element and charge, and bonds; the class is the atom's group."""
    atoms = Planted(rng, 1500)
    pl.DataFrame(
        {
            "atom_id": np.arange(1500),
            "element": rng.choice(["C", "N", "O", "S"], 1500),
            "charge": atoms.hint() / 10,
            "aromatic": rng.random(1500) < 0.4,
            "group": np.array(["acid", "amine", "ring", "chain"])[atoms.kinds],
        }
    ).write_parquet(folder / "atoms.parquet")
    left, right = partners(rng, atoms, atoms, 5000)
    pl.DataFrame({"atom_1": left, "atom_2": right, "order": rng.choice([1.0, 1.5, 2.0], 5000)}).write_parquet(
        folder / "bonds.parquet"
    )
    return Folder("atoms", "group", {"atoms": atoms}, [("atoms", "atoms", left, right)])


def knowledge(folder: Path, rng: np.random.Generator) -> Folder:
    """Entities of four kinds and triples of a head, a relation and a tail, as text; a relation goes with the kind of its head."""
    entities = Planted(rng, 1500)
    names = np.array([f"/m/{number:04x}" for number in rng.permutation(1500)])
    pl.DataFrame(
        {
            "entity": names,
            "name": entities.text(2),
            "mentions": entities.counts(5, 1),
            "kind": np.array(["person", "place", "work", "event"])[entities.kinds],
        }
    ).write_csv(folder / "entities.tsv", separator="\t")
    left, right = partners(rng, entities, entities, 2500)
    relations = np.array(["born_in", "made", "knows", "part_of"])
    pl.DataFrame({"head": names[left], "relation": relations[entities.kinds[left]], "tail": names[right]}).write_csv(
        folder / "triples.tsv", separator="\t"
    )
    entities.shows(np.unique(left))
    heads = np.zeros((1500, 4))
    heads[left, entities.kinds[left]] = 1
    return Folder(
        "entities", "kind", {"entities": entities}, [("entities", "entities", left, right)], {"entities": heads}
    )


def roads(folder: Path, rng: np.random.Generator) -> Folder:
    """Junctions with places and districts, and roads with lengths and kinds; in a folder of their own."""
    junctions = Planted(rng, 1500)
    below = folder / "network"
    below.mkdir()
    ids = rng.permutation(1500) + 5_000_000_000
    pl.DataFrame(
        {
            "osmid": ids,
            "lat": 48 + junctions.hint() / 10,
            "lon": 11 + junctions.hint() / 10,
            "street_count": rng.integers(1, 6, 1500),
            "district": junctions.kinds + 1,
        }
    ).write_parquet(below / "junctions.parquet")
    left, right = partners(rng, junctions, junctions, 4500)
    pl.DataFrame(
        {
            "from": ids[left],
            "to": ids[right],
            "length": rng.exponential(80, 4500),
            "highway": rng.choice(["residential", "primary"], 4500),
        }
    ).write_parquet(below / "roads.parquet")
    return Folder("junctions", "district", {"junctions": junctions}, [("junctions", "junctions", left, right)])


def social(folder: Path, rng: np.random.Generator) -> Folder:
    """Accounts, who follows whom, and posts that others liked; some accounts have no class."""
    accounts, posts = Planted(rng, 2000), Planted(rng, 1500)
    names = np.array(["art", "news", "sport", "tech"])[accounts.kinds]
    known = [name if rng.random() < 0.6 else None for name in names]
    pl.DataFrame(
        {
            "id": np.arange(2000),
            "handle": [f"@user{number}" for number in range(2000)],
            "created_at": times(rng, 2000),
            "followers": accounts.counts(20, 5),
            "verified": rng.random(2000) < 0.1,
            "community": known,
        }
    ).write_parquet(folder / "accounts.parquet")
    left, right = partners(rng, accounts, accounts, 2500)
    pl.DataFrame({"follower_id": left, "followee_id": right}).write_parquet(folder / "follows.parquet")
    pl.DataFrame({"id": np.arange(1500) + 1_000_000, "text": posts.text(6), "words": posts.counts(3, 1)}).write_parquet(
        folder / "posts.parquet"
    )
    fans, liked = partners(rng, accounts, posts, 2500)
    pl.DataFrame(
        {"event_id": np.arange(2500), "account_id": fans, "post_id": liked + 1_000_000, "at": times(rng, 2500)}
    ).write_parquet(folder / "likes.parquet")
    edges = [("accounts", "accounts", left, right), ("accounts", "posts", fans, liked)]
    return Folder("accounts", "community", {"accounts": accounts, "posts": posts}, edges)


def sensors(folder: Path, rng: np.random.Generator) -> Folder:
    """Sensors with tags and places in CSV with semicolons, and which are near one another."""
    nodes = Planted(rng, 1500)
    names = np.array([f"S{number:04d}" for number in range(1500)])
    pl.DataFrame(
        {
            "sensor": names,
            "vendor": rng.choice(["acme", "globex"], 1500),
            "height": nodes.hint().round(3),
            "noise": nodes.hint().round(3),
            "installed": times(rng, 1500).dt.date(),
            "status": np.array(["ok", "drift", "dead", "new"])[nodes.kinds],
        }
    ).write_csv(folder / "sensors.csv", separator=";")
    left, right = partners(rng, nodes, nodes, 4500)
    pl.DataFrame(
        {"source": names[left], "target": names[right], "distance": np.round(rng.exponential(5, 4500), 2)}
    ).write_csv(folder / "near.csv", separator=";")
    return Folder("sensors", "status", {"sensors": nodes}, [("sensors", "sensors", left, right)])


def dump(folder: Path, rng: np.random.Generator) -> Folder:
    """A database as Parquet, a folder for each table: customers who churn, orders, their lines, products and categories."""
    customers, products = Planted(rng, 1500, 2), Planted(rng, 200, 2)
    buyer, order_of = rng.integers(0, 1500, 3000), np.repeat(np.arange(3000), 2)
    product = partners_of(rng, customers.kinds[buyer[order_of]], products)
    tables = {
        "customers": {
            "customer_id": np.arange(1500) + 1,
            "city": rng.choice(["Oslo", "Rome", "Graz"], 1500),
            "balance": customers.hint(),
            "since": times(rng, 1500).dt.date(),
            "churned": customers.kinds.astype(bool),
        },
        "orders": {
            "order_id": np.arange(3000) + 1,
            "customer_id": buyer + 1,
            "ordered_at": times(rng, 3000),
            "total": rng.exponential(50, 3000),
        },
        "order_lines": {"order_id": order_of + 1, "product_id": product + 1, "quantity": rng.integers(1, 5, 6000)},
        "products": {
            "product_id": np.arange(200) + 1,
            "category_id": products.group(0.5, 5) + 1,
            "price": products.hint().exp(),
        },
        "categories": {"category_id": np.arange(10) + 1, "name": [f"Category {number}" for number in range(10)]},
    }
    for name, columns in tables.items():
        (folder / name).mkdir()
        frame = pl.DataFrame(columns)
        for part in range(2):
            half = frame.slice(part * frame.height // 2, (part + 1) * frame.height // 2 - part * frame.height // 2)
            half.write_parquet(folder / name / f"part-{part:05d}.parquet")
    edges = [("customers", "products", buyer[order_of], product)]
    return Folder("customers", "churned", {"customers": customers, "products": products}, edges)


FOLDERS: dict[str, Callable[[Path, np.random.Generator], Folder]] = {
    each.__name__: each
    for each in (purchases, ratings, citations, transactions, molecules, knowledge, roads, social, sensors, dump)
}
