"""The data steps of a pipeline: one for each stage that its tables ask for, in the order in which they run.

A table asks for its own stage, and a train table for what its trainer reads. assets/pipeline/steps.py says what a step is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from assets.budgets.config import MemoryConfig, budgets_config
from assets.budgets.stage import BUDGET_CHECKS, BudgetsStage
from assets.pipeline.file import Pipeline
from assets.pipeline.steps import Step

GENERATORS = ("citation", "rmat", "sbm")
"""Graph sources that read nothing from outside."""

GRAPH_CHECKS = (
    "has edges",
    "indptr is monotone",
    "ids are in range",
    "rows are sorted",
    "labels are in range",
    "splits are disjoint",
    "features are finite",
    "one feature row a node",
)
"""What the graph stage tests; the UI lists checks before they have run."""

HOTNESS_CHECKS = (
    "visits add up to the inputs",
    "every training node is visited in every round",
    "every training node is a seed once a round",
    "the ranking holds every node once",
)
"""What the hotness stage tests; those about counts do not apply to policies without them."""

SAMPLES_CHECKS = ("blocks are sound", "input ids are unique", "every seed once an epoch")
"""What the samples stage tests."""


def preprocessing_steps(pipeline: Pipeline, home: Path | None = None) -> list[Step]:
    """Returns the steps that build data, in the order in which they run; the recipe of each is its whole stage.

    Args:
        pipeline: the recipe, read with the schema of its train tables.
        home: where measured numbers are, None for the default home.
    """
    from assets.graph.stage import GRAPH

    graph = Step(
        pipeline=pipeline.name,
        name=GRAPH.name,
        recipe=GRAPH,
        configs=(pipeline.graph,),
        checks=GRAPH_CHECKS,
        external="" if pipeline.graph.source in GENERATORS else "raw",
        command=f"graphmill build {pipeline.reference}",
    )
    built = [_hotness_step(pipeline, graph), _budgets_step(pipeline, graph, home), _samples_step(pipeline, graph)]
    steps = {step.name: step for step in [graph, *(step for each in built for step in each)]}
    for add in (_cache_plan_step, _packed_step):
        steps |= {step.name: step for step in add(pipeline, steps)}
    return list(steps.values())


def _hotness_step(pipeline: Pipeline, graph: Step) -> list[Step]:
    """Returns what ranks the nodes: as [hotness] says, or by its defaults where only [memory] asks for a cache."""
    from assets.hotness.config import HotnessTable, hotness_config
    from assets.hotness.stage import HOTNESS

    table = (
        HotnessTable()
        if pipeline.hotness is None and pipeline.memory is not None and _read(pipeline, "hotness")
        else pipeline.hotness
    )
    if table is None:
        return []
    return [
        Step(
            pipeline=pipeline.name,
            name=HOTNESS.name,
            recipe=HOTNESS,
            configs=(hotness_config(table, pipeline.sampling, pipeline.seed),),
            inputs={"graph": graph},
            checks=HOTNESS_CHECKS,
            command=graph.command,
        )
    ]


def _budgets_step(pipeline: Pipeline, graph: Step, home: Path | None) -> list[Step]:
    """Returns what says how much is cached: as [memory] says, or "auto" where only [hotness] asks for a cache."""
    memory = (
        MemoryConfig()
        if pipeline.memory is None and pipeline.hotness is not None and pipeline.train
        else pipeline.memory
    )
    if memory is None:
        return []
    config = budgets_config(memory, pipeline.train)
    return [
        Step(
            pipeline=pipeline.name,
            name=BudgetsStage.name,
            recipe=BudgetsStage(home),
            configs=(config,),
            inputs={"graph": graph},
            checks=BUDGET_CHECKS,
            external="measured" if config.automatic else "",
            command=graph.command,
        )
    ]


def _samples_step(pipeline: Pipeline, graph: Step) -> list[Step]:
    """Returns what stores mini-batches, where [samples] asks for it."""
    from assets.samples.config import samples_config
    from assets.samples.stage import SAMPLES

    if pipeline.samples is None or pipeline.sampling is None:
        return []
    return [
        Step(
            pipeline=pipeline.name,
            name=SAMPLES.name,
            recipe=SAMPLES,
            configs=(samples_config(pipeline.samples, pipeline.sampling, pipeline.seed),),
            inputs={"graph": graph},
            checks=SAMPLES_CHECKS,
            command=graph.command,
        )
    ]


def _cache_plan_step(pipeline: Pipeline, built: Mapping[str, Step]) -> list[Step]:
    """Returns what lays out the rows of stored batches, where [cache_plan] asks for it."""
    from assets.cache_plan.config import cache_plan_config
    from assets.cache_plan.stage import CACHE_PLAN
    from assets.cache_plan.summary import CACHE_PLAN_CHECKS

    if pipeline.cache_plan is None:
        return []
    return [
        Step(
            pipeline=pipeline.name,
            name=CACHE_PLAN.name,
            recipe=CACHE_PLAN,
            configs=(cache_plan_config(pipeline.cache_plan, pipeline.seed),),
            inputs={role: built[role] for role in ("graph", "samples", "budgets")},
            checks=CACHE_PLAN_CHECKS,
            command=built["graph"].command,
        )
    ]


def _packed_step(pipeline: Pipeline, built: Mapping[str, Step]) -> list[Step]:
    """Returns what packs the rows of stored batches: where [packed] or a disk trainer asks for it."""
    from assets.packed_chunks.config import PackedConfig
    from assets.packed_chunks.stage import PACKED_CHECKS, PACKED_CHUNKS

    if "cache_plan" not in built or (pipeline.packed is None and not _read(pipeline, "packed_chunks")):
        return []
    return [
        Step(
            pipeline=pipeline.name,
            name=PACKED_CHUNKS.name,
            recipe=PACKED_CHUNKS,
            configs=(pipeline.packed or PackedConfig(),),
            inputs={role: built[role] for role in ("graph", "samples", "cache_plan")},
            checks=PACKED_CHECKS,
            command=built["graph"].command,
        )
    ]


def _read(pipeline: Pipeline, stage: str) -> bool:
    """Tells whether a train table reads artifacts of a stage."""
    return any(stage in (*table.technique.inputs, *table.reads) for table in pipeline.train)
