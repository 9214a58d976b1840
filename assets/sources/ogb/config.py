"""The keys of a `[graph]` table with `source = "ogb"`; assets/sources/ogb/source.py reads the folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from assets.building.keys import KeyProblem
from assets.sources.registry import FEATURES_TOO
from assets.sources.spooled import SpooledConfig


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

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a list of splits that names the drawn one."""
        yield from super().problems()
        if isinstance(self.split, tuple) and "random" in self.split:
            text = 'split = [...] names "random", which is drawn and not a folder: name folders, or random alone'
            yield KeyProblem("split", text)

    def brings_split(self) -> bool:
        """Tells whether the folder's split is used; "random" draws one instead."""
        return self.split != "random"
