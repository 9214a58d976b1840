"""Sets keys of a pipeline file from a command line: `--set train.lr=0.01`.

The text of the file is edited, and the result is a pipeline file like any other: it is checked, and every process of a run gets it. So code
that reads a pipeline does not know about settings.
"""

import os
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from copy import deepcopy
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from graphmill.assets.pipeline.toml_text import is_long_number
from graphmill.kernels.errors import InputError

TRAIN = "train"
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that the name of a train table must not have."""


def with_settings(text: str, settings: Sequence[str]) -> str:
    """Returns the text of a pipeline file with keys set.

    Args:
        text: valid TOML.
        settings: `KEY=VALUE` each. KEY is a dotted path: `seed`, `graph.nodes`, `features.NAME.dtype`; `train.lr` is the key of every
            `[[train]]` table, and `train.NAME.lr` that of the table of this name, as `samples.NAME.reuse` is that of a `[[samples]]` table.
            VALUE is TOML, or else a text. Several values of a train key, with commas between them, put a table for each value in the place
            of the table: `train.lr=0.01,0.03` makes of `sage` the tables `sage-lr-0_01` and `sage-lr-0_03`.

    Raises:
        InputError: a setting is not of this form, or its path leads through a value that is not a table.
    """
    document = tomlkit.parse(text)
    for setting in settings:
        key, equals, value = setting.partition("=")
        path = [part.strip() for part in key.split(".")]
        if not equals or not all(path):
            problem = f"--set {setting} is not KEY=VALUE"
            raise InputError(problem, "write for example --set train.lr=0.01 or --set graph.nodes=1000")
        values = _values(value.strip()) if path[0] == TRAIN else []
        if len(values) > 1:
            _expand(document, path, setting, values)
            continue
        for table, name in _places(document, path, setting):
            table[name] = _value(value.strip())
    return tomlkit.dumps(document)


def toml_of(content: Mapping[str, Any]) -> str:
    """Returns the text of a pipeline file with the keys of a mapping; those whose value is None are left out.

    Args:
        content: tables are mappings, `[[train]]` a list of them; values are those of TOML, paths, and numbers of NumPy.

    Raises:
        InputError: a value is of another kind.
    """
    try:
        return tomlkit.dumps(_plain(content))
    except (TOMLKitError, TypeError, ValueError) as error:
        problem = f"the pipeline has a value that TOML has not: {error}"
        raise InputError(problem, "give texts, numbers and lists") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value.item() if hasattr(value, "item") else value


def _places(document: MutableMapping[str, Any], path: list[str], setting: str) -> Iterator[tuple[Any, str]]:
    """Yields (table, key) of each place that a path means."""
    if path[0] != TRAIN and not isinstance(document.get(path[0]), list):
        yield _inner(document, path[:-1], setting), path[-1]
        return
    tables, rest = _listed_tables(document, path, setting)
    for table in tables:
        yield _inner(table, rest[:-1], setting), rest[-1]


def _listed_tables(document: MutableMapping[str, Any], path: list[str], setting: str) -> tuple[list[Any], list[str]]:
    """Returns the tables of a list that a path means, such as those of [[train]], and the rest of the path inside each."""
    head = path[0]
    tables: Any = document.get(head, [])
    if not isinstance(tables, list) or not all(isinstance(table, MutableMapping) for table in tables):
        problem = f"--set {setting}, but {head} is no list of tables"
        raise InputError(problem, f"write [[{head}]] with two brackets in the file")
    if not tables:
        raise InputError(f"--set {setting}, but the file has no [[{head}]] table", "add one")
    rest = path[1:]
    names = [str(table.get("name", "")) for table in tables]
    if len(rest) > 1 and rest[0] in names:
        tables, rest = [tables[names.index(rest[0])]], rest[1:]
    elif len(rest) > 1 and not any(rest[0] in table for table in tables):
        problem = f"--set {setting}: no [[{head}]] table is named {rest[0]}"
        raise InputError(problem, f"their names are: {', '.join(names)}")
    if not rest:
        raise InputError(f"--set {setting} names no key", "write for example --set train.lr=0.01")
    return list(tables), rest


def _expand(document: MutableMapping[str, Any], path: list[str], setting: str, values: list[Any]) -> None:
    """Puts a table for each value in the place of each train table that a path means, named by the key and the value."""
    chosen, rest = _listed_tables(document, path, setting)
    grown = tomlkit.aot()
    for table in document[TRAIN]:
        if not any(table is each for each in chosen):
            grown.append(table)
            continue
        for value in values:
            made = deepcopy(table)
            made["name"] = NOT_IN_NAMES.sub("_", f"{table.get('name', '')}-{rest[-1]}-{value}")
            _inner(made, rest[:-1], setting)[rest[-1]] = value
            grown.append(made)
    document[TRAIN] = grown


def _inner(table: Any, path: list[str], setting: str) -> Any:
    """Returns the table that a path leads to; one that is missing is added."""
    for name in path:
        if name not in table:
            table[name] = tomlkit.table()
        table = table[name]
        if not isinstance(table, MutableMapping):
            raise InputError(f"--set {setting}: {name} is no table", "give the path of a key: TABLE.KEY=VALUE")
    return table


def _values(text: str) -> list[Any]:
    """Returns the values between commas; one value if the whole is one."""
    if "," not in text or not isinstance(_value(text), str) or text[0] in "\"'":
        return [text]
    listed = _value(f"[{text}]")
    return [_value(part.strip()) for part in text.split(",")] if isinstance(listed, str) else list(listed)


def _value(text: str) -> Any:
    """Returns the value that a text is in TOML, else the text; raises InputError if it has a number that Python cannot write."""
    try:
        found = tomlkit.value(text)
    except (TOMLKitError, ValueError):
        return text
    if is_long_number(found):
        raise InputError(f"--set: {text} is a number of thousands of digits", "write one below 2^63")
    return found
