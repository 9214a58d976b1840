"""The table `[train.fresh-factored]`."""

from __future__ import annotations

from dataclasses import dataclass

from trainers.techniques.factored.settings import FactoredSettings
from trainers.techniques.fresh.settings import FreshSettings


@dataclass(frozen=True, kw_only=True)
class FreshFactoredSettings(FactoredSettings, FreshSettings):
    """How devices share sampling and training, and what the history of embeddings keeps: the keys of both techniques."""
