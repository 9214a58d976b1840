"""What is shown of the artifacts of a step: their checks, one per name, and the numbers of their summaries in words, with the unit.

The manifest keeps names and exact values (`graphmill show`); a label stands beside a rounded value.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphmill.assets.building.stage import Check
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import short
from graphmill.assets.tasks.labels import CLASSES, column_words

MIB = 1 << 20
HIT_RATIO = re.compile(r"(expected_)?hit_ratio_(?:(\w+)_)?(\d+)_percent")
BYTES = re.compile(r"(?:(\w+)_)?bytes((?:_by_\w+)?)")
NOT_TESTED = "not tested: {} was built before this check was made"
SHARES = ("_ratio", "_share", "accuracy", "_macro", "_micro", "_weighted", "_auc", "_precision", "_r2", "_ap")
OF_RANKS = re.compile(r"\w+_(mrr|(hits?|recall|ndcg)@\d+)(_given|_uniform_\d+)?")
"""Scores of ranks, which are shares, among all nodes or among candidates."""


def labelled(name: str, value: Any) -> tuple[str, Any]:
    """Returns label and value of a number for people: sizes in MiB, shares in percent, times in seconds.

    Args:
        name: name of the number, such as "feature_bytes".
        value: the number, or a dict of numbers of one unit; anything else keeps its value.
    """
    if name == "row_bytes":
        return "row (B)", value
    if found := BYTES.fullmatch(name):
        rest = _words(f"{found[1] or 'size'}{found[2]}")
        return f"{rest} (MiB)", _each(value, lambda number: number / MIB)
    if found := HIT_RATIO.fullmatch(name):
        policy = f" {found[2]}" if found[2] else ""
        return f"{_words(found[1] or '')}hit ratio{policy} at {found[3]} % (%)", _percent(value)
    if (name.endswith(SHARES) or OF_RANKS.fullmatch(name)) and not isinstance(value, str):
        return f"{_words(name.removesuffix('_share'))} (%)", _percent(value)
    if name.endswith("_seconds"):
        return f"{_words(name.removesuffix('_seconds'))} (s)", _each(value, float)
    return _words(name.removeprefix("num_")), value if isinstance(value, int) else _each(value, lambda number: number)


def rounded(number: float) -> float:
    """Returns a number with four significant digits, or with one decimal place from 1000 on."""
    return round(number, 1) if abs(number) >= 1000 else float(f"{number:.4g}")


def joined(values: list[Any]) -> Any:
    """Returns the mean of the numbers of all artifacts, so that the UI can plot it; for other types the common value, or the list."""
    if len(values) == 1:
        return values[0]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return values[0] if len(set(values)) == 1 else float(sum(values)) / len(values)
    return values[0] if all(value == values[0] for value in values) else values


def built_in_words(artifact: Artifact, reused: bool) -> str:
    """Returns the words that follow a ready artifact's name: its contents and bytes.

    Of one that was built just now they say the time, and the contents of the source that were not read.
    """
    size = format_bytes(artifact.total_bytes)
    if reused:
        return f"{_contents(artifact)}, {size}"
    run = artifact.run_record()
    unread = f"; not read: {'; '.join(run['unread'])}" if run.get("unread") else ""
    return f"{_contents(artifact)} in {run.get('seconds', 0.0):.1f} s, {size}{unread}"


def _contents(artifact: Artifact) -> str:
    """Returns the size of a graph, its classes and its split, or the size of its features in words, "" for the numbers of other stages."""
    numbers = artifact.summary["numbers"]
    if {"num_rows", "num_features", "feature_dtype"} <= numbers.keys():
        return f" ({numbers['num_rows']:,} rows of {numbers['num_features']:,} {numbers['feature_dtype']})"
    if not {"num_nodes", "num_edges"} <= numbers.keys():
        return ""
    shared = numbers.get("num_ids_of_both_ends", 0)
    both = f"; {shared:,} ids stand in both columns and are one node each" if shared else ""
    dropped = numbers.get("num_dropped_edges", 0)
    both += f"; {dropped:,} edges with an end without a node were left out" if dropped else ""
    size = f"{numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges"
    if "num_links" in numbers:
        parts = ", ".join(f"{numbers[f'num_{part}_links']:,} {part}" for part in ("train", "valid", "test"))
        return f" ({size}, {numbers['num_links']:,} links; {parts}{both})"
    if not numbers.get("num_classes"):
        return f" ({size}, no labels{both})" if "num_classes" in numbers else f" ({size}{both})"
    split = ", ".join(f"{numbers[f'num_{part}']:,} {part}" for part in ("train", "valid", "test"))
    columns = column_words(artifact.config.get("task", CLASSES), numbers["num_classes"])
    return f" ({size}, {columns}; {split}{both})"


def join_checks(artifacts: Sequence[Artifact], declared: Sequence[str], *, reused: bool) -> list[Check]:
    """Returns the checks of artifacts, one per name. It passes if those of all artifacts pass.

    Args:
        artifacts: the artifacts of one step, one per seed if there are several.
        reused: whether the artifacts were there before; a check that none of them holds is then returned as not passed and not blocking.
    """
    named: dict[str, list[tuple[str, Check]]] = {}
    for artifact in artifacts:
        title = f"seed {artifact.config['seed']}" if "seed" in artifact.config else short(artifact.version)
        for check in artifact.summary["checks"]:
            named.setdefault(check["name"], []).append((title, Check(**check)))
    found = [_joined(each) for each in named.values()]
    if reused:
        labels = " and ".join(artifact.label for artifact in artifacts)
        lacking = [name for name in declared if name not in named]
        found += [Check(name=name, passed=False, detail=NOT_TESTED.format(labels), blocking=False) for name in lacking]
    return found


def _joined(named: Sequence[tuple[str, Check]]) -> Check:
    """Joins the checks of several artifacts, each with the title of its artifact, into one."""
    first = named[0][1]
    if len(named) == 1:
        return first
    return Check(
        name=first.name,
        passed=all(check.passed for _, check in named),
        detail="; ".join(f"{title}: {check.detail or 'passed'}" for title, check in named),
        numbers=_joined_numbers([(title, check.numbers) for title, check in named]),
        blocking=any(check.blocking and not check.passed for _, check in named) or all(c.blocking for _, c in named),
    )


def _joined_numbers(named: Sequence[tuple[str, Mapping[str, int | float]]]) -> dict[str, int | float]:
    """Returns the numbers of several artifacts: a number that is equal in all stands once, others with the title of their artifact."""
    found: dict[str, int | float] = {}
    for label in dict.fromkeys(label for _, numbers in named for label in numbers):
        values = [numbers.get(label) for _, numbers in named]
        if values[0] is not None and values.count(values[0]) == len(values):
            found[label] = values[0]
        else:
            found |= {f"{label}, {title}": numbers[label] for title, numbers in named if label in numbers}
    return found


def _words(name: str) -> str:
    return name.replace("_", " ")


def _percent(value: Any) -> Any:
    return _each(value, lambda number: 100 * number)


def _each(value: Any, scale: Any) -> Any:
    """Scales and rounds a number, or each number of a dict; returns other values as they are."""
    if isinstance(value, dict):
        return {key: _each(number, scale) for key, number in value.items()}
    return rounded(scale(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value
