"""`graphmill diff A B`: the differences between two artifacts, from the recipe to the elements of their arrays."""

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.files.compare import ArrayDifference, compare_arrays
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import short
from graphmill.jobs.commands.aligned import aligned_rows, named_values, terminal_columns
from graphmill.jobs.commands.results.views import flattened, is_number
from graphmill.jobs.figures.cost import read_metrics

ABSENT = "(none)"
MOST_ALIGNED, MOST_SHOWN = 40, 1000
"""Characters of a value above which it stands on a line of its own, and above which it ends at a blank."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value that differs; `ABSENT` stands for a value that one side lacks."""

    name: str
    one: Any
    other: Any

    @property
    def difference(self) -> float | int | None:
        """Second minus first if both are numbers, else None."""
        return self.other - self.one if is_number(self.one) and is_number(self.other) else None


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A content file that is not the same in both artifacts.

    Attributes:
        one, other: the manifests' entries, None if an artifact lacks the file.
        array: number of elements that differ, for arrays whose rows correspond.
    """

    name: str
    one: Mapping[str, Any] | None
    other: Mapping[str, Any] | None
    array: ArrayDifference | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Everything that differs between two artifacts.

    Attributes:
        recipe: stage, code version, config keys, inputs and raw digests that differ.
        numbers: summary numbers that differ, and `num_equal_numbers` that do not.
        files: files that differ or are in one only, and `equal_files` with equal digests.
        epochs: rows of the metrics side by side: (epoch, {name: (one, other)}); empty unless both have metrics.
    """

    one: Artifact
    other: Artifact
    recipe: tuple[Change, ...] = ()
    numbers: tuple[Change, ...] = ()
    num_equal_numbers: int = 0
    checks: tuple[Change, ...] = ()
    files: tuple[FileChange, ...] = ()
    equal_files: tuple[str, ...] = ()
    epochs: tuple[tuple[int, Mapping[str, tuple[Any, Any]]], ...] = field(default=(), repr=False)


def difference(one: Artifact, other: Artifact) -> Difference:
    """Compares two artifacts of any stages; reads only arrays whose digests differ; raises InputError if an array cannot be mapped."""
    left, right = one.summary["numbers"], other.summary["numbers"]
    numbers = tuple(_changes(left, right))
    lefts, rights = _files(one), _files(other)
    equal = [name for name in lefts if name in rights and lefts[name][1]["digest"] == rights[name][1]["digest"]]
    differing = sorted({*lefts, *rights} - {*equal})
    return Difference(
        one=one,
        other=other,
        recipe=tuple(recipe_changes(one, other)),
        numbers=numbers,
        num_equal_numbers=len({*left, *right}) - len(numbers),
        checks=tuple(_changes(_checks(one), _checks(other))),
        files=tuple(_file_change(name, lefts.get(name), rights.get(name)) for name in differing),
        equal_files=tuple(equal),
        epochs=tuple(_epochs(read_metrics(one), read_metrics(other))),
    )


def difference_json(one: Artifact, other: Artifact) -> dict[str, Any]:
    """Returns the `Difference` as a JSON-ready value, with stage and version in place of each artifact."""
    found = difference(one, other)
    named = {"one": f"{one.stage}/{one.version}", "other": f"{other.stage}/{other.version}"}
    epochs = [
        {"epoch": epoch, **{name: {"one": left, "other": right} for name, (left, right) in values.items()}}
        for epoch, values in found.epochs
    ]
    changes = {
        name: [asdict(each) for each in getattr(found, name)] for name in ("recipe", "numbers", "checks", "files")
    }
    return {
        **named,
        **changes,
        "num_equal_numbers": found.num_equal_numbers,
        "equal_files": [*found.equal_files],
        "epochs": epochs,
    }


def print_difference(one: Artifact, other: Artifact, write: Callable[[str], Any] = print) -> None:
    """Prints the differences between two artifacts; errors are those of `difference`."""
    found = difference(one, other)
    write(f"A  {found.one.stage}/{found.one.version}\nB  {found.other.stage}/{found.other.version}")
    if found.one.path == found.other.path:
        write("A and B are the same artifact")
        return
    _print_changes("recipe", found.recipe, "the recipes are equal", write)
    _print_changes("numbers", found.numbers, f"all {found.num_equal_numbers} are equal", write)
    if found.checks:
        _print_changes("checks", found.checks, "", write)
    write("\nfiles")
    for change in found.files:
        write(f"  {change.name:24} {_described(change)}")
    write(f"  {len(found.equal_files)} equal: {', '.join(sorted(found.equal_files)) or 'none'}")
    if found.epochs:
        _print_epochs(found, write)


def recipe_changes(one: Artifact, other: Artifact) -> list[Change]:
    """Returns the differences between the recipes of two artifacts; reads no file but their manifests."""
    return list(_changes(_recipe(one), _recipe(other)))


def _recipe(artifact: Artifact) -> dict[str, Any]:
    inputs = {f"input {role}": _read(each) for role, each in artifact.inputs.items()}
    raw = {f"raw {name}": digest[:16] for name, digest in artifact.manifest["raw"].items()}
    head = {"stage": artifact.stage, "code version": artifact.manifest["code_version"]}
    return head | flattened(artifact.config) | inputs | raw


def _read(entry: Mapping[str, str]) -> str:
    """Returns the part of an input that decides, in words: the artifact, or an aspect of it."""
    if "aspect" in entry:
        return f"{entry['stage']} {entry['aspect']} {short(entry['aspect_version'])}"
    return f"{entry['stage']}/{short(entry['version'])}"


def _checks(artifact: Artifact) -> dict[str, str]:
    return {
        check["name"]: f"{'passed' if check['passed'] else 'FAILED'} {check['detail']}".rstrip()
        for check in artifact.summary["checks"]
    }


def _changes(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterable[Change]:
    for name in dict.fromkeys([*left, *right]):
        change = Change(name=name, one=left.get(name, ABSENT), other=right.get(name, ABSENT))
        if change.one != change.other:
            yield change


Owned = tuple[Artifact, Mapping[str, Any]]
"""The artifact that owns a file, and the file's manifest entry."""


def _files(artifact: Artifact) -> dict[str, Owned]:
    """Returns the files of an artifact by name, those of its parts as `PART/NAME`."""
    found: dict[str, Owned] = {name: (artifact, entry) for name, entry in artifact.files.items()}
    for part in artifact.parts:
        opened = artifact.open_part(part)
        found |= {f"{part}/{name}": (opened, entry) for name, entry in opened.files.items()}
    return found


def _file_change(name: str, left: Owned | None, right: Owned | None) -> FileChange:
    array = None
    if left and right and "dtype" in left[1] and "dtype" in right[1]:
        stem = name.rpartition("/")[2].removesuffix(".npy") if left[0].part_of else name.removesuffix(".npy")
        array = compare_arrays(*(owner.array(stem, verified=False) for owner, _ in (left, right)))
    return FileChange(name=name, one=left and left[1], other=right and right[1], array=array)


def _epochs(
    left: list[dict[str, Any]], right: list[dict[str, Any]]
) -> Iterable[tuple[int, Mapping[str, tuple[Any, Any]]]]:
    if not left or not right:
        return
    one, other = ({row["epoch"]: row for row in rows} for rows in (left, right))
    names = [name for name in dict.fromkeys([*left[0], *right[0], *left[-1], *right[-1]]) if name != "epoch"]
    for epoch in sorted({*one, *other}):
        rows = one.get(epoch, {}), other.get(epoch, {})
        yield epoch, {name: (rows[0].get(name), rows[1].get(name)) for name in names}


def _print_changes(title: str, changes: Iterable[Change], when_none: str, write: Callable[[str], Any]) -> None:
    write(f"\n{title}")
    rows = [(each.name, _text(each.one), _text(each.other), _signed(each.difference)) for each in changes]
    if not rows:
        write(f"  {when_none}")
        return
    # Long values stand below each other, so that they do not push the others apart.
    long = [row for row in rows if max(len(row[1]), len(row[2])) > MOST_ALIGNED]
    short = [row for row in rows if row not in long]
    room = terminal_columns()
    if short:
        lines = aligned_rows(["", "A", "B", "B - A"], short, [False, True, True, False], room=room, indent="  ")
        for line in lines:
            write(line)
    for row in long:
        for line in named_values(["", "A", "B", "B - A"], row, "  "):
            write(line)


def _print_epochs(found: Difference, write: Callable[[str], Any]) -> None:
    write("\nmetrics")
    names = list(found.epochs[0][1])
    columns = ["epoch", *(f"{name} {which}" for name in names for which in ("A", "B", "B - A"))]
    rows = []
    for epoch, values in found.epochs:
        row = [str(epoch)]
        for name in names:
            one, other = values[name]
            row += [_text(one), _text(other), _signed(Change(name=name, one=one, other=other).difference)]
        rows.append(row)
    for line in aligned_rows(columns, rows, [True] * len(columns), room=terminal_columns(), indent="  "):
        write(line)
    unequal = [epoch for epoch, values in found.epochs if any(one != other for one, other in values.values())]
    write(f"  first epoch that differs: {unequal[0]}" if unequal else f"  all {len(found.epochs)} epochs are equal")


def _described(change: FileChange) -> str:
    if change.one is None or change.other is None:
        entry = change.other if change.one is None else change.one
        assert entry is not None
        return f"only in {'B' if change.one is None else 'A'}, {format_bytes(entry['bytes'])}"
    left, right = (_shape(entry) for entry in (change.one, change.other))
    text = left if left == right else f"{left} against {right}"
    array = change.array
    if array is None:
        return f"different, {text}"
    if array.first is None or array.values is None:
        return f"different, {text}; the {array.num_rows} rows that both have are equal in value"
    one, other = array.values
    share = f"{array.differing_elements} of {array.num_elements} elements in {array.differing_rows} rows differ"
    place = ", ".join(map(str, array.first))
    return f"different, {text}; {share}, first [{place}]: {_text(one)} against {_text(other)}; at most by {array.largest:.6g}"


def _shape(entry: Mapping[str, Any]) -> str:
    return f"{entry['dtype']}{entry['shape']}" if "dtype" in entry else format_bytes(entry["bytes"])


def _text(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else f"{value:.8g}" if isinstance(value, float) else json.dumps(value)
    return textwrap.shorten(text, MOST_SHOWN, placeholder=" ...")


def _signed(by: float | int | None) -> str:
    return "" if by is None else f"{by:+d}" if isinstance(by, int) else f"{by:+.4g}"
