"""docs/stages/ says what the stages say of themselves."""

import pytest

from tests.docs.stage_pages import FOLDER, pages

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == PAGES[name], "make docs writes it anew"


def test_there_are_no_other_pages() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(PAGES)
