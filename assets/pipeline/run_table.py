"""The table `[run]`: the machines on which a pipeline runs. Nothing of it enters a version.

[run]
on = "auto"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphmill.assets.building.keys import Checked, KeyProblem
from graphmill.assets.cluster.address import HOW, address_problem
from graphmill.assets.pipeline.schema import Problem, Tables

RUN = "run"


@dataclass(frozen=True, kw_only=True)
class RunTable(Checked):
    """The machines on which a pipeline runs."""

    # The Ray cluster that builds parts and trains: "auto", "local:N", "HOST:PORT" or "ray://HOST:PORT"; "" = this machine alone.
    on: str = ""

    remedy = ""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a text that names no cluster."""
        if self.on and (text := address_problem(self.on)):
            yield KeyProblem("on", f"on: {text}: {HOW}")


def parse_run(raw: Mapping[str, Any], tables: Tables) -> tuple[RunTable | None, list[Problem]]:
    """Returns the checked table, None if the file has none or a wrong one, and all mistakes in it.

    Args:
        raw: the whole file.
        tables: tables with its lines.
    """
    return (None, []) if RUN not in raw else tables.parse(RunTable, raw[RUN], (RUN,))
