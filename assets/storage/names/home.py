"""The folder of the code, and the home folder for all results: `$GRAPHMILL_HOME`, by default `./.graphmill`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphmill.kernels import environment

ROOT = Path(environment.__file__).resolve().parents[1]
"""The folder that holds the four layers: a clone, or the installed package."""
IMPORTED_FROM = ROOT if (ROOT / "graphmill" / "__init__.py").exists() else ROOT.parent
"""The folder in which Python finds the package `graphmill`: a clone, or site-packages."""
VARIABLE = environment.HOME
DEFAULT = ".graphmill"

STORE_VARIABLE = environment.STORE
"""Variable with the URL of the object store that homes share, such as s3://BUCKET/PREFIX; unset or empty if there is none."""


def home_folder(home: str | os.PathLike[str] | None = None) -> Path:
    """Returns the absolute home folder; it need not exist yet.

    Args:
        home: the folder, or None for `$GRAPHMILL_HOME` and, if that is unset or empty, `./.graphmill`.
    """
    # Absolute at once: a store must not move when the process changes its working directory.
    return Path(home or environment.read(VARIABLE) or DEFAULT).expanduser().absolute()


def store_url() -> str:
    """Returns the URL of the object store behind the home (assets/storage/remote/), "" if there is none."""
    return environment.read(STORE_VARIABLE).strip().rstrip("/")


@contextmanager
def one_home(home: str | os.PathLike[str] | None) -> Iterator[None]:
    """Makes a folder the default home while the block runs, so that what asks for no home uses this one, too; None changes nothing."""
    if home is None:
        yield
        return
    before = environment.read(VARIABLE) if environment.is_set(VARIABLE) else None
    os.environ[VARIABLE] = str(home_folder(home))
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
