"""Joins the checks of a step's artifacts: one check per name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphmill.assets.building.stage import Check
from graphmill.assets.storage.artifact import Artifact
from graphmill.assets.storage.version import short

NOT_TESTED = "not tested: {} was built before this check was made"


def join_checks(artifacts: Sequence[Artifact], declared: Sequence[str], *, reused: bool) -> list[Check]:
    """Returns the checks of artifacts, one per name. It passes if those of all artifacts pass.

    Args:
        artifacts: the artifacts of one step, one per seed if there are several.
        declared: names of the checks that the step declares.
        reused: whether the artifacts were there before. A check that none of them holds is then newer than they are; it is returned as not
            passed and not blocking, with a sentence that says so.
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
