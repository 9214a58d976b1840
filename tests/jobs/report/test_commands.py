"""The commands, as a user gives them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from graphmill.jobs.command import graphmill
from graphmill.jobs.report import charts
from graphmill.kernels.errors import InputError


def run(trained: SimpleNamespace, *words: str) -> Result:
    return CliRunner().invoke(graphmill, ["--home", str(trained.home), *words])


def test_a_report_is_written_into_the_home_and_the_next_one_knows_it(
    trained: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmill.jobs.report.page.drawings", lambda facts: [])
    printed = run(trained, "report", str(trained.files["other"]), "--out", "-")
    assert printed.exit_code == 0 and printed.stdout.startswith("<!doctype html>")
    assert not (trained.home / "reports").exists()
    done = run(trained, "report", str(trained.files["other"]))
    path = trained.home / "reports" / "other.html"
    assert done.exit_code == 0 and done.stdout.splitlines()[0] == f"{path} is written; any browser shows it"
    assert done.stdout.splitlines()[1].startswith("not there yet: gcn; graphmill run")
    again = run(trained, "report", str(trained.files["other"]), "--out", "-").stdout
    assert "This is the first report" in path.read_text() and "Nothing has changed since the last report" in again


def test_a_report_of_a_home_that_cannot_be_written_is_a_report(
    trained: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("graphmill.jobs.report.page.drawings", lambda facts: [])
    monkeypatch.setattr("graphmill.jobs.report.changes.make_folder", refuse)
    done = run(trained, "report", str(trained.files["other"]), "--out", str(tmp_path / "page.html"))
    assert done.exit_code == 0 and (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert done.stderr.startswith("warning: ") and "other.json cannot be written: Permission denied" in done.stderr


def test_the_leaderboard_can_be_pasted(trained: SimpleNamespace) -> None:
    markdown = run(trained, "leaderboard", str(trained.files["other"]), "--markdown").stdout.splitlines()
    assert markdown[0].startswith("| name | model | trainer | valid |") and markdown[2].startswith("| sage | sage |")
    assert len(markdown) == 3 and " ± " in markdown[2]
    latex = run(trained, "leaderboard", str(trained.files["other"]), "--latex").stdout
    assert r"$\pm$" in latex and latex.startswith("% needs \\usepackage{booktabs}\n\\begin{tabular}{lll")
    both = run(trained, "leaderboard", str(trained.files["other"]), "--latex", "--json")
    assert isinstance(both.exception, InputError) and "--json and --latex" in str(both.exception)


def test_figures_are_files_of_two_kinds(
    trained: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "drawings", lambda facts: [charts.quality(facts.entries)])
    done = run(trained, "plot", str(trained.files["tiny"]), "--out", str(tmp_path / "a" / "b"))
    assert done.exit_code == 0 and done.stdout == f"{tmp_path}/a/b/quality.svg and .png: Quality\n"
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == ["quality.png", "quality.svg"]


def test_curves_are_printed(trained: SimpleNamespace) -> None:
    lines = run(trained, "plot", str(trained.files["tiny"]), "--terminal").stdout.splitlines()
    titles = [line for line in lines if line.startswith("tiny: ")]
    assert [title.partition(", over ")[2].split(",")[0] for title in titles] == ["epochs", "seconds of training"] * 2
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "no-such"], "no pipeline no-such"),
        (["report", "TINY", "--out", "/proc/none/x.html"], "cannot be written"),
        (["plot", "TINY", "--out", "/proc/none"], "give another folder with --out"),
        (["plot", "TINY", "--out", "x", "--terminal"], "--terminal writes no file"),
        (["plot", "no-such", "--terminal"], "no pipeline no-such"),
    ],
)
def test_mistakes_are_told_with_a_remedy(
    trained: SimpleNamespace, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "drawings", lambda facts: [charts.quality(facts.entries)])
    monkeypatch.setattr("graphmill.jobs.report.page.drawings", lambda facts: [])
    result = run(trained, *(str(trained.files["tiny"]) if word == "TINY" else word for word in words))
    assert isinstance(result.exception, InputError) and said in str(result.exception)
