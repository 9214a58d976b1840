"""The keys of a `[graph]` table with `source = "ogb"`; assets/sources/ogb/source.py reads the folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from assets.sources.registry import FEATURES_TOO
from assets.sources.spooled import SpooledConfig


@dataclass(frozen=True, kw_only=True)
class Config(SpooledConfig):
    """`[graph]` with `source = "ogb"`.

    Raises:
        InputError: a value is outside its range.
    """

    # names this kind of source
    source: str = field(default="ogb", metadata=FEATURES_TOO)
    # the unzipped folder, for example "ogbn_arxiv"; relative to the pipeline file
    path: Path
    # folder in split/, where there are several; "random" draws a stratified split instead
    split: str | None = None

    def brings_split(self) -> bool:
        """OGB's folders have splits; "random" draws one instead."""
        return self.split != "random"
