"""`graphmill simulate exchange`: rounds as a table and as JSON, with seconds that follow from links and congestion."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from graphmill.jobs.command import graphmill
from graphmill.kernels.errors import InputError

FIGURE_9C = "0 1 | 2 3 @ 32GB/s | 16GB/s"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(graphmill, ["simulate", "exchange", *arguments])


def test_rounds_of_the_papers_figure() -> None:
    found = json.loads(run("--links", FIGURE_9C, "--bytes", "1GB", "--efficiency", "1,0.8,0.6,0.4", "--json").output)
    transfers = [tuple(pair) for each in found["rounds"] for pair in each["transfers"]]
    assert len(found["rounds"]) == found["least_rounds"] == 4 and found["paired_rounds"] == 5
    assert sorted(transfers) == [(one, other) for one in range(4) for other in range(4) if one != other]
    assert all({"{0 1}>{2 3}", "{2 3}>{0 1}"} <= {*each["busy_links"]} for each in found["rounds"])
    expected = {"at_once_fair": 0.25, "at_once": 0.625, "in_rounds": 0.25}
    assert found["seconds"] == {name: pytest.approx(seconds) for name, seconds in expected.items()}
    slower = json.loads(run("--links", FIGURE_9C, "--bytes", "1GB", "--latency-us", "1000", "--json").output)
    assert slower["seconds"]["in_rounds"] == pytest.approx(0.254)
    assert slower["seconds"]["at_once"] == pytest.approx(0.251)


def test_the_table_has_a_line_for_each_round() -> None:
    lines = run("--links", f"{FIGURE_9C}; efficiency 1 0.6 0.4").output.splitlines()
    assert lines[1].split()[:5] == ["1", "4.000", "10", "of", "10"] and lines[1].endswith("{0 1}>{2 3}, {2 3}>{0 1}")
    assert "4 rounds (no order needs fewer); the link {0 1}>{2 3} has 4 transfers" in lines
    assert "5 rounds, if two devices exchange both ways in a round" in lines
    assert any("with congestion" in line and "rounds are 2.50 times as fast" in line for line in lines)
    assert (
        len(run("--links", FIGURE_9C, "--ranks", "3").output.splitlines()) == 2 + 2 + 6
    )  # 0 and 1 send to 2, and 2 to both


def test_measured_links_are_those_of_an_earlier_training(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path))
    missing = run("--links", "measured").exception
    assert isinstance(missing, InputError) and "has no measured links of several ranks" in str(missing)
    (tmp_path / "measured").mkdir()
    numbers = {"alone_gbps": [[0, 2, 2], [2, 0, 2], [2, 2, 0]], "shared": [], "pair_efficiency": 1.0}
    (tmp_path / "measured" / "ranks-3-01234567.json").write_text(json.dumps(numbers))
    found = json.loads(run("--links", "measured", "--ranks", "3", "--bytes", "1GB", "--json").output)
    assert found["devices"] == 3 and found["seconds"]["in_rounds"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--links", "0 1"), "no devices or no speed"),
        (("--links", FIGURE_9C, "--ranks", "5"), "has 4 devices, and 5 are needed"),
        (("--links", FIGURE_9C, "--bytes", "0"), "takes no time"),
        (("--links", FIGURE_9C, "--efficiency", "2"), "not shares"),
    ],
)
def test_mistakes_are_told(arguments: tuple[str, ...], problem: str) -> None:
    failed = run(*arguments)
    assert isinstance(failed.exception, InputError) and problem in str(failed.exception)


def test_without_nvidia_smi_the_links_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    failed = run("--links", "nvml")
    assert isinstance(failed.exception, InputError) and "has no nvidia-smi" in str(failed.exception)
