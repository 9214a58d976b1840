"""`graphmill plan`: which technique for a graph and a machine, and how far the predictions of earlier runs were off."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from math import ceil, isfinite
from pathlib import Path
from typing import Any

import click
import tomlkit

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.pipeline.rules import NAME
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.system.filesystem import replace_atomically
from graphmill.jobs.commands.options import Asked, complete_pipelines, json_option, set_option
from graphmill.jobs.planning.graph import named_sentences
from graphmill.jobs.planning.variants import TIE, Planned, TechniquePlan
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.costs.forecast import Forecast

PATH_KEYS = {"path", "edges", "nodes", "feature_entries"}
"""Keys of `[graph]` whose values are paths, or tables of types with paths."""
HEADINGS = (
    "training", "trainer", "memory", "prepare", "start", "s / epoch", "epochs", "evaluate", "scores", "in all", "paid back",
)  # fmt: skip


@click.command(short_help="Says which technique fits a graph and this machine.")
@click.argument("pipeline", required=False, shell_complete=complete_pipelines)
@click.option("--write", type=click.Path(path_type=Path), help="Write a pipeline file with the chosen training alone.")
@click.option("--overwrite", is_flag=True, help="Let --write replace a file that is there.")
@click.option("--refresh", is_flag=True, help="Measure this machine again.")
@click.option("--check", is_flag=True, help="List the errors of the predictions of all runs of the home instead.")
@set_option
@json_option
@click.pass_obj
def plan(
    home: Path | None,
    pipeline: str | None,
    write: Path | None,
    overwrite: bool,
    refresh: bool,
    check: bool,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compares the techniques for a PIPELINE's graph on this machine, and says which one to take, and why. Builds nothing.

    Compared are the [[train]] tables of the file, and the techniques that it has no table for, with the model of its first one: memory,
    bytes over each link, seconds of an epoch and of preparing. The speed of this machine is measured on a few batches, and kept in the
    home; a graph that is not built yet is stood in for by a drawn one. docs/planning.md says how far off the numbers are.

    Example: graphmill plan showcase --write mine.toml
    """
    if check:
        _print_check(home, as_json=as_json)
        return
    if pipeline is None:
        raise InputError("no pipeline is named", "graphmill plan PIPELINE, or graphmill plan --check")
    if write is not None and write.exists() and not overwrite:
        raise InputError(f"{write} is there already", "give another name, or --overwrite")
    from graphmill.jobs.commands.pipelines.checked import require_runnable
    from graphmill.jobs.planning.plan import make_plan

    loaded = Asked(pipeline, settings).load()
    require_runnable(loaded, home, here=False)
    found = make_plan(loaded, home, again=refresh, report=lambda line: click.echo(line, err=True))
    if as_json:
        click.echo(json.dumps(plan_values(found), indent=2))
    else:
        click.echo("\n".join(plan_lines(found)))
    if write is not None:
        _write(found, write)
        click.echo(f"{write} is written: graphmill run {write}", err=as_json)


def _print_check(home: Path | None, *, as_json: bool) -> None:
    from graphmill.assets.storage.store import Store
    from graphmill.jobs.planning.outcome import error_lines, prediction_errors

    found = prediction_errors(Store(home))
    click.echo(json.dumps([asdict(each) for each in found], indent=2) if as_json else "\n".join(error_lines(found)))


def _write(found: TechniquePlan, path: Path) -> None:
    """Writes the file of the chosen training; its name is the file's.

    Raises:
        InputError: no training is chosen, or the file's name is not one of a pipeline.
    """
    if not found.text:
        raise InputError("no training is chosen, so there is nothing to write", "graphmill plan PIPELINE says why")
    if not NAME.fullmatch(path.stem):
        problem = f"{path.name} names the pipeline {path.stem!r}, with other characters than letters, digits, - and _"
        raise InputError(problem, "give --write another file name")
    document = tomlkit.parse(found.text)
    document["name"] = path.stem
    _move_paths(document["graph"], found.pipeline.path.parent, path.absolute().parent)
    data = tomlkit.dumps(document).encode()
    parse_pipeline(path.absolute(), data, TrainTable)
    replace_atomically(path, data)


def _move_paths(table: Any, source: Path, target: Path) -> None:
    """Makes the relative paths of a `[graph]` table, and of those of its types, relative to another folder."""

    def moved(value: Any) -> Any:
        stays = not isinstance(value, str) or value.startswith(("/", "$", "~"))
        return value if stays else os.path.relpath(source / value, target)

    for key in PATH_KEYS & set(table):
        value = table[key]
        if isinstance(value, dict):
            for typed in value.values():
                if isinstance(typed, dict):
                    _move_paths(typed, source, target)
        elif isinstance(value, str):
            table[key] = moved(value)
        elif isinstance(value, list):
            table[key] = [moved(each) for each in value]


def plan_lines(found: TechniquePlan) -> Iterator[str]:
    """Yields the table of a plan, the choice with its reason, and the tables to paste."""
    rows = [HEADINGS, *(_cells(found, row) for row in found.rows if row.forecast is not None)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        left = "  ".join(f"{cell:{width}}" for cell, width in zip(row[:2], widths[:2], strict=True))
        right = "  ".join(f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True))
        yield f"{left}  {right}"
    for row in found.rows:
        if row.forecast is not None and row.forecast.links:
            links = ", ".join(_link(row.forecast, link) for link in row.forecast.links)
            yield f"{row.variant.name}: {links} an epoch{'' if row.forecast.exact else ', about'}"
    yield from named_sentences((row.variant.name, row.evaluation) for row in found.rows if row.evaluation)
    for row in found.rows:
        if row.forecast is None:
            yield f"{row.variant.name}: not compared, {row.variant.refused or row.why or 'there is no formula for it'}"
    yield f"memory {format_bytes(found.memory_bytes)}; ! does not fit it; prepare = stages not built; start = until the first batch"
    yield "evaluate = after epochs; scores = of the trained model; paid back = preparing besides the graph and its features"
    if any(row.seeds > 1 for row in found.rows):
        yield "all seconds but those of an epoch, and epochs after which preparing is paid back, are those of all seeds"
    if not found.built:
        yield "the graph is not built, and these are estimates: after graphmill build PIPELINE they are better"
    yield from _choice(found)


def _link(found: Forecast, link: str) -> str:
    """Returns the bytes of a link, with their range if they depend on how fast threads are beside each other."""
    said = f"{link} {format_bytes(found.links[link])}"
    if link not in found.ranges:
        return said
    least, most = map(format_bytes, found.ranges[link])
    return f"{said} ({least} to {most})"


def _cells(found: TechniquePlan, row: Planned) -> tuple[str, ...]:
    assert row.forecast is not None
    memory = row.forecast.memory_bytes
    epochs = found.paid_back(row)
    back = "-" if epochs is None else "" if not epochs else f"{ceil(epochs)} epoch{'s' * (epochs > 1)}"
    return (
        row.variant.name,
        row.variant.technique.name,
        "-" if memory is None else format_bytes(memory) + ("" if row.fits else " !"),
        f"{ceil(row.preparing)} s" if row.preparing else "",
        _seconds(row.of_seeds("start")),
        f"{row.epoch_seconds:.2f}" if isfinite(row.epoch_seconds) else "-",
        _seconds(row.epochs * row.epoch_seconds),
        _seconds(row.of_seeds("evaluation")),
        _seconds(row.of_seeds("scores")),
        f"{ceil(row.total_seconds)} s" if isfinite(row.total_seconds) else "-",
        back,
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if isfinite(seconds) else "-"


def _choice(found: TechniquePlan) -> Iterator[str]:
    chosen = found.chosen
    on_gpu = next((row.why for row in found.rows if row.why), "")
    if chosen is None and on_gpu and all(row.forecast is None for row in found.rows):
        yield f'{on_gpu}: device = "cpu" in [[train]] compares those of the CPU'
        return
    if chosen is None:
        yield "no training fits this machine's memory: lower [sampling] batch_size or hidden, or use a machine with more"
        return
    if not isfinite(chosen.total_seconds):
        yield f"take {chosen.variant.name}: it fits, and no seconds are known"
        yield ""
        yield from pasted(found).splitlines()
        return
    others = [row for row in found.rows if row.fits and row.exact and row is not chosen]
    second = min(others, key=lambda row: row.total_seconds, default=None)
    why = "the only one that fits" if second is None else _against(chosen, second)
    yield f"take {chosen.variant.name} (trainer {chosen.variant.technique.name}): {why}"
    faster = [row for row in found.rows if row.fits and not row.exact and row.total_seconds < chosen.total_seconds]
    for row in faster:
        kind = "its epoch is one step" if row.variant.technique.whole_graph else "it trains on approximate embeddings"
        yield f"{row.variant.name} takes {row.total_seconds:.0f} s, but {kind}, so its epochs are worth less"
    yield ""
    yield from pasted(found).splitlines()


def _against(chosen: Planned, second: Planned) -> str:
    seconds = (
        f"{ceil(chosen.total_seconds)} s in all, with {chosen.epochs} epochs{' of all seeds' * (chosen.seeds > 1)}"
    )
    other = f"{ceil(second.total_seconds)} s of {second.variant.name}"
    tie = abs(second.total_seconds - chosen.total_seconds) <= TIE * min(second.total_seconds, chosen.total_seconds)
    return f"{seconds}, {'about the' if tie else 'against'} {other}"


def pasted(found: TechniquePlan) -> str:
    """Returns the tables of the chosen training, as a pipeline file has them, without the graph."""
    document = tomlkit.parse(found.text)
    kept = tomlkit.document()
    for name, value in document.items():
        if name in (
            "sampling",
            "hotness",
            "memory",
            "samples",
            "partitions",
            "chunks",
            "cache_plan",
            "packed",
            "train",
        ):
            kept[name] = value
    return tomlkit.dumps(kept).strip()


def plan_values(found: TechniquePlan) -> dict[str, Any]:
    """Returns a plan as JSON-ready values."""
    chosen = found.chosen
    rows = [
        {
            "name": row.variant.name,
            "trainer": row.variant.technique.name,
            "own": row.variant.own,
            "exact_epochs": row.exact,
            "refused": row.variant.refused or row.why or None,
            "fits": row.fits,
            "whole_seconds": round(row.total_seconds, 6) if isfinite(row.total_seconds) else None,
            "prepare_seconds": {name: round(seconds, 3) for name, seconds in row.stages.items()},
            "epochs": row.epochs,
            "seeds": row.seeds,
            "paid_back_epochs": found.paid_back(row) if row.forecast else None,
            "memory": dict(row.forecast.memory) if row.forecast else None,
            "evaluation": row.evaluation or None,
            **(row.forecast.values() if row.forecast else {}),
        }
        for row in found.rows
    ]
    return {
        "pipeline": found.pipeline.name,
        "memory_bytes": found.memory_bytes,
        "graph_is_built": found.built,
        "chosen": None if chosen is None else chosen.variant.name,
        "rows": rows,
        "tables": pasted(found) if found.text else "",
    }
