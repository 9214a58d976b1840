"""The leaderboard by class: F1 of each class for each train table, `graphmill leaderboard PIPELINE --by class`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphmill.jobs.commands.aligned import aligned, terminal_columns
from graphmill.jobs.commands.results.leaderboard import Entry, ranked, spread
from graphmill.jobs.figures.class_scores import AVERAGES, MOST_ROWS, SPLITS, class_document, largest
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.kernels.errors import InputError, one_line
from graphmill.trainers.record.class_scores import ClassScores, read_scores


def class_board(pipeline_name: str, entries: Sequence[Entry]) -> PlainTable:
    """Returns a row for each class, with its F1 in percent by each table, best table first: mean and deviation over its models.

    Classes are those of the best table's first model; of many, those with the most nodes.

    Raises:
        InputError: no model has scores by class.
    """
    scored = {_named(entry): scores for entry, scores in _scored(entries)}
    if not scored:
        raise InputError(f"no model of {pipeline_name} has scores by class", RETRAIN)
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


RETRAIN = "scores by class are stored since this version of graphmill: train again with --retrain"


def class_board_json(pipeline_name: str, entries: Sequence[Entry]) -> str:
    """Returns the scores by class of every model as JSON text, tables in the order of the leaderboard."""
    rows = [
        {
            "name": entry.table.name,
            "seeds": [model.config["seed"] for model in entry.models],
            "splits": [split or None for split in entry.splits],
            "versions": [model.version for model in entry.models],
            "scores": [class_document(each) for each in scores],
        }
        for entry, scores in _scored(entries)
    ]
    return json.dumps({"pipeline": pipeline_name, "rows": rows}, indent=2)


def print_class_board(pipeline_name: str, entries: Sequence[Entry]) -> None:
    """Prints the table, and names the train tables whose models have no scores by class."""
    table = class_board(pipeline_name, entries)
    print(table.title)
    for line in aligned(table, room=terminal_columns()):
        print(line)
    if lacking := [name for name in map(_named, entries) if name not in table.columns]:
        print(f"{', '.join(lacking)}: {RETRAIN}")


def _named(entry: Entry) -> str:
    return f"{entry.table.name}, {entry.tuned}" if entry.tuned else entry.table.name


def _scored(entries: Sequence[Entry]) -> Iterator[tuple[Entry, list[ClassScores]]]:
    """Yields the entries whose models all have scores by class, best validation score first."""
    for entry in ranked(entries):
        found = [scores for model in entry.models if (scores := read_scores(model)) is not None]
        if len(found) == len(entry.models):
            yield entry, found


def _f1_by_name(scores: ClassScores, split: str) -> Mapping[str, float]:
    counts = scores.splits.get(split)
    return {} if counts is None else dict(zip(scores.classes, counts.f1.tolist(), strict=True))


def _means(scores: ClassScores, split: str) -> Mapping[str, float]:
    counts = scores.splits.get(split)
    return {} if counts is None else {words: counts.mean(counts.f1, name) for name, words in AVERAGES.items()}


def _row(tables: Any, name: str) -> list[str]:
    """Returns the cell of each table in a row: mean and deviation over its models."""
    return [spread([each[name] for each in models if name in each], "f1_macro") for models in tables]
