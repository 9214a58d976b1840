"""Sizes as people write them: "512", "64KiB", "2GiB", "1.5 MB", shares of a whole, "10%" and "5x", and speeds, "25 Gbit/s" and "3 GB/s"."""

import re
from fractions import Fraction

from graphmill.kernels.errors import InputError

UNITS = {"b": 1, **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", 1)}}
UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)}
PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*|%)\s*")
LONGEST_TEXT = 40
"""Most characters of a size. Python does not read whole numbers of thousands of digits."""
MOST_BYTES = 2**63 - 1
EXAMPLES = 'write a number of bytes or a size such as "512MiB", "2GiB", "1.5GB"'


def parse_size(size: str | int, whole_bytes: int | None = None) -> int:
    """Returns the number of bytes that a size names; fractions of a byte are dropped.

    Args:
        size: number of bytes, or a text: a number with one of B, kB, MB, GB, TB, PB (powers of 1,000) or KiB, MiB, GiB, TiB, PiB (powers of
            1,024), or with % or x for a share or a multiple of `whole_bytes`. Case does not matter.
        whole_bytes: number of bytes that % and x refer to; None if they have no meaning.

    Raises:
        InputError: not a size, negative, more than 2^63 - 1 bytes, or a share without `whole_bytes`.
    """
    found = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else _parse(size, whole_bytes)
    if found > MOST_BYTES:
        raise InputError(f"{size!r} is more than 2^63 - 1 bytes", EXAMPLES)
    return found


def _parse(size: str | int, whole_bytes: int | None) -> int:
    if isinstance(size, str) and len(size) > LONGEST_TEXT:
        raise InputError(f"{size[:LONGEST_TEXT]!r}... has {len(size):,} characters and is not a size", EXAMPLES)
    match = PATTERN.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise InputError(f"{size!r} is not a size", EXAMPLES)
    number, unit = Fraction(match[1]), match[2].lower()
    if unit in ("%", "x"):
        if whole_bytes is None:
            raise InputError(f"{size!r} is a share, and here is nothing that it could be a share of", EXAMPLES)
        return int(number * whole_bytes / (100 if unit == "%" else 1))
    if unit and unit not in UNITS:
        raise InputError(f"{size!r} has the unknown unit {match[2]!r}", EXAMPLES)
    return int(number * UNITS[unit or "b"])


SPEED = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([A-Za-z]+/s|[A-Za-z]?bps|)\s*", re.ASCII)
SPEEDS = 'write a number with its unit, such as "3 GB/s" (bytes) or "25 Gbit/s" (bits, as cards and switches are named)'


def parse_speed(speed: str) -> float:
    """Returns the bytes per second that a speed names.

    Args:
        speed: a number with B/s to TB/s, KiB/s to TiB/s, or bit/s to Tbit/s or bps to Tbps; b alone is not taken, as it may be either.

    Raises:
        InputError: not a speed above 0; or it has no unit, or one that may mean bits or bytes.
    """
    match = SPEED.fullmatch(speed) if isinstance(speed, str) else None
    if match is None:
        raise InputError(f"{speed!r} is not a speed", SPEEDS)
    number, unit = float(match[1]), match[2]
    if not unit or (unit.endswith("b/s") and unit != "b/s") or unit == "b/s":
        why = "has the unit" if unit else "has no unit: it"
        said = f" {unit}, which" if unit else ""
        raise InputError(f"{speed!r} {why}{said} could mean bits or bytes, which differ by 8 times", SPEEDS)
    in_bits = re.fullmatch(r"([a-z]*)(?:bit/s|bps)", unit.lower())
    power = UNITS.get(f"{in_bits[1]}b" if in_bits else unit.lower().removesuffix("/s"))
    if power is None or not number:
        raise InputError(f"{speed!r} is not a speed above 0", SPEEDS)
    return number * power / (8 if in_bits else 1)


def format_bytes(num_bytes: int) -> str:
    """Returns a count of bytes for people, in powers of 1,024: "17 B", "4.0 KiB", "2.5 GiB"."""
    size, unit = float(num_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(size) < 1024 or unit == "PiB":
            break
        size /= 1024
    return f"{int(num_bytes)} B" if unit == "B" else f"{size:.1f} {unit}"
