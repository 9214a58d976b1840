"""Damage to files, for tests of those who read them."""

from pathlib import Path


def flip(path: Path, bit: int) -> None:
    """Flips one bit of a file; the same call mends it."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        value = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([value ^ 1 << bit % 8]))
