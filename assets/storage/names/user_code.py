"""References to a user's own code: "package.module:name" in a pipeline file.

The module is looked for on Python's path (PYTHONPATH, installed packages) and then in the folder of the pipeline file. Its source is an
external input: the source of what is named and of what this uses (`code_source`) enters the versions of the artifacts built with it, so an
edit of it trains anew. Finding a module imports nothing, so listing assets never runs a user's code.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from graphmill.kernels.errors import InputError, install_extra

PATTERN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_LOADED: set[str] = set()
_FORGETTING = threading.Lock()
"""Held while the caches of imports are emptied: two threads that empty them at once remove one entry twice, and Python raises KeyError."""
EXTRAS = {"dgl": "dgl", "torch_geometric": "pyg"}
"""Library that a module may import -> the extra of this project that installs it."""
LAYERS = ("assets", "jobs", "kernels", "trainers")


class Reference(str):
    """A text "package.module:name", with the folder of its pipeline file, in which its module may be besides Python's path."""

    folder: Path | None

    def __new__(cls, text: str, folder: Path | None = None) -> Reference:
        """Makes the reference; nothing is looked for yet."""
        self = super().__new__(cls, text)
        self.folder = folder
        return self


def is_reference(text: str) -> bool:
    """Returns whether a text is meant as a reference: graphmill's own names have no colon."""
    return ":" in text


def find_source(reference: str) -> Path:
    """Returns the file of the module that a reference names, without importing anything.

    Raises:
        InputError: the text is not a reference, or no module of that name exists in Python source.
    """
    if not PATTERN.fullmatch(reference):
        problem = f'"{reference}" is not of the form "package.module:name"'
        raise InputError(problem, "for example mymodels.wide:WideSage")
    module = reference.partition(":")[0]
    if (found := find_module(module, folders_of(reference))) is not None:
        return found
    places = " and in ".join(["on Python's path", *folders_of(reference)])
    problem = f'"{reference}": there is no module {module} {places}'
    raise InputError(problem, "put it beside the pipeline file, install it, or set PYTHONPATH")


def find_module(name: str, folders: list[str]) -> Path | None:
    """Returns the file of a module on Python's path, or else in folders, without importing anything; None if there is no Python source."""
    for path in (None, folders):
        spec = _find_spec(name, path)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            return Path(spec.origin)
    return None


def load_reference(reference: str) -> Any:
    """Imports the module of a reference and returns the object that it names.

    Raises:
        InputError: the module or the name in it does not exist, its import fails, or another module of that name is loaded.
    """
    source, (module_name, _, name) = find_source(reference), reference.partition(":")
    # At the end: a file beside the pipeline never hides an installed package, and the module finds its neighbours.
    sys.path.extend(folder for folder in folders_of(reference) if folder not in sys.path)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        problem = f'"{reference}": importing {source} failed: {type(error).__name__}: {error}'
        extra = EXTRAS.get(getattr(error, "name", None) or "")
        remedy = install_extra(extra) if extra else "correct the module; python -c 'import ...' shows where"
        if (missing := (getattr(error, "name", None) or "").partition(".")[0]) in LAYERS:
            remedy = f"graphmill's own modules are parts of the package: import graphmill.{missing}, or a name of graphmill itself"
        raise InputError(problem, remedy) from error
    _LOADED.add(module_name)
    loaded = Path(getattr(module, "__file__", None) or "")
    if loaded.resolve() != source.resolve():
        problem = f'"{reference}" means {source}, but a module {module_name} is loaded from {loaded}'
        raise InputError(problem, "rename the module")
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = ", ".join(each for each in vars(found) if not each.startswith("_")) or "nothing"
            raise InputError(f'"{reference}": {source} has no {name}', f"it has {public}")
        found = getattr(found, part)
    return found


def runs_user_code() -> bool:
    """Returns whether this process has imported a module by a reference, which may do what this project never does."""
    return bool(_LOADED)


def folders_of(reference: str) -> list[str]:
    """Returns the folder of the pipeline file that a reference is from, in a list; an empty one for a plain text."""
    folder = getattr(reference, "folder", None)
    return [] if folder is None else [str(folder)]


def _find_spec(module: str, path: list[str] | None) -> Any:
    """Finds a module below packages without importing them, as `importlib.util.find_spec` would."""
    spec = None
    with _FORGETTING:
        importlib.invalidate_caches()
    for part in module.split("."):
        # By its last name: a dotted one makes a namespace package look for its parent among the imported modules.
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec
