"""The settings of `python -m benchmarks payoff`: their pipelines, and what is made of the measured seconds."""

from __future__ import annotations

import pytest

from benchmarks.payoff import FOLDER, SETTINGS, Setting, claim, drawings, first_of_all, medians
from benchmarks.plans import ALL_MEMORY
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.trainers.recipe.config import TrainTable

LIMIT_TIMES = 4
"""Features of the settings with a limit, in multiples of it."""


def test_each_setting_is_a_pipeline() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == SETTINGS.keys()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_pipeline_has_the_claimed_tables_others_and_the_limit(name: str) -> None:
    setting, path = SETTINGS[name], FOLDER / f"{name}.toml"
    text, pipeline = path.read_text(), load_pipeline(path, TrainTable)
    tables = {table.name for table in pipeline.train}
    assert {*setting.claimed, *setting.kin} < tables, "something to compare with"
    assert f"benchmarks payoff --parts {name}" in text
    limited = setting.limit_bytes != ALL_MEMORY
    assert (f"MemoryMax={setting.limit_bytes >> 20}M" in text) is limited, "the file says how to set the limit"
    graph = pipeline.graph
    assert not limited or 4 * graph.nodes * graph.features >= LIMIT_TIMES * setting.limit_bytes  # pyright: ignore


def test_a_claim_compares_the_best_of_both_groups_and_leaves_kin_out() -> None:
    setting = Setting(claimed=("a", "b"), kin=("c",))
    assert claim(setting, {"a": 2.0, "b": 4.0, "c": 0.1, "d": 3.0, "e": 9.0}) == 1.5
    assert claim(setting, {"b": 4.0, "d": 3.0}) == 0.75, "a table that did not end is not compared"


def test_medians_are_those_of_tables_that_ended_in_each_round() -> None:
    assert medians([{"a": 1.0, "b": 5.0}, {"a": 9.0}, {"a": 3.0, "b": 1.0}]) == {"a": 3.0}


@pytest.mark.parametrize(("waits", "right"), [({"a": 2.0, "b": 2.1}, True), ({"a": 2.0, "b": 2.3}, False)])
def test_the_planned_first_of_all_tables_is_right_within_a_tie(waits: dict[str, float], right: bool) -> None:
    assert first_of_all({"a": 9.0, "b": 8.0}, waits) == {"planned": "b", "first": "a", "right": right}


def test_the_figure_has_the_newest_full_row_of_each_setting() -> None:
    def row(setting: str, scale: str, waits: dict[str, float]) -> dict[str, object]:
        return {"setting": setting, "scale": scale, "waits": waits, "epochs": waits}

    rows = [
        row("disk", "full", {"disk": 9.0, "direct": 9.0}),
        row("disk", "full", {"disk": 2.0, "direct": 5.0}),
        row("disk", "quick", {"disk": 1.0, "direct": 0.5}),
        row("memory", "full", {"online": 1.0, "disk": 3.0}),
    ]
    (figure,) = drawings(rows)
    assert figure.says.endswith("First in whole waits: disk in disk, online in memory.")
    assert figure.png().startswith(b"\x89PNG")
    assert drawings([]) == []
