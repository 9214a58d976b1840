"""What decides the version of a trained model, apart from the code that trains it.

Whoever only needs to know which model a recipe means (the code server that lists assets, the leaderboard) imports this and not the
trainer, which imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainers.config import ModelConfig

MODEL_CHECKS = ("weights are finite",)
"""What the model stage tests; the UI lists checks before they have run."""


class ModelRecipe:
    """The half of the `model` stage that decides versions."""

    name = "model"
    code_version = 1
    Semantic = ModelConfig

    def inputs(self, semantic: ModelConfig) -> Mapping[str, str]:
        """Training reads a graph."""
        return {"graph": "graph"}

    def raw(self, semantic: ModelConfig) -> Mapping[str, str]:
        """Nothing enters but artifacts."""
        return {}
