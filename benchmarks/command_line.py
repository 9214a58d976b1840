"""The command line of a benchmark that can measure a part of itself: `python -m benchmarks.NAME [--quick] [PART ...]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import require_clean_tree


def asked_for(names: Sequence[str], what: str, given: Sequence[str] | None = None) -> tuple[bool, tuple[str, ...]]:
    """Returns whether the run is quick, and the names that are measured, in the order in which they are given.

    Args:
        names: everything that the benchmark can measure; all of it is, if none is named.
        what: the kind of thing that has these names: "graph", "model" or "part".
        given: the words of the command line; those of this process by default.

    Raises:
        SystemExit: a word is not one of the names, or the tree has uncommitted changes and `--dirty` is not given.
    """
    benchmark = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark}", description=f"Measures each {what}.")
    parser.add_argument("names", nargs="*", metavar=what.upper(), help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a small input, under a minute")
    parser.add_argument("--dirty", action="store_true", help="on uncommitted changes; no page cites these rows")
    asked = parser.parse_intermixed_args(given)
    if unknown := [name for name in asked.names if name not in names]:
        parser.error(f"no {what} {', '.join(unknown)}; there are {', '.join(names)}")
    if given is None:
        require_clean_tree(asked.dirty)
    return asked.quick, tuple(asked.names) or tuple(names)
