"""The way of a new user: a folder of Spark and a table of people, to a leaderboard, with one refusal that names every mistake."""

import re
from pathlib import Path

import numpy as np
import polars as pl

from tests.e2e.commands import graphmill


def write_data(folder: Path) -> None:
    """Writes `calls` as Spark does, and people.csv: text ids, a date, prices of which some are empty, groups of which some are NaN."""
    rng = np.random.default_rng(7)
    ids, group = np.array([f"person-{number:03d}" for number in range(300)]), rng.integers(0, 3, 300)
    (folder / "calls").mkdir()
    for part in range(3):
        ends = rng.choice(ids, (700, 2))
        frame = pl.DataFrame({"caller": ends[:, 0], "callee": ends[:, 1], "minutes": rng.random(700)})
        frame.write_csv(folder / "calls" / f"part-{part:05d}-3c1d.c000.csv")
    (folder / "calls" / "_SUCCESS").touch()
    price = [None if number % 13 == 5 else float(number) for number in range(300)]
    known = [float("nan") if number % 5 == 0 else float(value) for number, value in enumerate(group)]
    joined = pl.Series(rng.integers(0, 900, 300).astype(np.int32)).cast(pl.Date)
    people = {"person": ids, "age": rng.integers(18, 80, 300), "joined": joined, "price": price, "group": known}
    pl.DataFrame(people).write_csv(folder / "people.csv")


def test_from_tables_to_a_leaderboard_with_one_refusal(tmp_path: Path) -> None:
    write_data(tmp_path)
    home = tmp_path / "home"
    shown = graphmill("inspect", "calls", home=home)
    assert shown.returncode == 0 and "caller, callee, minutes" in shown.stdout and "source_column" in shown.stdout
    made = graphmill("new", "mine", "--from", "calls", home=home)
    assert made.returncode == 0, made.stderr
    path = tmp_path / "pipelines" / "mine.toml"
    named = 'nodes = "../people.csv"\nlabel_column = "group"\nfeatures = ["age", "joined", "price"]\nweight_column = "time"\n'
    path.write_text(
        path.read_text().replace("undirected =", f"{named}undirected =").replace("epochs = 20", "epochs = 2")
    )
    refused = graphmill("validate", "mine", home=home)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    mistakes = re.findall(r"^  \d+\. (.+)\n     remedy: (.+)$", refused.stderr, re.M)
    wanted = ("'time'", "'src'", "'dst'", "'id'", "'joined' holds", "'price' is empty")
    assert len(mistakes) == len(wanted), refused.stderr
    assert all(any(each in problem for problem, _ in mistakes) for each in wanted), refused.stderr
    assert "days since" in refused.stderr and "mean" in refused.stderr
    # Each remedy once, as docs/own-data.md writes it.
    people = pl.read_csv(tmp_path / "people.csv", try_parse_dates=True)
    days, filled = (
        (pl.col("joined") - pl.date(1970, 1, 1)).dt.total_days(),
        pl.col("price").fill_null(pl.col("price").mean()),
    )
    people.with_columns(days.alias("joined"), filled).write_csv(tmp_path / "people.csv")
    columns = 'source_column = "caller"\ntarget_column = "callee"\nid_column = "person"\n'
    path.write_text(path.read_text().replace('weight_column = "time"\n', f'weight_column = "minutes"\n{columns}'))
    assert graphmill("validate", "mine", home=home).returncode == 0
    run = graphmill("run", "mine", home=home, forked=True)
    assert run.returncode == 0 and "leaderboard" in run.stdout and "3 classes" in run.stdout, run.stdout + run.stderr
