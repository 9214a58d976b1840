"""The command line of a benchmark that measures parts of itself."""

import pytest

from benchmarks.command_line import asked_for

NAMES = ("ways", "links")


@pytest.mark.parametrize(
    "given, expected",
    [
        ([], (False, NAMES)),
        (["--quick"], (True, NAMES)),
        (["links"], (False, ("links",))),
        (["links", "--quick", "ways"], (True, ("links", "ways"))),
    ],
)
def test_names_and_scale_are_read_and_all_is_measured_without_a_name(given: list[str], expected: tuple) -> None:
    assert asked_for(NAMES, "part", given) == expected


def test_an_unknown_name_is_told_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        asked_for(NAMES, "part", ["ways", "lanes"])
    assert "no part lanes; there are ways, links" in capsys.readouterr().err
