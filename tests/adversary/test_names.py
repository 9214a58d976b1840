"""Names of people's data with newlines, escape sequences, bidi controls, Markdown and HTML, in every text that shows names."""

from __future__ import annotations

import csv
import re
import tomllib
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from graphmill.assets.building.page import markdown_code, markdown_text
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.jobs.commands.pipelines.inspect_pipeline import survey_pipeline
from graphmill.jobs.commands.pipelines.inspect_source import print_source
from graphmill.jobs.commands.pipelines.new_pipeline import write_pipeline
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.kernels.errors import IN_A_LINE, UNPRINTABLE, InputError, Mistakes, one_line
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig, TrainTable
from graphmill.trainers.recipe.page import sentence
from tests.recipes import recipe

NAMES = (
    "a\nb", "a\nremedy: rm -rf ~", "\x1b[2Ja", "a\x07\x08b", "a\rb", "a\tb", "a\u202eb\u2066c", "\ufeffa\u200b", "a\u2028b", "a\x9b31mb",
    "a|b`c``d", "**a**_b_~~c~~", "<script>alert(1)</script>", "![a](http://a/b.png)", "[a](javascript:alert(1))", "$a$ & &lt;", "a\\*b\\",
)  # fmt: skip
TAGS = re.compile(r"</?(\w+)[^>]*>")
WRITTEN = {"p", "code", "table", "thead", "tbody", "tr", "th", "td"}
"""Tags of the Markdown that is graphmill's own."""


def require_readable(text: str, *, lines: int | None = None) -> None:
    """Requires a text without characters that a terminal obeys, whose later lines are all its own: they begin with two blanks."""
    assert not any(ord(letter) in UNPRINTABLE for letter in text), ascii(text)
    first, *others = text.split("\n")
    assert all(line.startswith("  ") for line in others), text
    assert lines is None or len(others) + bool(first) == lines, text


def shown(markdown: str) -> str:
    """Returns the text that a reader of Markdown sees, after a look at its tags."""
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    assert {tag.lower() for tag in TAGS.findall(html)} <= WRITTEN, html
    return unescape(TAGS.sub("", html))


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_errors_keep_their_lines(name: str) -> None:
    one = InputError(f"{name}: has no column {name}", f"rename {name}")
    require_readable(str(one), lines=2)
    require_readable(str(InputError(one.problem, one.remedy)), lines=2)
    require_readable(str(Mistakes([one, one])), lines=6)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_markdown_shows_a_name_as_it_stands(name: str) -> None:
    assert shown(f"a {markdown_text(name)} z").strip() == f"a {one_line(name)} z"
    assert shown(f"a {markdown_code(name)} z").strip() == f"a {one_line(name)} z"
    table = PlainTable(title="t", columns=["x"], rows=[[name]])
    require_readable(table.latex().replace("\n", " "))
    seen = " ".join(name.split()).translate(IN_A_LINE)
    assert seen in shown(table.markdown())


def pipeline_with(folder: Path, name: str, **keys: object) -> Path:
    """Writes tables whose files, columns, ids and classes have a name, and the pipeline file that reads them."""
    file = re.sub("/", "", name)
    with open(folder / f"{file}.csv", "w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([(name, "dst"), *((f"{i}{name}", f"{(i + 1) % 20}{name}") for i in range(20))])
    with open(folder / "nodes.csv", "w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([("id", "y", "f"), *((f"{i}{name}", f"{i % 2}{name}", i) for i in range(20))])
    graph = {
        "source": "edges", "edges": str(folder / f"{file}.csv"), "nodes": str(folder / "nodes.csv"), "source_column": name,
        "target_column": "dst", "label_column": "y", "labels": "names", "features": ["f"],
    }  # fmt: skip
    (folder / "mine.toml").write_text(recipe(graph=graph | keys, sampling={"fanouts": [2]}), encoding="utf-8")
    return folder / "mine.toml"


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_inspect_and_refusals_show_names_on_their_lines(tmp_path: Path, name: str) -> None:
    try:
        survey = survey_pipeline(load_pipeline(pipeline_with(tmp_path, name), TrainTable))
        for line in survey.lines():
            require_readable(line, lines=1)
    except InputError as error:
        require_readable(str(error))
    for keys in (
        {"source_column": f"{name}x"},
        {"label_column": f"y{name}"},
        {"labels": "numbers"},
        {"id_column": "f"},
    ):
        with pytest.raises(InputError) as refused:
            found = survey_pipeline(load_pipeline(pipeline_with(tmp_path, name, **keys), TrainTable))
            for error in found.errors:
                raise error
        require_readable(str(refused.value))


@pytest.mark.parametrize("name", [each for each in NAMES if "/" not in each], ids=ascii)
@pytest.mark.parametrize("header", ["src,dst", "{},dst"])
def test_new_files_name_data_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, header: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    data, column = tmp_path / f"{name}.csv", '"' + name.replace('"', '""') + '"'
    data.write_text(f"{header.format(column)}\n0,1\n1,2\n", encoding="utf-8", newline="")
    try:
        text = write_pipeline("mine", data.name).read_text()
    except InputError as error:
        require_readable(str(error))
        return
    assert Path(tomllib.loads(text)["graph"]["edges"]).name == data.name
    assert tomllib.loads(text)["graph"].keys() == {"source", "edges", "undirected"}
    if header == "src,dst" and "\\" not in name:  # DuckDB has no spelling for a backslash beside letters of patterns
        print_source(str(data), None)
        shown = capsys.readouterr().out.partition("[graph]\n")[2]
        assert tomllib.loads(shown) == {"source": "edges", "edges": str(data)}


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_pages_show_relations_as_they_stand(name: str) -> None:
    sampling = SamplingConfig(fanouts=({name: 2}, 2), batch_size=8)
    config = ModelConfig(seed=0, train=TrainConfig(model="rgcn", layers=2), sampling=sampling)
    assert one_line(name) in shown(sentence(config))
