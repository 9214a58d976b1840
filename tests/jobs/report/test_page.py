"""The page: everything is escaped, nothing comes from elsewhere, and what is missing is said."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from graphmill.jobs.commands.results.leaderboard import leaderboard_table
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.jobs.report import page
from graphmill.jobs.report.changes import ReportChanges
from graphmill.jobs.report.charts import learning, quality, timelines
from graphmill.jobs.report.class_charts import class_drawings
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.facts import LastRun, data_table
from graphmill.jobs.report.page import report_page, templates
from graphmill.kernels.errors import UNPRINTABLE
from graphmill.trainers.record.class_scores import ClassScores, count_classes
from tests.jobs.report.conftest import NOW

NASTY = "<script>alert(\"x\")</script> & 'quoted' </textarea></pre>"
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Outline(HTMLParser):
    """Every element with its attributes, and whether all are closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def shown(trained: SimpleNamespace) -> str:
    notes = replace(trained.other.pipeline.notes, description=NASTY)
    pipeline = replace(trained.other.pipeline, notes=notes, text=f"{trained.other.pipeline.text}\n# {NASTY}")
    run = LastRun(run_id="abcd1234", status="FAILURE", seen=NOW, failures=(f"gcn: {NASTY}",))
    return report_page(replace(trained.other, pipeline=pipeline, last_run=run), ReportChanges())


def test_texts_of_files_are_escaped_and_every_element_is_closed(shown: str) -> None:
    outline = Outline(shown)
    assert outline.open == [] and [tag for tag, _ in outline.found].count("script") == 1
    assert NASTY not in shown and unescape(shown).count(NASTY) == 3


PIECES = (
    "<script>alert(1)</script>", "</pre>", "</textarea>", "<!--", "]]>", "'", '"', "&", "&lt;", "\x1b[2J", "\u202e", "\u2066", "\x9b",
    "\x00", "{{ 7 * 7 }}", "{% raw %}", "$x$", "\\", "%", "\u65e5\u672c", "\n", "a" * 10_000,
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map(" ".join)


@pytest.fixture(scope="module")
def values(trained: SimpleNamespace) -> dict[str, Any]:
    """The values of the page's template, but for figures."""
    return {**page._values(trained.other, ReportChanges()), "figures": defaultdict(list), "left_out": 0}


def drawn_page(
    values: dict[str, Any], description: str, recipe: str, told: str, line: str, folder: str, cell: str
) -> str:
    """The page with a text in each place for texts of people."""
    pipeline = replace(values["pipeline"], text=recipe)
    pipeline = replace(pipeline, notes=replace(pipeline.notes, description=description))
    run = LastRun(run_id="abcd1234", status="FAILURE", seen=NOW, failures=(told,))
    table = PlainTable(title=cell, columns=["name", cell], rows=[[cell, cell]])
    facts = replace(values["facts"], pipeline=pipeline, last_run=run, home=Path(f"/{folder}"))
    changes = ReportChanges(since=NOW, scores=table, recipe=[line])
    return templates().get_template("page.html").render(values, facts=facts, pipeline=pipeline, changes=changes)


@given(texts=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS))
@settings(max_examples=25, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
def test_drawn_texts_change_no_element_and_are_shown_as_they_stand(
    values: dict[str, Any], texts: tuple[str, ...]
) -> None:
    found, plain = drawn_page(values, *texts), drawn_page(values, *"abcdef")
    assert [tag for tag, _ in Outline(found).found] == [tag for tag, _ in Outline(plain).found]
    assert not any(ord(letter) in UNPRINTABLE for letter in found)
    for text in texts:
        assert text.translate(UNPRINTABLE) in unescape(found)


def test_nothing_comes_from_elsewhere_and_ids_are_unique(shown: str) -> None:
    found = Outline(shown).found
    links = [
        value for _, held in found for name, value in held.items() if name in ("src", "href", "xlink:href", "action")
    ]
    assert links and all(str(link).startswith(("#", "data:")) for link in links)
    assert set(re.findall(r"url\((.)", shown)) <= {"#"} and "@import" not in shown
    ids = [str(held["id"]) for _, held in found if "id" in held]
    assert len(ids) == len(set(ids))
    inside = [str(link)[1:] for link in links if str(link).startswith("#")] + re.findall(r"url\(#([^)]+)\)", shown)
    assert set(inside) <= set(ids)
    (policy,) = [held["content"] for tag, held in found if held.get("http-equiv") == "Content-Security-Policy"]
    assert str(policy).startswith("default-src 'none'")


def test_a_missing_table_and_a_failed_run_are_named_with_what_helps(
    shown: str, trained: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = unescape(re.sub(r"<[^>]+>", " ", shown))
    assert (
        "Not there: 2 of 6 artifacts. graphmill run" in text
        and "2 trained models of 1 train table," in text
        and "to be built: never built" in text
    )
    assert "The last run, abcd1234, has the state FAILURE since 2030-01-02 03:04 UTC" in text
    monkeypatch.setattr(page, "drawings", lambda facts: [])
    going = LastRun(run_id="abcd1234", status="STARTED", seen=NOW, over=False)
    assert "Run abcd1234 is on its way: STARTED" in report_page(replace(trained.tiny, last_run=going), ReportChanges())
    whole = report_page(trained.tiny, ReportChanges())
    assert "Not there" not in whole and "last run" not in whole.partition("<main>")[0]


def test_a_table_that_is_copied_is_the_table_that_is_shown(shown: str, trained: SimpleNamespace) -> None:
    board = leaderboard_table("other", trained.other.entries)
    areas = dict(re.findall(r'<textarea id="([^"]+)"[^>]*>(.*?)</textarea>', shown, re.S))
    assert unescape(areas["leaderboard-table-Markdown"]) == board.markdown() and "±" in board.rows[0][3]
    assert unescape(areas["leaderboard-table-LaTeX"]) == board.latex()
    cells = re.findall(
        r"<t[hd][^>]*>([^<]*)</t[hd]>", shown.partition('id="leaderboard-table"')[2].partition("</table>")[0]
    )
    assert [unescape(cell) for cell in cells] == [*board.columns, *(cell for row in board.rows for cell in row)]


def test_every_section_of_a_whole_pipeline_is_there(shown: str) -> None:
    for name in (
        "data",
        "leaderboard",
        "classes",
        "changes",
        "learning",
        "costs",
        "caches",
        "timelines",
        "predictions",
        "lineage",
        "recipe",
    ):
        assert f'<section id="{name}"' in shown, name
        assert f'href="#{name}"' in shown


def test_the_page_begins_with_the_data(shown: str, trained: SimpleNamespace) -> None:
    graph = trained.other.artifact("graph")
    numbers, (row,) = graph.summary["numbers"], data_table(trained.other).rows
    names = ("nodes", "edges", "classes", "labelled", "train", "valid", "test")
    assert row == ["graph", *(f"{numbers[f'num_{name}']:,}" for name in names)]
    first = shown.partition("<section")[2]
    assert first.startswith(' id="data"') and all(f">{cell}<" in first.partition("</table>")[0] for cell in row)


def test_names_of_classes_are_escaped_in_tables_and_figures(
    trained: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with control characters is spelled out, for SVG cannot hold it; more classes than fit are left out and counted."""
    labels = np.repeat(np.arange(40), 3)
    scores = ClassScores(
        classes=[f"<b>&\x00{place}" for place in range(40)],
        splits={"test": count_classes(np.eye(40)[np.roll(labels, 1)], labels)},
    )
    monkeypatch.setattr("graphmill.jobs.report.class_charts.joined_scores", lambda models: scores)
    text = report_page(trained.tiny, ReportChanges())
    assert Outline(text).open == [] and "\x00" not in text and "<b>" not in text
    assert text.count("&lt;b&gt;&amp;\\x00") > 40 and "Confusion of sage, test; the 24 largest of 40" in text
    names = [each.name for each in class_drawings(trained.tiny.entries)]
    assert sorted(names) == ["confusion-gcn", "confusion-sage", "reliability"]
    for each in class_drawings(trained.tiny.entries):
        ElementTree.fromstring(each.svg_file())
    monkeypatch.setattr("graphmill.jobs.report.class_charts.joined_scores", lambda models: None)
    assert '<section id="classes"' not in report_page(trained.tiny, ReportChanges())


def test_a_page_that_is_too_large_leaves_out_the_last_time_lines(
    trained: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = trained.tiny.entries
    few = [learning(entries, "loss", "seconds"), *timelines(entries)]
    monkeypatch.setattr(page, "drawings", lambda facts: few)
    whole = report_page(trained.tiny, ReportChanges())
    assert whole.count('aria-label="Save Time-line of') == 2
    monkeypatch.setattr(page, "MOST_BYTES", len(whole.encode()) - 1)
    less = report_page(trained.tiny, ReportChanges())
    assert less.count('aria-label="Save Time-line of') == 1 and "1 more are left out of this page" in less
    assert len(less.encode()) < len(whole.encode()) and less.count("Save Training loss over seconds") == 1


def test_figures_are_well_formed_and_files_know_no_variables(trained: SimpleNamespace) -> None:
    for each in (quality(trained.tiny.entries), learning(trained.tiny.entries, "valid", "epochs")):
        assert each is not None
        text = each.svg_file().decode()
        root = ElementTree.fromstring(text)
        assert root[0].text == each.title and root[1].text == each.says and root.attrib["role"] == "img"
        assert "var(" not in text and "<style" not in text and "var(--c1c2024, #1c2024)" in each.svg()
        assert each.svg() == each.svg() and each.png().startswith(b"\x89PNG")


def test_names_in_a_figure_are_text_and_no_formula() -> None:
    def draw(figure: object) -> None:
        figure.subplots().set_title("$<a>$ & b")  # type: ignore[attr-defined]

    drawn = ReportFigure(name="x", title='"<t>"', says="a & b", draw=draw).svg()
    root = ElementTree.fromstring(drawn)
    assert "$<a>$ & b" in [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert root[0].text == '"<t>"'


def test_a_long_cell_may_be_folded() -> None:
    table = PlainTable(title="t", columns=["a", "b"], rows=[["x", "y" * 50]], left=frozenset({"a"}))
    text = str(templates().get_template("parts.html").module.shown_table(table, "id"))  # pyright: ignore[reportAttributeAccessIssue]
    assert '<td class="wide">' in text and '<th scope="row" class="left">x</th>' in text
