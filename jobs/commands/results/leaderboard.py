"""The leaderboard: the models of a pipeline, best validation score first, with the cost of each."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Step, Versions, preprocessing_steps
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.aligned import named_values
from graphmill.jobs.figures.cost import read_ledger
from graphmill.jobs.figures.plain_table import PlainTable, one_line
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.ledger import LINKS, Ledger
from graphmill.trainers.record.memory import measured_memory
from graphmill.trainers.record.scores import METRICS, bare, percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_LISTED = 3
"""Largest number of models whose best epochs are all listed; of more, the smallest and the largest."""
PIPE_WIDTH = 160
"""Columns of text if the output is not a terminal: a row must not be folded in a log."""
LINK_MEANINGS = {
    "disk": "read from disk past the page cache",
    "mapped": "asked of a mapped file",
    "h2d": "host to device",
    "d2h": "device to host",
    "d2d": "inside the device, from its cache",
    "rank": "between processes",
}
TEXT_COLUMNS = ("name", "tuned", "model", "trainer", "models")
"""Headings of the columns that hold words; the others hold numbers."""
RESULT_FILES = ("weights.safetensors", "metrics.jsonl")
"""Files that are equal in two models with equal trainings: the weights, and loss and scores of every epoch."""


@dataclass(frozen=True, kw_only=True)
class TrainedTable:
    """What a model says of the table that it was trained by, whether the file still has the table or not."""

    name: str
    model: str
    trainer: str
    metric: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The models of one train table, one per seed; if the pipeline lists splits, those of the first split come first.

    Attributes:
        splits: the split of each model, "" if the pipeline names none.
        wanted: number of models that the table asks for; 0 if that is not known.
        tuned: keys and values in which it differs from other models of the table.
        older: whether the user's own code has changed since they were trained.
    """

    table: TrainTable | TrainedTable
    models: Sequence[Artifact]
    splits: Sequence[str] = ()
    wanted: int = 0
    tuned: str = ""
    older: bool = False

    def scores(self, split: str) -> list[float]:
        """The table's metric on a part of the split, one value per model; empty if the graph lacks that part."""
        name = f"{split}_{self.table.metric}"
        return [model.summary["numbers"][name] for model in self.models if name in model.summary["numbers"]]

    def best_epochs(self) -> list[int]:
        """The epoch whose weights each model has, from 1; 0 if no validation chose one and it has the last."""
        return [model.summary["numbers"]["best_epoch"] for model in self.models]

    def epoch_seconds(self) -> float | None:
        """Median seconds of a training epoch over all seeds, as recorded when the models were trained."""
        return self._median_seconds("train")

    def evaluation_seconds(self) -> float | None:
        """Median seconds of an evaluation on the way, which those of an epoch leave out; None if there was none."""
        return self._median_seconds("evaluate")

    def _median_seconds(self, part: str) -> float | None:
        seconds = [s for model in self.models for s in model.run_record().get("epoch_seconds", {}).get(part, [])]
        return statistics.median(seconds) if seconds else None

    def bytes_per_epoch(self) -> dict[str, int]:
        """Link -> bytes that crossed it in a training epoch, the mean over all epochs and seeds; see `LINK_MEANINGS`."""
        sums: Counter[str] = Counter()
        for model in self.models:
            sums.update(Ledger.from_rows(read_ledger(model)).bytes_by_link())
        epochs = sum(model.summary["numbers"]["epochs_run"] for model in self.models)
        return {link: round(sums[link] / max(1, epochs)) for link in LINKS if link in sums}

    def peak_memory_bytes(self) -> int | None:
        """The largest of the trainings' peaks, each of all its ranks (trainers/record/memory.py); None if none was recorded."""
        peaks = [measured_memory(model.run_record()) for model in self.models]
        return max((peak for peak in peaks if peak is not None), default=None)

    def warnings(self) -> list[str]:
        """A sentence for each check that failed and blocked nothing, of the models and of the graphs that they were trained on."""
        found: dict[str, str] = {}
        for model in self.models:
            graph = model.neighbour(model.inputs["graph"]) if "graph" in model.inputs else None
            for artifact in (graph, model) if graph else (model,):
                for check in artifact.summary["checks"]:
                    if not check["passed"]:
                        found.setdefault(f'{artifact.stage} "{check["name"]}"', check["detail"])
        return [f"{name}: {detail}" for name, detail in found.items()]

    def results(self) -> tuple[Any, ...]:
        """Digests of weights and of losses and scores, by seed and split: equal for entries that trained to the same result."""
        return tuple(
            (model.config["seed"], *(model.files[name]["digest"] for name in RESULT_FILES)) for model in self.models
        )


def stored_entries(pipeline: Pipeline, home: Path | None) -> list[Entry]:
    """Returns an entry for each train table of which the store has models, of all splits and seeds or of some; trains nothing.

    Raises:
        InputError: raw content is missing, or no model is trained.
    """
    from graphmill.jobs.runs.training import training_steps

    store, versions = Store(home), Versions()
    steps = training_steps(pipeline, preprocessing_steps(pipeline, home_folder(home)), home_folder(home))
    found = {step.name: _found(store, step, versions) for step in steps}
    entries = [
        Entry(table=table, models=models, splits=splits, wanted=wanted)
        for table in pipeline.train
        for models, splits, wanted in (found[table.name],)
        if models
    ]
    if not entries:
        problem = f"{store.root} has no trained model of {pipeline.name} as its file stands"
        raise InputError(problem, f"graphmill run {pipeline.reference} trains them")
    return entries


def _found(store: Store, step: Step, versions: Versions) -> tuple[list[Artifact], list[str], int]:
    """Returns the models of a table that the store has, the split of each, and the number of models that the table asks for."""
    wanted = [(each.split, version) for each in step.apart for version in versions.of(each)]
    found = [(split, store.find(step.recipe.name, version)) for split, version in wanted]
    there = [(split, model) for split, model in found if model]
    return [replace(model, reused=True) for _, model in there], [split for split, _ in there], len(wanted)


def entry_of(pipeline: Pipeline, table: TrainTable, models: Sequence[Artifact]) -> Entry:
    """Returns the entry of all models of a table, which come split by split."""
    each = len(models) // len(pipeline.splits)
    splits = [split for split in pipeline.splits for _ in range(each)]
    return Entry(table=table, models=models, splits=splits, wanted=len(models))


def leaderboard_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Returns a JSON-ready row for each entry, best mean validation score first.

    Scores are fractions, one per model, beside the models' seeds and splits; seconds and bytes are per training epoch.
    """
    return [
        {
            "name": entry.table.name,
            "model": entry.table.model,
            "trainer": entry.table.trainer,
            "metric": entry.table.metric,
            "seeds": [model.config["seed"] for model in entry.models],
            "splits": [split or None for split in entry.splits],
            "valid": entry.scores("valid"),
            "test": entry.scores("test"),
            "best_epochs": entry.best_epochs(),
            "epoch_seconds": entry.epoch_seconds(),
            "evaluation_seconds": entry.evaluation_seconds(),
            "bytes_per_epoch": entry.bytes_per_epoch(),
            "peak_memory_bytes": entry.peak_memory_bytes(),
            "models_wanted": entry.wanted or len(entry.models),
            "versions": [model.version for model in entry.models],
            "warnings": entry.warnings(),
            "tuned": entry.tuned or None,
            "older_source": entry.older,
        }
        for entry in ranked(entries)
    ]


def leaderboard_json(pipeline_name: str, entries: Sequence[Entry]) -> str:
    """Returns the rows, and the groups of tables with equal models, as JSON text."""
    found = {
        "pipeline": pipeline_name,
        "rows": leaderboard_rows(entries),
        "equal_to_the_bit": equal_models(entries),
        "one_model": shared_models(entries),
    }
    return json.dumps(found, indent=2)


def equal_models(entries: Sequence[Entry]) -> list[list[str]]:
    """Returns groups of names of tables that were trained apart and ended with equal bits: weights, losses and scores."""
    first_of_version = {entry.models[0].version: entry for entry in reversed(entries)}
    apart = [each for each in entries if first_of_version[each.models[0].version] is each and not each.older]
    return _groups(apart, Entry.results)


def shared_models(entries: Sequence[Entry]) -> list[list[str]]:
    """Returns groups of names of tables that share one model, which was trained once."""
    return _groups(entries, lambda entry: tuple(model.version for model in entry.models))


def print_leaderboard(pipeline_name: str, entries: Sequence[Entry]) -> None:
    """Prints a row per train table: scores (mean and deviation over seeds and splits), epochs, time, bytes, memory and versions.

    On a terminal that is too narrow for that, the costs are a second table. A table that does not fit either becomes lines of name and
    value.
    """
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    entries = ranked(entries)
    title, costs = f"{pipeline_name}: leaderboard", _costs(entries)
    whole = _table(title, entries, _scores(entries) | costs | _versions(entries))
    if _fits(console, whole):
        console.print(whole)
    else:
        _print_narrow(console, title, entries, _scores(entries) | _versions(entries))
        _print_narrow(console, "what it cost", entries, costs)
    for line in remarks(entries):
        console.print(line, highlight=False, markup=False, soft_wrap=not console.is_terminal)


def _fits(console: Console, table: Table) -> bool:
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(width=sys.maxsize), table).maximum <= console.width


def _print_narrow(console: Console, title: str, entries: Sequence[Entry], columns: dict[str, list[str]]) -> None:
    """Prints a table, or lines of name and value if it does not fit."""
    table = _table(title, entries, columns)
    if _fits(console, table):
        console.print(table)
        return
    headings = ["name", *(heading.replace("\n", " ") for heading in columns)]
    lines = [
        line
        for entry, *row in zip(entries, *columns.values(), strict=True)
        for line in named_values(headings, [entry.table.name, *row])
    ]
    for line in (title, *lines):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def leaderboard_table(pipeline_name: str, entries: Sequence[Entry]) -> PlainTable:
    """Returns the table that `print_leaderboard` prints on a wide terminal, to be pasted elsewhere."""
    entries = ranked(entries)
    columns = _scores(entries) | _costs(entries) | _versions(entries)
    return PlainTable(
        title=f"{pipeline_name}: leaderboard",
        columns=["name", *map(one_line, columns)],
        rows=[[entry.table.name, *row] for entry, *row in zip(entries, *columns.values(), strict=True)],
        left=frozenset(TEXT_COLUMNS),
    )


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Returns entries, the best mean validation score first."""
    return sorted(entries, key=lambda entry: -statistics.fmean(entry.scores("valid") or [-math.inf]))


def _table(title: str, entries: Sequence[Entry], columns: dict[str, list[str]]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("name", no_wrap=True)
    for heading in columns:
        text = heading in TEXT_COLUMNS
        # A heading may be folded, a value may not.
        table.add_column(
            heading.replace("\n", " ") if text else heading, justify="left" if text else "right", no_wrap=True
        )
    for entry, *row in zip(entries, *columns.values(), strict=True):
        table.add_row(entry.table.name, *row)
    return table


def _scores(entries: Sequence[Entry]) -> dict[str, list[str]]:
    tuned = {"tuned": [entry.tuned for entry in entries]} if any(entry.tuned for entry in entries) else {}
    return tuned | {
        "model": [entry.table.model for entry in entries],
        "trainer": [entry.table.trainer for entry in entries],
        "valid": [spread(entry.scores("valid"), entry.table.metric) for entry in entries],
        "test": [spread(entry.scores("test"), entry.table.metric) for entry in entries],
        "best\nepoch": [_listed(entry.best_epochs()) for entry in entries],
    }


def _costs(entries: Sequence[Entry]) -> dict[str, list[str]]:
    moved = [entry.bytes_per_epoch() for entry in entries]
    links = [link for link in LINKS if any(each.get(link) for each in moved)]
    return {
        "s /\nepoch": [_or_dash(entry.epoch_seconds(), "{:.2f}".format) for entry in entries],
        "s /\neval": [_or_dash(entry.evaluation_seconds(), "{:.2f}".format) for entry in entries],
        **{f"{link} /\nepoch": [_or_dash(each.get(link), format_bytes) for each in moved] for link in links},
        "peak\nmemory": [_or_dash(entry.peak_memory_bytes(), format_bytes) for entry in entries],
    }


def _versions(entries: Sequence[Entry]) -> dict[str, list[str]]:
    more = [
        f" + {len(each.models) - 1} more" * (len(each.models) > 1) + ", older source" * each.older for each in entries
    ]
    return {"models": [short(entry.models[0].version) + text for entry, text in zip(entries, more, strict=True)]}


def remarks(entries: Sequence[Entry]) -> Iterator[str]:
    """Yields sentences on the meaning of the columns and on equal models."""
    metrics = {entry.table.name: entry.table.metric for entry in entries}
    words = {each: METRICS.get(each, each) + (" in percent" if percent(each) else "") for each in metrics.values()}
    if len(words) > 1:
        yield f"valid and test: {', '.join(f'{words[metric]} of {name}' for name, metric in metrics.items())}."
    elif "accuracy" not in words:
        yield f"valid and test are {next(iter(words.values()))}."
    if any(entry.evaluation_seconds() for entry in entries):
        yield "Seconds of an epoch leave its evaluation out, which has a column of its own."
    links = dict.fromkeys(link for entry in entries for link, n in entry.bytes_per_epoch().items() if n)
    if links:
        yield f"Bytes: {'; '.join(f'{link} = {LINK_MEANINGS[link]}' for link in LINKS if link in links)}."
    yield from _over_splits(entries)
    if names := ", ".join(dict.fromkeys(entry.table.name for entry in entries if entry.older)):
        yield f"Older source ({names}): the model's own code has changed since, and a run trains it anew."
    for entry in entries:
        if entry.wanted > len(entry.models):
            splits = dict.fromkeys(each for each in entry.splits if each)
            of = f", of the splits {', '.join(splits)}" if splits else ""
            yield f"{entry.table.name}: {len(entry.models)} of {entry.wanted} models are trained{of}; the same run goes on with the others."
    warned: dict[str, list[str]] = {}
    for entry in entries:
        for sentence in entry.warnings():
            warned.setdefault(sentence, []).append(entry.table.name)
    for sentence, names in warned.items():
        yield f"Warning ({', '.join(names)}): failed check of the {sentence}."
    for group in equal_models(entries):
        yield f"Equal to the bit, weights and every epoch's loss: {' = '.join(group)}."
    for group in shared_models(entries):
        yield f"One model, trained once: {' = '.join(group)}. They differ only in how they run; `trial` in one of them sets it apart."


def _over_splits(entries: Sequence[Entry]) -> Iterator[str]:
    """Yields sentences on the models that means and deviations cover, for tables with several splits."""
    for count in dict.fromkeys((tuple(dict.fromkeys(each.splits)), len(each.models)) for each in entries):
        splits, models = count
        if len(splits) > 1:
            names = ", ".join(each.table.name for each in entries if len(each.models) == models)
            seeds = f", {models // len(splits)} per split" if models % len(splits) == 0 else ""
            yield f"{names}: mean ± deviation over {models} models{seeds}; splits {', '.join(splits)}."


def _groups(entries: Iterable[Entry], key: Callable[[Entry], Any]) -> list[list[str]]:
    """Returns the names of entries with the same key, groups of two and more."""
    groups: dict[Any, list[str]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry.table.name)
    return [names for names in groups.values() if len(names) > 1]


def spread(scores: Sequence[float], metric: str) -> str:
    """Returns scores of a metric, shares in percent: the only one, the mean and the deviation of several, "-" for none."""
    if not scores:
        return "-"
    mean = bare(metric, statistics.fmean(scores))
    return mean if len(scores) == 1 else f"{mean} ± {bare(metric, statistics.stdev(scores))}"


def _listed(epochs: list[int]) -> str:
    """Returns the best epochs of up to three models, or the smallest and the largest of more; one number if these are equal."""
    if len(epochs) <= MOST_LISTED:
        return ", ".join(str(epoch or "-") for epoch in epochs)
    least, most = min(epochs), max(epochs)
    return f"{least or '-'} to {most}" if least < most else str(least or "-")


def _or_dash(value: Any, write: Callable[[Any], str]) -> str:
    return "-" if value is None else write(value)
