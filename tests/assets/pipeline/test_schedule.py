"""The table [schedule]: what it takes, and the line of each mistake in it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.pipeline.file import load_pipeline, parse_pipeline
from graphmill.assets.pipeline.schedule import FIELDS, SHORT_FORMS, ScheduleTable, _wrong_cron
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

GRAPH = '[graph]\nsource = "sbm"\nnodes = 300\nedges = 2000\n'


def parsed(text: str):
    return parse_pipeline(Path("/x/mine.toml"), (GRAPH + text).encode(), TrainTable)


def test_a_file_without_the_table_has_no_schedule():
    assert parsed("").schedule is None


def test_all_keys():
    table = parsed(
        '[schedule]\ncron = "30 3 * * mon-fri"\ntimezone = "Europe/Berlin"\njob = "preprocess"\nenabled = false\nrefresh = true\n'
        'priority = -5\non_failure = ["notify", "--all"]\nwebhook = "TEAM_HOOK"\n'
    ).schedule
    assert table == ScheduleTable(
        cron="30 3 * * mon-fri",
        timezone="Europe/Berlin",
        job="preprocess",
        enabled=False,
        refresh=True,
        priority=-5,
        on_failure=("notify", "--all"),
        webhook="TEAM_HOOK",
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('cron = "0 3 * *"', 6, "has 4 fields"),
        ('cron = "61 3 * * *"', 6, "'61' is no minute: 61 is not between 0 and 59"),
        ('cron = "0 3 * * fry"', 6, "'fry' is no day of the week"),
        ('cron = "0 22-3 * * *"', 6, "22-3 ends before it begins"),
        ('cron = "*/0 * * * *"', 6, "the step 0 is not between 1 and 59"),
        ('cron = "0 3 30 feb *"', 6, "never comes: no such month has a day 30"),
        ('cron = "0 0 30 2 */1"', 6, "no such month has a day 30; for the weekday alone write * as day of the month"),
        ('cron = "0 0 30 2 */2"', 6, "never comes"),
        ('cron = "0 0 30 2 1"', 6, "never comes"),
        ('cron = "0 0 31 4 0-6"', 6, "never comes"),
        ('cron = "0 0 31 4,6 0,1,2,3,4,5,6"', 6, "never comes"),
        ('cron = "@often"', 6, "is not one of @hourly"),
        ('cron = "* * * * * *"', 6, "has 6 fields"),
        ('cron = "0 3 * * *"\ntimezone = "Europe/Berlim"', 7, "did you mean Europe/Berlin?"),
        ('cron = "0 3 * * *"\njob = "alll"', 7, "did you mean all?"),
        ('cron = "0 3 * * *"\njob = "train"', 7, "the file has no [[train]] table"),
        ('cron = "0 3 * * *"\nenabled = "yes"', 7, "is not true or false"),
        ('cron = "0 3 * * *"\npriority = 5000', 7, "priority = 5000 is above 1,000"),
        ('cron = "0 3 * * *"\nwebhook = "https://hooks.example.org/T0/secret"', 7, "is a secret"),
        ('cron = "0 3 * * *"\non_failure = [""]', 7, "names no program"),
        ("enabled = true", 5, "neither cron nor refresh"),
        ('crom = "0 3 * * *"', 6, "did you mean cron?"),
    ],
)
def test_a_mistake_is_reported_at_its_line(text, line, message):
    with pytest.raises(InputError) as raised:
        parsed(f"[schedule]\n{text}\n")
    assert f"mine.toml:{line}: " in str(raised.value) and message in str(raised.value)
    assert "hooks.example.org" not in str(raised.value), "a secret is not echoed"


def test_two_mistakes_are_reported_at_once():
    with pytest.raises(InputError, match="has 2 mistakes") as raised:
        parsed('[schedule]\ntimezone = "Mars"\ncron = "0 99 * * *"\n')
    assert "mine.toml:6: timezone" in str(raised.value) and "mine.toml:7: cron" in str(raised.value)


def item(low: int, high: int, names: tuple[str, ...]):
    number = st.integers(low - 1, high + 1)
    word = number.map(str) | (st.sampled_from(names) if names else st.nothing())
    step = st.one_of(st.just(""), st.integers(0, high + 1).map("/{}".format))
    return st.one_of(
        st.tuples(st.just("*"), step), st.tuples(word), st.tuples(word, st.just("-"), word, step), st.tuples(word, step)
    ).map("".join)


def require_dagster_agrees(cron: str) -> None:
    from dagster._utils.schedules import is_valid_cron_schedule, schedule_execution_time_iterator

    if not _wrong_cron(cron):
        assert is_valid_cron_schedule(cron), cron
        assert next(iter(schedule_execution_time_iterator(0.0, cron, "Europe/Berlin", ascending=True))), cron


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_what_is_accepted_is_accepted_by_dagster(data):
    words = [
        ",".join(data.draw(st.lists(item(low, high, names), min_size=1, max_size=2))) for _, low, high, names in FIELDS
    ]
    require_dagster_agrees(" ".join(words))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["29", "30", "31", "30-31", "1,31", "*/30"]),
    st.sampled_from(["2", "4", "2,4", "2,3", "feb-apr", "*/12", "2-12/2"]),
    st.one_of(st.sampled_from(["*", "*/1", "*/7", "0-6", "mon-sat", "1,*/2"]), item(0, 7, FIELDS[4][3])),
)
def test_days_that_a_month_may_lack_are_accepted_where_dagster_finds_one(day, month, weekday):
    require_dagster_agrees(f"0 0 {day} {month} {weekday}")


def test_short_forms_and_usual_ones_are_accepted():
    from dagster._utils.schedules import is_valid_cron_schedule

    for cron in (
        *SHORT_FORMS,
        "* * * * *",
        "0 3 * * *",
        "*/15 8-18 * * 1-5",
        "0 0 29 2 *",
        "0 0 31 1,2 *",
        "5 4 1 jan,jul 7",
    ):
        assert not _wrong_cron(cron) and is_valid_cron_schedule(cron), cron


def test_validate_asks_for_the_address_of_a_webhook(tmp_path, monkeypatch):
    """A failure that nobody is told of would be found when it is too late; other commands need no address."""
    path = tmp_path / "mine.toml"
    path.write_text(
        '[graph]\nsource = "rmat"\nnodes = 8\nedges = 8\n[schedule]\nrefresh = true\nwebhook = "OUR_HOOK"\n'
    )
    monkeypatch.delenv("OUR_HOOK", raising=False)
    load_pipeline(path)
    with pytest.raises(
        InputError, match=r"mine.toml:7: .*OUR_HOOK is not set, so no failure would be told: export OUR_HOOK="
    ):
        load_pipeline(path, files=True)
    monkeypatch.setenv("OUR_HOOK", "hooks.example.org/T0")
    with pytest.raises(InputError, match="OUR_HOOK holds no http address") as raised:
        load_pipeline(path, files=True)
    assert "T0" not in str(raised.value)
    monkeypatch.setenv("OUR_HOOK", "https://hooks.example.org/T0")
    assert load_pipeline(path, files=True).schedule.webhook == "OUR_HOOK"
