"""`graphmill inspect`: pipelines, files of every form, and places where there is nothing."""

import re

import numpy as np
import polars as pl
import pytest

from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.jobs.commands.pipelines.inspect_source import print_source, survey_of
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import FORMS, Drawn

HOME = None


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    folder, graph = tmp_path_factory.mktemp("forms"), Drawn()
    return folder, {form: write(folder, graph) for form, (_, write) in FORMS.items()}


@pytest.mark.parametrize("form", FORMS)
def test_files_and_folders_are_recognised(forms, capsys, form):
    keys = forms[1][form]
    print_source(str(keys.get("path", keys.get("edges"))), HOME)
    report = capsys.readouterr().out
    assert re.search(r"nodes +60\n", report) and re.search(r"edges +at most 600\n", report)
    assert "memory" in report and "disk" in report
    table = report[report.index("[graph]") :]
    (forms[0] / "suggested.toml").write_text(table)
    assert load_pipeline(forms[0] / "suggested.toml").graph.source == FORMS[form][0]


def test_pipelines_by_name_and_by_file(forms, tmp_path, capsys):
    print_source("rmat", HOME)
    assert "rmat: generated from seed 0" in capsys.readouterr().out
    keys = forms[1]["Parquet"]
    text = f'[graph]\nsource = "edges"\nedges = "{keys["edges"]}"\nnodes = "{keys["nodes"]}"\nfeatures = "x"\n'
    (tmp_path / "mine.toml").write_text(text)
    print_source(str(tmp_path / "mine.toml"), HOME)
    report = capsys.readouterr().out
    assert "edges: 2 files" in report and "300 rows" in report and "columns: src BIGINT, dst BIGINT" in report
    assert re.search(r"features +3 float32 per node, 720 B", report)


def test_tables_without_usual_names_and_python_modules(tmp_path, capsys):
    pl.DataFrame({"a": [1], "b": [2]}).write_csv(tmp_path / "table.csv")
    print_source(str(tmp_path / "table.csv"), HOME)
    assert "no columns are named like the ends of edges" in capsys.readouterr().out
    pl.DataFrame({"from": [1], "to": [2]}).write_csv(tmp_path / "table.csv")
    print_source(str(tmp_path / "table.csv"), HOME)
    assert 'source_column = "from"' in capsys.readouterr().out
    print_source("python-environment", HOME)
    assert "modules of" in capsys.readouterr().out


def test_a_pipeline_says_what_ranking_takes(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    recipe = '[graph]\nsource = "sbm"\nnodes = 1048576\nedges = 500\n[sampling]\nfanouts = [5, 5]\n'
    rows = []
    for table in ("rounds = 2\n", 'policy = "degree"\n'):
        path.write_text(recipe + "[hotness]\n" + table)
        print_source(str(path), tmp_path / "home")
        rows.append(next(line for line in capsys.readouterr().out.splitlines() if line.startswith("hotness")))
    assert "16.0 MiB" in rows[0] and "12.0 MiB" in rows[1]  # 4 bytes of order, 8 of score, 4 of visits


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="no such file or folder, and no pipeline of that name"):
        print_source(str(tmp_path / "nothing"), HOME)
    (tmp_path / "notes.md").write_text("x" * 20)
    with pytest.raises(InputError, match="is none of"):
        print_source(str(tmp_path / "notes.md"), HOME)
    with pytest.raises(InputError, match="a folder of part files, none of which is"):
        print_source(str(tmp_path), HOME)


def test_folders_of_tables_are_no_ogb_folders(tmp_path, capsys):
    folder = tmp_path / "my edges"
    folder.mkdir()
    for part in range(2):
        pl.DataFrame({"source": [part, 7], "target": [8, 9]}).write_parquet(folder / f"{part}.snappy.parquet")
    (folder / "_SUCCESS").touch()
    print_source(str(folder), HOME)
    report = capsys.readouterr().out
    (tmp_path / "suggested.toml").write_text(report[report.index("[graph]") :])
    graph = load_pipeline(tmp_path / "suggested.toml").graph
    assert (graph.source, graph.edges, graph.source_column) == ("edges", folder, "source")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="a folder of part files, none of which is Parquet or text"):
        print_source(str(tmp_path / "empty"), HOME)


@pytest.mark.parametrize(
    ("name", "text"), [("a.txt", "# c\n3 4\n4 5\n"), ("b.edges", "% c\n3,4\n4,5\n"), ("out.c", "3 4\n4 5")]
)
def test_lists_are_recognised(tmp_path, capsys, name, text):
    (tmp_path / name).write_text(text)
    print_source(str(tmp_path / name), HOME)
    report = capsys.readouterr().out
    assert re.search(r"nodes +3\n", report) and "no line of names" in report


@pytest.mark.parametrize("address", ["s3://bucket/e.parquet", "https://host/e.csv.gz", "gs://b/*.parquet"])
def test_files_of_other_machines(tmp_path, address):
    with pytest.raises(InputError, match="is a remote address, and only local files are read") as caught:
        print_source(address, HOME)
    assert "download" in caught.value.remedy
    (tmp_path / "p.toml").write_text(f'[graph]\nsource = "edges"\nedges = ["{address}"]\n')
    with pytest.raises(InputError, match="is a remote address, and only local files are read; download"):
        load_pipeline(tmp_path / "p.toml")


def small(folder, text="", **arrays):
    rng = np.random.default_rng(0)
    sound = {"edge_index": rng.integers(0, 40, (2, 200)), "num_nodes": np.int64(40), "y": rng.integers(0, 3, 40)}
    np.savez(folder / "graph.npz", **{name: each for name, each in (sound | arrays).items() if each is not None})
    (folder / "mine.toml").write_text(f'[graph]\nsource = "npz"\npath = "graph.npz"\n{text}')
    return str(folder / "mine.toml")


ALL = np.arange(40)
REFUSED = {
    "halves": {"y": ALL / 2},
    "several": {"y": np.ones((40, 3))},
    "text": {"y": ALL.astype(str)},
    "ids": {"edge_index": np.array([[0, 41], [1, 2]])},
    "masks": {"train_masks": ALL % 3, "val_masks": ALL == 1, "test_masks": ALL == 2},
    "overlap": {"train": ALL[:9], "val": ALL[5:12], "test": ALL[20:]},
    "names": {"class_names": np.array(["a"])},
    "infinite": {"x": np.full((40, 2), np.inf, np.float32)},
    "loops": {"edge_index": np.stack([ALL, ALL])},
}


@pytest.mark.parametrize("case", REFUSED)
def test_inspect_says_what_a_build_of_small_data_refuses(tmp_path, capsys, case):
    path = small(tmp_path, **REFUSED[case])
    for source in (path, str(tmp_path / "graph.npz")):
        print_source(source, tmp_path / "home")
        report = capsys.readouterr().out
        assert "note: cannot be built: " in report and "would be built, once it is corrected" in report
    print_source(small(tmp_path), tmp_path / "home")
    assert "cannot be built" not in capsys.readouterr().out


def test_inspect_says_what_it_did_not_look_at(tmp_path, capsys, monkeypatch):
    path = small(tmp_path, **REFUSED["infinite"])
    monkeypatch.setattr("graphmill.jobs.commands.pipelines.inspect_pipeline.CHECKED_BYTES", 100)
    print_source(path, tmp_path / "home")
    assert "note: not checked: values of features" in capsys.readouterr().out
    monkeypatch.setattr("graphmill.jobs.commands.pipelines.inspect_pipeline.CHECKED_EDGES", 100)
    print_source(path, tmp_path / "home")
    said = capsys.readouterr().out
    assert "note: not checked: edges, labels, split and values of features" in said
    assert all(name in said for name in (*GRAPH.warnings, *FEATURES.warnings))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_inspect_looks_into_tables_and_names_missing_columns(tmp_path, capsys, ending):
    write = f"write_{ending}"
    getattr(pl.DataFrame({"src": [0, 1], "dst": [1, 2]}), write)(tmp_path / f"edges.{ending}")
    getattr(pl.DataFrame({"id": [0, 1, 2], "y": [0.5, 1.0, 2.0], "part": ["train", "dev", "test"]}), write)(
        tmp_path / f"nodes.{ending}"
    )
    path, text = (
        tmp_path / "mine.toml",
        f'[graph]\nsource = "edges"\nedges = "edges.{ending}"\nnodes = "nodes.{ending}"\n',
    )
    for key, said in (("label_column", "a number that is not whole"), ("split_column", "holds 'dev'")):
        path.write_text(f'{text}{key} = "{"y" if key == "label_column" else "part"}"\n')
        print_source(str(path), tmp_path / "home")
        assert said in capsys.readouterr().out
    path.write_text(f'{text}label_column = "class"\n')
    with pytest.raises(InputError, match="has no column 'class'"):
        print_source(str(path), tmp_path / "home")


def test_every_feature_table_is_counted(tmp_path, capsys):
    np.save(tmp_path / "text.npy", np.ones((40, 32), np.float32))
    files = '[features]\ndtype = "float16"\n[features.text]\nfile = "text.npy"\n[features.half]\nfile = "text.npy"\ndtype = "float16"\n'
    path = small(tmp_path, files, x=np.ones((40, 4), np.float64))
    survey = survey_of(path)
    assert [(table.name, table.width, table.dtype, table.num_bytes) for table in survey.tables] == [
        ("features", 4, "float16", 320),
        ("features.text", 32, "float32", 5120),
        ("features.half", 32, "float16", 2560),
    ]
    assert survey.table_bytes == survey.values()["table_bytes"] == 8000
    print_source(path, tmp_path / "home")
    report = capsys.readouterr().out
    assert "features.text 32 float32 per node" in report
    needs = {line.split()[0]: line for line in report[report.index("needs  ") :].splitlines() if line}
    assert "5.0 KiB" in needs["features.text"] and "2.5 KiB" in needs["features.half"]
    np.save(tmp_path / "text.npy", np.ones((39, 32), np.float32))
    print_source(path, tmp_path / "home")
    assert "cannot be built: " in capsys.readouterr().out
