"""The recipe of a trained model, which decides its version, apart from the code that trains it.

Code that only needs the version of a recipe's model (the code server that lists assets, the leaderboard) imports this and not the trainer,
which imports torch.
"""

from collections.abc import Mapping
from types import MappingProxyType

from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Stage
from graphmill.assets.costs.needs import Need, Sizes
from graphmill.assets.features.config import EDGES, MAIN
from graphmill.assets.storage.files.digests import code_digests
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.memory import training_need, waiting_term
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.page import MODEL_PAGE, sentence
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.record.checks import LEDGER_EQUALS_PLAN, MODEL_CHECKS, MODEL_WARNINGS

START = "start"
"""Role of the model whose weights a training begins with."""
REUSED = ": the same recipe is trained already (--retrain trains it again)"
"""The reason why nothing was trained, appended to the name of a model."""


class ModelRecipe(Stage):
    """The half of the `model` stage that decides versions."""

    page: Page | None = MODEL_PAGE
    name = "model"
    code_version = 5
    Semantic = ModelConfig
    checks = MODEL_CHECKS
    warnings = MODEL_WARNINGS
    says = MappingProxyType(
        {
            "weights are finite": "No weight of the model is NaN or infinite; such a model is not published.",
            "score above chance": "The kept weights score better on the validation nodes than an answer that does not look at the "
            "node.",
            "loss fell": "The mean loss of the last epoch is below that of the first one, and all are finite.",
            "ledger equals plan": "What the training counted and moved is what the recipe, the stored samples and the cache plan "
            "predict, to the last byte.",
        }
    )

    def inputs(self, semantic: ModelConfig) -> Mapping[str, str]:
        """Returns the graph, its rows of nodes and edges, the stages that decide the weights (of technique and sampling), and the start."""
        sampling, start = semantic.sampling, {START: self.name} if semantic.train.start else {}
        stages = ("graph", "features", *semantic.train.inputs, *(sampling.inputs if sampling else ()))
        edges = {EDGES: MAIN} if semantic.train.edge_features else {}
        return {name: name for name in stages} | edges | start

    def expected_checks(self, semantic: ModelConfig) -> tuple[str, ...]:
        """Returns the model's checks; the ledger is tested if the technique predicts it."""
        predicts = find_technique(semantic.train.trainer).predicts
        return (*self.checks, LEDGER_EQUALS_PLAN) if predicts else self.checks

    def sentence(self, semantic: ModelConfig) -> str:
        """Returns model, trainer and sizes."""
        return sentence(semantic)

    def need(self, semantic: ModelConfig, execution: TrainExecution, sizes: Sizes) -> Need | None:
        """Returns the memory of a training with the processes that wait for it; None for a technique or a device without a formula."""
        found = training_need(semantic, execution, sizes)
        return None if found is None else found.beside(waiting_term())

    def raw(self, semantic: ModelConfig) -> Mapping[str, str]:
        """Returns role -> SHA-256 of the source of a user's model and sampling function; raises InputError if a module does not exist."""
        method = semantic.sampling.method if semantic.sampling else ""
        return code_digests({"model": semantic.train.model, "sampling": method})
