"""Writes the measured numbers of README.md and docs/*.md from recorded rows: `python -m tests.docs.measured`, or `make docs`.

A section of a page (from one heading to the next) names its rows, and gives each a short name. Behind the names the program writes when,
at which commit and on which processor the rows were measured:

    <!--rows: a = sampling graph.num_nodes=2000000; b = disk part=packing-->...<!--/-->

A row is the newest one of benchmarks/results/NAME.jsonl of which all conditions hold. Rows of a tree with uncommitted changes (`-dirty`)
are never taken, those of quick runs only if a condition names their `scale` or `quick`. A condition is one of

    key=value          with dots between nested keys
    has=key
    cpu=text           part of the processor's name
    commit=text        beginning of the commit
    since=date
    each=key,key       the name is a list: the newest row for each value of these keys

Numbers stand between two marks, the first of which has a Python expression over these names:

    It is <!--= max(a.lines(threads=2).ratio)-->4.9<!--/-->x as fast.
    | degree | <!--= a.bytes.degree / 1e6-->158.3 | 84.0 | 50.8<!--/--> |

The values of the expression replace the numbers between the marks, in order and with as many digits behind the point as stand there.
Nothing else changes. `FUNCTIONS` has the names besides those of rows.

    x.key              a field, of every element if x is a list; x["key"] is the same
    x["a", "b"]        several fields
    x(key=value)       the elements of a list that have that value; the element itself if there is one
    x(key__inner=1)    the same for a value that lies deeper
    x / 1e6            arithmetic with a list goes by elements

`unmeasured:` in place of `rows:` marks a section whose benchmark has not run on a clean tree: its numbers stay as they stand, and it says
so. As soon as all its clean rows are there (with `since=date`: new ones), the program writes `rows:` and the numbers.
"""

from __future__ import annotations

import json
import operator
import re
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS
from tests.docs.pages import PAGES

END = "<!--/-->"
ROWS = re.compile(r"<!--(rows|unmeasured): (.*?)-->(.*?)<!--/-->")
NUMBERS = re.compile(r"<!--= (.*?)-->(.*?)<!--/-->")
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?!\d)")
WAITING = "to be measured again: numbers of uncommitted or older code"
TRADE = re.compile(r"\((?:R|TM)\)")


class Wrong(Exception):
    """A marker that cannot be written: no such row, no such field, or another count of numbers."""


class Record:
    """A dictionary of a row, with its fields as attributes."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: str | tuple[str, ...]) -> Any:
        if isinstance(name, tuple):
            return Many(self[each] for each in name)
        if name not in self._fields:
            raise Wrong(f"no field {name!r}; there are {', '.join(self._fields)}")
        return wrapped(self._fields[name])

    def values(self) -> Many:
        """Returns all values, in the order of the row."""
        return Many(self._fields.values())

    def items(self) -> list[tuple[str, Any]]:
        """Returns keys and values, in the order of the row."""
        return [(key, wrapped(value)) for key, value in self._fields.items()]


class Many(list[Any]):
    """A list of a row. Fields and arithmetic are those of its elements."""

    def __init__(self, elements: Any) -> None:
        super().__init__(wrapped(each) for each in elements)

    def __getattr__(self, name: str) -> Many:
        return self[name]

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, (str, tuple)):
            return Many(each[place] for each in self)
        found = super().__getitem__(place)
        return Many(found) if isinstance(place, slice) else found

    def __call__(self, **conditions: Any) -> Any:
        pairs = [(key.split("__"), wrapped(value)) for key, value in conditions.items()]
        found = [each for each in self if all(reduce(lambda x, k: x[k], keys, each) == value for keys, value in pairs)]
        if not found:
            raise Wrong(f"no element with {conditions}")
        return found[0] if len(found) == 1 else Many(found)


def _by_elements(action: Callable[[Any, Any], Any], *, turned: bool) -> Callable[[Any, Any], Many]:
    def apply(self: Any, other: Any) -> Many:
        others = other if isinstance(other, list) else [other] * len(self)
        pairs = zip(self, others, strict=True)
        return Many(action(right, left) if turned else action(left, right) for left, right in pairs)

    return apply


for _name in ("add", "sub", "mul", "truediv"):
    setattr(Many, f"__{_name}__", _by_elements(getattr(operator, _name), turned=False))
    setattr(Many, f"__r{_name}__", _by_elements(getattr(operator, _name), turned=True))


def wrapped(value: Any) -> Any:
    """Returns a value of a row as expressions see it."""
    if isinstance(value, dict):
        return Record(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, Many):
        return Many(value)
    return value


FUNCTIONS: dict[str, Any] = {
    "abs": abs,
    "zip": zip,
    "min": min,
    "max": max,
    "ends": lambda values: [min(values), max(values)],
    "sum": sum,
    "len": len,
    "median": statistics.median,
    "mean": statistics.fmean,
    "deviation": statistics.stdev,
    "first_number": lambda text: float(NUMBER.findall(text)[0].replace(",", "")),
    "MB": 1e6,
    "GB": 1e9,
    "MiB": 2**20,
    "GiB": 2**30,
}


def recorded(name: str, folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Returns the rows of a benchmark, oldest first; none if it has no file."""
    path = folder / f"{name}.jsonl"
    return _rows(path, path.stat().st_mtime_ns) if path.is_file() else []


@cache
def _rows(path: Path, _changed: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rows_of(description: str, folder: Path = RESULTS) -> tuple[Any, list[dict[str, Any]]]:
    """Returns the value of a name, and its rows: the newest clean row that the description names, or with `each` a list of them.

    Raises:
        Wrong: there is none, or all of them come from a tree with uncommitted changes.
    """
    name, *conditions = shlex.split(description)
    keys = [condition[5:].split(",") for condition in conditions if condition.startswith("each=")]
    found = matching(name, [condition for condition in conditions if not condition.startswith("each=")], folder)
    if not found:
        raise Wrong(f"no row {description!r}")
    clean = [row for row in found if is_clean(row)]
    if not clean:
        raise Wrong(f"all rows {description!r} come from a tree with uncommitted changes")
    if not keys:
        return Record(clean[-1]), clean[-1:]
    newest = list({json.dumps([field(row, key) for key in keys[0]]): row for row in clean}.values())
    return Many(newest), newest


def is_clean(row: Mapping[str, Any]) -> bool:
    """Returns whether a row was measured on a tree without uncommitted changes."""
    return bool(row["commit"]) and not row["commit"].endswith("-dirty")


def matching(name: str, conditions: Sequence[str], folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Returns the rows of a benchmark of which all conditions hold, oldest first."""
    pairs = [condition.partition("=")[::2] for condition in conditions]
    if not {"scale", "quick"} & {key for key, _ in pairs}:
        pairs = [*pairs, ("scale", None), ("quick", None)]
    return [row for row in recorded(name, folder) if all(_holds(row, key, value) for key, value in pairs)]


def _holds(row: dict[str, Any], key: str, value: str | None) -> bool:
    if value is None:  # of a full run
        return row.get(key) not in ("quick", True)
    if key == "has":
        return value in row
    if key == "cpu":
        return value in row["machine"]["cpu"]
    if key == "commit":
        return row["commit"].startswith(value)
    if key == "since":
        return row["time"] >= value
    found = field(row, key)
    return value == (found if isinstance(found, str) else json.dumps(found))


def field(row: Any, key: str) -> Any:
    """Returns a field of a row by keys with dots between; None if it has none."""
    for part in key.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def stamp(rows: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Returns when and on what rows of benchmarks were measured: benchmark, date, commit, processor, and GPU if there is one."""
    found: dict[str, None] = {}
    for name, row in rows:
        machine = [processor(row["machine"])]
        machine += [str(row[key]) for key in ("gpu", "device") if "NVIDIA" in str(row.get(key))]
        found[f"{name} {row['time'][:10]} ({row['commit']}, {', '.join(machine)})"] = None
    return "; ".join(found)


def processor(machine: dict[str, Any]) -> str:
    """Returns the name of a row's processor; older rows have its family and model apart from it."""
    kind = ", ".join(f"{key} {machine[key]}" for key in ("family", "model") if key in machine)
    return " ".join(TRADE.sub("", machine["cpu"]).split()) + (f" ({kind})" if kind else "")


def number_like(old: str, value: Any) -> str:
    """Returns a value with the digits behind the point and the commas of the number that stood there."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Wrong(f"{value!r} is not a number")
    digits = len(old.partition(".")[2])
    text = f"{value:{',' if ',' in old else ''}.{digits}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.,") else text


def flat(value: Any) -> Iterator[Any]:
    """Yields the numbers of a value, those of nested lists in order."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from flat(each)
    else:
        yield value


def filled(old: str, values: Sequence[Any]) -> str:
    """Returns a text with its numbers replaced by values."""
    count = len(NUMBER.findall(old))
    if count != len(values):
        raise Wrong(f"{count} numbers in {old!r}, {len(values)} values")
    following = iter(values)
    return NUMBER.sub(lambda match: number_like(match[0], next(following)), old)


def section_written(text: str, folder: Path = RESULTS) -> str:
    """Returns a section with the numbers of its rows.

    Raises:
        Wrong: a marker names a row or a field that does not exist, or values do not fit the numbers of the text.
    """
    names: dict[str, Any] = dict(FUNCTIONS)
    waiting: set[str] = set()

    def rows(match: re.Match[str]) -> str:
        described = [part.partition("=") for part in match[2].split(";")]
        pairs = [(name.strip(), description.strip()) for name, _, description in described]
        try:
            found = [rows_of(description, folder) for _, description in pairs]
        except Wrong:
            if match[1] == "rows":
                raise
            waiting.update(name for name, _ in pairs)
            benchmarks = ", ".join(dict.fromkeys(description.split()[0] for _, description in pairs))
            return f"<!--unmeasured: {match[2]}-->{benchmarks} {WAITING}{END}"
        names.update((name, value) for (name, _), (value, _) in zip(pairs, found, strict=True))
        cited = [
            (description.split()[0], row)
            for (_, description), (_, rows) in zip(pairs, found, strict=True)
            for row in rows
        ]
        return f"<!--rows: {match[2]}-->{stamp(cited)}{END}"

    def numbers(match: re.Match[str]) -> str:
        code = compile(match[1], "marker", "eval")
        if waiting & set(re.findall(r"\w+", match[1])):
            return match[0]
        try:
            values = list(flat(eval(code, {"__builtins__": {}, **names})))
            return f"<!--= {match[1]}-->{filled(match[2], values)}{END}"
        except (Wrong, NameError, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
            raise Wrong(f"{match[0]}: {error}") from error

    return NUMBERS.sub(numbers, ROWS.sub(rows, text))


def written(text: str, folder: Path = RESULTS) -> str:
    """Returns a page with the numbers of its rows."""
    sections, inside = [""], False
    for line in text.splitlines(keepends=True):
        inside ^= line.startswith("```")
        if line.startswith("#") and not inside:
            sections.append("")
        sections[-1] += line
    return "".join(section_written(section, folder) for section in sections)


if __name__ == "__main__":
    wrong = 0
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        try:
            after = written(before)
        except Wrong as error:
            wrong += 1
            print(f"{page}: {error}", file=sys.stderr)
            continue
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page} is written")
    sys.exit(wrong > 0)
