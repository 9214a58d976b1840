"""The configurations of the shards stage, which hashes only features and parts."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ShardsConfig:
    """The stage's hashed configuration."""


@dataclass(frozen=True, kw_only=True)
class ShardsExecution:
    """Execution config of the stage, without settings."""


def part_name(part: int) -> str:
    """Returns the name of the artifact that holds a part's shard."""
    return f"part-{part:04d}"
