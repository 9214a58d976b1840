"""The description of an asset, in Markdown."""

from __future__ import annotations

from assets.building.page import Page
from assets.pipeline.steps import Step
from assets.storage.home import ROOT


def describe(step: Step, page: Page | None, more: str) -> str:
    """Returns what an asset is, in Markdown: what its pipeline says, what its stage says, where to read on, and how it is built."""
    about = page.about if page else f"Stage `{step.recipe.name}` of pipeline `{step.pipeline}`."
    count = f" It has {len(step.configs)} models, one per seed." if len(step.configs) > 1 else ""
    read_on = f"More about it: `{page.docs}` in `{ROOT}`." if page else ""
    return "\n\n".join(part for part in (step.origin.notes.description, about + count, read_on, more) if part)
