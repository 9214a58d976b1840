"""The description of an asset, in Markdown."""

from __future__ import annotations

from assets.building.page import Page
from assets.pipeline.steps import Step
from assets.storage.home import ROOT


def describe(step: Step, page: Page | None, more: str) -> str:
    """Returns the description of an asset in Markdown: the texts of its pipeline and its stage, its page in the docs, and its command."""
    about = page.about if page else f"Stage `{step.recipe.name}` of pipeline `{step.pipeline}`."
    count = f" {_count(step)}" if len(step.configs) > 1 else ""
    read_on = f"More about it: `{page.docs}` in `{ROOT}`." if page else ""
    return "\n\n".join(part for part in (step.origin.notes.description, about + count, read_on, more) if part)


def _count(step: Step) -> str:
    """Returns the sentence about a step with several artifacts."""
    if not step.splits:
        return f"It has {len(step.configs)} models, one per seed."
    seeds = len(step.configs) // len(step.splits)
    each = "one" if seeds == 1 else f"{seeds}, one per seed,"
    what = "models" if step.recipe.name == "model" else "artifacts"
    return f"It has {len(step.configs)} {what}, {each} for each of the splits {', '.join(one.split for one in step.splits)}."
