"""The sorts of files that a furnished house has, and the commands that read each; a file of no sort is a mistake of this table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.adversary import readers
from tests.adversary.readers import Reader


@dataclass(frozen=True, kw_only=True)
class Sort:
    """A sort of files.

    Attributes:
        pattern: of the paths below the house, matched as a whole.
        readers: commands that read such a file, or pass by it.
        less: those of them that only show, so that they may leave out what is damaged.
        made_anew: whether a missing file is one that was not made yet, so that the answer may be another.
    """

    pattern: str
    readers: tuple[Reader, ...]
    less: tuple[Reader, ...] = ()
    made_anew: bool = False


SORTS: Mapping[str, Sort] = {
    "checkpoint": Sort(
        pattern=r"home/checkpoints/[0-9a-f]{64}\.safetensors",
        readers=(readers.status, readers.look_over, readers.resume, readers.longer),
        less=(readers.status,),
    ),
    "record": Sort(  # and every other file of the store; what steps make of them is the matter of the sort "artifact"
        pattern=r"home/store/[^.].*",
        readers=(readers.leaderboard, readers.sql, readers.look_over),
        less=(readers.leaderboard, readers.sql),
    ),
    "measured-memory": Sort(
        pattern=r"home/measured/memory\.json", readers=(readers.budgets, readers.look_over, readers.build), made_anew=True
    ),
    "measured-links": Sort(
        pattern=r"home/measured/links\.json", readers=(readers.chunks, readers.look_over), made_anew=True
    ),
    "measured-speeds": Sort(pattern=r"home/measured/speeds\.json", readers=(readers.doctor,), made_anew=True),
    "raw-digests": Sort(pattern=r"home/raw_digests\.json", readers=(readers.status, readers.look_over)),
    "bundle-list": Sort(pattern=r"bundle/bundle\.json", readers=(readers.take,)),
    "bundle": Sort(pattern=r"bundle/store/.*", readers=(readers.take,)),
    "predictions": Sort(
        pattern=r"(out|named)\.parquet",
        readers=(readers.predict_named, readers.predict),
        less=(readers.predict_named,),
    ),
    "last-report": Sort(pattern=r"home/reports/[^/]*\.(json|html)", readers=(readers.report,), made_anew=True),
    "history": Sort(
        pattern=r"home/(history|schedules)/.*\.db(-wal|-shm|-journal)?", readers=(readers.prune, readers.build)
    ),
    "settings": Sort(pattern=r"home/dagster\.yaml", readers=(readers.prune, readers.build)),
    "logs": Sort(pattern=r"home/(storage|logs)/.*", readers=(readers.prune,)),
    "locks": Sort(
        pattern=r"home/(\.history\.lock|\.slots\.lock|ui\.lock|leases/.*|store/\.claims/.*|store/\.staging/[0-9a-f]{32}\.lock"
        r"|store/\.replace\.lock)",
        readers=(readers.second_ui, readers.status, readers.look_over),
    ),
    "leftovers": Sort(
        pattern=r"home/(store/\.staging/[0-9a-f]{32}/.*|[^/]*\.[0-9a-f]{32}\.(tmp|new)|measured/.*\.[0-9a-f]{32}\.(tmp|new)"
        r"|checkpoints/.*\.[0-9a-f]{32}\.part)|\.out\.parquet\.part",
        readers=(readers.status, readers.look_over, readers.predict),
    ),
}  # fmt: skip


def sort_of(path: str) -> str:
    """Returns the name of the sort of a file, by its path below the house.

    Raises:
        AssertionError: it is of no sort, or of several.
    """
    found = [name for name, sort in SORTS.items() if re.fullmatch(sort.pattern, path)]
    assert len(found) == 1, f"{path} is of {found or 'no sort'}: tests/adversary/sorts.py says who reads a file"
    return found[0]


def files_of(house: Path) -> Iterator[tuple[str, Path]]:
    """Yields sort and path of every file of a house, ascending, but for those of the other home in which a bundle was used.

    Raises:
        AssertionError: a file is of no sort.
    """
    for path in sorted(house.rglob("*")):
        name = path.relative_to(house).as_posix()
        if path.is_file() and not name.startswith("other/"):
            yield sort_of(name), path


def files_by_sort(house: Path) -> dict[str, list[Path]]:
    """Returns sort -> files of a house.

    Raises:
        AssertionError: a file is of no sort, or a sort has no file: nothing would attack it.
    """
    found: dict[str, list[Path]] = {name: [] for name in SORTS}
    for name, path in files_of(house):
        found[name].append(path)
    missing = [name for name, each in found.items() if not each]
    assert not missing, f"a furnished house has no file of {missing}"
    return found
