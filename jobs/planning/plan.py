"""A plan: the trainings of a file and of the techniques that it lacks, each with what it is expected to take on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from graphmill.assets.costs.needs import COMMAND, Sizes, fits
from graphmill.assets.features.read import node_types, open_features
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.needs import KnownSizes, StepNeed, step_needs
from graphmill.assets.pipeline.steps import Step, preprocessing_steps
from graphmill.assets.sampling.bounds import batch_bound
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.machine import memory_bytes, usable_cores
from graphmill.jobs.definitions import execution_of
from graphmill.jobs.operations.rates import COPY, DISK, FAULTS, PAGES, STARTS, STEPS, WRITE, kept_rates, measured_rates
from graphmill.jobs.operations.size import has_processes, waited_for
from graphmill.jobs.planning.graph import built_graph, is_drawn, scaled_sizes, stand_in
from graphmill.jobs.planning.variants import Planned, Room, TechniquePlan, Variant, alone, variants
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.architecture import Architecture
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.course import WAITING_BYTES, Case, Scored, Speeds
from graphmill.trainers.recipe.costs.device import device_need
from graphmill.trainers.recipe.costs.forecast import Forecast, expected_memory, forecast, has_formula
from graphmill.trainers.recipe.costs.known import GraphAtHand, case_on, keep_speeds, kept_speeds, speeds_path
from graphmill.trainers.recipe.costs.memory import largest_batch, tables_fit, training_case
from graphmill.trainers.recipe.techniques import find_technique

HOST_SHARE, HOST_FEATURES = 4, 2
"""[memory] host is at most the machine's memory divided by the first number, and all features divided by the second one."""
DISK_TIMES = 3
"""Copies of the features that packed rows may take, if the disk has them."""
FULL = 0.9
"""Share of the seeds of a batch of the whole graph from which a batch of a smaller graph counts as whole."""
ON_GPU = "no formula covers the seconds of a GPU yet"


def make_plan(
    pipeline: Pipeline, home: Path | None, *, again: bool = False, report: Callable[[str], Any] = print
) -> TechniquePlan:
    """Returns the plan of a pipeline file; builds nothing, and keeps measured speeds in the home.

    Args:
        pipeline: the checked file; of several splits the first one counts.
        report: function that gets a line about work that takes seconds.

    Raises:
        InputError: the source is missing, or it does not say enough.
    """
    planner = _Planner(pipeline.by_split[0], home_folder(home), again, report)
    rows = planner.rows()
    found = TechniquePlan(pipeline=pipeline, rows=rows, memory_bytes=memory_bytes(), built=planner.built)
    chosen = found.chosen
    if chosen is None or chosen.variant.pipeline is None:
        return found
    if chosen.variant.own:
        return replace(found, text=alone(pipeline, chosen.variant.name))
    # Of the whole file, since the trainings that were compared are those of its first split.
    whole = {each.name: each.pipeline for each in variants(pipeline, planner.room())}
    written = whole.get(chosen.variant.name) or chosen.variant.pipeline
    return replace(found, text=written.text)


class _Planner:
    """Plans the trainings of one split of a file."""

    def __init__(self, pipeline: Pipeline, home: Path, again: bool, report: Callable[[str], Any]):
        self.pipeline, self.home, self.again, self.report = pipeline, home, again, report
        self.store = Store(home)
        self.known, self.built = KnownSizes(self.store), False
        self._graphs: dict[str, GraphAtHand] = {}
        self._speeds: dict[Path, Speeds | None] = {}
        self._scored: dict[str, tuple[bool, Scored, Scored, str]] = {}
        self._rates: dict[str, float] = {}
        self._exchange: tuple[float, float] | None = None
        self._keeps = True

    def rows(self) -> list[Planned]:
        """Returns the trainings."""
        self._rates = {} if self.again else kept_rates(self.home)
        if not {COPY, DISK, PAGES, WRITE, FAULTS, STARTS, STEPS} <= self._rates.keys():
            self.report("measuring memory, disk and imports, some seconds")
            self._rates = self._measured_rates()
        return [self._planned_or_refused(each) for each in variants(self.pipeline, self.room())]

    def _planned_or_refused(self, variant: Variant) -> Planned:
        """Plans a training; one that the file does not have and that cannot be is refused with the reason."""
        try:
            return self._planned(variant)
        except InputError as error:
            if variant.own:
                raise
            return Planned(variant=replace(variant, pipeline=None, refused=error.problem))

    def _measured_rates(self) -> dict[str, float]:
        """Returns the speeds of memory and disk; of the disk of temporary files, if nothing can be written into the home."""
        import tempfile

        try:
            return measured_rates(self.home)
        except (OSError, InputError) as error:
            self._not_kept(error)
        with tempfile.TemporaryDirectory(prefix="graphmill-rates-") as folder:
            return measured_rates(Path(folder))

    def _not_kept(self, error: Exception) -> None:
        if self._keeps:
            self._keeps = False
            self.report(f"nothing that is measured is kept: {error}")

    def room(self) -> Room:
        """Returns the sizes for `[memory]`."""
        import shutil

        data = preprocessing_steps(self.pipeline, self.home)
        sizes = self.known.sizes(next(step for step in data if step.name == "features"))
        folder = next(parent for parent in (self.home, *self.home.parents) if parent.exists())
        enough = shutil.disk_usage(folder).free > 2 * DISK_TIMES * sizes.feature_bytes
        host = min(memory_bytes() // HOST_SHARE, sizes.feature_bytes // HOST_FEATURES)
        return Room(host=host, disk=f"{DISK_TIMES}x" if enough else "auto", cores=usable_cores())

    def _planned(self, variant: Variant) -> Planned:
        if variant.pipeline is None:
            return Planned(variant=variant)
        table = variant.table
        data = preprocessing_steps(variant.pipeline, self.home)
        step = next(each for each in training_steps(variant.pipeline, data, self.home) if each.name == variant.name)
        needs = step_needs(_closure(step, data), self.store, lambda each: execution_of(each.recipe, None), self.known)
        semantic: ModelConfig = step.configs[0]
        builds = any(each.missing for each in needs)
        apart = has_processes(variant.pipeline, builds)
        # The processes that wait for it: its step, and the command if steps have processes of their own.
        waiting = WAITING_BYTES + COMMAND.most * apart
        found, evaluation, share = self._forecast(step, semantic, table.execution, waiting)
        if found is not None and apart:
            found = replace(found, start_seconds=found.start_seconds + 1 / self._rates[STEPS])
        need = waited_for(variant.pipeline, step.recipe.need(semantic, table.execution, self.known.sizes(step)), builds)
        fit = (
            found is not None
            and (found.memory_bytes or 0) <= memory_bytes() - waiting
            and (need is None or fits(need, memory_bytes()))
        )
        return Planned(
            variant=variant,
            forecast=found,
            why=self._why(step, semantic, table.execution),
            fits=fit,
            stages={each.name: build_seconds(each, share) for each in needs if each.missing},
            epochs=semantic.train.epochs * len(step.configs),
            seeds=len(step.configs),
            evaluation=evaluation,
        )

    def _why(self, step: Step, semantic: ModelConfig, execution: Any) -> str:
        """Returns why a training on a GPU has no forecast, with the memory that it takes there; "" for one on the CPU."""
        if semantic.train.device == "cpu":
            return ""
        need = device_need(semantic, execution, self.known.sizes(step))
        return ON_GPU if need is None else f"{ON_GPU}; about {format_bytes(need.memory_bytes)} of its memory are taken"

    def _forecast(
        self, step: Step, semantic: ModelConfig, execution: Any, waiting: int
    ) -> tuple[Forecast | None, str, float]:
        """Returns the forecast of a training, None without a formula, the way of its evaluations in words, and a share of rows.

        The share is that of the inputs of drawn batches in the most that a batch may have; 1 if none are drawn.

        Args:
            waiting: bytes of the processes that wait for it.
        """
        if not has_formula(semantic):
            return None, "", 1.0
        sizes, direct, reads = self.known.sizes(step), self._direct(step), {*step.sources}
        at_hand, scaled = self._at_hand(semantic, sizes, direct)
        case = case_on(semantic, execution, scaled, at_hand, direct, roles=reads)
        exact, valid, final, said = self._evaluations(semantic, at_hand, scaled, sizes)
        times = sizes.num_nodes / max(1, scaled.num_nodes)
        # Pages of the whole table stay in memory or do not, whatever graph stands in.
        fits, edges_fit = tables_fit(training_case(semantic, execution, sizes))
        case = replace(
            case,
            exact_evaluation=exact,
            valid=valid.times(times),
            final=final.times(times),
            fits=fits,
            edges_fit=edges_fit,
            stand_in=scaled is not sizes,
            waiting=waiting,
        )
        case = replace(case, speeds=self._measured(case, at_hand, sizes, direct.get("features")))
        share = 1.0
        if case.drawn is not None and (how := semantic.sampling) is not None:
            share = min(1.0, case.drawn.inputs / max(1, batch_bound(how, how.batch_size, scaled).inputs))
        if scaled is sizes:
            return forecast(case), said, share
        whole = _whole_case(case, sizes)
        if case.drawn is None:
            return forecast(whole), said, share
        # Batches of the smaller graph, more of them, and the memory of the whole one.
        times = sizes.num_train / max(1, scaled.num_train)
        found = forecast(replace(case, drawn=replace(case.drawn, count=round(times * case.drawn.count))))
        return None if found is None else replace(found, memory=expected_memory(whole)), said, share

    def _direct(self, step: Step) -> dict[str, Artifact]:
        """Returns role -> artifact that a training reads itself, for those that exist."""
        found = {role: self.known.artifacts(source)[0] for role, source in step.sources.items()}
        return {role: artifact for role, artifact in found.items() if artifact is not None}

    def _at_hand(self, semantic: ModelConfig, sizes: Sizes, direct: dict[str, Artifact]) -> tuple[GraphAtHand, Sizes]:
        """Returns the graph that batches are drawn of, and its sizes."""
        sampling = semantic.sampling
        if "graph" in direct:
            self.built = True
            return built_graph(direct, sampling), sizes
        key = repr(sampling)
        if key not in self._graphs:
            if not self._graphs:
                self.report(f"the graph is not built: {self._how()} stands in for it")
            self._graphs[key] = stand_in(sizes, self.pipeline.seed, sampling, self.pipeline.graph)
        return self._graphs[key], scaled_sizes(sizes)

    def _how(self) -> str:
        """Returns the kind of graph that stands in for one that is not built."""
        if is_drawn(self.pipeline.graph):
            return "one of its generator"
        return "an R-MAT graph with as many edges per node, whose bytes may be off by 3 times,"

    def _evaluations(
        self, semantic: ModelConfig, at_hand: GraphAtHand, sizes: Sizes, whole: Sizes
    ) -> tuple[bool, Scored, Scored, str]:
        """Returns whether evaluations will be exact, the counts of one between epochs and of that at the end, and why.

        Args:
            sizes, whole: sizes of the graph at hand, and of the one that is trained on.
        """
        from graphmill.trainers.inference.choice import choose_evaluation
        from graphmill.trainers.training.speeds import count_scored

        train = semantic.train
        model = [getattr(train, each.name) for each in fields(Architecture)]
        key = repr(
            (semantic.sampling, model, train.metric, train.eval, train.eval_every, train.score_train, sizes.row_bytes)
        )
        if key not in self._scored:
            chosen = choose_evaluation(semantic, at_hand.graph, at_hand.drawing, whole)
            exact = train.eval != "sampled" if chosen is None else chosen.way == "exact"
            found = count_scored(semantic, at_hand.graph, at_hand.drawing, sizes.row_bytes, exact=exact)
            self._scored[key] = exact, *found, "" if chosen is None else chosen.sentence
        return self._scored[key]

    def _measured(self, case: Case, at_hand: GraphAtHand, sizes: Sizes, features: Artifact | None) -> Speeds | None:
        """Returns the speeds of a recipe, from the home or measured now; None if no batch could be drawn, or if its model failed."""
        semantic = case.semantic
        unknown = case.drawn is None and not find_technique(semantic.train.trainer).whole_graph
        if unknown or (case.drawn is None and not case.sizes.num_edges):
            return None
        counted = replace(sizes, num_classes=at_hand.graph.num_classes)
        path = speeds_path(self.home, semantic, counted, built="graph" in sizes.artifacts)
        if path not in self._speeds:
            kept = None if self.again else kept_speeds(path)
            self._speeds[path] = kept or self._measured_now(case, at_hand, features)
        found = self._speeds[path]
        if found is None:
            return None
        if case.ranks > 1 and not found.rank_rate:
            found = self._with_exchange(found)
        self._speeds[path] = found
        try:
            keep_speeds(path, found)
        except (OSError, InputError) as error:
            self._not_kept(error)
        return found

    def _measured_now(self, case: Case, at_hand: GraphAtHand, features: Artifact | None) -> Speeds | None:
        from graphmill.trainers.training.speeds import measure_speeds

        self.report(f"measuring batches of {case.semantic.train.model}, some seconds")
        rates: dict[str, Any] = {
            "disk_rate": self._rates[DISK], "write_rate": self._rates[WRITE], "pages_rate": self._rates[PAGES],
            "faults_rate": self._rates[FAULTS], "copy_rate": self._rates[COPY], "start": 1 / self._rates[STARTS],
        }  # fmt: skip
        try:
            types = None if features is None else node_types(at_hand.graph.topology, open_features(features))
            case = replace(case, speeds=Speeds(**rates))
            found = measure_speeds(case, at_hand, at_hand.graph.num_classes, types)
        except InputError as error:
            self.report(f"not measured: {error.problem}")
            return None
        except Exception as error:  # the plan of other trainings does not end because a user's own model does
            self.report(f"not measured: {type(error).__name__}: {error}")
            return None
        return replace(found, **rates)

    def _with_exchange(self, speeds: Speeds) -> Speeds:
        """Returns speeds with those of exchanges between ranks, which are measured once."""
        from graphmill.trainers.ranks.exchange_rate import measure_exchange

        if self._exchange is None:
            self.report("measuring exchanges between two processes, some seconds")
            found = measure_exchange()
            self._exchange = (0.0, 0.0) if found is None else found
        call, rate = self._exchange
        return replace(speeds, call=call, rank_rate=rate)


def build_seconds(each: StepNeed, share: float) -> float:
    """Returns the seconds of a missing step; what it does for batches that are not stored yet is bounded, and counts by a share of that."""
    seconds, sources = each.seconds or 0.0, {each.step.recipe.name, *each.step.sources}
    return seconds * share if each.need is not None and each.need.stored_at_most and "samples" in sources else seconds


def _whole_case(case: Case, sizes: Sizes) -> Case:
    """Returns the case of a training on the whole graph, from that of a smaller graph.

    A batch that has fewer seeds, since the smaller graph has few that train, is bounded by the fan-outs.
    """
    bound = largest_batch(case.semantic, sizes)
    full = case.batch.rows[-1] >= FULL * bound.rows[-1]
    return replace(case, sizes=sizes, batch=case.batch._replace(count=bound.count) if full else bound)


def _closure(step: Step, data: Sequence[Step]) -> list[Step]:
    """Returns the data steps that a training reads, directly or through others, in their order."""
    names, waiting = set[str](), [step]
    while waiting:
        for source in waiting.pop().sources.values():
            if source.name not in names:
                names.add(source.name)
                waiting.append(source)
    return [each for each in data if each.name in names]
