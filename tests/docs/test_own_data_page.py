"""docs/own-data.md shows what the commands write for folders of tables."""

from tests.assets.sources.folders import FOLDERS
from tests.docs.own_data_page import PAGE, printed_scores, text


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(), "make docs (python -m tests.docs.own_data_page) writes it anew"


def test_every_folder_has_a_section_and_scores() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [*printed_scores()] == [*FOLDERS]
    assert all(page.count(f"<!--folder: {name}-->") == 1 for name in FOLDERS)
