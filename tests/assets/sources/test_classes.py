"""Labels and masks in all the forms that people save them in, by every reader: read alike, or refused with a remedy that works."""

import re

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.sources.splits import is_mask, mask_ids
from graphmill.assets.sources.targets import CLASSIFIES, known_labels
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import Drawn, build, write_gz, write_ogb_text

pytestmark = pytest.mark.usefixtures("quick_readers")

EDGES = np.array([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
CLASSES = np.array([2, 0, 1, -1, 2, 0])
SAVED = {
    "column": CLASSES[:, None],
    "row": CLASSES[None],
    "floats": CLASSES.astype(np.float32),
    "small": CLASSES.astype(np.int8),
    "halves": CLASSES.astype(np.float16),
    "NaN for unknown": np.where(CLASSES < 0, np.nan, CLASSES),
}


def save(folder, **arrays):
    np.savez(folder / "graph.npz", edge_index=EDGES, num_nodes=np.int64(6), **arrays)
    return {"path": folder / "graph.npz"}


@pytest.mark.parametrize("form", SAVED)
def test_class_numbers_of_any_type_and_shape_are_read(tmp_path, form):
    graph = build(tmp_path, "npz", **save(tmp_path, y=SAVED[form])).opened
    assert graph.labels.tolist() == CLASSES.tolist() and graph.class_names == ("0", "1", "2")


def test_true_and_false_are_two_classes(tmp_path):
    y = np.array([True, False, False, True, True, False])
    assert build(tmp_path, "npz", **save(tmp_path, y=y)).opened.labels.tolist() == [1, 0, 0, 1, 1, 0]


ONE_HOT = np.eye(3, dtype=np.float32)[[2, 0, 1, 1, 2, 0]]
REMEDIED = {
    "one-hot": (ONE_HOT, "y = y.argmax(axis=1)", "one-hot: save y.argmax"),
    "several labels": (np.ones((6, 2)), "y = y[:, 0]", re.escape(CLASSIFIES)),
    "text": (np.array(list("cabbca")), "class_names, y = np.unique(y, return_inverse=True)", "class_names, y = np.unique"),
    "ignored": (np.array([-100, 0, 1, 1, 2, 0]), "y[y < 0] = -1", r"y\[y < 0\] = -1"),
    "years": (
        np.array([1999, 2004, -1, 1999, 2004, 1999]),
        "known = y >= 0; y[known] = np.unique(y[known], return_inverse=True)[1]",
        "known = y >= 0; y.known. = np.unique",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", REMEDIED)
def test_the_remedy_for_other_labels_makes_a_graph(tmp_path, form):
    y, remedy, said = REMEDIED[form]
    with pytest.raises(InputError) as raised:
        build(tmp_path, "npz", **save(tmp_path, y=y))
    assert raised.match(said) and "astype" not in raised.value.remedy
    names = {"y": y.copy(), "np": np}
    exec(remedy, names)
    more = {"class_names": names["class_names"]} if "class_names" in names else {}
    assert build(tmp_path, "npz", **save(tmp_path, y=names["y"], **more)).opened.num_classes >= 1


@pytest.mark.parametrize("values", [[0.5, 1, 2, 0, 1, 1], [np.inf, 1, 2, 0, 1, 1], [1e-3] * 6])
def test_numbers_that_are_not_whole_are_no_classes(values):
    with pytest.raises(InputError, match=re.escape(CLASSIFIES)):
        known_labels(np.array(values), 6, "here")


def test_masks_of_every_form_choose_the_same_nodes():
    ids = [1, 4]
    mask = np.isin(np.arange(6), ids)
    several = np.stack([~mask, mask, ~mask, ~mask])
    for values in (mask, mask.astype(np.uint8), mask.astype(np.float64), mask[None]):
        assert mask_ids(values, 6, None, "here", "m").tolist() == ids
    for values in (several, several.T, several.astype(np.int32).T):
        assert mask_ids(values, 6, 1, "here", "m").tolist() == ids
    assert is_mask(mask, 6) and is_mask(mask.astype(np.int64), 6)
    assert not is_mask(np.array([0, 1]), 2) and not is_mask(np.array([0, 1]), 6), "ids"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.ones(5, bool), r"has shape \[5\], not \[6\] or \[S, 6\]"),
        (np.array([0, 1, 2, 0, 0, 0]), "is int64, and not true or false"),
        (np.ones((2, 3, 6), bool), r"\[2, 3, 6\]"),
    ],
)
def test_what_is_no_mask_is_refused(values, problem):
    with pytest.raises(InputError, match=problem):
        mask_ids(values, 6, None, "here", "m")


@pytest.mark.parametrize("kind", [bool, np.uint8, np.float32])
def test_lists_and_masks_of_an_archive_are_masks_of_any_type(tmp_path, kind):
    parts = [np.isin(np.arange(6), ids) for ids in ([0, 1, 2], [4], [5])]
    lists = dict(zip(("train", "val", "test"), (part.astype(kind) for part in parts), strict=True))
    columns = {
        f"{name}_masks": np.stack([~mask.astype(bool), mask], axis=1).astype(kind) for name, mask in lists.items()
    }
    for arrays, split in ((lists, {}), (columns, {"split": 1})):
        graph = build(tmp_path, "npz", **save(tmp_path, y=np.arange(6) % 2, **arrays), **split).opened
        assert [part.tolist() for part in (graph.train_ids, graph.valid_ids, graph.test_ids)] == [[0, 1, 2], [4], [5]]


TEXTS = {
    "numbers that are not whole": ["0.5", "1.25", "2.0"],
    "dates": ["2024-03-01", "2023-11-30", "2024-03-02"],
    "times": ["2024-03-01 10:00:00", "2023-11-30 08:15:00", "2024-03-02 00:00:00"],
    "lists": ["[1, 2]", "[0]", "[]"],
    "tuples": ["(1, 2)", "(0,)", "()"],
}


@pytest.mark.parametrize("labels", ["numbers", "names"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("form", TEXTS)
def test_texts_of_numbers_dates_and_lists_name_no_classes(tmp_path, form, ending, labels):
    keys = write_tables(tmp_path, pl.Series("y", TEXTS[form]), ending)
    with pytest.raises(InputError) as raised:
        build(tmp_path, "edges", **keys, labels=labels)
    assert CLASSIFIES in raised.value.remedy and "names" not in raised.value.remedy


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_texts_that_name_classes_stay(tmp_path, ending):
    for texts, labels, names in (
        (["007", "12", None], [0, 1, -1], ("007", "12")),
        (["2.0", "nan", "10.0"], [1, -1, 0], ("10", "2")),
        (["may 2024", "2024-03-01", "b"], [2, 0, 1], ("2024-03-01", "b", "may 2024")),
        (["NaN", "cat", "dog"], [-1, 0, 1], ("cat", "dog")),
    ):
        keys = write_tables(tmp_path, pl.Series("y", texts), ending)
        graph = build(tmp_path, "edges", **keys, labels="names").opened
        assert graph.labels.tolist() == labels and graph.class_names == names


@pytest.mark.parametrize("values", [[1.0, None, 0.0], [1.0, float("nan"), 0.0], [1, -1, 0]])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_whole_numbers_of_a_table_are_classes_and_nan_is_unknown(tmp_path, values, ending):
    keys = write_tables(tmp_path, pl.Series("y", values, strict=False), ending)
    assert build(tmp_path, "edges", **keys).opened.labels.tolist() == [1, -1, 0]


def write_tables(folder, labels, ending):
    write = f"write_{ending}"
    getattr(pl.DataFrame({"src": [0, 1], "dst": [1, 2]}), write)(folder / f"edges.{ending}")
    getattr(pl.DataFrame({"id": [0, 1, 2]}).with_columns(labels), write)(folder / f"nodes.{ending}")
    return {"edges": folder / f"edges.{ending}", "nodes": folder / f"nodes.{ending}", "label_column": "y"}


def dgl_file(folder, formats=None, **ndata):
    dgl = pytest.importorskip("dgl")
    graph = dgl.graph((EDGES[0].tolist(), EDGES[1].tolist()))
    for name, values in ndata.items():
        graph.ndata[name] = torch.as_tensor(values)
    dgl.save_graphs(str(folder / "graph.bin"), [graph if formats is None else graph.formats(formats)])
    return {"path": folder / "graph.bin"}


def test_a_graph_of_any_sparse_format_of_dgl_is_the_same(tmp_path):
    found = {}
    for formats in ("coo", "csr", "csc", ["csr", "csc"]):
        keys = dgl_file(tmp_path, formats, label=CLASSES)
        found[str(formats)] = build(tmp_path / str(formats), "dgl", **keys, undirected=False).opened.topology
    for topology in found.values():
        assert topology.indices.tolist() == found["coo"].indices.tolist() == [5, 0, 1, 2, 3, 4]


def test_names_of_other_libraries_in_dgl_are_never_dropped(tmp_path):
    x = np.ones((6, 3), np.float32)
    keys = dgl_file(tmp_path, label=CLASSES, h=x, pos=x)
    with pytest.raises(InputError, match='did you mean feature = "h"') as raised:
        build(tmp_path, "dgl", **keys)
    assert 'set feature = "h"' in raised.value.remedy
    assert build(tmp_path, "dgl", **keys, feature="h").table.width == 3
    assert build(tmp_path, "dgl", **keys, table=TableConfig(columns="pos")).table.width == 3, (
        "another table is asked for"
    )
    config = config_class("dgl")(**keys, feature="h")
    assert "not read: ndata 'pos' of node type '_N'" in config.survey().notes
    with pytest.raises(InputError, match='did you mean label = "labels"'):
        build(tmp_path, "dgl", **dgl_file(tmp_path, labels=CLASSES))
    with pytest.raises(InputError, match=r"'valid_mask' is not read .did you mean 'val_mask'"):
        masks = dict.fromkeys(("train_mask", "valid_mask", "test_mask"), np.zeros(6, bool))
        build(tmp_path, "dgl", **dgl_file(tmp_path, label=CLASSES, **masks))


@pytest.mark.parametrize("made", [np.asarray, torch.as_tensor, lambda ids: np.asarray(ids, np.int32)])
def test_a_split_that_the_saver_of_ogb_wrote_is_that_of_its_text_files(tmp_path, made):
    graph = Drawn()
    keys = write_ogb_text(tmp_path, graph)
    expected = build(tmp_path, "ogb", **keys)
    folder = keys["path"] / "split" / "time"
    for file in folder.iterdir():
        file.unlink()
    torch.save(dict(zip(("train", "valid", "test"), map(made, graph.parts), strict=True)), folder / "split_dict.pt")
    found = build(tmp_path, "ogb", **keys)
    for part in ("train_ids", "valid_ids", "test_ids"):
        assert np.array_equal(getattr(found.opened, part), getattr(expected.opened, part))
    torch.save({"train": made([0]), "valid": made([1]), "test": made([99])}, folder / "split_dict.pt")
    with pytest.raises(InputError, match=r"split_dict\.pt: 1 ids are outside"):
        build(tmp_path, "ogb", **keys)
    torch.save({"train": made([0])}, folder / "split_dict.pt")
    with pytest.raises(InputError, match=r"split_dict\.pt: lacks valid, test; it has train"):
        build(tmp_path, "ogb", **keys)


def test_a_split_dict_that_runs_code_is_refused_and_its_remedy_works(tmp_path):
    graph = Drawn()
    keys = write_ogb_text(tmp_path, graph)
    folder = keys["path"] / "split" / "time"
    torch.save({"train": print}, folder / "split_dict.pt")
    with pytest.raises(InputError, match="cannot be read without running code") as raised:
        build(tmp_path, "ogb", **keys)
    assert "write train.csv.gz" in raised.value.remedy
    (folder / "split_dict.pt").unlink()
    for name, ids in zip(("train", "valid", "test"), graph.parts, strict=True):
        write_gz(folder / f"{name}.csv.gz", ids[:, None].tolist())
    assert build(tmp_path, "ogb", **keys).opened.train_ids.tolist() == graph.parts[0].tolist()
