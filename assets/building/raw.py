"""The digests of what a stage reads from outside the store: of the files that are here, else those that another machine recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphmill.assets.storage.names.patterns import matches, paths_in
from graphmill.assets.storage.remote.raw_digests import kept_raw_digests
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Stage


def raw_digests(stage: Stage, semantic: Any) -> Mapping[str, str]:
    """Returns name -> SHA-256 of the external content that a stage reads.

    If no file or folder that the config names is on this machine, the digests count that the machine recorded in the object store that
    built from them last, at the same paths. With some of them here, a record could be one of other bytes than these.

    Raises:
        InputError: the content is missing here and not on record, or is unreadable.
    """
    try:
        return stage.raw(semantic)
    except InputError:
        is_here = any(matches(path) for path in paths_in(semantic))
        found = None if is_here else kept_raw_digests(stage.name, semantic)
        if found is None:
            raise
        return found
