"""Graphs in every form, sound ones and ones with a planted fault: `inspect` and the build tell the fault, and of sound data nothing."""

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import EXACT, FEATURES, FEATURES_ALONE
from graphmill.assets.graph.checks import SHARED
from graphmill.assets.graph.remarks import CLASSES, FILLED, KEYS, NEIGHBOURS, NODES, ONCE, REMARKS
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.jobs.commands.pipelines.inspect_pipeline import with_problems
from tests.assets.sources.own_data import FORMS, Drawn, build_config

WARNED = {*REMARKS, SHARED, EXACT, FEATURES_ALONE}
WORDS_OF = {
    NODES: "look like markers", CLASSES: "may mean no label", EXACT: "are rounded", FEATURES_ALONE: "is also the", KEYS: "triples",
    FILLED: "have no node", ONCE: "undirected = false", NEIGHBOURS: "have no in-edge",
    SHARED: "labelled nodes; graphmill classifies",
}  # fmt: skip
"""Check -> words of its sentence."""
TABLES = ("csv", "parquet")
SUMMER = 1_700_000_000
"""Seconds since 1970."""


@pytest.fixture(autouse=True)
def without_figures(monkeypatch):
    """They take most of the time of a small build."""
    monkeypatch.setattr("graphmill.assets.graph.stage._draw", lambda *given: {})


def told(tmp_path, source, keys, table=None, *, built=True):
    """Inspects a graph, and builds it; returns failed check -> detail, after a look at whether both tell the same."""
    config = config_class(source)(**keys)
    survey = config.survey()
    inspected = with_problems(survey, [[(FEATURES, features_config(config, table)), (GRAPH, config)]])
    assert inspected.problems == []
    notes = [note for note in inspected.notes if note not in survey.notes]
    if not built:
        return {next(name for name, words in WORDS_OF.items() if words in note): note for note in notes}
    made = build_config(tmp_path / "home", config, table=table)
    checks = [*made.graph.summary["checks"], *made.features.summary["checks"]]
    assert {check["name"] for check in checks} >= WARNED
    failed = {check["name"]: check["detail"] for check in checks if check["name"] in WARNED and not check["passed"]}
    # Numbers of edges differ: a build merges duplicates.
    assert sorted(note[:30] for note in notes) == sorted(detail[:30] for detail in failed.values())
    return failed


def write(folder, name, kind, frame):
    getattr(frame, f"write_{kind}")(folder / f"{name}.{kind}")
    return folder / f"{name}.{kind}"


def edges(rng, names, count=200):
    src, dst = rng.integers(0, len(names), (2, count))
    return pl.DataFrame({"src": [names[i] for i in src], "dst": [names[i] for i in dst]})


@pytest.mark.parametrize("form", [form for form in FORMS if form != "DGL"])  # a child reads it, which takes seconds
def test_sound_graphs_of_every_form_are_left_alone(tmp_path, form):
    source, writer = FORMS[form]
    assert told(tmp_path, source, writer(tmp_path, Drawn())) == {}


SOUND_IDS = (
    list(range(1, 61)),
    list(range(1000, 1600, 10)),
    [int(i) for i in np.random.default_rng(0).integers(-(2**60), 2**60, 60)],
    [f"u{i}" for i in range(60)],
    [chr(65 + i // 26) + chr(65 + i % 26) for i in range(600)][320:380],  # codes of countries, NA among them
)
MARKERS = (
    ("-1", range(60)), ("-999", range(1, 60)), ("-9223372036854775808", range(60)), ("4294967295", range(60)), ("2147483647", range(7, 90)),
    ("9223372036854775807", range(60)), ("99999", range(60)), ("0", range(5000, 5060)),
    ("None", "u"), ("none", "u"), ("nan", "u"), ("NaN", "u"), ("NULL", "u"), ("N/A", "u"), ("NA", "u"), ("<NA>", "u"), ("\\N", "u"), 
    ("-", "u"),
    ("?", "u"), ("missing", "u"), ("unknown", "u"), ("-1", "u"),
)  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_ids_that_mean_no_node(tmp_path, kind):
    rng = np.random.default_rng(1)
    for ids in SOUND_IDS:
        keys = {"edges": write(tmp_path, "e", kind, edges(rng, ids))}
        assert told(tmp_path, "edges", keys, built=ids[0] == 1) == {}, ids[:3]
    assert "NA" in SOUND_IDS[-1]
    for number, (marker, others) in enumerate(MARKERS[kind == "csv" :: 2]):
        numbers = isinstance(others, range)
        names = [*others] if numbers else [f"{others}{i}" for i in range(60)]
        frame = edges(rng, names)
        lost = pl.DataFrame({"src": names[:9], "dst": [int(marker) if numbers else marker] * 9})
        table = write(tmp_path, "e", kind, pl.concat([frame, lost]))
        keys = {"edges": table, "id_type": "integer" if numbers else "text"}
        found = told(tmp_path, "edges", keys, built=number % 9 == 0)
        assert [*found] == [NODES] and f"'{marker}' is a node with 9 of " in found[NODES], (marker, found)


@pytest.mark.parametrize("dtype", [np.int64, np.uint16])
def test_numbers_of_archives_that_mean_no_node(tmp_path, dtype):
    rng, path = np.random.default_rng(2), tmp_path / "g.npz"
    for star, nodes in ((False, 100), (True, 100)):
        pairs = rng.integers(0, nodes, (2, 200))
        # All edges of a star begin in its centre, and those of a marker are some of all.
        pairs = np.stack([np.zeros(200, int), pairs[0]]) if star else pairs
        np.savez(path, edge_index=pairs.astype(dtype))
        assert told(tmp_path, "npz", {"path": path}) == {}
    chain = np.stack([np.arange(1, 200), np.arange(2, 201)])
    roots = np.stack([np.arange(1, 101), np.zeros(100, int)])
    np.savez(path, edge_index=np.concatenate([chain, roots], axis=1).astype(dtype))
    assert "'0' is a node with 100 of 299 edges" in told(tmp_path, "npz", {"path": path})[NODES]
    if dtype == np.uint16:
        roots[1] = -1
        np.savez(path, edge_index=np.concatenate([chain, roots], axis=1).astype(dtype))
        assert "'65535' is a node with 100 of 299 edges" in told(tmp_path, "npz", {"path": path})[NODES]


@pytest.mark.parametrize("kind", TABLES)
def test_ids_that_lost_digits_or_are_written_in_two_ways(tmp_path, kind):
    rng = np.random.default_rng(4)
    large = rng.integers(2**60, 2**62, 60)
    odd = {
        "floating-point numbers can hold": large.astype(np.float64).astype(np.int64).tolist(),
        "a spreadsheet can hold": (large // 10**4 * 10**4).tolist(),
        "only in case, blanks": [*(f"user {i}" for i in range(40)), *(f"User  {i}" for i in range(20))],
        "zeros or the form of letters": [
            *(f"Zu\u0308rich{i}" for i in range(30)),
            *(f"Z\u00fcrich{i}" for i in range(30)),
        ],
    }
    for words, ids in odd.items():
        found = told(tmp_path, "edges", {"edges": write(tmp_path, "e", kind, edges(rng, ids))})
        assert [*found] == [NODES] and words in found[NODES]
    if kind == "parquet":  # digits of text, which a CSV file has as numbers
        ids = [*(f"{i:03d}" for i in range(40)), *(str(i) for i in range(20))]
        assert "zeros" in told(tmp_path, "edges", {"edges": write(tmp_path, "e", kind, edges(rng, ids))})[NODES]
    for ids in (large.tolist(), (large >> 40 << 40).tolist()):  # programs put numbers into the upper bits
        assert told(tmp_path, "edges", {"edges": write(tmp_path, "e", kind, edges(rng, ids))}, built=False) == {}


def test_ids_of_archives_that_count_from_1(tmp_path):
    pairs = np.random.default_rng(5).integers(1, 60, (2, 400))
    np.savez(tmp_path / "g.npz", edge_index=pairs)
    assert "if ids count from 1" in told(tmp_path, "npz", {"path": tmp_path / "g.npz"})[NODES]


@pytest.mark.parametrize(
    ("classes", "words"),
    [(["Cat", "cat ", "dog"], "differ from another only in case"), (["unbekannt", "a", "b"], "may mean no label")],
)
def test_names_of_classes_that_are_one_or_none(tmp_path, classes, words):
    rng = np.random.default_rng(6)
    nodes = pl.DataFrame({"id": range(60), "y": [classes[i % 3] for i in range(60)]})
    keys = {
        "edges": write(tmp_path, "e", "parquet", edges(rng, range(60))),
        "nodes": write(tmp_path, "n", "parquet", nodes),
    }
    assert words in told(tmp_path, "edges", {**keys, "label_column": "y", "labels": "names"})[CLASSES]


def test_labels_of_1_and_minus_1(tmp_path):
    rng = np.random.default_rng(7)
    labels = np.where(rng.random(60) < 0.5, -1, 1)
    np.savez(tmp_path / "g.npz", edge_index=rng.integers(0, 60, (2, 400)), y=labels)
    assert "if -1 is a class" in told(tmp_path, "npz", {"path": tmp_path / "g.npz"})[FILLED]


WORDS = ("unknown", "Unknown", "UNLABELED", "n/a", "none", "?", "null", "missing", "-", "-1", "not labelled", "nan x")


@pytest.mark.parametrize("kind", TABLES)
def test_class_names_that_mean_no_label_and_the_key_that_says_so(tmp_path, kind):
    rng = np.random.default_rng(3)
    keys = {"edges": write(tmp_path, "e", kind, edges(rng, range(60))), "label_column": "y", "labels": "names"}
    for number, word in enumerate(WORDS[kind == "csv" :: 2]):
        classes = [*(["1", "2"] if rng.integers(2) else ["cat", "dog"]), word]
        frame = pl.DataFrame({"id": range(60), "y": [classes[i % 3] for i in range(60)]})
        keys["nodes"] = write(tmp_path, "n", kind, frame)
        found = told(tmp_path, "edges", keys, built=number % 5 == 0)
        assert [*found] == ([CLASSES] if word != "nan x" else []) and f"'{word}' of 20 nodes" in found.get(
            CLASSES, f"'{word}' of 20 nodes"
        )
        assert told(tmp_path, "edges", {**keys, "no_label": (word,)}, built=False) == {}
    config = config_class("edges")(**keys, no_label=(word.upper(),))
    labels = np.asarray(build_config(tmp_path, config).opened.labels)
    assert (labels == -1).sum() == 20 and labels.max() == 1


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 1, 2], ""),
        ([0, 1, -1], ""),
        ([1, 2, 3], "1 of 4 classes have no node: 0. Way out: classes are counted from 0: subtract 1"),
        ([11, 21, 58], "56 of 59 classes have no node"),
        ([0, 1, 99], "97 of 100 classes have no node: 2, 3, 4, 5, 6 and 92 more. Way out: if 99 means unknown"),
    ],
)
def test_classes_without_nodes(tmp_path, labels, said):
    pairs, y = np.random.default_rng(4).integers(0, 120, (2, 400)), np.array(labels * 40)
    np.savez(tmp_path / "g.npz", edge_index=pairs, y=y)
    frames = {"e": pl.DataFrame({"src": pairs[0], "dst": pairs[1]}), "n": pl.DataFrame({"id": range(120), "y": y})}
    paths = {name: write(tmp_path, name, "csv", frame) for name, frame in frames.items()}
    torch.save({"edge_index": torch.tensor(pairs), "y": torch.tensor(y), "num_nodes": 120}, tmp_path / "g.pt")
    for source, keys in (
        ("npz", {"path": tmp_path / "g.npz"}),
        ("pyg", {"path": tmp_path / "g.pt"}),
        ("edges", {"edges": paths["e"], "nodes": paths["n"], "label_column": "y"}),
    ):
        found = told(tmp_path, source, keys)
        assert [*found] == ([FILLED] if said else []) and said in found.get(FILLED, "")


def test_relations_in_both_directions(tmp_path):
    rng = np.random.default_rng(5)
    writes, cites = rng.integers(0, 40, (2, 150)), rng.integers(0, 40, (2, 150))
    some = np.concatenate([writes[:, :140], rng.integers(0, 40, (2, 10))], axis=1)[:, rng.permutation(150)]

    def graph(**more):
        made = {"author": {"num_nodes": 40}, "paper": {"num_nodes": 40, "y": torch.tensor([0, 1] * 20)}}
        relations = {("author", "writes", "paper"): writes, ("paper", "cites", "paper"): cites} | more.pop("more", {})
        torch.save(
            made | {key: {"edge_index": torch.tensor(value.copy())} for key, value in relations.items()},
            tmp_path / "g.pt",
        )
        return told(tmp_path, "pyg", {"path": tmp_path / "g.pt", **more})

    back, both = ("paper", "rev_writes", "author"), ("paper", "cites", "paper")
    symmetric = np.concatenate([cites, cites[::-1]], axis=1)
    assert graph() == {} and graph(more={back: cites}) == {}
    assert graph(more={back: writes[::-1]}, undirected=False) == {}
    assert graph(more={both: symmetric}) == {}, "merged"
    found = graph(more={back: writes[::-1]})
    assert "paper/rev_writes/author holds all of the edges of author/writes/paper in reverse" in found[ONCE]
    assert "holds about " in graph(more={back: some[::-1]})[ONCE]
    assert (
        "paper/cites/paper: all are there in both directions"
        in graph(more={both: symmetric}, reverse_types="own")[ONCE]
    )
    assert [*graph(more={both: symmetric}, duplicates="keep")] == [ONCE]
    frame = pl.DataFrame({"src": np.append(writes[0], writes[1]), "dst": np.append(writes[1], writes[0])})
    keys = {"edges": write(tmp_path, "e", "csv", frame.with_columns(t=pl.Series(["a"] * 150 + ["b"] * 150)))}
    assert told(tmp_path, "edges", keys) == {} and [*told(tmp_path, "edges", {**keys, "type_column": "t"})] == [ONCE]
    np.savez(tmp_path / "g.npz", edge_index=frame.to_numpy().T)
    assert told(tmp_path, "npz", {"path": tmp_path / "g.npz"}) == {}
    assert [*told(tmp_path, "npz", {"path": tmp_path / "g.npz", "duplicates": "keep"})] == [ONCE]


@pytest.mark.parametrize("source", ["npz", "pyg", "edges"])
def test_labelled_nodes_without_in_edges(tmp_path, source):
    rng = np.random.default_rng(6)
    pairs = np.stack([rng.integers(0, 50, 300), rng.integers(50, 100, 300)])
    for labelled, undirected in ((0, False), (0, True), (50, False)):
        y = np.full(100, -1)
        y[labelled : labelled + 50] = np.arange(50) % 2
        if source == "npz":
            np.savez(tmp_path / "g.npz", edge_index=pairs, y=y)
            keys = {"path": tmp_path / "g.npz"}
        elif source == "pyg":
            relation = {("a", "to", "b"): {"edge_index": torch.tensor(pairs - [[0], [50]])}}
            kinds = {"a": {"num_nodes": 50}, "b": {"num_nodes": 50}}
            kinds["b" if labelled else "a"]["y"] = torch.tensor(y[labelled : labelled + 50])
            torch.save(kinds | relation, tmp_path / "g.pt")
            keys = {"path": tmp_path / "g.pt"}
        else:
            keys = {"edges": write(tmp_path, "e", "csv", pl.DataFrame({"src": pairs[0], "dst": pairs[1]}))}
            keys |= {
                "nodes": write(tmp_path, "n", "csv", pl.DataFrame({"id": range(100), "y": y})),
                "label_column": "y",
            }
        found = told(tmp_path, source, {**keys, "undirected": undirected})
        lonely = labelled == 0 and not undirected
        assert [*found] == ([NEIGHBOURS] if lonely else []), found
        assert not lonely or ("30 of 30 train nodes" in found[NEIGHBOURS] and "undirected = true" in found[NEIGHBOURS])


COLUMNS = {
    "seconds": SUMMER + np.arange(60),
    "ids": 2**53 + 1 + 2 * np.arange(60),
    "floats": (SUMMER + np.arange(60)).astype(float),
    "fractions": SUMMER + np.arange(60) / 8,
}
SOUND_COLUMNS = {
    "counts": np.arange(60) * 1000,
    "measured": np.random.default_rng(7).standard_normal(60) * 1e12 + 0.5,
    "multiples": (np.arange(60) + 1) * 2**24,
    "shares": np.linspace(0, 1, 60),
}


@pytest.mark.parametrize("kind", [*TABLES, "npz", "npy"])
@pytest.mark.parametrize("name", [*COLUMNS, *SOUND_COLUMNS])
def test_numbers_that_are_rounded(tmp_path, kind, name):
    values, rng = {**COLUMNS, **SOUND_COLUMNS}[name], np.random.default_rng(8)
    keys, source, table = {"edges": write(tmp_path, "e", "csv", edges(rng, range(60)))}, "edges", None
    if kind == "npz":
        np.savez(tmp_path / "g.npz", edge_index=rng.integers(0, 60, (2, 200)), x=values[:, None])
        keys, source = {"path": tmp_path / "g.npz"}, "npz"
    elif kind == "npy":
        np.save(tmp_path / "x.npy", values[:, None])
        keys["num_nodes"], table = 60, TableConfig(file=tmp_path / "x.npy")
    else:
        frame = pl.DataFrame({"id": range(60), "f": values})
        keys |= {"nodes": write(tmp_path, "n", kind, frame), "features": "f"}
    found = told(tmp_path, source, keys, table)
    assert [*found] == ([EXACT] if name in COLUMNS else []), found
    if name in COLUMNS and kind in TABLES:
        assert found[EXACT].startswith("column 'f': ")


@pytest.mark.parametrize(("dtype", "value"), [("float16", 2049), ("bfloat16", 257)])
def test_narrower_types_round_smaller_numbers(tmp_path, dtype, value):
    x = np.full((60, 2), value, np.float32)
    x[:, 0] = np.arange(60)
    np.savez(tmp_path / "g.npz", edge_index=np.random.default_rng(9).integers(0, 60, (2, 200)), x=x)
    found = told(tmp_path, "npz", {"path": tmp_path / "g.npz"}, TableConfig(dtype=dtype))
    assert (
        f"column 1 of {tmp_path / 'g.npz'}: x: 60 whole numbers are rounded by {dtype}, such as {value}" in found[EXACT]
    )
    assert told(tmp_path, "npz", {"path": tmp_path / "g.npz"}) == {}


@pytest.mark.parametrize("kind", TABLES)
def test_no_pattern_takes_a_column_that_another_key_names(tmp_path, kind):
    rng = np.random.default_rng(10)
    frame = pl.DataFrame(
        {"fid": range(60), "f1": 0.5, "f2": 1.5, "fraud": [0, 1] * 30, "fold": ["train", "valid", "test"] * 20}
    )
    frame = frame.with_columns(frame["fid"].cast(str).alias("fname"))
    keys = {"edges": write(tmp_path, "e", "csv", edges(rng, range(60))), "nodes": write(tmp_path, "n", kind, frame)}
    keys |= {"id_column": "fid", "label_column": "fraud", "split_column": "fold", "name_column": "fname"}
    for features in ("f*", "*", ("f*",), ("f1", "f*"), ("*2", "*1")):
        config = config_class("edges")(**keys, features=features)
        assert config.survey().num_features == 2, features
        assert told(tmp_path, "edges", {**keys, "features": features}, built=features == "f*") == {}
    for features in (("f1", "fraud"), "fraud", ("f*", "fraud")):
        found = told(tmp_path, "edges", {**keys, "features": features}, built=features == "fraud")
        assert [*found] == [FEATURES_ALONE] and "column 'fraud' is also the label_column" in found[FEATURES_ALONE]
    named = {key: keys[key] for key in ("id_column", "label_column", "split_column", "name_column")}
    node = NodeTable(path=keys["nodes"], features="f*", **named)
    relation = RelationTable(path=keys["edges"], source_type="a", target_type="a")
    typed = config_class("tables")(nodes={"a": node}, edges={"to": relation})
    assert typed.survey().num_features == 2
    # One table of nodes and edges: the ends of the edges are no features either.
    whole = write(tmp_path, "n", kind, frame.select("fid", "f1", f2=pl.Series(rng.permutation(60))))
    both = {"id_column": "fid", "source_column": "fid", "target_column": "f2", "edges": whole, "nodes": whole}
    assert config_class("edges")(**both, features="f*").survey().num_features == 1


def test_labels_that_are_named_as_features_of_a_saved_graph(tmp_path):
    pairs = torch.tensor(np.random.default_rng(11).integers(0, 60, (2, 200)))
    torch.save({"edge_index": pairs, "x": torch.ones(60, 2), "y": torch.tensor([0, 1] * 30)}, tmp_path / "g.pt")
    assert told(tmp_path, "pyg", {"path": tmp_path / "g.pt"}) == {}
    assert "'y' is also the label" in told(tmp_path, "pyg", {"path": tmp_path / "g.pt", "feature": "y"})[FEATURES_ALONE]


@pytest.mark.parametrize("numbers", [True, False])
def test_triples_whose_relation_is_read_as_the_target(tmp_path, numbers):
    rng = np.random.default_rng(12)
    head, tail = rng.integers(0, 200, (2, 1500))
    relation = rng.integers(0, 8, 1500)
    named = [[f"{letter}{i}" for i in ids] for letter, ids in zip("ere", (head, relation, tail), strict=True)]
    rows = list(zip(*([head, relation, tail] if numbers else named), strict=True))
    path = tmp_path / "train.txt"
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    keys = {"edges": path, "header": False}
    assert 'target_column = "c2" and type_column = "dst"' in told(tmp_path, "edges", keys)[KEYS]
    right = {**keys, "target_column": "c2", "type_column": "dst", "undirected": False}
    assert told(tmp_path, "edges", right) == {}
    path.write_text("".join(f"{a}\t{c}\t{b}\n" for a, b, c in rows))  # a weight or a kind behind the ends
    assert told(tmp_path, "edges", keys) == {}
