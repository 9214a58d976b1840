"""Trains one `[[train]]` table of a pipeline: a machine without the orchestrator needs nothing else.

    python -m graphmill.trainers PIPELINE NAME [--home HOME] [--input STAGE=VERSION ...] [--resume] [--retrain] [--ranks N]
    python -m graphmill.trainers --from BUNDLE [--home HOME] [--resume] [--retrain]

PIPELINE is a name or the path of a TOML file. The artifacts that it reads (trainers/recipe/inputs.py) must be in the home. `--input
graph=VERSION` and `--input features=VERSION` name graph and features on a machine that has the artifacts and not the raw files they were
built from; other stages are named alike. `--from` takes recipe, table and artifacts from a bundle that `graphmill bundle` made, compares
every byte and puts the artifacts into the home. With `--ranks` this process starts the ranks of a training that they share, and passes on
their output; under torchrun (RANK and WORLD_SIZE are set) it is one of them. Missing budgets are resolved. Launched by a Dagster step, the
same program takes everything from its Pipes context and reports versions, scores and the learning curve's rows back.
"""

from __future__ import annotations

# ruff: noqa: E402 - what is imported below takes a second, in which an interrupt may come
import signal

from graphmill.assets.building import interrupts
from graphmill.assets.building.terminal import begin_to_print
from graphmill.kernels import environment

INTERRUPTED = "python -m trainers: interrupted; --resume goes on from the last checkpoint"


def _answer_interrupts() -> None:
    """Ends this process by signals; a rank leaves the message to its launcher, which ends it by SIGTERM, and a step's child to the step."""
    if environment.is_set(environment.RANKS_PARENT):
        interrupts.begin("", (signal.SIGINT,))
    else:
        interrupts.begin("" if environment.is_set(environment.PIPES) else INTERRUPTED)


if __name__ == "__main__":
    _answer_interrupts()
    begin_to_print()
    environment.set_default(environment.TORCH_LOG, "FATAL")  # its errors are told by ours

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.assets.building.child import begin_as_trainings, end_with_parent
from graphmill.assets.pipeline.file import parse_pipeline, read_pipeline_file
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import one_home
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.cuda.driver import VISIBLE, gpu_of_rank
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.launch import EXIT_PEER, MOST_RANKS, PARENT, asked_ranks, launcher_id, launcher_number
from graphmill.trainers.ranks.leave import EXIT_INPUT, EXIT_INTERRUPTED, end, leave, report
from graphmill.trainers.recipe.config import TrainTable, find_table, model_configs
from graphmill.trainers.recipe.order import Order, plain_order

if TYPE_CHECKING:
    from graphmill.trainers.ranks.cluster.placing import Demand


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, and returns the exit code: 0, 1 for an input error, 75 if another rank is gone, 130 for an interrupt."""
    options = _parser().parse_args(arguments)
    try:
        if environment.is_set(environment.PIPES):
            return _train_for_dagster()
        if environment.is_set(PARENT):
            return _train_as_rank()
        if environment.is_set(environment.TORCHELASTIC):
            _join_torchrun()
        _refuse_copies(options)
        order = _from_bundle(options) if options.source else _from_pipeline(options)
        lines = "none" if options.quiet else "all" if options.verbose else "some"
        order = replace(order, resume=options.resume, retrain=options.retrain, ranks=options.ranks, on=options.on)
        with one_home(options.home):
            train(replace(order, epoch_lines=lines))
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "PeerError":  # the module that defines it loads torch
            print(f"python -m trainers: {error}", file=sys.stderr)
            return EXIT_PEER
        said = refusal(error)
        if said is None:
            raise
        report(said)
        return EXIT_INPUT


def _from_pipeline(options: argparse.Namespace) -> Order:
    """Returns the order of a training, from a pipeline file and the name of a table."""
    if not (options.pipeline and options.name):
        raise InputError("it is not said what to train", "write PIPELINE NAME, or --from BUNDLE")
    path, data = read_pipeline_file(options.pipeline)
    pipeline = parse_pipeline(path, data, TrainTable, options.pipeline)
    return Order(pipeline=pipeline, table=options.name, home=options.home, inputs=dict(options.input))


def _from_bundle(options: argparse.Namespace) -> Order:
    """Returns the order of a training, from a bundle, and puts the bundle's artifacts into the home."""
    from graphmill.assets.storage.local.bundle import open_bundle, take_from

    if options.pipeline or options.name or options.input:
        problem = "a bundle names pipeline, table and artifacts itself"
        raise InputError(problem, "leave PIPELINE, NAME and --input out beside --from")
    bundle = open_bundle(options.source)
    # Nothing reads the raw data here, so any folder will do for theirs; the environment is the user's, and no text of a bundle enters it.
    variables = bundle.folder.absolute()
    pipeline = parse_pipeline(bundle.folder / bundle.file, bundle.text.encode(), TrainTable, variables=variables)
    take_from(bundle, Store(options.home), lambda line: print(line, file=sys.stderr))
    given = {"home": options.home, "inputs": bundle.inputs, "variables": variables}
    return Order(pipeline=pipeline, table=bundle.table, **given)


def train(order: Order) -> Sequence[Artifact]:
    """Returns the table's models, split by split, and trains missing ones; raises InputError if table, graph or a value does not fit."""
    apart = order.pipeline.by_split
    if len(apart) > 1 and (order.inputs or environment.is_set(environment.WORLD_SIZE)):
        why = (
            "torchrun trains on one graph" if environment.is_set(environment.WORLD_SIZE) else "--input names one graph"
        )
        problem = f"{why}, and {order.pipeline.path} lists the splits {', '.join(order.pipeline.splits)}"
        raise InputError(problem, "write one as `split` in [graph]")
    return [model for each in apart for model in _train_split(replace(order, pipeline=each))]


def _train_split(order: Order) -> Sequence[Artifact]:
    pipeline, store = order.pipeline, Store(order.home)
    table = find_table(pipeline, order.table)
    rank, world = asked_ranks()
    asked = order.ranks or table.own_settings.ranks
    if not table.by_parts and max(asked, world) > 1:
        how = f' with mode = "{table.settings.mode}"' if table.technique.by_parts else ""
        problem = f"{max(asked, world)} ranks, but trainer = {table.trainer!r}{how} trains in one process"
        raise InputError(problem, 'leave --ranks out, or set trainer = "distributed"')
    if order.on and world > 1:
        raise InputError("torchrun started this process, and --on names a cluster", "leave one of the two out")
    if order.on or (asked > 1 and world == 1):
        return _launch_ranks(order, table, store, asked)
    return _train_here(order, table, store, first=rank == 0)


def _train_here(order: Order, table: TrainTable, store: Store, *, first: bool) -> Sequence[Artifact]:
    """Trains in this process, which may be one of several ranks; the first one writes the models."""
    from graphmill.trainers.ranks.group import coming, joined
    from graphmill.trainers.recipe.inputs import find_table_inputs
    from graphmill.trainers.record.progress import open_progress
    from graphmill.trainers.run import train_table

    pipeline, timeout = order.pipeline, table.own_settings.timeout
    with coming() as meeting:
        # Before the ranks meet: digests of raw files may take longer on one machine than on another.
        found = find_table_inputs(pipeline, table, store, order.inputs, whole=first or not table.technique.own_shards)
        with joined(timeout, meeting) as ranks:
            return train_table(
                store,
                found.inputs,
                table,
                pipeline.sampling_of(table),
                pipeline.seed,
                reads=found.reads,
                resume=order.resume,
                retrain=order.retrain,
                asked_by=f"{pipeline.name}/{table.name}",
                epoch_lines=order.epoch_lines if first else "none",
                progress=open_progress(title=f"{table.name}: ", also=order.tell) if first else None,
                ranks=ranks,
            )


def _launch_ranks(order: Order, table: TrainTable, store: Store, world: int) -> Sequence[Artifact]:
    """Starts the ranks, waits for them and returns the models that they trained."""
    from graphmill.trainers.ranks.launch import run_ranks
    from graphmill.trainers.recipe.inputs import find_table_inputs

    told = f"  {table.name}: "
    tell = order.tell or (lambda line: None)

    def heard(line: str) -> None:
        if line.startswith(told):
            tell(line.strip())

    arguments = ["-m", "graphmill.trainers", order.pipeline.name, table.name]
    if order.on:
        _run_on_cluster(order, table, store, world, arguments, heard)
    else:
        given = replace(order, home=store.home, ranks=0).plain()
        # Devices of fullgraph are those of all ranks.
        gpus = max(1, table.own_settings.devices // world)
        run_ranks([sys.executable, *arguments], given, world, heard, gpus)
    from graphmill.trainers.run import trained_models

    return trained_models(
        store, find_table_inputs(order.pipeline, table, store, order.inputs).inputs, table, order.pipeline
    )


def _run_on_cluster(
    order: Order, table: TrainTable, store: Store, world: int, arguments: Sequence[str], heard: Callable[[str], None]
) -> None:
    """Runs the ranks on the nodes of a cluster; they get the versions of what they read, so none of them needs the raw data."""
    from graphmill.assets.cluster.local import kept
    from graphmill.trainers.ranks.cluster.on_cluster import ClusterOrder, run_on_cluster
    from graphmill.trainers.recipe.inputs import find_table_inputs

    found = find_table_inputs(order.pipeline, table, store, order.inputs)
    versions = {role: artifact.version for role, artifact in (*found.inputs.items(), *found.reads.items())}
    # Versions are given, so no text of the recipe names raw data, and the variables of the nodes' environments do not matter.
    given = replace(order, home=store.home, on="", inputs=versions, variables=store.home).plain()
    demand = _demand(order, table, {**found.inputs, **found.reads}, max(1, world))
    with kept(order.on) as on:
        work = ClusterOrder(on=on, home=str(store.home), arguments=arguments, order=given, demand=demand)
        run_on_cluster(work, heard)


def _demand(order: Order, table: TrainTable, artifacts: Mapping[str, Artifact], world: int) -> Demand:
    """Returns what the ranks of a training need of a cluster's nodes."""
    from graphmill.assets.costs.needs import sizes_of
    from graphmill.trainers.ranks.cluster.placing import Demand
    from graphmill.trainers.recipe.costs.memory import training_need

    (config, *_), sizes = (
        model_configs(table, order.pipeline.sampling_of(table), order.pipeline.seed),
        sizes_of(artifacts),
    )
    need = None if sizes is None else training_need(config, table.execution, sizes, world)
    threads, partitions = config.train.threads, order.pipeline.table("partitions")
    # The devices of a full graph share the parts first, and ranks the devices.
    parts = table.own_settings.devices or partitions.parts if table.by_parts else 1
    return Demand(
        world=world,
        parts=parts,
        threads=0 if isinstance(threads, str) else threads,
        gpus=int(config.train.device == "cuda"),
        memory_bytes=0 if need is None else need.memory_bytes // world,
        least_bytes=0 if need is None else need.least_bytes // world,
    )


def _refuse_copies(options: argparse.Namespace) -> None:
    """Raises InputError if `srun` or `mpirun` started this process without RANK: several such processes would each train all of it."""
    program, told = environment.launcher()
    if not program or environment.is_set(environment.RANK) or (options.on and environment.is_first(told)):
        return
    said = ", ".join(f"{name}={value}" for name, value in told.items())
    raise InputError(
        f"{program} started this process as one of several ({said}), and each of them would train the same model",
        f"start one process with --ranks N; or set {environment.RANK}, {environment.WORLD_SIZE}, {environment.MASTER_ADDR} and "
        f"{environment.MASTER_PORT} for each, or start one torchrun per machine by {program}",
    )


def _join_torchrun() -> None:
    """Makes this process end with torchrun, whose sessions a group kill does not reach, and takes its GPU before the driver is asked."""
    end_with_parent()
    if gpu := gpu_of_rank(launcher_number("LOCAL_RANK", "0", 0, MOST_RANKS), environment.all_variables()):
        os.environ[VISIBLE] = gpu


def _train_as_rank() -> int:
    """Trains as one of the ranks that a launcher has started, and returns the exit code."""
    end_with_parent(launcher_id())
    train(plain_order(json.load(sys.stdin)))
    return 0


def _train_for_dagster() -> int:
    from dagster_pipes import open_dagster_pipes

    environment.forget_launcher()
    with open_dagster_pipes() as pipes:
        try:
            models = train(replace(plain_order(pipes.extras), tell=pipes.log.info))
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except Exception as error:
            said = refusal(error)
            if said is None:
                raise
            # The step raises it again; if it were printed here, too, a user would read it twice.
            pipes.report_custom_message({"problem": said.problem, "remedy": said.remedy})
            return EXIT_INPUT
        pipes.report_asset_materialization(metadata=_reported(models))
    return 0


def _reported(models: Sequence[Artifact]) -> Mapping[str, Any]:
    """Returns the facts about its models that the child process reports; the rest is read from the store."""
    rows = [line for model in models for line in model.file("metrics.jsonl").read_text().splitlines()]
    last = json.loads(rows[-1]) if rows else {}
    return {"trained_models": len(models), "last_epoch": {"raw_value": last, "type": "json"}}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m graphmill.trainers", description="Trains one [[train]] table of a pipeline."
    )
    parser.add_argument("pipeline", nargs="?", help="name, or path of a TOML file")
    parser.add_argument("name", nargs="?", help="name of the [[train]] table")
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="BUNDLE",
        help="folder that `graphmill bundle` made; it names pipeline, table and artifacts",
    )
    parser.add_argument("--home", type=Path, help="where artifacts are; default $GRAPHMILL_HOME or ./.graphmill")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=_stage_and_version,
        metavar="STAGE=VERSION",
        help="version of an artifact, or its beginning; default: computed from the recipe and the raw content. An artifact names what it "
        "was made from, so packed_chunks=VERSION is enough for samples and cache_plan",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no line about epochs")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print a line about every epoch; else about a hundred"
    )
    parser.add_argument(
        "--ranks",
        type=int,
        default=0,
        help="processes that share the training, on this machine or with --on on the cluster; default: the table's ranks",
    )
    parser.add_argument(
        "--on",
        default="",
        metavar="ADDRESS",
        help="Ray cluster that trains: auto, local:N (N nodes on this machine), HOST:PORT or ray://HOST:PORT",
    )
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint where there is one")
    parser.add_argument("--retrain", action="store_true", help="train again what is trained already, in its place")
    return parser


def _stage_and_version(text: str) -> tuple[str, str]:
    stage, equals, version = text.partition("=")
    if not (stage and equals and version):
        raise argparse.ArgumentTypeError(f"{text!r} is not STAGE=VERSION")
    return stage, version


def _run() -> None:
    """Trains and ends the process; after a failure at once, since threads may still work or wait for ranks that do not come."""
    begin_as_trainings()
    code = 0
    try:
        code = main()
    except SystemExit:  # of the options
        raise
    except BaseException as error:
        if not interrupts.came():
            leave(error)
    if interrupts.came():
        interrupts.finish()
    if code:
        end(code)
    interrupts.leave(0)


if __name__ == "__main__":
    _run()
