"""docs/environment.md has the table of variables as the code has it."""

from tests.docs.environment_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "make docs (python -m tests.docs.environment_page) writes it anew"
    )
