"""Small graphs of several labels, of numbers and of links, written for a drawn source, with a drawn mistake in the data or in a key.

A mistake says by a pattern what its message has to name: the row, the edge, the array or column, or the key. Data that are spelled in
another way and mean the same have no pattern: they have to be built and trained.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from tests.assets.sources.own_data import write_gz
from tests.recipes import recipe

NODES, LINKS = 24, 70
FORMS = ("npz", "pyg", "dgl", "edges.csv", "edges.parquet", "tables.csv", "tables.parquet", "ogb", "ogb binary")
ARRAYS = ("npz", "pyg", "dgl")
TEXTS = ("edges.csv", "tables.csv")
TABLES = ("edges.csv", "edges.parquet", "tables.csv", "tables.parquet")
KINDS = ("multilabel", "regression", "links")
METRICS = {"classes": "accuracy", "multilabel": "f1_micro", "regression": "r2", "links": "mrr"}


@dataclass
class Made:
    """A graph before it is written.

    Attributes:
        ends: int64[2, E].
        y: labels [N, C], or what stands in their place; None for none. Of tables column -> values.
        marks: parts of the edges, 0, 1, 2 or -1, or their times; None for none.
        said: pattern of what a message has to name; "" if the graph is sound.
        what: what was done, for the reader of a failure.
    """

    draw: random.Random
    form: str
    kind: str
    split: str
    ends: np.ndarray
    y: Any
    marks: Any
    said: str = ""
    what: str = "nothing"
    task: dict[str, Any] = field(default_factory=dict)
    graph: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)

    @property
    def of_tables(self) -> bool:
        return self.form in TABLES

    def row(self, number: int) -> str:
        """The pattern of a row of a table, a line of text, a node or an edge by its number."""
        return rf"\b(row|node|edge) {number}\b"


def drawn(draw: random.Random, form: str, kind: str) -> Made:
    """Draws a sound graph: each link once, in one direction."""
    rng = np.random.default_rng(draw.randrange(2**32))
    pairs = np.array([(a, b) for a in range(NODES) for b in range(a + 1, NODES)])
    ends = pairs[rng.permutation(len(pairs))[:LINKS]].T.copy()
    split = draw.choice(("random", "given", "given", "time")) if kind == "links" else "random"
    if form.startswith("ogb") and split == "time":
        split = "given"
    y: Any = None
    if kind == "multilabel":
        y = rng.integers(0, 2, (NODES, 3)).astype(np.float64)
        y[: NODES // 4, 0] = np.nan
    elif kind == "regression":
        y = rng.normal(100, 20, (NODES, 2))
        y[: NODES // 4, 1] = np.nan
    marks = None
    if split == "given":
        marks = np.array([0] * 50 + [1] * 10 + [2] * 10)[rng.permutation(LINKS)]
    elif split == "time":
        marks = rng.integers(0, 1000, LINKS)
    made = Made(draw, form, kind, split, ends, y, marks, task={"kind": kind})
    if kind == "links" and split != "random":
        made.task["split"] = split
    return made


# Mistakes in labels and numbers.


def wrong_value(made: Made) -> None:
    row, column = made.draw.randrange(NODES), made.draw.randrange(made.y.shape[1])
    values = (2.0, -2.0, 0.5, np.inf, 1e300, 255.0) if made.kind == "multilabel" else (np.inf, -np.inf, 1e39, -1e300)
    made.y[row, column] = made.draw.choice(values)
    made.said = made.row(row) + ".*column"


def unknown_column(made: Made) -> None:
    column = made.draw.randrange(made.y.shape[1])
    made.y[:, column] = np.nan
    made.said = rf"column '(y\.|t)?{column}' is unknown of all nodes|column 't{column}'"


def no_labels(made: Made) -> None:
    made.y = None
    made.said = r"label|\by\b"


def rows(made: Made) -> None:
    made.y = made.draw.choice((made.y[:-1], np.vstack([made.y, made.y[:1]])))
    made.said = rf"{len(made.y)}"


def turned(made: Made) -> None:
    made.y = made.y.T.copy()
    made.said = rf"shape \[{len(made.y)}, {NODES}\]|number of nodes|{len(made.y)} rows|rows"


def more_axes(made: Made) -> None:
    made.y = made.draw.choice((made.y[:, :, None], made.y[:, :0], np.float64(1)))
    made.said = r"\b(y|label)\b"


def other_type(made: Made) -> None:
    y = np.nan_to_num(made.y)
    kinds: dict[str, Callable[[], Any]] = {"complex": lambda: y.astype(np.complex64)}
    if made.form == "npz":
        kinds |= {
            "text": lambda: y.astype(str),
            "times": lambda: y.astype("M8[s]"),
            "objects": lambda: y.astype(object),
            "records": lambda: np.zeros((NODES, 2), [("a", "f4"), ("b", "f4")]),
        }
    if made.form == "pyg":
        kinds["a list"] = y.tolist
        kinds["a sparse tensor"] = lambda: torch.tensor(y).to_sparse()
    name = made.draw.choice(sorted(kinds))
    made.y, made.said, made.what = kinds[name](), r"\b(y|label)\b", f"labels as {name}"


def same_type(made: Made) -> None:
    """Other types of numbers that hold the labels; sound."""
    kinds: tuple[Any, ...] = (np.float32, np.float16)
    if made.kind == "multilabel":
        made.y = np.nan_to_num(made.y)
        kinds = (*kinds, bool, np.int8, np.int16, np.int64, np.uint8)
    kind = made.draw.choice(kinds)
    made.y, made.what = made.y.astype(kind), f"labels as {kind.__name__}"


def odd_column(made: Made) -> None:
    """A column of a table with values of another type."""
    column = made.draw.randrange(made.y.shape[1])
    values = made.y[:, column]
    texts = [None if np.isnan(value) else str(value) for value in values]
    row = made.draw.randrange(NODES)
    texts[row] = made.draw.choice(("blue", "1,5", "0x1", "true?", "-", "2020-01-01"))
    frames = {f"t{each}": made.y[:, each] for each in range(made.y.shape[1])}
    made.y = {name: pl.Series(each).fill_nan(None) for name, each in frames.items()} | {f"t{column}": pl.Series(texts)}
    made.said, made.what = rf"t{column}", f"a text in row {row}"


def column_of_type(made: Made) -> None:
    """A whole column of a Parquet table of a type that has no numbers; or of lists, which are several columns: sound."""
    column = made.draw.randrange(made.y.shape[1])
    series: dict[str, Callable[[], pl.Series]] = {
        "dates": lambda: pl.Series([None] * NODES, dtype=pl.Date),
        "times": lambda: pl.Series(range(NODES)).cast(pl.Datetime("ms")),
        "nothing": lambda: pl.Series([None] * NODES, dtype=pl.Null),
        "records": lambda: pl.Series([{"a": 1}] * NODES),
        "bytes": lambda: pl.Series([b"x"] * NODES),
        "lists": lambda: pl.Series([[1, 0]] * NODES),
    }
    name = made.draw.choice(sorted(series))
    frames = {f"t{each}": pl.Series(made.y[:, each]).fill_nan(None) for each in range(made.y.shape[1])}
    made.y = frames | {f"t{column}": series[name]()}
    made.said, made.what = "" if name == "lists" else rf"t{column}", f"a column of {name}"


def lists(made: Made) -> None:
    """One column of lists: sound, or with one of another length, an empty one, or one that holds a gap."""
    values = [[None if np.isnan(each) else each for each in row] for row in made.y]
    row, how = made.draw.randrange(NODES), made.draw.choice(("whole", "short", "long", "none at all", "empty"))
    width = made.y.shape[1]
    changed: dict[str, Any] = {
        "whole": values[row],
        "short": values[row][:-1],
        "long": [*values[row], 1.0],
        "none at all": None,
        "empty": [],
    }
    values[row] = changed[how]
    made.y, made.what = {"ys": pl.Series(values, dtype=pl.List(pl.Float64))}, f"a list: {how}, of row {row}"
    made.graph["label_columns"] = "ys"
    if how not in ("whole", "none at all"):
        made.said = rf"ys.*|{width}"


def missing_column(made: Made) -> None:
    made.graph["label_columns"] = made.draw.choice((["t0", "t9"], "z*", ["t0", "T1"], [], ["t0", "t0"], ["id"]))
    made.said = r"label_columns|t9|z\*|T1|t0|\bid\b"


def key_of_classes(made: Made) -> None:
    """The column of classes beside a kind with several columns, or the reverse."""
    made.graph["label_column" if made.kind != "links" else "label_columns"] = "t0"
    if made.kind == "links":
        made.y = {"t0": pl.Series([0, 1] * (NODES // 2))}
    made.said = r"label_columns?"


# Mistakes in links.


def unknown_end(made: Made) -> None:
    edge, end = made.draw.randrange(LINKS), made.draw.randrange(2)
    made.ends[end, edge] = made.draw.choice((NODES, NODES + 7, -1, 10**12))
    made.said = rf"{made.row(edge)}|{made.ends[end, edge]:,}|{made.ends[end, edge]}"


def test_edge_in_training(made: Made) -> None:
    train = int(made.draw.choice(np.flatnonzero(made.marks == 0).tolist()))
    back = made.draw.random() < 0.5
    made.ends = np.hstack([made.ends, made.ends[:: -1 if back else 1, [train]]])
    made.marks = np.append(made.marks, made.draw.choice((1, 2)))
    made.said = rf"\b(row|column) {LINKS}\b.* is in (valid|test), and"


def wrong_part(made: Made) -> None:
    edge = made.draw.randrange(LINKS)
    if made.form == "npz":
        kind = made.draw.choice(("code", "point", "gap"))
        made.marks = made.marks.astype(np.int64 if kind == "code" else np.float64)
        made.marks[edge] = {"code": made.draw.choice((3, -2, 10**10)), "point": 0.5, "gap": np.nan}[kind]
        made.said = rf"edge_split.*({edge}\b|float)"
        return
    made.marks = np.array(["train", "valid", "test", ""])[made.marks].astype(object)
    made.marks[edge] = made.draw.choice(("tested", "0", "Train?", "train;test"))
    made.said = made.row(edge)


def two_parts(made: Made) -> None:
    edge = int(made.draw.choice(np.flatnonzero(made.marks == 0).tolist()))
    made.graph["twice"] = edge
    made.said = rf"edge {edge} is in two parts"


def one_mask_less(made: Made) -> None:
    made.graph["without"] = made.draw.choice(("train", "val", "test"))
    made.said = rf"{made.graph['without']}_mask"


def nothing_to_train_on(made: Made) -> None:
    made.marks = np.where(made.marks == 0, 1, made.marks)
    made.said = "no link is for training"


def no_part(made: Made) -> None:
    made.marks = np.full(LINKS, -1)
    made.said = "no edge is in a part|no edge has a part"


def wrong_time(made: Made) -> None:
    edge = made.draw.randrange(LINKS)
    made.marks = made.marks.astype(np.float64)
    made.marks[edge] = made.draw.choice((np.nan, np.inf, -np.inf))
    made.said = made.row(edge)


def text_of_time(made: Made) -> None:
    edge = made.draw.randrange(LINKS)
    made.marks = made.marks.astype(str).astype(object)
    made.marks[edge] = made.draw.choice(("soon", "2020-13-45", "1e", "--"))
    made.said = rf"{made.row(edge)}|when"


def shape_of_marks(made: Made) -> None:
    made.marks = made.draw.choice((made.marks[:-1], made.marks[:, None, None], np.append(made.marks, 0)))
    made.said = r"edge_(split|time|when|train_mask|val_mask|test_mask)|when|_mask"


def type_of_marks(made: Made) -> None:
    kinds = [made.marks.astype(str), made.marks.astype(np.complex64), made.marks.astype(object)]
    made.marks = made.draw.choice(kinds)
    made.said = r"edge_(split|time)"


def no_marks(made: Made) -> None:
    made.marks = None
    made.said = rf"split = .{made.split}.|edge_{made.split}|when|part|mask|test\.pt"


def unknown_relation(made: Made) -> None:
    made.task["relations"] = made.draw.choice((["sees"], ["knows", "sees"], [""]))
    made.said = r"relations"


def loops(made: Made) -> None:
    made.ends[1] = made.ends[0]
    made.said = "joins two nodes|no edge|loops"


def without_negatives(made: Made) -> None:
    """The target's type has one node: no pair is left to compare a link with."""
    made.graph["bought"] = 1, [(user, 0) for user in range(NODES)], ["train"] * NODES
    made.said = r"buys.*only one node can be a target"


def full_user(made: Made) -> None:
    """A user has bought everything, to train on; with known links among the negatives that is sound."""
    pairs = [(0, item) for item in range(4)] + [(user, user % 4) for user in range(1, NODES)]
    made.graph["bought"] = 4, pairs, ["train"] * (NODES - 4) + ["valid"] * 4 + ["test"] * 3
    made.said = r"buys.*the source 0\b.*known_negatives"
    if made.draw.random() < 0.5:
        made.sampling["known_negatives"], made.said = True, ""


def full_user_tested(made: Made) -> None:
    """A user has bought everything, one of it to test: training has other items, and the test no other pair; sound."""
    full_user(made)
    made.graph["bought"][2][0], made.said = "test", ""


def full_graph(made: Made) -> None:
    """All nodes of one type are linked; sound, since a node can be compared with itself."""
    made.ends = np.array([(a, b) for a in range(NODES) for b in range(a + 1, NODES)]).T.copy()


# Mistakes in keys.


def key_of_another_kind(made: Made) -> None:
    of_links: dict[str, Any] = {"split": "time", "train_ratio": 0.5, "valid_ratio": 0.2, "relations": ["knows"]}
    of_links["message_edges"] = "train+valid"
    name = made.draw.choice(sorted(of_links))
    made.task[name] = of_links[name]
    made.said = r"split = 'time' of nodes reads the times of seeds" if name == "split" else rf"{name} is a key of links"


def train_key_of_another_kind(made: Made) -> None:
    keys: dict[str, tuple[Any, tuple[str, ...]]] = {
        "metric": ("accuracy", ("classes",)),
        "class_weights": ("balanced", ("classes",)),
        "label_smoothing": (0.1, ("classes",)),
        "pos_weight": ("balanced", ("multilabel",)),
        "error": ("huber", ("regression",)),
        "link_head": ("mlp", ("links",)),
        "link_loss": ("binary", ("links",)),
        "margin": (2.0, ("links",)),
        "exclude_targets": (False, ("links",)),
    }
    name = made.draw.choice([each for each, (_, kinds) in keys.items() if made.kind not in kinds])
    made.train[name] = keys[name][0]
    made.said = name


def metric_of_another_kind(made: Made) -> None:
    others = {
        "multilabel": ("r2", "auc", "mrr"),
        "regression": ("f1_micro", "mrr", "roc_auc"),
        "links": ("r2", "roc_auc"),
    }
    made.train["metric"] = made.draw.choice((*others[made.kind], "accuracy", "acuracy", "F1"))
    made.said = "metric"


def sampling_key_of_another_kind(made: Made) -> None:
    keys: dict[str, Any] = {"negatives": "degree", "per_positive": 3, "known_negatives": True}
    name = made.draw.choice(sorted(keys))
    made.sampling[name], made.said = keys[name], name


def wrong_task(made: Made) -> None:
    name, value = made.draw.choice((
        ("kind", "link"), ("kind", "Regression"), ("kind", 3), ("kind", ["links"]), ("kind", ""),
    ))  # fmt: skip
    made.task[name], made.said = value, name


def wrong_value_of_links(made: Made) -> None:
    where, name, value = made.draw.choice((
        ("task", "split", "randm"), ("task", "split", 3), ("task", "train_ratio", 1.5), ("task", "train_ratio", "half"),
        ("task", "valid_ratio", -0.1), ("task", "relations", "knows"), ("task", "relations", [3]), ("task", "message_edges", "all"),
        ("sampling", "per_positive", 0), ("sampling", "per_positive", 1.5), ("sampling", "negatives", "hard"),
        ("sampling", "known_negatives", "no"), ("train", "link_head", "cosine"), ("train", "link_loss", "bce"), ("train", "margin", -1.0),
        ("train", "exclude_targets", "yes"), ("train", "eval", "sampled"),
        ("sampling", "method", "random_walk"),
    ))  # fmt: skip
    getattr(made, where)[name] = value
    made.said = name if name != "method" else "random_walk"


def wrong_value_of_labels(made: Made) -> None:
    width = made.y.shape[1]
    lists: tuple[Any, ...] = ([1.0] * (width + 1), [1.0] * (width - 1) + [-1.0], [0.0] * width, "heavy", [], ["a"])
    name, value = ("pos_weight", made.draw.choice(lists))
    if made.kind == "regression":
        name, value = "error", made.draw.choice(("l3", "Huber", 2, ["huber"], ""))
    made.train[name], made.said = value, name


Mistake = Callable[[Made], None]
OF_LABELS: dict[Mistake, tuple[str, ...]] = {
    wrong_value: FORMS, unknown_column: FORMS, no_labels: FORMS, rows: ("npz", "pyg", "ogb", "ogb binary"),
    turned: ("npz", "pyg", "ogb", "ogb binary"), more_axes: ("npz", "pyg", "ogb binary"), other_type: ("npz", "pyg", "ogb binary"),
    same_type: ("npz", "pyg", "dgl", "ogb binary"), odd_column: TABLES, column_of_type: ("edges.parquet", "tables.parquet"),
    lists: ("edges.parquet", "tables.parquet"), missing_column: TABLES, key_of_classes: TABLES, key_of_another_kind: FORMS,
    train_key_of_another_kind: FORMS, metric_of_another_kind: FORMS, sampling_key_of_another_kind: FORMS, wrong_task: FORMS,
    wrong_value_of_labels: FORMS,
}  # fmt: skip
"""Mistakes of labels and numbers -> the sources that can hold them."""
OF_LINKS: dict[Mistake, tuple[str, ...]] = {
    unknown_end: ("npz", "pyg", *TABLES, "ogb", "ogb binary"), loops: FORMS, unknown_relation: FORMS,
    without_negatives: ("tables.csv", "tables.parquet"), full_user: ("tables.csv", "tables.parquet"),
    full_user_tested: ("tables.csv", "tables.parquet"), key_of_classes: TABLES,
    train_key_of_another_kind: FORMS, metric_of_another_kind: FORMS, wrong_task: FORMS, wrong_value_of_links: FORMS,
}  # fmt: skip
"""Mistakes of links, however they are split."""
OF_GIVEN: dict[Mistake, tuple[str, ...]] = {
    test_edge_in_training: ("npz", *TABLES, "pyg", "dgl"), wrong_part: ("npz", *TABLES), two_parts: ("pyg", "dgl"),
    one_mask_less: ("pyg", "dgl"), nothing_to_train_on: ("npz", "pyg", "dgl", *TABLES), no_part: ("npz", "pyg", "dgl", *TABLES),
    shape_of_marks: ("npz",), type_of_marks: ("npz",), no_marks: FORMS,
}  # fmt: skip
OF_TIME: dict[Mistake, tuple[str, ...]] = {
    wrong_time: ("npz", "pyg", "dgl", *TABLES), text_of_time: TABLES, shape_of_marks: ("npz", "pyg"), type_of_marks: ("npz",),
    no_marks: ("npz", "pyg", "dgl", *TABLES),
}  # fmt: skip
OF_DRAWN: dict[Mistake, tuple[str, ...]] = {full_graph: FORMS}
"""Mistakes of links whose split is drawn."""


def mistakes_of(form: str, kind: str, split: str) -> list[Mistake]:
    """The mistakes that a source can hold of a kind of task and a split of links."""
    of_split = {"given": OF_GIVEN, "time": OF_TIME, "random": OF_DRAWN}[split]
    known = OF_LABELS if kind != "links" else OF_LINKS | of_split
    return [mistake for mistake, forms in known.items() if form in forms]


def drawn_case(
    draw: random.Random, folder: Path, form: str = "", kind: str = "", mistake: str = ""
) -> tuple[str, Made]:
    """Draws a graph with a mistake, or none, and writes it.

    Args:
        form, kind, mistake: chosen ones, "" for drawn ones.

    Returns:
        The text of the pipeline file, and what was done.
    """
    while True:
        made = drawn(draw, form or draw.choice(FORMS), kind or draw.choice(KINDS))
        known = {each.__name__: each for each in mistakes_of(made.form, made.kind, made.split)}
        if mistake in known or not mistake:
            break
    chosen = mistake or draw.choice(["", *known])
    made.train = {"name": "one", "model": "sage", "hidden": 4, "epochs": 1, "threads": 1}
    made.sampling = {"fanouts": [3, 3], "batch_size": 16}
    if chosen:
        known[chosen](made)
        made.what = f"{chosen}: {made.what}"
    made.what = f"{made.form}, {made.kind}, {made.split}, {made.what}"
    graph = WRITERS[made.form.partition(".")[0]](made, folder)
    graph |= {name: value for name, value in made.graph.items() if name not in ("twice", "without", "bought")}
    if made.form.startswith("tables") and "label_columns" in made.graph:
        graph["nodes"]["user"]["label_columns"] = graph.pop("label_columns")
    if made.form.startswith("tables") and "label_column" in made.graph:
        graph["nodes"]["user"]["label_column"] = graph.pop("label_column")
    return recipe(made.train, task=made.task, graph=graph, sampling=made.sampling), made


# Writers: each returns the table [graph].


def write_npz(made: Made, folder: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {"edge_index": made.ends, "num_nodes": np.int64(NODES)}
    arrays |= {} if made.y is None else {"y": made.y}
    arrays |= {} if made.marks is None else {"edge_split" if made.split == "given" else "edge_time": made.marks}
    np.savez(folder / "graph.npz", allow_pickle=True, **arrays)
    return {"source": "npz", "path": "graph.npz"}


def masks_of(made: Made, prefix: str) -> dict[str, torch.Tensor]:
    """The masks of the edges' parts, with what a mistake asks for."""
    found = {part: made.marks == code for code, part in enumerate(("train", "val", "test"))}
    if "twice" in made.graph:
        found["test"][made.graph["twice"]] = True
    found.pop(made.graph.get("without"), None)
    return {f"{prefix}{part}_mask": torch.tensor(mask) for part, mask in found.items()}


def tensor_of(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, np.ndarray | np.generic) else value


def write_pyg(made: Made, folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = {"edge_index": torch.tensor(made.ends), "num_nodes": NODES}
    data |= {} if made.y is None else {"y": tensor_of(made.y)}
    keys: dict[str, Any] = {}
    if made.split == "time":
        keys["time"] = "edge_when"
        data |= {} if made.marks is None else {"edge_when": tensor_of(made.marks)}
    elif made.marks is not None:
        data |= masks_of(made, "edge_")
    torch.save(data, folder / "graph.pt")
    return {"source": "pyg", "path": "graph.pt"} | keys


def write_dgl(made: Made, folder: Path) -> dict[str, Any]:
    import dgl

    graph = dgl.graph((torch.tensor(made.ends[0]), torch.tensor(made.ends[1])), num_nodes=NODES)
    if made.y is not None:
        graph.ndata["label"] = tensor_of(made.y)
    keys: dict[str, Any] = {}
    if made.split == "time":
        keys["time"] = "when"
        if made.marks is not None:
            graph.edata["when"] = tensor_of(made.marks)
    elif made.marks is not None:
        graph.edata.update(masks_of(made, ""))
    dgl.save_graphs(str(folder / "graph.bin"), [graph])
    return {"source": "dgl", "path": "graph.bin"} | keys


def frames_of(made: Made) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any], dict[str, Any]]:
    """The tables of edges and of nodes, and the keys that name their columns."""
    edges: dict[str, Any] = {"src": made.ends[0], "dst": made.ends[1]}
    of_edges: dict[str, Any] = {}
    if made.split == "given":
        of_edges["split_column"] = "part"
        if made.marks is not None:
            words = np.array(["train", "valid", "test", ""])
            edges["part"] = words[made.marks] if made.marks.dtype != object else made.marks.tolist()
    elif made.split == "time":
        of_edges["time_column"] = "when"
        if made.marks is not None:
            edges["when"] = made.marks if made.marks.dtype != object else made.marks.tolist()
    nodes: dict[str, Any] = {"id": np.arange(NODES)}
    of_nodes: dict[str, Any] = {} if made.kind == "links" else {"label_columns": "t*"}
    if isinstance(made.y, dict):
        nodes |= made.y
    elif made.y is not None:
        nodes |= {f"t{each}": pl.Series(made.y[:, each]).fill_nan(None) for each in range(made.y.shape[1])}
    return pl.DataFrame(edges), pl.DataFrame(nodes), of_edges, of_nodes


def write_table(frame: pl.DataFrame, path: Path) -> str:
    (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)
    return path.name


def write_edges(made: Made, folder: Path) -> dict[str, Any]:
    end = made.form.partition(".")[2]
    edges, nodes, of_edges, of_nodes = frames_of(made)
    files = {"edges": write_table(edges, folder / f"e.{end}"), "nodes": write_table(nodes, folder / f"n.{end}")}
    return {"source": "edges"} | files | of_edges | of_nodes


def write_tables(made: Made, folder: Path) -> dict[str, Any]:
    end = made.form.partition(".")[2]
    edges, nodes, of_edges, of_nodes = frames_of(made)
    users: dict[str, Any] = {"path": write_table(nodes, folder / f"n.{end}")} | of_nodes
    knows: dict[str, Any] = {
        "path": write_table(edges, folder / f"e.{end}"),
        "source_type": "user",
        "target_type": "user",
    }
    found: dict[str, Any] = {"source": "tables", "nodes": {"user": users}, "edges": {"knows": knows | of_edges}}
    if "bought" in made.graph:
        count, pairs, parts = made.graph["bought"]
        bought = pl.DataFrame({"src": [user for user, _ in pairs], "dst": [item for _, item in pairs], "part": parts})
        path = write_table(bought, folder / f"b.{end}")
        made.task |= {"relations": ["buys"], "split": "given"}
        ends = {"source_type": "user", "target_type": "item", "split_column": "part"}
        found["nodes"]["item"], found["edges"] = {"num_nodes": count}, {"knows": knows, "buys": {"path": path} | ends}
    return found


def write_ogb(made: Made, folder: Path) -> dict[str, Any]:
    """OGB's text or binary form; links to validate and to test stand in files of torch."""
    top, binary = folder / "ogb", made.form == "ogb binary"
    held = made.marks is not None
    ends = made.ends[:, made.marks == 0] if held else made.ends
    (top / "raw").mkdir(parents=True)
    y = made.y
    if binary:
        counts = {"num_nodes_list": np.array([NODES]), "num_edges_list": np.array([ends.shape[1]])}
        np.savez(top / "raw" / "data.npz", edge_index=ends, **counts)
        if y is not None:
            np.savez(top / "raw" / "node-label.npz", node_label=y)
    else:
        write_gz(top / "raw" / "edge.csv.gz", ends.T.tolist())
        write_gz(top / "raw" / "num-node-list.csv.gz", [[NODES]])
        write_gz(top / "raw" / "num-edge-list.csv.gz", [[ends.shape[1]]])
        if y is not None:
            write_gz(
                top / "raw" / "node-label.csv.gz", [["" if value != value else value for value in row] for row in y]
            )
    if made.kind != "links":
        return {"source": "ogb", "path": "ogb", "split": "random"}
    if not held and made.split == "random":
        return {"source": "ogb", "path": "ogb"}
    if held:
        (top / "split" / "time").mkdir(parents=True)
        for code, name in ((1, "valid"), (2, "test")):
            torch.save({"edge": made.ends[:, made.marks == code].T.copy()}, top / "split" / "time" / f"{name}.pt")
    return {"source": "ogb", "path": "ogb"}


WRITERS: dict[str, Callable[[Made, Path], dict[str, Any]]] = {
    "npz": write_npz,
    "pyg": write_pyg,
    "dgl": write_dgl,
    "edges": write_edges,
    "tables": write_tables,
    "ogb": write_ogb,
    "ogb binary": write_ogb,
}
