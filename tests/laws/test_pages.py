"""Every stage explains itself: what its asset is, why one wants it and what to look at, and where the docs go on."""

import re
from pathlib import Path

import pytest

from graphmill.assets.building.stage import Stage
from graphmill.assets.pipeline.catalogue import stages
from graphmill.trainers.inference.scoring.stage import ScoreStage
from graphmill.trainers.recipe.recipe import ModelRecipe

ROOT = Path(__file__).parents[2]
STAGES: list[Stage] = [*stages(), ModelRecipe(), ScoreStage()]
NAMES = [stage.name for stage in STAGES]


def sentences(text: str) -> list[str]:
    """Sentences of a text: each begins with a capital letter, and ends with a full stop."""
    return re.split(r"(?<=\.) (?=[A-Z])", text)


@pytest.mark.parametrize("stage", STAGES, ids=NAMES)
def test_the_page_of_a_stage_has_three_sentences_a_headline_and_kinds(stage: Stage) -> None:
    page = stage.page
    assert page is not None, f"{stage.name} has no page"
    assert len(sentences(page.about)) == 3 and page.about.endswith("."), page.about
    assert any(f"{verb} " in sentences(page.about)[2] for verb in ("Look at", "Observe")), "it says what to look at"
    assert page.docs == f"docs/stages/{stage.name}.md" and page.kinds
    assert not set(page.labels) & {""} and len(set(page.labels.values())) == len(page.labels), (
        "labels tell numbers apart"
    )


@pytest.mark.parametrize("stage", STAGES, ids=NAMES)
def test_what_a_stage_reads_from_outside_has_a_page(stage: Stage) -> None:
    if type(stage).external is not Stage.external:
        assert stage.external_page is not None and len(sentences(stage.external_page.about)) == 3


def test_no_two_pages_say_the_same() -> None:
    texts = [stage.page.about for stage in STAGES if stage.page]
    assert len(set(texts)) == len(STAGES)


def test_the_docs_have_the_pages() -> None:
    pages = [page for stage in STAGES for page in (stage.page, stage.external_page) if page]
    assert [page.docs for page in pages if not (ROOT / page.docs).is_file()] == []


@pytest.mark.parametrize("stage", STAGES, ids=NAMES)
def test_the_docs_name_every_check(stage: Stage) -> None:
    assert stage.page is not None
    text = " ".join((ROOT / stage.page.docs).read_text(encoding="utf-8").split())
    assert [name for name, sentence in stage.says.items() if f"| {name} | {sentence} |" not in text] == []
