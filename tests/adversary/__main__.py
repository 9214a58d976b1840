"""The standing adversary: attacks for as long as it is told to, and says what became of them.

    python -m tests.adversary --minutes 60                      all kinds, each for its share of the time
    python -m tests.adversary --minutes 2 flips kills           these kinds
    python -m tests.adversary --seed 4711 --count 1 flips       one attack again
    python -m tests.adversary --drawn                           a few of each kind, as `make test` does

Every attack is a function of its kind and its seed. One that does not end as it should is printed with the command that carries it
out again. The exit code is 1 if there was any. `make adversary MINUTES=60` runs it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.adversary import workshop
from tests.adversary.attack import REFUSED, SOUND, TRACEBACK, WRONG, Tally, carried_out, in_child
from tests.adversary.house import furnish, grounds_of
from tests.adversary.kinds import KINDS
from tests.adversary.object_store import fill
from tests.adversary.sorts import files_by_sort

Tallies = dict[str, Tally]
COLUMNS = ("kind", "tried", REFUSED, SOUND, WRONG, TRACEBACK, "seconds")
LONGEST_SAID = 3000


def main(arguments: Sequence[str] | None = None) -> int:
    """Attacks; returns 1 if something did not hold."""
    options = _options(arguments)
    # Short: no path of a socket or a message gets too long by it.
    folder = Path(tempfile.mkdtemp(prefix="adversary-"))
    try:
        reference = folder / "reference"
        print(f"building everything once in {reference}", flush=True)
        said = in_child(lambda: _build(reference))
        if said:
            print(f"the sound run failed: {said}")
            return 1
        rows = {name: _attacked(name, options, reference, folder) for name in options.kinds or KINDS}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _print_table(rows)
    return int(any(tally.failures for tallies, _ in rows.values() for tally in tallies.values()))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary", description="Attacks graphmill.")
    parser.add_argument("kinds", nargs="*", help=f"of: {', '.join(KINDS)}; all when none is named")
    parser.add_argument("--minutes", type=float, default=0.0, help="time for all kinds together")
    parser.add_argument("--count", type=int, default=0, help="attacks of each kind, instead of a time")
    parser.add_argument("--drawn", action="store_true", help="a few of each kind")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first attack of each kind; the next has the next one"
    )
    options = parser.parse_args(arguments)
    unknown = set(options.kinds) - set(KINDS)
    if unknown:
        parser.error(f"there is no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if not (options.minutes or options.count or options.drawn):
        parser.error("say for how long: --minutes, --count or --drawn")
    return options


def _build(reference: Path) -> str:
    try:
        for step in workshop.steps(reference):
            workshop.carry_out(reference, step)
        furnish(grounds_of(reference))
        files_by_sort(grounds_of(reference) / "house")
        fill(grounds_of(reference), grounds_of(reference) / "house" / "home")
    except Exception:
        return traceback.format_exc()
    return ""


def _attacked(name: str, options: argparse.Namespace, reference: Path, folder: Path) -> tuple[Tallies, float]:
    """Attacks by one kind; returns a tally of all, under "", and of each sort, and the seconds that it took."""
    kind, begun, seed = KINDS[name], time.monotonic(), options.seed
    tallies: Tallies = defaultdict(Tally, {"": Tally()})
    tally = tallies[""]
    if not kind.possible(folder):
        print(f"{name}: not possible on this machine")
        return tallies, 0.0
    shares = sum(KINDS[each].share for each in options.kinds or KINDS)
    until = begun + 60 * options.minutes * kind.share / shares
    count = options.count or (kind.drawn if options.drawn else sys.maxsize)
    attack, place = kind.prepare(reference), folder / "attacked"
    while tally.tried < count and (not options.minutes or time.monotonic() < until):
        place.mkdir()
        seeds = range(seed, seed + min(kind.batch, count - tally.tried))
        for seed, (way, said) in zip(seeds, carried_out(attack, seeds, place), strict=True):
            for each in {"", kind.sort(seed)}:
                tallies[each].add(seed, way, said)
            if said:
                print(f"{name}, seed {seed}: {way}\n{said[-LONGEST_SAID:].rstrip()}")
                print(f"  again: python -m tests.adversary --seed {seed} --count 1 {name}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        seed += 1
    return tallies, time.monotonic() - begun


def _print_table(rows: dict[str, tuple[Tallies, float]]) -> None:
    lines: list[tuple[str, ...]] = [COLUMNS]
    for name, (tallies, seconds) in rows.items():
        for sort, tally in sorted(tallies.items()):
            counts = [str(tally.counts[way]) for way in (REFUSED, SOUND, WRONG, TRACEBACK)]
            lines.append((f"  {sort}" if sort else name, str(tally.tried), *counts, "" if sort else f"{seconds:.0f}"))
    width = max(len(line[0]) for line in lines)
    for line in lines:
        print("  ".join(cell.ljust(width) if place == 0 else cell.rjust(9) for place, cell in enumerate(line)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
