"""docs/cli.md says what the commands say of themselves."""

from tests.docs.cli_page import PAGE, text


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(), "make docs (python -m tests.docs.cli_page) writes it anew"
