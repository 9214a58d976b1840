"""Graphs of NumPy, PyG and tables whose data have other names, numbers or places than those that are read: told, with the way out."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.markers import NONE, OF_CLASSES, OF_IDS, THING, marked_texts, unlike_others
from graphmill.assets.sources.registry import config_class
from graphmill.assets.sources.splits import OF_NODES, PART_WORDS
from graphmill.jobs.commands.pipelines.inspect_pipeline import with_problems
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import Drawn, write_ogb_text

NODES, EDGES = 40, 160
FEW = settings(max_examples=40, deadline=None, derandomize=True, database=None)
CASES = (str, str.upper, str.title, str.capitalize)


def arrays(*, masks: bool) -> dict[str, np.ndarray]:
    """A drawn graph with a split of masks or of ids."""
    rng = np.random.default_rng(0)
    made = {"edge_index": rng.integers(0, NODES, (2, EDGES)), "x": rng.random((NODES, 3), np.float32)}
    ids = {"train": np.arange(20), "val": np.arange(20, 30), "test": np.arange(30, NODES)}
    of_nodes = {f"{part}_mask": np.isin(np.arange(NODES), each) for part, each in ids.items()}
    return {**made, "y": rng.integers(0, 3, NODES), **(of_nodes if masks else ids)}


def npz(folder: Path, given: dict[str, np.ndarray], **keys: Any) -> list[str]:
    np.savez(folder / "g.npz", **given)
    return mistakes("npz", path=folder / "g.npz", **keys)


def pyg(folder: Path, given: dict[str, np.ndarray], **keys: Any) -> list[str]:
    torch.save({name: torch.tensor(each) for name, each in given.items()}, folder / "g.pt")
    return mistakes("pyg", path=folder / "g.pt", **keys)


def inspected(source: str, **keys: Any) -> Any:
    """What `inspect` says; raises InputError if it is refused at once."""
    config = config_class(source)(**keys)
    return with_problems(config.survey(), [[(FEATURES, features_config(config)), (GRAPH, config)]])


def mistakes(source: str, **keys: Any) -> list[str]:
    try:
        return list(inspected(source, **keys).problems)
    except InputError as error:
        return [str(error)]


def notes(source: str, **keys: Any) -> str:
    found = inspected(source, **keys)
    assert list(found.problems) == []
    return " ".join(found.notes)


@st.composite
def names_of_parts(draw: st.DrawFn) -> tuple[str, str]:
    """A part, and another name of its nodes: words for both in any order and case."""
    part = draw(st.sampled_from(sorted(PART_WORDS)))
    words = [draw(st.sampled_from((part, *PART_WORDS[part]))), draw(st.sampled_from((*sorted(OF_NODES), "")))]
    name = draw(st.sampled_from(("_", "-"))).join(filter(None, draw(st.permutations(words))))
    return part, draw(st.sampled_from(CASES))(name)


@pytest.mark.parametrize("form", [npz, pyg])
@given(drawn=names_of_parts())
@FEW
def test_a_split_by_another_name_is_never_replaced_by_a_drawn_one(form: Any, drawn: tuple[str, str]) -> None:
    (part, name), made = drawn, arrays(masks=form is pyg)
    own = f"{part}_mask" if form is pyg else part
    rest = {each: values for each, values in made.items() if each == own or not each.startswith((*PART_WORDS,))}
    with TemporaryDirectory() as folder:
        assert form(Path(folder), made) == []
        if name == own:
            return
        renamed = {name if each == own else each: values for each, values in rest.items()}
        (said,) = form(Path(folder), renamed)
        assert f"'{name}' is not read" in said or "the split lacks" in said, (name, said)


@pytest.mark.parametrize("form", [npz, pyg])
@pytest.mark.parametrize(
    ("own", "name"),
    [("x", "X"), ("x", "Feat"), ("x", "NODE_FEATURES"), ("y", "Y"), ("y", "Label"), ("y", "TARGETS")],
)
def test_data_whose_names_differ_in_case_are_told(tmp_path: Path, form: Any, own: str, name: str) -> None:
    made = arrays(masks=form is pyg)
    if own == "y":
        made = {each: values for each, values in made.items() if each in ("edge_index", "x", "y")}
    renamed = {name if each == own else each: values for each, values in made.items()}
    found = form(tmp_path, renamed)
    assert any(f"'{name}' is not read (did you mean" in said for said in found), found


@pytest.mark.parametrize("values", [(0, 255), (-1, 1), (1, 2), (0.0, 0.5)])
def test_the_remedy_of_a_mask_of_other_numbers_is_the_mask(tmp_path: Path, values: tuple[float, float]) -> None:
    made = arrays(masks=True)
    given = {**made, "train_mask": np.where(made["train_mask"], values[1], values[0])}
    (said,) = pyg(tmp_path, given)
    found = re.search(r"save train_mask (== [\d.]+)", said)
    assert found is not None
    with np.errstate(all="raise"):
        mended = eval(f"mask {found[1]}", {"mask": given["train_mask"]})
    assert np.array_equal(mended, made["train_mask"]) and pyg(tmp_path, {**given, "train_mask": mended}) == []


@pytest.mark.parametrize("form", [npz, pyg])
def test_one_mask_beside_several_of_the_other_parts_is_that_of_every_split(tmp_path: Path, form: Any) -> None:
    made, end = arrays(masks=True), "s" if form is npz else ""
    one = {f"{name}{end}" if name.endswith("_mask") else name: each for name, each in made.items()}
    several = {
        name: np.repeat(each[:, None], 3, 1) for name, each in one.items() if name.startswith(("train_", "val_"))
    }
    assert form(tmp_path, one | several, split=2) == []
    assert "leave `split` out" in str(form(tmp_path, one, split=2))


@pytest.mark.parametrize("name", ["train", "val_masks", "x", "Y", "Labels", "idx_train", "testing"])
def test_arrays_of_one_form_are_not_lost_in_the_other(tmp_path: Path, name: str) -> None:
    pointer = np.arange(NODES + 1) * 2
    made = {"adj_indptr": pointer, "adj_indices": np.arange(2 * NODES) % NODES, "labels": np.arange(NODES) % 3}
    assert npz(tmp_path, made) == []
    assert f"not read beside adj_indptr: {name}" in str(npz(tmp_path, made | {name: np.ones((NODES, 2))}))
    assert "an adjacency has no masks" in str(npz(tmp_path, made, split=1))


def test_an_array_that_an_archive_has_twice(tmp_path: Path) -> None:
    for names in (("edge_index.npy", "edge_index.npy"), ("edge_index.npy", "edge_index")):
        with (
            zipfile.ZipFile(tmp_path / "g.npz", "w") as archive,
            pytest.warns(UserWarning) if len({*names}) == 1 else _quiet(),
        ):
            for name in names:
                content = io.BytesIO()
                np.save(content, arrays(masks=False)["edge_index"])
                archive.writestr(name, content.getvalue())
        assert "holds the array 'edge_index' twice" in str(mistakes("npz", path=tmp_path / "g.npz"))


def _quiet() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_folders_of_datasets_name_the_file_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "set" / "processed").mkdir(parents=True)
    for name in ("data.pt", "pre_filter.pt"):
        torch.save({"edge_index": torch.tensor([[0, 1], [1, 2]])}, tmp_path / "set" / "processed" / name)
    (said,) = mistakes("pyg", path=tmp_path / "set")
    found = re.search(r'set path = "([^"]+)"', said)
    assert found is not None and mistakes("pyg", path=Path(found[1])) == []
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "meta.yaml").write_text("dataset_name: mine\n")
    assert 'source = "edges"' in str(mistakes("dgl", path=tmp_path / "csv"))
    assert "no such file" in str(mistakes("dgl", path=tmp_path / "nothing"))


SIGNS = ("", " ", "_", "-", ".", "/")
ONE_WORD = [word for word in NONE.split("|") if word.isalpha()]


@st.composite
def texts_for_nothing(draw: st.DrawFn) -> str:
    word, thing = draw(st.sampled_from(ONE_WORD)), draw(st.sampled_from([*THING.replace("?", "").split("|"), ""]))
    words = draw(st.permutations([word, *filter(None, [thing])]))
    left, right = draw(
        st.sampled_from((("", ""), ("<", ">"), ("[", "]"), ("(", ")"), ("'", "'"), ("#", ""), ("", ".")))
    )
    between = draw(st.sampled_from(SIGNS[1:]))
    return left + draw(st.sampled_from(CASES))(between.join(words)) + right


@given(text=texts_for_nothing())
@settings(FEW, max_examples=200)
def test_texts_that_say_nothing_in_any_spelling(text: str) -> None:
    for also in (OF_IDS, OF_CLASSES):
        assert marked_texts(["cat", text, "dog"], also) == [1], text


def test_texts_that_name_something_are_left_alone() -> None:
    sound = (
        "yes",
        "no",
        "N",
        "other",
        "null hypothesis",
        "unknown territory",
        "tv set",
        "user",
        "C++",
        ",",
        "``",
        "``none such",
        "Nancy",
        "nonprofit",
    )
    assert marked_texts(sound, OF_CLASSES) == [] == marked_texts(sound)


@pytest.mark.parametrize(
    "name", ["y", "Label", "fold", "train_mask", "user_id", "created_at", "Timestamp", "ID2", "f1", "year"]
)
def test_a_pattern_tells_columns_whose_names_are_no_names_of_features(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, NODES, (2, EDGES))
    pl.DataFrame({"src": src, "dst": dst}).write_csv(tmp_path / "e.csv")
    pl.DataFrame({"id": range(NODES), "f0": 0.5, name: [1, 2] * (NODES // 2)}).write_csv(tmp_path / "n.csv")
    keys = {"edges": tmp_path / "e.csv", "nodes": tmp_path / "n.csv"}
    told = f"column '{name}', which a pattern takes" in notes("edges", **keys, features="*")
    assert told == (name not in ("f1", "year", "ID2"))
    assert "a pattern takes" not in notes("edges", **keys, features=("f0", name))


@given(name=st.text(alphabet="ab\\[]*?! -", min_size=1, max_size=6).filter(lambda name: name.strip()))
@FEW
def test_files_of_any_name_are_read_or_refused_with_a_remedy_that_is_true(name: str) -> None:
    rng = np.random.default_rng(2)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.csv"
        pl.DataFrame(dict(zip(("src", "dst"), rng.integers(0, NODES, (2, EDGES)), strict=True))).write_csv(path)
        found = mistakes("edges", edges=path)
        if found:
            assert "\\" in name and "rename the file" in str(found), (name, found)
        else:
            assert not ("\\" in name and set(name) & set("[*?"))


def table(folder: Path, **columns: Any) -> Path:
    path = folder / f"t{len(list(folder.iterdir()))}.csv"
    pl.DataFrame(columns).write_csv(path)
    return path


@pytest.mark.parametrize("first", ["number", "time", "weight", "tree"])
def test_a_row_that_begins_with_its_number_or_a_time_is_told(tmp_path: Path, first: str) -> None:
    src, dst = np.random.default_rng(3).integers(0, NODES, (2, EDGES))
    rows = np.arange(EDGES)
    columns = {
        "number": (rows, src, dst),
        "time": (1_600_000_000 + rows // 2, src, dst),
        "weight": (src, dst, rows % 5),
    }
    a, b, c = columns.get(first, (rows, src, np.full(EDGES, 1)))
    (tmp_path / "e.txt").write_text("".join(f"{x} {y} {z}\n" for x, y, z in zip(a, b, c, strict=True)))
    said = notes("edges", edges=tmp_path / "e.txt")
    assert ("'dst' and 'c2' share ids" in said) == (first in ("number", "time")), said
    if first == "number":
        assert "share ids" not in notes("edges", edges=tmp_path / "e.txt", source_column="dst", target_column="c2")


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["a"], "there is nothing to tell apart"),
        (["a", "b", "a;b"], "look like several labels: 'a;b'"),
        (["a|c", "c|a"], "look like several labels"),
        (["Biology, Chemistry", "Physics"], ""),
        (["a", "b"], ""),
    ],
)
def test_classes_of_which_a_model_learns_nothing_or_half(tmp_path: Path, classes: list[str], said: str) -> None:
    src, dst = np.random.default_rng(4).integers(0, NODES, (2, EDGES))
    nodes = table(tmp_path, id=range(NODES), y=[classes[i % len(classes)] for i in range(NODES)], f=[0.5] * NODES)
    keys = {"edges": table(tmp_path, src=src, dst=dst), "nodes": nodes, "label_column": "y", "labels": "names"}
    found = notes("edges", **keys, features="f")
    assert said in found if said else found == "", found


@pytest.mark.parametrize(("relation", "told"), [("nan", True), ("Cites", True), ("-1", True), ("likes", False)])
def test_relations_that_mean_none_or_are_written_in_two_ways(tmp_path: Path, relation: str, told: bool) -> None:
    src, dst = np.random.default_rng(5).integers(0, NODES, (2, EDGES))
    kinds = ["cites", "writes", relation, "cites"] * (EDGES // 4)
    said = notes("edges", edges=table(tmp_path, src=src, dst=dst, t=kinds), type_column="t")
    assert ("relation" in said) == told, said


def test_one_id_of_another_form_than_all_others_is_told() -> None:
    ids = [f"u{i}" for i in range(40)]
    for odd in ("guest", "#REF!", "root"):
        assert unlike_others([*ids, odd]) == [40]
    assert (
        unlike_others(ids)
        == unlike_others([*ids, "v3"])
        == unlike_others([f"{i} a" for i in range(20)] + ["b"] * 5)
        == []
    )


def test_loops_alone_are_refused_by_inspect_too(tmp_path: Path) -> None:
    loops = table(tmp_path, src=range(NODES), dst=range(NODES))
    assert "all edges are self-loops" in str(mistakes("edges", edges=loops))
    assert mistakes("edges", edges=loops, self_loops="keep") == []


def test_texts_of_other_programs_in_an_archive_are_left_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **arrays(masks=False))
    with zipfile.ZipFile(tmp_path / "g.npz", "a") as archive:
        archive.writestr("README.txt", "hello")
        archive.writestr("__MACOSX/._x.npy", b"\0\5\26\7")
    assert "files README.txt, __MACOSX/._x.npy" in notes("npz", path=tmp_path / "g.npz")


@pytest.mark.parametrize("name", ["node-feat.csv", "Node_Feat.csv.gz", "node-feat.npy"])
def test_features_of_a_folder_under_another_name_are_not_left_out(tmp_path: Path, name: str) -> None:
    keys = write_ogb_text(tmp_path, Drawn())
    path = keys["path"] / "raw" / "node-feat.csv.gz"
    path.rename(path.with_name(name))
    assert "did you mean node-feat.csv.gz?" in str(mistakes("ogb", **keys))
    path.with_name(name).unlink()
    assert mistakes("ogb", **keys) == []
