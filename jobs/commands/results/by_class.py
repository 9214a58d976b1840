"""The leaderboard by class, label or target for each train table: `graphmill leaderboard PIPELINE --by class`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan, nan
from typing import Any, TypeVar

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.jobs.commands.aligned import aligned, terminal_columns
from graphmill.jobs.commands.results.leaderboard import Entry, ranked, spread
from graphmill.jobs.figures.class_scores import (
    AVERAGES,
    MOST_ROWS,
    SPLITS,
    class_document,
    column_document,
    largest,
    most_nodes,
)
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.kernels.errors import InputError, one_line
from graphmill.trainers.record.class_scores import ClassScores, read_scores
from graphmill.trainers.record.column_scores import ColumnScores, read_columns

Found = TypeVar("Found", ClassScores, ColumnScores)


RETRAIN = "scores by class, label and target are stored since this version of graphmill: train again with --retrain"


def class_board(pipeline_name: str, entries: Sequence[Entry]) -> PlainTable:
    """Returns a row for each class or label with its F1, or for each target with its R2, in percent by each table, best table first.

    Cells are mean and deviation over the models of a table. Classes are those of the best table's first model; of many, those with the most
    nodes.

    Raises:
        InputError: no model has scores by class, label or target.
    """
    scored = {_named(entry): scores for entry, scores in _scored(entries, read_scores)}
    if not scored:
        return _column_board(pipeline_name, entries)
    first = next(iter(scored.values()))[0]
    split, counts = first.shown_split, first.splits[first.shown_split]
    f1 = {name: [_f1_by_name(each, split) for each in models] for name, models in scored.items()}
    shown = [first.classes[place] for place in largest(counts, MOST_ROWS)]
    nodes = dict(zip(first.classes, counts.support.tolist(), strict=True))
    rows = [[one_line(name), f"{nodes[name]:,}", *_row(f1.values(), name)] for name in shown]
    means = {name: [_means(each, split) for each in models] for name, models in scored.items()}
    rows += [[words, f"{sum(nodes.values()):,}", *_row(means.values(), words)] for words in AVERAGES.values()]
    of = f", the {len(shown)} largest of {len(nodes):,} classes" if len(shown) < len(nodes) else ""
    title = f"{pipeline_name}: F1 by class, {SPLITS[split]}{of}"
    return PlainTable(title=title, columns=["class", "nodes", *scored], rows=rows, left=frozenset({"class"}))


def _column_board(pipeline_name: str, entries: Sequence[Entry]) -> PlainTable:
    """Returns the table of labels or targets; arguments and errors as for `class_board`."""
    scored = {_named(entry): scores for entry, scores in _scored(entries, read_columns)}
    if not scored:
        raise InputError(f"no model of {pipeline_name} has scores by class, label or target", RETRAIN)
    first = next(iter(scored.values()))[0]
    split, counts = first.shown_split, first.splits[first.shown_split]
    score, words = ("f1", "F1") if first.kind == "multilabel" else ("r2", "R2")
    values = {
        name: [
            dict(zip(each.names, each.splits[split].scores[score][0].tolist(), strict=True))
            for each in models
            if split in each.splits
        ]
        for name, models in scored.items()
    }
    shown = most_nodes(counts)
    rows = [
        [one_line(first.names[place]), f"{counts.nodes[place]:,}", *_row(values.values(), first.names[place])]
        for place in shown
    ]
    means = [
        [each.splits[split].over_columns() for each in models if split in each.splits] for models in scored.values()
    ]
    rows.append(["mean", "-", *_row(means, score)])
    title = f"{pipeline_name}: {words} by {first.word}, {SPLITS[split]}"
    return PlainTable(title=title, columns=[first.word, "nodes", *scored], rows=rows, left=frozenset({first.word}))


def class_board_json(pipeline_name: str, entries: Sequence[Entry]) -> str:
    """Returns the scores by class, label or target of every model as JSON text, tables in the order of the leaderboard."""
    rows = [
        {
            "name": entry.table.name,
            "seeds": [model.config["seed"] for model in entry.models],
            "splits": [split or None for split in entry.splits],
            "versions": [model.version for model in entry.models],
            "scores": [
                class_document(each) if isinstance(each, ClassScores) else column_document(each) for each in scores
            ],
        }
        for entry, scores in [*_scored(entries, read_scores), *_scored(entries, read_columns)]
    ]
    return json.dumps({"pipeline": pipeline_name, "rows": rows}, indent=2)


def print_class_board(pipeline_name: str, entries: Sequence[Entry]) -> None:
    """Prints the table, and names the train tables whose models have no such scores."""
    table = class_board(pipeline_name, entries)
    print(table.title)
    for line in aligned(table, room=terminal_columns()):
        print(line)
    if lacking := [name for name in map(_named, entries) if name not in table.columns]:
        print(f"{', '.join(lacking)}: {RETRAIN}")


def _named(entry: Entry) -> str:
    return f"{entry.table.name}, {entry.tuned}" if entry.tuned else entry.table.name


def _scored(entries: Sequence[Entry], read: Callable[[Artifact], Found | None]) -> Iterator[tuple[Entry, list[Found]]]:
    """Yields the entries whose models all have scores that a function reads, best validation score first."""
    for entry in ranked(entries):
        found = [scores for model in entry.models if (scores := read(model)) is not None]
        if len(found) == len(entry.models):
            yield entry, found


def _f1_by_name(scores: ClassScores, split: str) -> Mapping[str, float]:
    counts = scores.splits.get(split)
    return {} if counts is None else dict(zip(scores.classes, counts.f1.tolist(), strict=True))


def _means(scores: ClassScores, split: str) -> Mapping[str, float]:
    counts = scores.splits.get(split)
    return {} if counts is None else {words: counts.mean(counts.f1, name) for name, words in AVERAGES.items()}


def _row(tables: Any, name: str) -> list[str]:
    """Returns the cell of each table in a row: mean and deviation over its models, of shares in percent."""
    return [spread([each[name] for each in models if not isnan(each.get(name, nan))], "f1_macro") for models in tables]
