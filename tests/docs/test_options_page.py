"""docs/choosing.md has the table of options as the techniques state it."""

from tests.docs.options_page import PAGE, page


def test_the_table_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make docs (python -m tests.docs.options_page) writes it anew"
