"""Laws 2 and 5 for every technique beside what may go with it: types of numbers, schedules, ways of drawing, an early stop.

The table is recipe x technique, and no cell is left out: what a cell proves is said in `CELLS` (tests/laws/trainings.py), and a recipe that
a technique refuses is refused by `graphmill validate`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.sampling.config import FanoutStep
from graphmill.assets.storage.names.user_code import Reference
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.laws.trainings import SAMPLING, Case, Recipe, assert_promised, case_of
from tests.recipes import recipe, sbm
from tests.trainers.runs import WALKS, WEIGHTED

STEPS = (FanoutStep(epoch=2, fanouts=(2, 1)), FanoutStep(epoch=3, fanouts=(6, -1)))
CHOSEN = Reference("chosen_by_hand:rare_ones", Path(__file__).parent)
RANKED = [name for name, row in TECHNIQUES.items() if row.own_shards]
LEARNING: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5, "label_smoothing": 0.1}

RECIPES = {
    "bfloat16": Recipe(table={"model": "gat", "heads": 2, "dtype": "bf16", "norm": "layer", "input": "linear"}),
    "rates, drawn by hand": Recipe(
        table={"model": "gin", "lr_schedule": "cosine", "warmup": 1, "class_weights": "balanced", **LEARNING},
        sampling=replace(SAMPLING, method=CHOSEN),
    ),
    "fan-outs by epoch": Recipe(
        table={"residual": True},
        sampling=replace(SAMPLING, schedule=STEPS),
        refused={"disk": "drawn with one list of fan-outs"},
    ),
    "early stop, weighted": Recipe(
        table={"model": "sage", "patience": 2, "epochs": 30, "eval_every": 1, "lr": 0.1},
        sampling=replace(WEIGHTED, batch_size=SAMPLING.batch_size),
    ),
    "walks": Recipe(table={"model": "pinsage"}, sampling=replace(WALKS, batch_size=SAMPLING.batch_size)),
}


case = case_of(RECIPES)


@pytest.mark.parametrize("trainer", TECHNIQUES)
def test_each_technique_keeps_its_promises(case: Case, trainer: str) -> None:
    assert_promised(case, trainer)


TYPED: dict[str, Any] = {"source": "typed_citation", "nodes": 600, "edges": 2000, "features": 8, "classes": 4}
PARTS: dict[str, Any] = {"partitions": {"parts": 2}, "chunks": {}}
BY_RELATION: dict[str, Any] = {"fanouts": [{"writes": 3}, 2]}
STORED: dict[str, Any] = {"samples": "stored", "trainer": "fresh", "fresh": {"rows": "packed"}}


def of(trainer: str, **settings: Any) -> dict[str, Any]:
    """The keys of a technique with its settings."""
    return {"trainer": trainer, trainer: settings}


REFUSED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    *(
        ({"model": model}, {"method": "random_walk"}, {}, f'model = "{model}" reads relations, but .* walks visit')
        for model in ("rgcn", "rgat")
    ),
    ({"model": "rgcn"}, {"method": CHOSEN}, {}, "by your own function, whose edges have none"),
    ({"model": "rgcn", "eval": "sampled", "trainer": "fullgraph"}, {"method": "random_walk"}, PARTS, "walks visit"),
    *(
        (
            of(trainer, scheme="unfused"),
            {"method": "random_walk"},
            PARTS,
            'with scheme = "unfused" draws by method = "uniform"',
        )
        for trainer in RANKED
    ),
    *(
        (
            of(trainer, scheme="unfused") | {"model": "rgcn"},
            BY_RELATION,
            PARTS,
            "draws one number of neighbours per layer",
        )
        for trainer in RANKED
    ),
    (of("distributed", scheme="unfused") | BY_RELATION, {}, PARTS, "draws one number of neighbours per layer"),
    (of("distributed", scheme="vanilla"), {"schedule": [{"epoch": 2, "fanouts": [2, 2]}]}, PARTS, "no schedule"),
    (of("distributed", scheme="vanilla") | {"model": "rgcn"}, {}, PARTS, "draws edges without relations"),
    (of("fullgraph", devices=3), {}, PARTS, "devices = 3 does not divide"),
    ({"trainer": "fullgraph"}, {}, PARTS | {"chunks": {"self_term": False}}, "self_term = false"),
    (of("factored", presample=1), {}, {}, "no budget for one: add a table"),
    (
        of("factored", presample=1),
        {},
        {"hotness": {}, "memory": {}},
        "has no effect, since .* with presample counts visits itself: remove",
    ),
    (STORED, {"reuse": 2}, {"samples": {}}, r"rows = \"packed\" needs \[memory\] and \[cache_plan\]"),
    ({}, BY_RELATION, {"graph": sbm()}, "numbers per relation, and the edges .* have no relations here"),
    (BY_RELATION, {}, {"graph": sbm()}, "numbers per relation, and the edges .* have no relations here"),
    ({}, {"method": "weighted"}, {"graph": sbm()}, 'draws by edge weights, and source = "sbm" gives none here'),
]
"""Keys of [[train]], keys of [sampling], other tables, and the text of the refusal."""


@pytest.mark.parametrize(("train", "drawn", "tables", "problem"), REFUSED)
def test_what_no_training_could_do_is_refused_before_anything_is_built(
    train: dict[str, Any], drawn: dict[str, Any], tables: dict[str, Any], problem: str
) -> None:
    text = recipe(
        {"name": "x"} | train, **{"graph": TYPED, "sampling": {"fanouts": [4, 3], "batch_size": 32} | drawn} | tables
    )
    with pytest.raises(InputError, match=rf"toml:\d+: .*{problem}"):
        parse_pipeline(Path(__file__).with_suffix(".toml"), text.encode(), TrainTable)
