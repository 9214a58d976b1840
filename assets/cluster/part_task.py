"""The Ray task that builds one part on a node, and the actor through which it reports progress."""

import io
import os
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from graphmill.assets.building.build import Build
from graphmill.assets.building.parts import Answer, answer_of
from graphmill.assets.building.stage import Progress
from graphmill.assets.cluster.nodes import code_digest, home_here
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError

REPORT_SECONDS = 0.25
"""Least seconds between two reports of a part."""


class Post:
    """Keeps the reports of parts until the driver takes them; an actor."""

    def __init__(self) -> None:
        self._reports: list[tuple[str, int]] = []
        self._lines: list[str] = []

    def tell(self, part: str, num_done: int) -> None:
        """Keeps the number of units that a part has done."""
        self._reports.append((part, num_done))

    def say(self, line: str) -> None:
        """Keeps a line that a stage printed."""
        self._lines.append(line)

    def take(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Returns the reports and the lines that came since the last call."""
        taken, self._reports, self._lines = (self._reports, self._lines), [], []
        return taken


@dataclass(frozen=True, kw_only=True)
class PartOrder:
    """What a node has to know besides the `Build`.

    Attributes:
        home, mark: the home, as `home_here` takes it.
        code: digest of the code that the node must have.
    """

    home: str
    mark: str
    code: str
    threads: int


def build_part(build: Build, order: PartOrder, part: str, post: Any) -> Answer:
    """Builds and publishes a part in this process, a worker of Ray, and returns the answer."""

    def publish() -> None:
        here = replace(build_here(build, order), node=node_id())
        if here.find(part) is None:  # an attempt on a node that died may have published it
            lines: Any = _Lines(post)
            with redirect_stdout(lines), redirect_stderr(lines):
                here.publish(_Posted(post, part), part=part)

    return answer_of(publish)


def node_id() -> str:
    """Returns Ray's id of the node that this process works on."""
    import ray

    return ray.get_runtime_context().get_node_id()


def build_here(build: Build, order: PartOrder) -> Build:
    """Returns a build as this node sees it: its store and artifacts lie in the home of this node.

    Raises:
        InputError: the node has other code, does not see the home, or an input is not there.
    """
    if _own_code() != order.code:
        problem = f"node {os.uname().nodename} has another version of graphmill"
        raise InputError(problem, "bring all nodes to the same commit")
    home = home_here(Path(order.home), order.mark)
    if home is None:
        raise InputError(f"node {os.uname().nodename} does not see the home {order.home}", "mount it on all nodes")
    store = Store(home)
    found = {name: _found(store, getattr(build, name)) for name in ("inputs", "reads")}
    return replace(build, store=store, execution=alone(build.execution, order.threads), **found)


def alone(execution: Any, threads: int) -> Any:
    """Returns the Execution config of one part: in one process, with a number of threads if the stage has that field."""
    given, known = {"threads": threads, "workers": 1}, {field.name for field in fields(execution)}
    return replace(execution, **{name: value for name, value in given.items() if name in known})


def _found(store: Store, artifacts: Mapping[str, Artifact]) -> dict[str, Artifact]:
    return {role: store.open(each.stage, each.version) for role, each in artifacts.items()}


@cache
def _own_code() -> str:
    return code_digest()


class _Posted(Progress):
    """A `Progress` whose steps go to the post, as the sum so far: a second attempt counts from the beginning."""

    def __init__(self, post: Any, part: str):
        self._tell, self._num_done, self._told = partial(post.tell.remote, part), 0, 0.0

    def advance(self, n: int) -> None:
        """Sends the sum, now and then."""
        self._num_done += n
        if time.monotonic() - self._told > REPORT_SECONDS:
            self._told = time.monotonic()
            self._tell(self._num_done)


class _Lines(io.TextIOBase):
    """A stream whose lines go to the post."""

    def __init__(self, post: Any):
        self._say, self._rest = post.say.remote, ""

    def write(self, text: str) -> int:
        """Sends the lines that are whole now."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._say(line)
        return len(text)
