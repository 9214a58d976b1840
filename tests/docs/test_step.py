"""The training step that docs/architecture.md shows is the one that trainings take."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.optimiser import make_optimiser
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import MappedSource, RowIds
from tests.docs.pages import ROOT, fences
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.runs import SAMPLING, TABLE, train_small

SEED = 5


def test_the_twelve_lines_give_the_weights_of_a_training(tmp_path: Path) -> None:
    (step,) = [
        fence.text
        for fence in fences(ROOT / "docs" / "architecture.md")
        if fence.language == "python" and "optimiser.step()" in fence.text
    ]
    assert len(step.strip().splitlines()) == 12
    options = {"model": "gcn", "epochs": 1, "accumulate": 1, "dropout": 0.5}
    trained = train_small(tmp_path, **options)
    graph = random_graph_artifacts(tmp_path).open()
    config = TrainTable(**(TABLE | options)).config
    rows, ledger = MappedSource(graph.features), Ledger()
    model = build_model(config, rows.width, graph.num_classes, SEED)
    names = {
        "plan": EpochPlan(np.array(graph.train_ids), SAMPLING.batch_size, seed=SEED),
        "sampler": Sampler(graph.topology, SAMPLING.fanouts, seed=SEED),
        "optimiser": make_optimiser(model.parameters(), config),
        "epoch": 0, "seed": SEED, "graph": graph, "rows": rows, "model": model, "ledger": ledger,
        "torch": torch, "attach_weights": attach_weights, "RowIds": RowIds, "StepRandom": StepRandom, "cross_entropy": cross_entropy,
    }  # fmt: skip
    model.train()
    exec(step, names)
    weights = load_file(trained.path / "weights.safetensors")
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    assert ledger.rows()["moves"]
