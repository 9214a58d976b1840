"""Pipelines drawn from the schema over small graphs: one that `validate` accepts runs one step of every training.

A file is a sound one for one technique, of which some keys get values that are drawn by the fields of the dataclasses that read them:
few ordinary values, the bounds, and what lies outside. What it asks for is built, and each training makes one step.
"""

from __future__ import annotations

import dataclasses
import random
import re
import tomllib
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.jobs.commands.pipelines.checked import require_runnable
from graphmill.kernels.errors import InputError, each_mistake
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.adversary.attack import REFUSED, SOUND, Attack, WrongError
from tests.adversary.remedies import follow, follow_said, mistakes_of
from tests.laws.asked import ASKED, FEATURELESS, SBM, TABLES, TYPED, WIDE, Ask, pipeline_text
from tests.laws.made import Made
from tests.recipes import recipe
from tests.trainers.runs import Stops

SIZES = ("auto", "1", "64KiB", "200kB", "4MiB", "64MiB", "2GiB", "10%", "50%", "3x", "0", "1e3", "20")
TEXTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("queue", "workspace", "io_window", "eval_workspace", "memory", "device", "host", "disk", "arena"), SIZES),
    **dict.fromkeys(("t_stale", "stabilise"), (0, 1, 3, "epoch/2", "epoch/99", "forever", "epoch")),
    "weights": ("edge", "node:in_degree", "node:out_degree", "node:0", "node:99", "node:other"),
    "rates": ("", "12GB/s,200GB/s,1.5TB/s", "1GB/s"),
    "links": ("", "nowhere.json"),
    "seeds": ([0], [1, 2], [], [3, 3], [-1]),
    "fanouts": ([2, 2], [3, 2], 3, -1, [0, 2], [2], [-1, -1], [{"cites": 2}, 2], [2**31, 1], 100_000),
    "betas": ([0.9, 0.99], [0.0, 0.0], [0.9], [1.0, 0.5]),
    "class_weights": ("balanced", "none", [1, 2, 3], [1, 1], [0, 0, 0], [1.0, 1.0, 1.0, 1.0]),
    "metrics_to": ([], ["tensorboard"], ["nothing"]),
    "schedule": ([], [{"epoch": 2, "fanouts": [2, 2]}], [{"epoch": 1, "fanouts": [2, 2]}], [{"epoch": 2, "fanouts": [2]}]),
    "samples": ("online", "stored", "stored", "nowhere"),
    "split": (0, "random", [0.5, 0.2, 0.3]),
}  # fmt: skip
"""Key -> values of those whose annotation does not say what they mean."""
FIXED = {"name", "trainer", "metrics_to", "source", "device", "path"}
SMALL_INTS, EXTREME = (0, 1, 2, 3, 5, 7), (-1, 10**5, 2**31, 2**63 - 1)
GRAPHS = (SBM, SBM, SBM, TYPED, FEATURELESS, WIDE, TABLES)
"""Graphs of the files."""


def drawn_text(seed: int) -> str:
    """Returns the text of a pipeline file."""
    draw = random.Random(seed)
    trainer = draw.choice(sorted(TECHNIQUES))
    asked = Ask(graph=draw.choice(GRAPHS))
    if asked.graph is WIDE and draw.random() < 0.7:
        asked = dataclasses.replace(asked, keys={"input": "typed"})
    for option in draw.sample(sorted(ASKED), draw.choice((0, 0, 1, 1, 2))):
        if option not in ("topology", "uva"):
            more = ASKED[option]
            asked = dataclasses.replace(asked, graph={}) | more if more.graph else asked | more
    raw = tomllib.loads(pipeline_text(trainer, asked))
    if draw.random() < 0.2:
        raw.setdefault("features", {})["dtype"] = draw.choice(
            ("as stored", "float32", "float16", "bfloat16", "float64", "int8")
        )
    if draw.random() < 0.1 and "sampling" in raw:
        raw["sampling"] |= {"method": "weighted", "weights": draw.choice(TEXTS["weights"])}
    for _ in range(draw.choice((0, 1, 1, 2, 2, 3))):
        table, fields = draw.choice([*_tables(raw)])
        key, hint, bounds = draw.choice(fields)
        table[key] = drawn_value(draw, key, hint, bounds)
    if draw.random() < 0.1:
        raw.pop(draw.choice(sorted({*raw} - {"graph", "train"})), None)
    trains = raw.pop("train")
    return recipe(*trains, **raw)


def _tables(raw: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[tuple[str, Any, Any]]]]:
    """Yields the tables of a file, each with the keys that its schema has: (key, annotation, metadata)."""
    for stage in stages():
        if stage.table in raw and dataclasses.is_dataclass(getattr(stage, "Table", None)):
            yield raw[stage.table], _keys(stage.Table)
    yield raw["graph"], _keys(config_class(raw["graph"]["source"]))
    if "sampling" in raw:
        yield raw["sampling"], _keys(SamplingConfig)
    for entry in raw["train"]:
        # Most keys are of trainings.
        yield from [(entry, _keys(TrainTable))] * 3
        settings = TECHNIQUES[entry["trainer"]].settings_type()
        if settings is not None:
            yield entry.setdefault(entry["trainer"], {}), _keys(settings)


def _keys(kind: type) -> list[tuple[str, Any, Any]]:
    hints = typing.get_type_hints(kind)
    return [
        (each.name, hints[each.name], each.metadata)
        for each in dataclasses.fields(kind)
        if each.init and each.metadata.get("key", True) and each.name not in FIXED
    ]


def drawn_value(draw: random.Random, key: str, hint: Any, bounds: Any) -> Any:
    """Returns a value of a key: most often one that its annotation and its bounds allow."""
    if key in TEXTS:
        return draw.choice(TEXTS[key])
    if draw.random() < 0.03:
        return draw.choice((True, -1, "", "x", [], 0.5, 2**31))
    origin, args = typing.get_origin(hint), [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
    if origin in (typing.Union, types.UnionType):
        return drawn_value(draw, key, draw.choice(args), bounds)
    if origin is typing.Literal:
        return draw.choice(typing.get_args(hint))
    if hint is bool:
        return draw.random() < 0.5
    if hint in (int, float):
        return _number(draw, hint, bounds)
    return "x" if hint in (str, Path) else []


def _number(draw: random.Random, hint: type, bounds: Any) -> int | float:
    least, most = bounds.get("least"), bounds.get("most")
    ends = [end for end in (least, most) if end is not None]
    if draw.random() < 0.15:
        found = draw.choice([*EXTREME, *ends, *(end + 1 for end in ends), *(end - 1 for end in ends)])
    else:
        found = draw.choice(SMALL_INTS) if hint is int else draw.choice((0.0, 0.1, 0.5, 0.9, 1.0, 2.0))
    return hint(found)


def validated(made: Made, text: str) -> Pipeline:
    """Returns the pipeline of a text, checked as `graphmill validate` does.

    Raises:
        InputError: it is refused.
    """
    pipeline = parse_pipeline(made.folder / "mine.toml", text.encode(), TrainTable, files=True)
    require_runnable(pipeline, made.store.home)
    return pipeline


UNREAD = (
    "is not finite",
    "is negative",
    "asks for",
    "of disk, the budget has",
    "is too small: with one disk cache",
    "0 edges after loops and duplicates",
)
"""Beginnings of refusals that only drawn batches and computed numbers decide."""


LONG = re.compile(r"= \d{4}")
"""A number that makes work long."""


def one_step(made: Made, text: str) -> str:
    """Validates a pipeline, builds its data, and makes a step of its training; returns how it ended. Remedies are followed once.

    Raises:
        WrongError: what was accepted is refused later, by something that was known before; or a remedy changes nothing.
    """
    try:
        pipeline = validated(made, text)
    except InputError as error:
        follow_once(lambda text: validated(made, text), text, error)
        return REFUSED
    if LONG.search(text):  # it would run for minutes
        return SOUND
    try:
        begin(made, pipeline)
    except InputError as error:
        if not any(words in str(error) for words in UNREAD):
            raise WrongError(f"accepted, and refused later: {error}\n{text}") from error
        follow_once(lambda text: begin(made, validated(made, text)), text, error)
    return SOUND


def begin(made: Made, pipeline: Pipeline) -> None:
    """Builds the data of a pipeline, and makes a step of each training."""
    made.build(pipeline)
    for table in pipeline.train:
        first = dataclasses.replace(table, seeds=table.seeds[:1])
        try:
            made.train(dataclasses.replace(pipeline, train=(first,)), progress=Stops(1))
        except ConnectionAbortedError:
            return


def follow_once(attempt: Callable[[str], object], text: str, error: InputError) -> bool:
    """Follows a remedy of a refusal that names no line, if it can be applied word for word; tells whether it was.

    Args:
        attempt: what was refused for the text.

    Raises:
        WrongError: it changes nothing, or the same is refused again.
    """
    step = follow_said(text, error)
    if step is None:
        return False
    try:
        attempt(step.text)
        again = step.text == text
    except InputError as other:
        again = step.said in [each.problem for each in each_mistake(other)]
    if again:
        raise WrongError(f"the remedy {step.key} = {step.value} of: {step.said}\nchanges nothing\n{text}") from error
    return True


WRONG = (-1, 10**5, "x", [], 0.5, "", True, "-1")
"""Values of which each key refuses some."""


def wrong_texts() -> Iterator[str]:
    """Yields a file for each key of each table and technique, with a value that few keys take."""
    for number, trainer in enumerate(sorted(TECHNIQUES)):
        raw = tomllib.loads(pipeline_text(trainer, Ask()))
        keys = {(id(table), key): table for table, fields in [*_tables(raw)] for key, *_ in fields}
        for place, ((_, key), table) in enumerate(keys.items()):
            before = dict(table)
            table[key] = WRONG[(place + number) % len(WRONG)]
            yield recipe(*raw["train"], **{name: each for name, each in raw.items() if name != "train"})
            table.clear()
            table.update(before)


def followed(text: str) -> int:
    """Follows the remedies of a file, one after the other; returns the number of them.

    Raises:
        WrongError: a remedy is refused, changes nothing, or leads back.
    """
    seen = {text}
    for count in range(MOST_REMEDIES):
        try:
            load(text)
        except InputError as error:
            step = follow(text, error)
            if step is None:
                return count
            before = {said for _, said in mistakes_of(error)}
            for said in mistakes_after(step.text):
                new = said not in before and (
                    f"no key {step.key}" in said or said.startswith(f"{step.key} = {step.value}")
                )
                if said == step.said or (step.key and new and "needs a table" not in said):
                    raise WrongError(f"the remedy of: {step.said}\nleads to: {said}\n{text}") from error
            if step.text in seen:
                raise WrongError(f"the remedy of: {step.said}\nleads back\n{text}") from error
            text = step.text
            seen.add(text)
        else:
            return count
    raise WrongError(f"no end of remedies: {text}")


MOST_REMEDIES = 20


def load(text: str) -> Pipeline:
    """Returns the pipeline of a text, without a look at files."""
    return parse_pipeline(Path("/nowhere/mine.toml"), text.encode(), TrainTable)


def mistakes_after(text: str) -> list[str]:
    """Returns the mistakes of a text."""
    try:
        load(text)
    except InputError as error:
        return [said for _, said in mistakes_of(error)]
    return []


def drawn_files(folder: Path) -> Attack:
    """Returns the attack: a drawn file is refused, or makes a step; and every remedy that it gets works."""

    def attack(seed: int, folder: Path) -> str:
        text = drawn_text(seed)
        followed(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return one_step(made_in(folder), text)

    return attack


@cache
def made_in(folder: Path) -> Made:
    """Returns the folder of pipelines of a process."""
    (folder / "drawn").mkdir(parents=True, exist_ok=True)
    return Made(folder / "drawn")
