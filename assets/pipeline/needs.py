"""What the steps of a pipeline will take of the machine, before anything is built: `graphmill inspect` and `validate` print it.

What the store has already is counted exactly. Of the rest the source's survey says how large the graph can be, and the configs of the
steps between say what they will make of it; so a number is a bound, or exact if it depends on nothing that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphmill.assets.costs.needs import EDGE_ROLE, Need, Sizes, known_sizes
from graphmill.assets.pipeline.steps import Step, Versions, recipe_hash
from graphmill.assets.sources.stage import SourceStage
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store


@dataclass(frozen=True, kw_only=True)
class StepNeed:
    """One step of a pipeline, of one split.

    Attributes:
        missing: number of its artifacts that are to be built; 0 if it is there.
        need: the need of one of them; None if it is there, or its stage has no formula.
        seconds: how long all missing ones take; None if no speed is known.
        measured: whether the speed was measured in this home.
    """

    step: Step
    missing: int
    need: Need | None = None
    seconds: float | None = None
    measured: bool = False

    @property
    def name(self) -> str:
        """The step, and its split if there are several."""
        return f"{self.step.name}, split {self.step.split}" if self.step.split else self.step.name

    @property
    def stored(self) -> int:
        """Bytes that all missing artifacts will take in the store."""
        return self.missing * self.need.stored if self.need else 0


def step_needs(
    steps: Sequence[Step], store: Store, execution_of: Callable[[Step], Any], known: KnownSizes | None = None
) -> list[StepNeed]:
    """Returns the needs of steps, in their order. Builds nothing; reads the headers of the source, and of CSV files all rows once.

    Args:
        steps: steps of one pipeline, joined or of one split; inputs stand before their readers.
        known: what earlier calls found out about the same pipeline or variants of it; None for a single call.

    Raises:
        InputError: the source is missing, or it cannot be read.
    """
    known, speeds = known or KnownSizes(store), _speeds(store)
    found = []
    for step in (one for each in steps for one in each.apart):
        missing = known.missing(step)
        if not missing:
            found.append(StepNeed(step=step, missing=0))
            continue
        need = step.recipe.need(step.configs[0], execution_of(step), known.sizes(step))
        reference, own = step.recipe.speed, speeds.get(step.recipe.name)
        speed = own or (reference.per_second if reference else None)
        seconds = missing * need.work / speed if need and speed and need.work else None
        if seconds is not None and own is None and need is not None and need.passes is not None:
            seconds += missing * need.passes.seconds
        found.append(StepNeed(step=step, missing=missing, need=need, seconds=seconds, measured=own is not None))
    return found


class KnownSizes:
    """What is known of the artifacts of steps: those that exist, and the surveys of sources."""

    def __init__(self, store: Store):
        self.store, self.versions = store, Versions()
        self._found: dict[tuple[str, str], list[Artifact | None]] = {}
        self._surveyed: dict[tuple[str, str], Sizes] = {}

    def missing(self, step: Step) -> int:
        """Returns the number of a step's artifacts that the store lacks."""
        return sum(each is None for each in self.artifacts(step))

    def artifacts(self, step: Step) -> list[Artifact | None]:
        """Returns the artifacts of a step, None for each that is missing."""
        # Two tables of a source may have equal recipes: the name says which table it is.
        key = step.name, recipe_hash(step)
        if key not in self._found:
            self._found[key] = self._find(step)
        return self._found[key]

    def _find(self, step: Step) -> list[Artifact | None]:
        # Raw content is digested only if the store may have what was built from it.
        absent = any(self.missing(source) for source in step.inputs.values())
        name = step.recipe.name
        there = any((self.store.root / name).glob("[!.]*")) or self.store.backend.addresses(name)
        if absent or not there:
            return [None] * len(step.configs)
        return [self.store.find(name, version) for version in self.versions.of(step)]

    def sizes(self, step: Step) -> Sizes:
        """Returns the sizes that a step will find: of artifacts as far as they exist, else the most that they can be."""
        if isinstance(step.recipe, SourceStage):
            return self._survey(step)
        read = _read_by(step)
        artifacts = {role: self.artifacts(source)[0] for role, source in read.items()}
        exist = {role: artifact for role, artifact in artifacts.items() if artifact is not None}
        features = self._survey(read["features"]) if artifacts.get("features", 0) is None else None
        if "graph" in exist:
            sizes = known_sizes(exist)
        else:
            # A step may read the features alone, which exist before the graph does.
            sizes = self._survey(read["graph"]) if "graph" in read else features or known_sizes(exist)
        if features is not None:
            names = ("num_rows", "width", "row_bytes", "type_widths")
            sizes = replace(sizes, **{name: getattr(features, name) for name in names})
        if artifacts.get(EDGE_ROLE, 0) is None:
            edges = self._survey(read[EDGE_ROLE])
            sizes = sizes.with_edge_rows(edges.num_rows, edges.width, edges.row_bytes)
        configs = {role: source.configs[0] for role, source in read.items()}
        return replace(sizes, configs=configs, artifacts=exist, survey=None)

    def _survey(self, step: Step) -> Sizes:
        # Two tables of a source may have equal recipes: the name says which table it is.
        key = step.name, recipe_hash(step)
        if key not in self._surveyed:
            assert isinstance(step.recipe, SourceStage)
            self._surveyed[key] = step.recipe.known(step.configs[0])
        return self._surveyed[key]


def _read_by(step: Step) -> Mapping[str, Step]:
    """Returns role -> step for everything that a step reads, directly or through others; the nearest one of a role."""
    found, waiting = dict(step.sources), list(step.sources.values())
    while waiting:
        for role, source in waiting.pop(0).sources.items():
            if role not in found:
                found[role] = source
                waiting.append(source)
    return found


LEAST_SECONDS = 2.0
"""A build that took less says nothing of the speed: most of its time went into what is the same for every size."""


def _speeds(store: Store) -> Mapping[str, float]:
    """Returns stage -> units of work per second of the artifact whose build took longest, if it took long enough to tell."""
    from graphmill.assets.pipeline.catalogue import stages

    numbers = {stage.name: stage.speed.number for stage in stages() if stage.speed}
    longest: dict[str, tuple[float, float]] = {}
    for artifact in store.artifacts():
        if artifact.stage in numbers:
            units, seconds = _worked(artifact, numbers[artifact.stage])
            if units and seconds >= LEAST_SECONDS:
                longest[artifact.stage] = max(longest.get(artifact.stage, (0.0, 0.0)), (seconds, units))
    return {stage: units / seconds for stage, (seconds, units) in longest.items()}


def _worked(artifact: Artifact, number: str) -> tuple[float, float]:
    """Returns the units of work of an artifact's build and its seconds; 0 of both where its record does not tell."""
    run = artifact.run_record()
    if work := run.get("work"):
        return work.get("units", 0), work.get("seconds", 0)
    return artifact.summary["numbers"].get(number, 0), run.get("seconds", 0)


def total_stored(needs: Iterable[StepNeed], *, least: bool = False) -> int:
    """Returns the bytes that everything missing will take in the store; with `least` without what is a bound."""
    return sum(each.stored for each in needs if each.need and not (least and each.need.stored_at_most))
