"""Converts a TOML table to a frozen dataclass and reports every mistake in it; none stops the search for the next.

The dataclass is the schema. Its fields are the keys, its annotations the types, `__post_init__` checks the values. Understood are bool,
int, float (an int will do), str, Path, Literal, tuple, dict, nested dataclasses, `X | None` and other unions. A mapping of dataclasses is a
table for each name, [graph.nodes.NAME]; in place of one with mistakes it has what the file says, so that the configuration around it still
compares names. `Literal | str` is one of these names, or a reference to the user's own code (assets/storage/names/user_code.py). A field
with `metadata={"key": False}` is set by the program and is not a key; one with `metadata={"choices": f}` takes a value of `f()`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from graphmill.assets.building.keys import ConfigError
from graphmill.assets.pipeline.toml_text import KeyPath, line_of
from graphmill.assets.pipeline.words import sentence
from graphmill.assets.storage.names.patterns import REMOTE, matches, why_nothing
from graphmill.assets.storage.names.upstream import AssetTable, asset_table, wrong_asset_key
from graphmill.assets.storage.names.user_code import Reference, find_source, is_reference
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError, did_you_mean

TYPE_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    Path: "a path in quotes",
    AssetTable: "an asset key in quotes",
    Reference: "a reference module:name in quotes",
}
VARIABLE = re.compile(r"\$\{(\w+)\}")
EACH_NAME = "a table for each name"
NOT_BUILT = "is not built yet in this version"


LONGEST_PATH, LONGEST_NAME = 4095, 255
"""Most bytes of a path, and of a name in it, on Linux."""
LARGEST = 2**63 - 1
"""Largest whole number of TOML; no count here exceeds it."""
LONGEST_SHOWN = 200
"""Most characters of a value that a message quotes."""


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in a file.

    Attributes:
        unset: environment variable whose absence is the only mistake, "" for any other mistake.
        path: the key or table that it is about.
        meant: the key that was probably meant by one that its table does not have; "" if none is near.
    """

    line: int
    message: str
    unset: str = ""
    path: KeyPath = field(default=(), compare=False)
    meant: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The facts about the file that parsing a table needs.

    Attributes:
        folder: folder that relative paths start in.
        later: key -> values that are known but not implemented yet.
        files: whether a path without a file, folder or (for a pattern) match is a mistake.
        variables: path that stands for every environment variable; None asks the environment.
        owners: key -> headers of the tables that have it.
    """

    lines: dict[KeyPath, int] = field(default_factory=dict)
    folder: Path = Path()
    later: Mapping[str, Collection[str]] = field(default_factory=dict)
    files: bool = False
    variables: Path | None = None
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def hint(self, key: str, keys: Collection[str]) -> str:
        """Returns the end of the sentence about a key that a table does not have: its tables, or a key that is spelled alike."""
        if headers := self.owners.get(key):
            return f": it is a key of {' and '.join(headers)}"
        return did_you_mean(key, keys)

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Returns a problem at the line of a key."""
        return Problem(line_of(self.lines, path), message, path=path)

    def parse(
        self, cls: type, raw: Mapping[str, Any], where: KeyPath, fixed: Mapping[str, Any] | None = None
    ) -> tuple[Any, list[Problem]]:
        """Builds `cls` from a table.

        Args:
            raw: the table as `tomllib` read it.
            fixed: values of the fields that are not keys.

        Returns:
            (the object, []) or (None, all the problems).
        """
        if not isinstance(raw, Mapping):
            return None, [self.problem(where, f"{_title(where)} is {_show(raw)}, expected a table")]
        keys = {f.name: f for f in dataclasses.fields(cls) if f.init and f.metadata.get("key", True)}
        problems = [self._unknown(key, keys, raw, where) for key in raw if key not in keys]
        hints, values = _hints_of(cls), dict(fixed or {})
        for name, key in keys.items():
            if name in raw:
                values[name], found = self.convert(_hint(key, hints), raw[name], (*where, name))
                problems += found
            elif key.default is dataclasses.MISSING and key.default_factory is dataclasses.MISSING:
                problems.append(
                    self.problem(
                        where, f"{_title(where)} lacks the key {name} ({_wanted(hints[name], (*where, name))})"
                    )
                )
        # Conflicts between sound keys are reported beside the other mistakes, as long as no key is missing.
        wrong = {name for name in keys if name in raw and values.get(name) is None}
        sound = {name: value for name, value in values.items() if name not in wrong}
        try:
            made = cls(**sound)
        except ConfigError as error:
            return None, [*problems, *self._located(error, raw, where, wrong)]
        except InputError as error:
            return None, [*problems, self.problem(where, f"{error.problem}; {error.remedy}")]
        except TypeError:
            if not problems:
                raise
            return None, problems
        return (None, problems) if problems else (made, [])

    def convert(self, wanted: Any, value: Any, where: KeyPath) -> tuple[Any, list[Problem]]:
        """Returns (the value as the annotated type, []) or (None, problems); (the path, problems) for a path that leads nowhere."""
        origin, args = typing.get_origin(wanted), typing.get_args(wanted)
        if wanted is Any:
            return value, []
        if origin in (typing.Union, types.UnionType):
            return self._convert_union([arg for arg in args if arg is not types.NoneType], value, where)
        if origin is typing.Literal:
            return self._convert_choice(args, value, where)
        if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
            return self.parse(wanted, value, where)
        if origin in (tuple, list) and isinstance(value, list):
            return self._convert_list(args, value, where)
        if origin in (dict, Mapping) and isinstance(value, dict):
            pairs = {key: self.convert(args[1], item, (*where, key)) for key, item in value.items()}
            made = {key: value[key] if item is None else item for key, (item, _) in pairs.items()}
            return made, [problem for _, found in pairs.values() for problem in found]
        if isinstance(value, str) and "\0" in value:
            return None, [self.problem(where, f"{_name(where)} = {_show(value)} holds a character that ends a text")]
        if isinstance(value, int) and abs(value) > LARGEST:
            return None, [self.problem(where, f"{_name(where)} = {_show(value)} is beyond 2^63")]
        if wanted is Path and isinstance(value, str):
            return self._convert_path(value, where)
        if wanted is Reference and isinstance(value, str) and is_reference(value):
            return Reference(value, self.folder), []
        if wanted is AssetTable and isinstance(value, str):
            wrong = wrong_asset_key(value)
            return (None, [self.problem(where, f"{_name(where)} = {wrong}")]) if wrong else (asset_table(value), [])
        if wanted is float and isinstance(value, int | float) and type(value) is not bool and math.isfinite(value):
            return float(value), []
        if type(value) is wanted and wanted in (bool, int, str):
            return value, []
        hint = f" (write {int(value)})" if wanted is int and isinstance(value, float) and value.is_integer() else ""
        return None, [self.problem(where, f"{_name(where)} = {_show(value)} is not {_wanted(wanted, where)}{hint}")]

    def _convert_union(self, options: list[Any], value: Any, where: KeyPath) -> tuple[Any, list[Problem]]:
        choice = next((option for option in options if typing.get_origin(option) is typing.Literal), None)
        if choice is not None and str in options:
            # A choice beside a plain text: one of our names, or a reference to the user's own code.
            return self._convert_named(choice, value, where)
        tried = [self.convert(option, value, where) for option in options]
        for result, found in tried:
            if not found:
                return result, []
        if len(tried) == 1:
            return tried[0]
        # The value has the right type, and is wrong for another reason.
        for result, found in tried:
            if result is not None:
                return result, found
        wanted = " or ".join(describe(option) for option in options)
        return None, [self.problem(where, f"{_name(where)} = {_show(value)} is not {wanted}")]

    def _convert_named(self, choice: Any, value: Any, where: KeyPath) -> tuple[Any, list[Problem]]:
        if not (isinstance(value, str) and is_reference(value)):
            return self.convert(choice, value, where)
        reference = Reference(value, self.folder)
        try:
            find_source(reference)
        except InputError as error:
            return None, [self.problem(where, f"{_name(where)} = {error.problem}; {error.remedy}")]
        return reference, []

    def _convert_choice(self, choices: tuple[Any, ...], value: Any, where: KeyPath) -> tuple[Any, list[Problem]]:
        if any(value == choice and type(value) is type(choice) for choice in choices):
            return value, []
        name = _name(where)
        if value in self.later.get(name, ()):
            text = f"{name} = {_show(value)} {NOT_BUILT}; it has {_join(choices)}"
        else:
            text = f"{name} = {_show(value)} is not one of {_join(choices)}{did_you_mean(value, choices)}"
        return None, [self.problem(where, text)]

    def _convert_list(self, args: tuple[Any, ...], values: list[Any], where: KeyPath) -> tuple[Any, list[Problem]]:
        repeated = len(args) == 1 or (len(args) == 2 and args[1] is Ellipsis)
        item_types = [args[0]] * len(values) if repeated else list(args)
        if len(item_types) != len(values):
            text = f"{_name(where)} = {_show(values)} has {len(values)} entries, expected {len(item_types)}"
            return None, [self.problem(where, text)]
        items = [self.convert(t, v, (*where, i)) for i, (t, v) in enumerate(zip(item_types, values, strict=True))]
        made, problems = tuple(item for item, _ in items), [problem for _, found in items for problem in found]
        return (None if None in made else made), problems

    def _convert_path(self, text: str, where: KeyPath) -> tuple[Any, list[Problem]]:
        if self.variables is not None:
            return self.folder / VARIABLE.sub(lambda _: str(self.variables), text), []
        unset = [name for name in VARIABLE.findall(text) if not environment.read_named(name)]
        if unset:
            names = " and ".join(f"${{{name}}}" for name in dict.fromkeys(unset))
            message = f"{_name(where)} = {_show(text)}: {names} is not set; export it or write the path out"
            return None, [replace(self.problem(where, message), unset=" and ".join(dict.fromkeys(unset)))]
        expanded = VARIABLE.sub(lambda match: environment.read_named(match[1]), text)
        try:
            path = (self.folder / Path(expanded).expanduser()).absolute()
        except RuntimeError:
            return None, [
                self.problem(where, f"{_name(where)} = {_show(text)}: there is no such user; write the path out")
            ]
        if len(os.fsencode(path)) > LONGEST_PATH or any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
            # A system call on the path would fail.
            return None, [self.problem(where, f"{_name(where)} = {_show(text)} is longer than a path can be")]
        if REMOTE.match(expanded) and not path.exists():
            what = why_nothing(Path(expanded))
            return path, [self.problem(where, f"{_name(where)} = {_show(text)} {what}; download the files first")]
        if self.files and not matches(path):
            return path, [self.problem(where, f"{_name(where)} = {_show(text)}: {path} {why_nothing(path)}")]
        return path, []

    def _unknown(self, key: str, keys: Collection[str], given: Collection[str], where: KeyPath) -> Problem:
        said = sentence(key, str(where[0]) if where else "")
        near = f": {said}" if said else self.hint(key, keys) or f"; it has {_join(sorted(keys))}"
        free = () if said or key in self.owners else [each for each in keys if each not in given]
        meant = next(iter(get_close_matches(key, free, 1)), "")
        return replace(self.problem((*where, key), f"{_title(where)} has no key {key}{near}"), meant=meant)

    def _located(
        self, error: ConfigError, raw: Mapping[str, Any], where: KeyPath, wrong: Collection[str]
    ) -> Iterator[Problem]:
        """Yields the problems of a configuration, each at the line of its first key that the file has; those of wrong keys are left out."""
        for keys, text in error.problems:
            names = [tuple(name.split(".")) for name in keys.split()]
            if not {name[0] for name in names} & {*wrong}:
                given = [name for name in names if _has(raw, name)]
                given += [name for name in names if name[0] in raw or (*where, *name) in self.lines]
                path = (*where, *given[0]) if given else where
                text = f"{_title(where)}: {text}" if _is_named(where) else text
                yield self.problem(path, f"{text}; {error.remedy}" if error.remedy else text)


def _has(table: Any, name: Sequence[str]) -> bool:
    return not name or (isinstance(table, Mapping) and name[0] in table and _has(table[name[0]], name[1:]))


def describe(wanted: Any) -> str:
    """Returns a type in the words of an error message."""
    origin, args = typing.get_origin(wanted), [a for a in typing.get_args(wanted) if a is not types.NoneType]
    if origin is typing.Literal:
        return f"one of {_join(args)}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(arg) for arg in args)
    if origin in (tuple, list):
        return "a list, each " + describe(args[0])
    if origin is Mapping and dataclasses.is_dataclass(args[1]):
        return EACH_NAME
    return TYPE_NAMES.get(wanted, "a table")


def _wanted(wanted: Any, where: KeyPath) -> str:
    """Returns the type of a key in words, with the header of a table for each name."""
    named = describe(wanted)
    return f"{named}, {_title((*where, 'NAME'))}" if named == EACH_NAME else named


@cache  # finding them takes longer than everything else about a table
def _hints_of(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _hint(key: dataclasses.Field[Any], hints: Mapping[str, Any]) -> Any:
    """Returns the type of a field: its annotation, or the choices that its function returns."""
    choices = key.metadata.get("choices")
    return hints[key.name] if choices is None else typing.Literal[tuple(choices())]


def _title(where: KeyPath) -> str:
    names = ".".join(str(part) for part in where if isinstance(part, str))
    if not names:
        return "the file"
    return f"[[{names}]]" if isinstance(where[-1], int) else f"[{names}]"


def _is_named(where: KeyPath) -> bool:
    """Tells whether a path leads into a table for a name, such as [graph.nodes.NAME]."""
    return len(where) > 2 and all(isinstance(part, str) for part in where)


def _name(where: KeyPath) -> str:
    keys = where[:-1] if where and isinstance(where[-1], int) else where
    name = next((str(part) for part in reversed(keys) if isinstance(part, str)), "")
    name = ".".join(map(str, keys)) if _is_named(keys[:-1]) else name
    return name if keys is where else f"{name}[{where[-1]}]"


def _join(names: Collection[Any]) -> str:
    return ", ".join(str(name) for name in names)


def _show(value: Any) -> str:
    """Spells a value as TOML does."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else str(value)
    if isinstance(value, list):
        text = f"[{', '.join(map(_show, value))}]"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}... ({len(text):,} characters)"


class MissingDataError(InputError):
    """A pipeline file is sound, but an environment variable with the path of its data is not set."""


class FileMistakes(InputError):
    """The mistakes in a pipeline file, in the order of their lines.

    Args:
        called: name that the user gave, None for its path.
    """

    def __init__(self, path: Path, text: str, problems: Sequence[Problem], called: str | None = None):
        self.path, self.text, self.problems = path, text, sorted(set(problems))
        listed = "".join(f"\n  {path}:{problem.line}: {problem.message}" for problem in self.problems)
        count = "1 mistake" if len(self.problems) == 1 else f"{len(self.problems)} mistakes"
        super().__init__(
            f"the pipeline file has {count}:{listed}", f"correct the file, then: graphmill validate {called or path}"
        )

    def apart(self) -> list[InputError]:
        """Returns an error for each mistake."""
        return [InputError(f"{self.path}:{problem.line}: {problem.message}") for problem in self.problems]
