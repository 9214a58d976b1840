"""Questions that a node of a cluster answers about itself before it works: whether it has the same code, and sees the home.

These functions run on the nodes, in processes of Ray, and import nothing that a node without the whole project lacks.
"""

import os
import platform
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import xxhash

from graphmill.assets.storage.names.home import ROOT, VARIABLE, store_url
from graphmill.kernels import environment

SOURCES = (".py", ".pyi", ".cpp", ".h", ".cu")
LAYERS = ("kernels", "assets", "trainers")
MARKS = "cluster"
"""Folder of the home with the files by which nodes recognise it."""


def code_digest(root: Path = ROOT) -> str:
    """Returns a digest of all sources that artifacts and models are made with, 32 hex digits."""
    digest = xxhash.xxh3_128()
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix in SOURCES:
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def marked(home: Path) -> Iterator[str]:
    """Yields the name of a file that the home has while the block runs: a node that sees it sees the same home.

    With an object store every node has a home of its own, and the name is "".
    """
    if store_url():
        yield ""
        return
    name = f"{socket.gethostname()}@{os.getpid()}@{uuid.uuid4().hex}"
    path = home / MARKS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.iterdir():
        _remove_if_dead(other)
    path.touch()
    try:
        yield name
    finally:
        path.unlink(missing_ok=True)
        with suppress(OSError):  # another process marks the home, too
            path.parent.rmdir()


def _remove_if_dead(mark: Path) -> None:
    """Removes the mark of a process of this machine that was killed."""
    host, _, rest = mark.name.partition("@")
    pid = rest.partition("@")[0]
    if host == socket.gethostname() and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
        mark.unlink(missing_ok=True)


def home_here(home: Path, mark: str) -> Path | None:
    """Returns the home on this node: at the same path, or where GRAPHMILL_HOME says. None if neither has the mark.

    Args:
        home: its path on the machine of the run.
        mark: name of `marked`; "" if nodes have homes of their own and share an object store.
    """
    own = Path(environment.read(VARIABLE) or home).expanduser().absolute()
    if not mark:
        return own
    return next((each for each in (home, own) if (each / MARKS / mark).exists()), None)


def about_this_node(home: str, mark: str) -> dict[str, Any]:
    """Returns the facts that decide whether this node can take part, JSON-ready; a Ray task of each node."""
    here = home_here(Path(home), mark)
    return {
        "host": socket.gethostname(),
        "root": str(ROOT),
        "code": code_digest(),
        "python": platform.python_version(),
        "home": None if here is None else str(here),
    }
