"""The keys of a `[graph]` table with `source = "ogb"`; assets/sources/ogb/source.py reads the folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from assets.sources.registry import FEATURES_TOO, require_splits
from assets.sources.spooled import SpooledConfig
from kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class OgbConfig(SpooledConfig):
    """`[graph]` with `source = "ogb"`.

    Raises:
        InputError: a value is outside its range.
    """

    # names this kind of source
    source: str = field(default="ogb", metadata=FEATURES_TOO)
    # the unzipped folder, for example "ogbn_arxiv"; relative to the pipeline file
    path: Path
    # folder in split/, if there are several, or a list of folders: one graph each; "random" draws a stratified split instead
    split: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Checks a list of splits."""
        super().__post_init__()
        require_splits(self.split)
        if isinstance(self.split, tuple) and "random" in self.split:
            raise InputError(
                'split = [...] names "random", which is drawn and no folder', "name folders, or random alone"
            )

    def brings_split(self) -> bool:
        """Tells whether the folder's split is used; "random" draws one instead."""
        return self.split != "random"
