"""The trainings that a plan compares: those of a pipeline file, and one for each technique that the file has no table for.

A variant is a pipeline file of its own, with one `[[train]]` table and the other tables that it needs. What the file says of a table is
kept; what it lacks is filled with defaults, and `[memory]` with sizes for the machine. A variant that the checks of pipeline files refuse
is kept with the reason. `Planned` is one of them with what it is expected to take on this machine, `TechniquePlan` the choice among them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import tomlkit

from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.samples.config import OF_SAMPLING
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainConfig, TrainTable, find_table
from graphmill.trainers.recipe.costs.forecast import Forecast
from graphmill.trainers.recipe.techniques import TECHNIQUES, Technique

HEAD = ("name", "seed", "description", "owners", "tags", "graph", "task", "features", "run", "schedule")
"""Keys and tables of a file that every variant keeps."""
OWN_KEYS = ("trainer", "trial", "settings", "threads", "start")
"""Keys of a training that no other technique takes over from it."""
SAMPLING = {"fanouts": 10, "batch_size": 1024}
REUSE = 2
"""Sampling epochs of stored batches, if the file stores none."""
TRAINING = {"model": "sage"}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One training that is compared.

    Attributes:
        own: whether the file has it.
        pipeline: a file with the training; None if it is refused.
        refused: the reason; "" if it is not.
    """

    name: str
    technique: Technique
    own: bool
    pipeline: Pipeline | None = None
    refused: str = ""

    @property
    def table(self) -> TrainTable:
        """Its train table."""
        assert self.pipeline is not None
        return find_table(self.pipeline, self.name)


@dataclass(frozen=True, kw_only=True)
class Room:
    """Sizes that a machine has for features.

    Attributes:
        host: bytes of rows that memory may hold.
        disk: `disk` of a `[memory]` table.
    """

    host: int
    disk: str
    cores: int


def variants(pipeline: Pipeline, room: Room) -> list[Variant]:
    """Returns the trainings that a plan of a file compares: its own in order, then the other techniques.

    Args:
        room: what `[memory]` may say on this machine, if the file does not say it.
    """
    document = tomlkit.parse(pipeline.text).unwrap()
    own = [Variant(name=table.name, technique=table.technique, own=True, pipeline=pipeline) for table in pipeline.train]
    had = {each.technique.name for each in own}
    return [*own, *(_other(pipeline, document, each, room) for each in TECHNIQUES.values() if each.name not in had)]


def alone(pipeline: Pipeline, name: str) -> str:
    """Returns the text of a pipeline file with one of its trainings alone, and the tables that this one needs."""
    document = tomlkit.parse(pipeline.text)
    table = find_table(pipeline, name)
    needed = _tables(table.needs, (*table.inputs, *table.reads))
    kept = [entry for entry in document["train"] if entry["name"] == name]  # pyright: ignore
    trains = tomlkit.aot()
    for entry in kept:
        trains.append(entry)
    for tables in (needed, {*needed, "sampling", "memory"}, set(document)):
        tried = tomlkit.parse(pipeline.text)
        for other in set(document) - {*HEAD, *tables}:
            tried.remove(other)
        tried["train"] = trains
        if table.sample_set:
            own = tomlkit.aot()
            for each in document["samples"]:  # pyright: ignore
                if each["name"] == table.sample_set:
                    own.append(each)
            tried["samples"] = own
        text = tomlkit.dumps(tried)
        try:
            parse_pipeline(pipeline.path, text.encode(), TrainTable)
            return text
        except InputError:
            continue
    return pipeline.text


def _other(pipeline: Pipeline, document: Mapping[str, Any], technique: Technique, room: Room) -> Variant:
    """Returns the variant of a technique without a table: the first table's model, trained by it."""
    first = dict((document.get("train") or [TRAINING])[0])
    kept = {field.name for field in fields(TrainConfig)} - set(OWN_KEYS) | {"fanouts", "seeds", "feature_table"}
    entry: dict[str, Any] = {"name": technique.name.replace("-", "_"), "trainer": technique.name}
    entry |= {key: value for key, value in first.items() if key in kept}
    if technique.whole_graph:
        for key in ("fanouts", "accumulate", *(["eval"] if entry.get("eval") == "sampled" else [])):
            entry.pop(key, None)
    # Ranks that exchange rows have a key of their own.
    if "link" in first and (technique.whole_graph or not technique.by_parts):
        entry["link"] = first["link"]
    if technique.by_parts and not technique.whole_graph:
        entry[technique.name] = {"ranks": max(1, min(2, room.cores))}
    host = f"{room.host >> 20}MiB" if room.host >> 20 else room.host  # a size as a file has it
    defaults: dict[str, Any] = {
        "sampling": dict(SAMPLING), "partitions": {"parts": 2}, "chunks": {}, "samples": {}, "hotness": {}, "cache_plan": {},
        "memory": {"device": 0, "host": host, "disk": room.disk},
    }  # fmt: skip
    needed = _tables(technique.needs, (*technique.inputs, *(("samples", "cache_plan") if technique.stored else ())))
    if "cache_plan" in needed:
        needed |= {"hotness", "packed"}
    if "hotness" in needed:  # rows are cached by it, in as much memory as the file says or the machine has room for
        needed |= {"memory"}
    return _variant(pipeline, document, technique, entry, needed, defaults)


def _tables(needs: Collection[str], roles: Collection[str]) -> set[str]:
    by_stage = {stage.name: stage.table for stage in stages() if stage.table}
    return {*needs, *(by_stage[role] for role in roles if role in by_stage)}


def _variant(
    pipeline: Pipeline,
    document: Mapping[str, Any],
    technique: Technique,
    entry: Mapping[str, Any],
    needed: Collection[str],
    defaults: Mapping[str, Any],
) -> Variant:
    tables: dict[str, Any] = {}
    for name, value in document.items():
        if name in HEAD or name in needed:
            tables[name] = value
    for name, value in defaults.items():
        if name in needed and name not in tables:
            tables[name] = value
    # The set of the first training, or the first that is not by parts.
    if isinstance(sets := tables.get("samples"), list):
        fit = [each for each in sets if each.get("plan") != "parts"] or sets
        own = next((each for each in fit if each["name"] == document["train"][0].get("samples")), fit[0])
        drawn = {key: own[key] for key in OF_SAMPLING if key in own}
        tables["sampling"] = {**tables.get("sampling", {}), **drawn}
        tables["samples"] = {key: value for key, value in own.items() if key not in ("name", *OF_SAMPLING)}
    if technique.by_parts and "memory" in tables:  # ranks keep rows of others in the host's memory
        tables["memory"] = {key: size for key, size in tables["memory"].items() if key != "device"}
    if "samples" in needed and "sampling" in tables and not tables["sampling"].get("reuse"):
        tables["sampling"] = {**tables["sampling"], "reuse": REUSE}
    name = str(entry["name"])
    text = tomlkit.dumps(tables | {"train": [dict(entry)]})
    try:
        found = parse_pipeline(pipeline.path, text.encode(), TrainTable)
    except InputError as error:
        return Variant(name=name, technique=technique, own=False, refused=_reason(error))
    return Variant(name=name, technique=technique, own=False, pipeline=found)


def _reason(error: InputError) -> str:
    """Returns the first mistake of a file, without its place."""
    lines = error.problem.splitlines()
    first = lines[1] if len(lines) > 1 else lines[0]
    return first.partition(".toml:")[2].partition(": ")[2] or first.strip()


TIE = 0.1
"""Share by which seconds differ before one technique counts as faster than another."""
PIECES = ("start", "evaluation", "scores")
"""What a training takes once, besides its epochs."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One training of a plan.

    Attributes:
        forecast: what it is expected to take; None if it is refused, or if there is no formula for it.
        why: reason why there is no forecast, if its variant is not refused.
        fits: whether its memory fits the machine's.
        stages: name of a step that it needs and the store lacks -> seconds of its build; those of unknown speed are 0.
        epochs: number of its epochs, of all seeds.
        seeds: number of its seeds, which share what is prepared.
        evaluation: the way of its evaluations with the reason, in words, if the file leaves it open; "" if not.
    """

    variant: Variant
    forecast: Forecast | None = None
    why: str = ""
    fits: bool = False
    stages: Mapping[str, float] = field(default_factory=dict)
    epochs: int = 0
    seeds: int = 1
    evaluation: str = ""

    @property
    def preparing(self) -> float:
        """Seconds of all stages that are not built."""
        return sum(self.stages.values())

    @property
    def own_preparing(self) -> float:
        """Seconds of those besides the graph and its features, which every training needs."""
        return sum(seconds for name, seconds in self.stages.items() if not _is_common(name))

    @property
    def epoch_seconds(self) -> float:
        """Seconds of an epoch; infinite if they are not known."""
        known = self.forecast is not None and self.forecast.epoch_seconds is not None
        return float(self.forecast.epoch_seconds) if known else float("inf")  # pyright: ignore

    def of_seeds(self, piece: str) -> float:
        """Returns the seconds of a piece of the forecast, "start", "evaluation" or "scores", of all seeds; infinite likewise."""
        known = self.epoch_seconds < float("inf")
        return self.seeds * getattr(self.forecast, f"{piece}_seconds") if known else float("inf")

    @property
    def total_seconds(self) -> float:
        """Seconds that a user waits, of all seeds: preparing, starting, epochs, evaluations and final scores."""
        return self.preparing + self.epochs * self.epoch_seconds + sum(map(self.of_seeds, PIECES))

    @property
    def memory_bytes(self) -> float:
        """Bytes of memory that it is expected to take; infinite if they are not known."""
        known = None if self.forecast is None else self.forecast.memory_bytes
        return float("inf") if known is None else known

    @property
    def exact(self) -> bool:
        """Whether it trains on whole mini-batches, so that its epochs are worth as much as those of the others."""
        technique = self.variant.technique
        return not technique.approximate and not technique.whole_graph


@dataclass(frozen=True, kw_only=True)
class TechniquePlan:
    """The result.

    Attributes:
        rows: the trainings, in the order of the file, then the other techniques.
        built: whether the graph is built; else one that is drawn stands in for it.
        text: text of a file with the chosen training alone; "" if none fits.
    """

    pipeline: Pipeline
    rows: Sequence[Planned]
    memory_bytes: int
    built: bool
    text: str = ""

    @property
    def chosen(self) -> Planned | None:
        """Of the trainings that fit and wait least, within `TIE`, the one that prepares least, and of these the one with least memory.

        One without whole mini-batches is chosen only if no other fits.
        """
        fit = [row for row in self.rows if row.fits and row.forecast is not None]
        compared = [row for row in fit if row.exact] or fit
        least = min((row.total_seconds for row in compared), default=0.0)
        ties = [row for row in compared if row.total_seconds <= (1 + TIE) * least]
        return min(ties, key=lambda row: (row.own_preparing, row.memory_bytes), default=None)

    def paid_back(self, row: Planned) -> float | None:
        """Returns the number of epochs, of all seeds, after which a training's preparation is paid back against the best one without it.

        Returns:
            The number; 0 if nothing is to be prepared, None if it is never paid back, or if nothing is there to compare.
        """
        if not row.own_preparing:
            return 0.0
        others = [each for each in self.rows if not each.own_preparing and each.fits and each.exact and each is not row]
        best = min((each.epoch_seconds for each in others), default=float("inf"))
        spared = best - row.epoch_seconds
        return row.own_preparing / spared if 0 < spared < float("inf") else None


def _is_common(name: str) -> bool:
    return name.partition(",")[0].partition("_")[0] in ("graph", "features")
