"""What decides the version of a trained model, apart from the code that trains it.

Whoever only needs to know which model a recipe means (the code server that lists assets, the leaderboard) imports this and not the
trainer, which imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping

from assets.building.stage import Stage
from assets.storage.user_code import code_digests
from trainers.config import ModelConfig
from trainers.page import MODEL_PAGE
from trainers.techniques import find_technique


class ModelRecipe(Stage):
    """The half of the `model` stage that decides versions."""

    page = MODEL_PAGE
    name = "model"
    code_version = 1
    Semantic = ModelConfig
    checks = ("weights are finite",)

    def inputs(self, semantic: ModelConfig) -> Mapping[str, str]:
        """Training reads a graph and its features, and what decides the weights of its technique."""
        return {name: name for name in ("graph", "features", *find_technique(semantic.train.trainer).inputs)}

    def raw(self, semantic: ModelConfig) -> Mapping[str, str]:
        """The user's own code enters besides artifacts; see `model_code`."""
        return model_code(semantic)


def model_code(semantic: ModelConfig) -> Mapping[str, str]:
    """Returns role -> SHA-256 of the source file of the user's own model and sampling function, where the recipe names them.

    Raises:
        InputError: there is no such module.
    """
    return code_digests(
        {"model": semantic.train.model, "sampling": semantic.sampling.method if semantic.sampling else ""}
    )
