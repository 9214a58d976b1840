"""Several sample sets in one file: `[[samples]]` tables, each with a name that trainings give as their `samples`.

For a training of a set the file is one with `[samples]`: the keys of the set stand in place of those of `[sampling]`, and the stages that
depend on the batches (`Stage.by_sample_set`) have a step for each set, `samples.NAME`. Artifacts and models are those of such a file.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from graphmill.assets.building.keys import ConfigError
from graphmill.assets.samples.config import SampleSet

SAMPLES, SAMPLING = "samples", "sampling"
NOT_A_SET = ("online", "stored")
"""Values of a training's `samples` that name no set."""
NEED_SAMPLES = ("cache_plan", "packed")
"""Tables about the samples that a training reads."""


def step_of_set(name: str, sample_set: str) -> str:
    """Returns the name of the step of a sample set, "" for that of `[samples]`; it is also that of the set among the file's tables."""
    return f"{name}.{sample_set}" if sample_set else name


def set_names(tables: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the sample sets among the tables of a file."""
    return tuple(name.partition(".")[2] for name in tables if name.startswith(f"{SAMPLES}."))


def tables_of_set(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns the tables of a file as a sample set has them: `samples` is the set, and `sampling` has its keys.

    Args:
        tables: name -> checked value of each table, None for one with mistakes.
        name: name of the set; "" for trainings of none, which of a file with sets have no samples, and no plan for any.
    """
    if not name:
        return {key: tables[key] for key in tables if key not in NEED_SAMPLES} if set_names(tables) else tables
    if (key := step_of_set(SAMPLES, name)) not in tables:
        return tables
    found, sampling = tables[key], tables.get(SAMPLING)
    return {**tables, SAMPLES: found} | ({SAMPLING: found.drawn_by(sampling)} if found and sampling else {})


def parse_sets(raw: list[Any], tables: Any, sampling: Any) -> tuple[dict[str, Any], list[Any]]:
    """Returns name of a table -> checked set, None for one with mistakes, and the problems.

    Args:
        raw: the `[[samples]]` tables as they are written.
        sampling: the `[sampling]` table, None without one or with mistakes.
    """
    values: dict[str, Any] = {}
    problems: list[Any] = []
    places = {place: name for name, place in set_places({SAMPLES: raw}).items()}
    for index, entry in enumerate(raw):
        found, wrong = tables.parse(SampleSet, entry, (SAMPLES, index))
        wrong += [tables.problem((SAMPLES, index, key), text) for key, text in _contradictions(found, sampling)]
        problems += wrong
        if (place := (SAMPLES, index)) in places:
            values[step_of_set(SAMPLES, places[place])] = None if wrong else found
    return values, problems


def set_places(raw: Mapping[str, Any]) -> dict[str, tuple[str | int, ...]]:
    """Returns name -> path of each sample set of a file, which may have mistakes."""
    listed = raw.get(SAMPLES)
    named = enumerate(listed) if isinstance(listed, list) else ()
    return {
        entry["name"]: (SAMPLES, n)
        for n, entry in named
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
    }


def _contradictions(found: SampleSet | None, sampling: Any) -> Iterator[tuple[str, str]]:
    """Yields the keys of a set that do not go with the others of `[sampling]`, with the problem of each."""
    try:
        if found and sampling:
            found.drawn_by(sampling)
    except ConfigError as error:
        for keys, text in error.problems:
            own = [key for key in keys.split() if getattr(found, key, None) not in (None, ())]
            yield (own or ["name"])[0], text
