import csv
import io
import json
import re
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from graphmill.assets.building.stage import Summary
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.results.sql import PIECE_ROWS, TABLE_ROWS, as_table, print_query, query
from graphmill.jobs.commands.results.views import columns_of, views
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config
from tests.assets.sources.tables.tables import shop, write
from tests.assets.storage.damage import flip
from tests.assets.storage.tiny_artifacts import numbers_of
from tests.jobs.runs.processes import heed_interrupts
from tests.jobs.trained import trained_home

DOCUMENT = (ROOT / "docs" / "sql.md").read_text()
EXAMPLES = re.findall(r"```sql\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    # Quotes, brackets and stars mean something in SQL and in DuckDB's patterns for files.
    return trained_home(tmp_path_factory.mktemp("it's [a] home*"))


def ask(store, sql):
    return query(store, sql).rows


def printed(store, sql, form="table"):
    lines = []
    print_query(store, sql, form, lines.append)
    return "\n".join(lines)


def test_there_are_documented_queries():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("sql", EXAMPLES, ids=[sql.split("\n")[0][:40] for sql in EXAMPLES])
def test_every_documented_query_has_an_answer(store, sql):
    answer = query(store, sql)
    assert answer.rows and len(answer.columns) == len(answer.rows[0])


@pytest.mark.parametrize("sql", EXAMPLES, ids=[sql.split("\n")[0][:40] for sql in EXAMPLES])
def test_every_documented_query_runs_on_an_empty_store(tmp_path, sql):
    assert query(Store(tmp_path), sql).columns


def test_the_document_names_every_view_and_column(store):
    documented = {
        match[1]: set(re.findall(r"`(\w+)`", match[2]))
        for match in re.finditer(r"^\| `(\w+)` \| .*? \| (.*) \|$", DOCUMENT, re.MULTILINE)
    }
    made = {name: set(view.columns) for name, view in views(store.artifacts()).items()} | {
        "nodes": set(columns_of("nodes"))
    }
    assert set(documented) == set(made)
    for name, columns in made.items():
        assert columns <= documented[name], name
    assert {name for (name,) in ask(store, "SHOW TABLES")} == set(made)


def test_models_have_their_scores_on_both_splits(store):
    rows = ask(store, "SELECT version, seed, valid, test, best_epoch, metric, model FROM models ORDER BY version")
    models = sorted((each for each in store.artifacts() if each.stage == "model"), key=lambda each: each.version)
    assert len(rows) == len(models) == 4
    for row, model in zip(rows, models, strict=True):
        numbers = model.summary["numbers"]
        scores = (numbers["valid_accuracy"], numbers["test_accuracy"], numbers["best_epoch"], "accuracy")
        assert row[:6] == (model.version[:12], model.config["seed"], *scores)


def test_views_hold_what_the_manifests_say(store):
    artifacts = store.artifacts()
    graph = next(each for each in artifacts if each.stage == "graph")
    models = [each for each in artifacts if each.stage == "model"]
    assert len(models) == 4
    rows = ask(store, "SELECT full_version, bytes, started, seconds FROM artifacts ORDER BY full_version")
    for row, artifact in zip(rows, sorted(artifacts, key=lambda each: each.version), strict=True):
        run = artifact.run_record()
        assert row[:2] == (artifact.version, artifact.num_bytes) and row[3] == run["seconds"]
        assert row[2].replace(tzinfo=UTC) == datetime.fromisoformat(run["started"])
    edges = ask(store, "SELECT version, role, input_version FROM inputs ORDER BY version")
    read = [(model.version[:12], role, model.inputs[role]["version"][:12]) for model in models for role in model.inputs]
    assert edges == sorted(read) and {role for _, role, _ in read} == {"graph", "features"}
    assert (
        ask(store, "SELECT value FROM numbers WHERE name = 'num_nodes'") == [(300.0,)] * 2
    )  # the graph and its features
    (names,) = ask(store, "SELECT value, text FROM numbers WHERE name = 'class_names'")
    assert names[0] is None and json.loads(names[1]) == graph.summary["numbers"]["class_names"]
    assert ask(store, "SELECT count(*) FROM nodes WHERE version = '" + graph.version[:12] + "'") == [(300,)]
    assert ask(store, "SELECT DISTINCT key, value FROM config WHERE key = 'sampling.fanouts'") == [
        ("sampling.fanouts", "[4, 4]")
    ]


def test_ids_of_the_raw_data_may_be_text(tmp_path):
    """Beside a graph whose ids are numbers, too: all are text then."""
    write(tmp_path)
    sql = "SELECT original_id FROM nodes WHERE node_id < 2 ORDER BY ALL"
    build_config(tmp_path / "home", shop(tmp_path))
    assert ask(Store(tmp_path / "home"), sql) == [("ann",), ("bob",)]
    build_config(tmp_path / "home", config_class("rmat")(nodes=9, edges=20, features=2, classes=2))  # pyright: ignore[reportCallIssue]
    assert ask(Store(tmp_path / "home"), sql) == [("0",), ("1",), ("ann",), ("bob",)]


def test_metrics_have_one_row_an_epoch_with_the_whole_config(store):
    rows = ask(store, "SELECT version, graph, seed, lr, model, hidden, fanouts, epoch, loss, valid FROM metrics")
    # Left out of the manifest at its default, since it was added to the configuration later.
    assert {row[0] for row in ask(store, "SELECT dtype FROM metrics")} == {"float32"}
    expected = []
    for model in store.artifacts():
        if model.stage == "model":
            for line in model.file("metrics.jsonl").read_text().splitlines():
                row, train = json.loads(line), model.config["train"]
                about = (model.version[:12], model.inputs["graph"]["version"][:12], model.config["seed"], train["lr"])
                expected.append((*about, train["model"], 8, "[4,4]", row["epoch"], row["loss"], row["valid"]))
    assert sorted(rows) == sorted(expected) and len(rows) == 2 * 2 + 3 * 2
    assert ask(store, "SELECT DISTINCT typeof(fanouts), fanouts[0]::INT FROM metrics") == [("JSON", 4)]


def test_the_ledger_is_complete(store):
    for model in store.artifacts():
        if model.stage == "model":
            ledger = json.loads(model.file("ledger.json").read_text())
            moved = sum(row["moved_bytes"] for row in ledger["moves"])
            counted = sum(row["n"] for row in ledger["counts"])
            version = model.version[:12]
            assert ask(store, f"SELECT sum(moved_bytes)::BIGINT FROM ledger WHERE version = '{version}'") == [(moved,)]
            assert ask(store, f"SELECT sum(n)::BIGINT FROM ledger_counts WHERE version = '{version}'") == [(counted,)]


def test_unknown_metrics_become_columns(tmp_path):
    store = Store(tmp_path)
    with store.writer("model", "a" * 64) as writer:
        rows = [{"epoch": 0, "loss": 1, "hits": 3, "rate": 1}, {"epoch": 1, "loss": 0.5, "rate": 0.5, "note": "x"}]
        writer.path("metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        writer.publish({"seed": 1, "fresh": {"t_stale": 4}}, {}, Summary(numbers=numbers_of("model")), {})
    assert ask(store, "SELECT epoch, loss, hits, rate, note, t_stale, valid, graph FROM metrics ORDER BY epoch") == [
        (0, 1.0, 3, 1.0, None, 4, None, None),
        (1, 0.5, None, 0.5, "x", 4, None, None),
    ]


def test_damaged_artifacts_are_left_out(tmp_path):
    store = Store(tmp_path)
    for digit in "ab":
        with store.writer("toy", digit * 64) as writer:
            writer.save("values", np.arange(3))
            writer.publish({}, {}, Summary(), {})
    (store.root / "toy" / ("b" * 64) / "values.npy").unlink()
    assert ask(store, "SELECT version FROM artifacts") == [("a" * 12,)]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT nothing FROM artifacts", 'Referenced column "nothing" not found'),
        ("SELECT * FROM artefacts", "artefacts does not exist"),
        ("SELEC 1", "syntax error"),
        (" ; ", "it is not one SELECT"),
        ("SELECT 1; SELECT 2", "it is not one SELECT"),
        ("DROP TABLE artifacts", "it is not one SELECT"),
        ("COPY artifacts TO 'stolen.csv'", "it is not one SELECT"),
        ("EXPLAIN ANALYZE COPY artifacts TO 'stolen.csv'", "it is not one SELECT"),
        ("ATTACH 'other.db'", "it is not one SELECT"),
        ("SET enable_external_access = true", "it is not one SELECT"),
        ("SELECT * FROM read_text('/etc/passwd')", "Cannot access file"),
        ("SELECT * FROM read_csv('https://example.org/x.csv')", "Error"),
        ("SELECT INTERVAL 99999999 YEAR", "cannot be answered"),
        ("SELECT value::BIGINT FROM (SELECT 'x' AS value)", "Could not convert"),
    ],
)
def test_a_wrong_query_is_one_error_that_lists_the_views(store, tmp_path, monkeypatch, sql, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        query(store, sql)
    assert reason in caught.value.problem and "\n  numbers: stage, version, name, value, text" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_formats(store):
    answer = query(store, "SELECT 'a,b' AS t, 1 AS n, NULL AS u, 0.5 AS d, [1, 2] AS l, 'nan'::DOUBLE AS n")
    assert answer.rows[0][:4] == ("a,b", 1, None, 0.5)
    sql = "SELECT 'a,b' AS t, 1 AS n, NULL AS u, 0.5 AS d, [1, 'nan'::DOUBLE] AS l, 'nan'::DOUBLE AS n"
    found = [{"t": "a,b", "n": 1, "u": None, "d": 0.5, "l": [1, None], "n:1": None}]
    assert json.loads(printed(store, sql, "json")) == found
    assert list(csv.reader(io.StringIO(printed(store, sql, "csv"))))[1][:4] == ["a,b", "1", "", "0.5"]
    days = printed(store, "SELECT MAP {DATE '2020-01-01': 'nan'::DOUBLE} AS m", "json")
    assert json.loads(days) == [{"m": {"2020-01-01": None}}]
    assert json.loads(printed(store, "SELECT 1 WHERE false", "json")) == []
    assert printed(store, "SELECT 1 AS a WHERE false", "csv") == "a"
    lines = as_table(query(store, "SELECT 'x' AS name, 7 AS count UNION ALL SELECT NULL, NULL ORDER BY count")).split(
        "\n"
    )
    assert lines == ["name  count", "----  -----", "x         7", "-         -", "(2 rows)"]
    assert "\\x1b[31m\\n" in as_table(query(store, "SELECT chr(27) || '[31m' || chr(10) AS evil"))
    assert printed(store, f"SELECT * FROM range({TABLE_ROWS})").endswith(f"({TABLE_ROWS} rows)")


@pytest.mark.parametrize("count", [TABLE_ROWS + 5, PIECE_ROWS, 2 * PIECE_ROWS + 7])
def test_long_answers_are_printed_piece_by_piece(store, count):
    sql = f"SELECT * FROM range({count}) AS numbers(n)"
    assert printed(store, sql).endswith(f"... more than {TABLE_ROWS} rows: add LIMIT, or --format csv or json for all")
    assert [row["n"] for row in json.loads(printed(store, sql, "json"))] == list(range(count))
    assert printed(store, sql, "csv").split("\n") == ["n", *map(str, range(count))]


def test_damaged_files_of_facts_leave_their_model_out_and_answer_the_rest(tmp_path):
    store, lines = trained_home(tmp_path), []
    model = next(each for each in store.artifacts() if each.stage == "model")
    flip(model.path / "metrics.jsonl", 100)
    assert query(store, "SELECT count(*) FROM artifacts", lines.append).rows == [(len(store.artifacts()) - 1,)]
    assert len(lines) == 1 and lines[0].startswith("left out: ") and "metrics.jsonl" in lines[0]


def test_damaged_nodes_of_a_graph_are_left_out_wherever_the_damage_is(tmp_path):
    write(tmp_path)
    build_config(tmp_path / "home", shop(tmp_path))
    (path,) = (tmp_path / "home").glob("store/graph/*/nodes.parquet")
    whole = path.read_bytes()
    for place in (0, len(whole) // 2, len(whole) - 40, len(whole) - 1):
        path.write_bytes(whole)
        flip(path, place)
        lines: list[str] = []
        assert query(Store(tmp_path / "home"), "SELECT count(*) FROM nodes", lines.append).rows == [(0,)]
        assert len(lines) == 1 and lines[0].startswith("left out: ") and "nodes.parquet" in lines[0]


def test_printing(store):
    lines = []
    print_query(store, None, write=lines.append)
    print_query(store, "SELECT 1 AS one", "csv", write=lines.append)
    assert lines[0].startswith("artifacts: stage, version, full_version") and lines[1] == "one\n1"


INTERRUPTED = """
import signal, sys
from concurrent.futures import ThreadPoolExecutor
from graphmill.assets.storage.store import Store
import graphmill.jobs.commands.results.sql as sql

class Interrupting(ThreadPoolExecutor):
    def submit(self, *given):
        answer = super().submit(*given)
        signal.raise_signal(signal.SIGINT)
        return answer

sql.ThreadPoolExecutor = Interrupting
try:
    sql.query(Store(sys.argv[1]), "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_that_comes_when_nobody_waits_for_the_query_yet_ends_it(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True, preexec_fn=heed_interrupts
    )
    assert ended.stdout == "interrupted\n"
