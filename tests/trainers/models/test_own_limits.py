"""Users' own models that fail are found before anything is built: each is made, and computes a batch of three nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.own import WidthError, require_width
from graphmill.trainers.models.own_limits import model_problems
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import recipe, sbm
from tests.trainers.models.test_own import written

CODE = """
import torch
from torch import nn
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer

class Net(nn.Module):
    # A sum along edge_index; each subclass has one mistake, or reads an attribute of edges that a graph may have.
    extra = 0
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.linear = nn.Linear(in_width, num_classes + self.extra)
    def forward(self, blocks, x):
        for block in blocks:
            source, destination = block.edge_index
            x = torch.zeros(block.size[1], x.shape[1]).index_add(0, destination, x[source] * self.factor(block))
        return self.linear(x)
    def factor(self, block):
        return 1

class Misspelt(Net):
    def factor(self, block):
        return block.edge_wieght

class Wide(Net):
    extra = 2

class Fixed(Net):
    def __init__(self, in_width, num_classes, config):
        super().__init__(5, 4, config)

class Constructor(Net):
    def __init__(self, in_width):
        super().__init__()

class AllRows(Net):
    def forward(self, blocks, x):
        return self.linear(x)

class Tuple(Net):
    def forward(self, blocks, x):
        return super().forward(blocks, x), x

class Weighted(Net):
    def factor(self, block):
        return (block.edge_weight * block.share)[:, None]

class Related(Net):
    def factor(self, block):
        return 1 + block.edge_type[:, None]

def layers(in_width, num_classes, config):
    return [SageLayer(in_width, 8, LayerOptions()), SageLayer(8, num_classes, LayerOptions(last=True))]

def narrow(in_width, num_classes, config):
    return [SageLayer(in_width, 8, LayerOptions()), SageLayer(7, num_classes, LayerOptions(last=True))]

def wide(in_width, num_classes, config):
    return layers(in_width, num_classes + 1, config)
"""
FOUND_ALWAYS = {
    "Missing": "has no Missing: it has torch, nn, LayerOptions",
    "Misspelt": r"failed for a batch of 3 nodes \(tried.py:\d+\): AttributeError: .*edge_wieght",
    "Constructor": r"tried:Constructor\(\d+, \d+, config\) failed: TypeError",
    "AllRows": r"returned \[8, \d+\] for 3 seeds",
    "Tuple": "returned tuple for 3 seeds",
}
FOUND_WITH_SIZES = {
    "Wide": "returned 7 columns, and the labels have 5: make its last layer num_classes wide",
    "Fixed": r"failed for a batch of 3 nodes \(tried.py:\d+\): RuntimeError",
    "wide": "returned 6 columns, and the labels have 5",
    "narrow": "failed for a batch of 3 nodes: RuntimeError",
}
SOUND = ("Net", "Weighted", "Related", "layers")
KNOWN = (6, 5)


def problems(folder: Path, name: str, known: tuple[int, int] | None, **keys: str) -> list[str]:
    """The problems of a model of `CODE`, of a graph with so many columns and classes."""
    form = {} if name in ("layers", "wide", "narrow") else {"blocks": "pyg"}
    table = {"name": "mine", "model": f"tried:{name}"} | form | keys
    text = recipe(table, graph=sbm(), sampling={"fanouts": [4, 4], "batch_size": 64})
    pipeline = parse_pipeline(folder / "mine.toml", text.encode(), TrainTable)
    found = [*model_problems(pipeline, {"mine": known} if known else {})]
    assert all(path == ("train", 0, "model") for path, _ in found)
    return [text for _, text in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `CODE`, in a module that Python loads once."""
    return written(tmp_path_factory.mktemp("tried"), "tried", CODE)


@pytest.mark.parametrize("known", [KNOWN, None])
@pytest.mark.parametrize("name", [*FOUND_ALWAYS, *FOUND_WITH_SIZES, *SOUND])
def test_each_mistake_is_found_and_no_sound_model_is_refused(
    folder: Path, name: str, known: tuple[int, int] | None
) -> None:
    """Mistakes about numbers of columns are found if these are known; others in any case."""
    found = problems(folder, name, known)
    wanted = FOUND_ALWAYS.get(name) or (FOUND_WITH_SIZES.get(name) if known else None)
    if wanted is None:
        assert found == []
    else:
        with pytest.raises(InputError, match=wanted):
            raise InputError("; ".join(found))


def test_a_training_refuses_logits_of_another_width(folder: Path) -> None:
    with pytest.raises(WidthError, match="returned 4 columns, and the labels have 3"):
        require_width(torch.zeros(2, 4), 3, "mine")
