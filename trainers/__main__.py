"""Trains one `[[train]]` table of a pipeline: the whole of what a machine without the orchestrator needs.

    python -m trainers PIPELINE NAME [--home HOME] [--input STAGE=VERSION ...] [--resume] [--retrain]

PIPELINE is a name or the path of a TOML file. The artifacts that it reads (trainers/inputs.py) must be in the home. `--input graph=VERSION`
and `--input features=VERSION` name graph and features on a machine that has the artifacts and not the raw files they were built from; other
stages are named alike. Budgets are resolved where they are missing. Launched by a Dagster step, the same program takes everything from its
Pipes context and reports versions, scores and the learning curve's rows back.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assets.pipeline.file import Pipeline, find_pipeline, parse_pipeline
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from kernels.errors import InputError
from trainers.config import TrainTable
from trainers.record.epoch_lines import Lines

EXIT_INPUT, EXIT_INTERRUPTED = 1, 130


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be trained, and where."""

    # The recipe, checked.
    pipeline: Pipeline
    # Name of the train table.
    table: str
    # The store's home; None for the default.
    home: Path | None
    # Role -> version of an artifact, or a prefix of it; what is not named is computed from the recipe and the raw content.
    inputs: Mapping[str, str] = field(default_factory=dict)
    # Goes on from a checkpoint where there is one.
    resume: bool
    # Trains again what is trained already.
    retrain: bool = False
    # Which epochs a line is printed about.
    epoch_lines: Lines = "some"
    # Gets these lines as well; None for standard error alone.
    tell: Callable[[str], None] | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, and returns the exit code: 0, 1 for an input error, 130 for an interrupt."""
    options = _parser().parse_args(arguments)
    try:
        if "DAGSTER_PIPES_CONTEXT" in os.environ:
            return _train_for_dagster()
        path = find_pipeline(options.pipeline)
        pipeline = parse_pipeline(path, path.read_bytes(), TrainTable, options.pipeline)
        given = dict(options.input)
        lines = "none" if options.quiet else "all" if options.verbose else "some"
        order = Order(pipeline=pipeline, table=options.name, home=options.home, inputs=given, resume=options.resume)
        train(replace(order, retrain=options.retrain, epoch_lines=lines))
        return 0
    except InputError as error:
        print(f"python -m trainers: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("python -m trainers: interrupted; --resume goes on from the last checkpoint", file=sys.stderr)
        return EXIT_INTERRUPTED


def train(order: Order) -> Sequence[Artifact]:
    """Returns the model artifacts of the table, training those that the store does not have.

    Raises:
        InputError: there is no such table or graph, or a value does not fit the graph.
    """
    from trainers.inputs import find_table_inputs
    from trainers.record.progress import open_progress
    from trainers.run import train_table

    pipeline, store = order.pipeline, Store(order.home)
    table = next((each for each in pipeline.train if each.name == order.table), None)
    if table is None:
        names = ", ".join(each.name for each in pipeline.train) or "(none)"
        raise InputError(f"{pipeline.path} has no [[train]] table {order.table!r}", f"the names are: {names}")
    found = find_table_inputs(pipeline, table, store, order.inputs)
    return train_table(
        store,
        found.inputs,
        table,
        pipeline.sampling,
        pipeline.seed,
        reads=found.reads,
        resume=order.resume,
        retrain=order.retrain,
        asked_by=f"{pipeline.name}/{table.name}",
        epoch_lines=order.epoch_lines,
        progress=open_progress(title=f"{table.name}: ", also=order.tell),
    )


def _train_for_dagster() -> int:
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        try:
            extras = pipes.extras
            path = Path(extras["path"])
            order = Order(
                pipeline=parse_pipeline(path, extras["text"].encode(), TrainTable),
                table=extras["table"],
                home=Path(extras["home"]),
                inputs=extras["inputs"],
                resume=extras["resume"],
                retrain=extras.get("retrain", False),
                epoch_lines=extras.get("epoch_lines", "some"),
                tell=pipes.log.info,
            )
            models = train(order)
        except InputError as error:
            # The step raises it again; printed here as well, a user would read it twice.
            pipes.report_custom_message({"problem": error.problem, "remedy": error.remedy})
            return EXIT_INPUT
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        pipes.report_asset_materialization(metadata=_reported(models))
    return 0


def _reported(models: Sequence[Artifact]) -> Mapping[str, Any]:
    """Returns what the child tells about its models: the rest is read from the store."""
    rows = [line for model in models for line in model.file("metrics.jsonl").read_text().splitlines()]
    last = json.loads(rows[-1]) if rows else {}
    return {"trained_models": len(models), "last_epoch": {"raw_value": last, "type": "json"}}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainers", description="Trains one [[train]] table of a pipeline.")
    parser.add_argument("pipeline", help="name, or path of a TOML file")
    parser.add_argument("name", help="name of the [[train]] table")
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
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint where there is one")
    parser.add_argument("--retrain", action="store_true", help="train again what is trained already, in its place")
    return parser


def _stage_and_version(text: str) -> tuple[str, str]:
    stage, equals, version = text.partition("=")
    if not (stage and equals and version):
        raise argparse.ArgumentTypeError(f"{text!r} is not STAGE=VERSION")
    return stage, version


if __name__ == "__main__":
    sys.exit(main())
