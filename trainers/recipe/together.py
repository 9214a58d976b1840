"""Refuses what does not go together in a train table and its file, by the table of options (trainers/recipe/options.py)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.sampling.fanouts import spelled as fanouts_spelled
from graphmill.trainers.recipe.limits import Limit
from graphmill.trainers.recipe.options import CONDITIONS, FILLED, OPTIONS, Condition, Option, Tables

MODELS = {
    "layers": "is a list of layers",
    "module": "is one module over whole blocks",
    "buffers": "has buffers",
}
"""What a model of the user's own is found to be, by option."""
ALWAYS = Condition(words="", holds=lambda table, tables: True)


class Clash(NamedTuple):
    """An option that a train table asks for and that does not go with its technique.

    Attributes:
        option, limit, condition: the cell of the table.
        text: the sentence.
    """

    option: Option
    limit: Limit
    condition: Condition
    text: str


def clashes(table: Any, tables: Tables, names: Collection[str] = OPTIONS.keys()) -> Iterator[Clash]:
    """Yields the options that a train table asks for and that do not go with its technique.

    Args:
        table: the train table, or its hashed half.
        tables: the other tables of the file; those of a run that has no file may be missing.
        names: names of the options that are looked at.
    """
    for limit in table.technique.limits():
        if limit.option in names:
            option, condition = OPTIONS[limit.option], CONDITIONS[limit.when] if limit.when else ALWAYS
            if option.asked(table, tables) and condition.holds(table, tables):
                who = f'trainer = "{table.trainer}" {condition.words}'.rstrip()
                but = " has no effect, since" if limit.useless else ", but"
                remedy = limit.remedy.replace("{own}", f"[train.{table.trainer}]")
                text = f"{_shown(option, table, tables)}{but} {who} {limit.why}: {remedy}"
                yield Clash(option, limit, condition, text)


def table_problems(table: Any) -> Iterator[KeyProblem]:
    """Yields the clashes of a train table that it shows by itself."""
    for option, _, condition, text in clashes(table, {}):
        if option.scope in ("train", "settings") and not condition.of_file and option.name not in FILLED:
            keys = [_below(option, table, key) for key in option.keys]
            yield KeyProblem(" ".join(keys) + " trainer", text)


def file_conflicts(table: Any, tables: Tables, written: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the clashes of a train table with other tables, as paths below `[[train]]`.

    Args:
        table, tables: as in `clashes`.
        written: keys of the train table that the file has.
    """
    for option, limit, condition, text in clashes(table, tables):
        if option.scope == "file" and not limit.useless:
            yield tuple(condition.key.replace("*", table.trainer).split(".")) if condition.key else ("trainer",), text
        elif option.scope != "code" and (condition.of_file or (option.name in FILLED and option.keys[0] in written)):
            yield tuple(_below(option, table, option.keys[0]).split(".")), text


def useless_tables(
    trains: Sequence[Any], tables: Tables
) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...], bool]]:
    """Yields the tables and keys of a file that have no effect on trainings: (path, sentence, names of the trainings, on all of them).

    Args:
        trains: the train tables.
        tables: the other tables of the file.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for table in trains:
        for option, limit, _, text in clashes(table, tables):
            if option.scope == "file" and limit.useless:
                found.setdefault((option.name, text), []).append(table.name)
    for (name, text), names in found.items():
        option = OPTIONS[name]
        all_of = {each for (other, _), named in found.items() if other == name for each in named}
        used = any(each in tables for each in option.used_by) or len(all_of) < len(trains)
        yield tuple(option.keys[0].split(".")), text, tuple(names), not used


def useless_lines(trains: Sequence[Any], tables: Tables) -> Iterator[str]:
    """Yields a note for each table or key of a file that has no effect on some of its trainings."""
    for _, text, names, _ in useless_tables(trains, tables):
        yield f"note: {', '.join(names)}: {text.rpartition(':')[0]}"


def sampling_problems(table: Any, sampling: Any) -> Iterator[str]:
    """Yields why a train table and [sampling] do not go together, for a training without a file."""
    for option, limit, _, text in clashes(table, {"sampling": sampling}):
        if option.scope == "file" and not limit.useless:
            yield text


def _below(option: Option, table: Any, key: str) -> str:
    """Returns the path of a key below `[[train]]`."""
    return f"{table.trainer}.{key}" if option.scope == "settings" else key


def _shown(option: Option, table: Any, tables: Tables) -> str:
    """Returns an option as the file has it."""
    if option.scope == "file":
        name, _, key = option.keys[0].partition(".")
        value = getattr(tables.get(name), key, None) if key else None
        return f"[{name}]" + (
            f" {key} = {_spelled(value)}" if isinstance(value, str | bool | int) else f" {key}" if key else ""
        )
    if option.scope == "code":
        return f'model = "{table.model}" {MODELS[option.name]}'
    holder = table.settings if option.scope == "settings" else table
    fields = type(holder).__dataclass_fields__
    key = next((key for key in option.keys if getattr(holder, key) != fields[key].default), option.keys[0])
    return f"{key} = {_spelled(getattr(holder, key))}"


def _spelled(value: Any) -> str:
    """Returns a value as TOML writes it."""
    if isinstance(value, tuple):
        return fanouts_spelled(value)
    return (
        json.dumps(value) if isinstance(value, str | bool) else f"{value:g}" if isinstance(value, float) else str(value)
    )
