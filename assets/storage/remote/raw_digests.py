"""Digests of raw files, kept in the object store for machines that do not have the files.

The version of what is built from raw files needs their digests, so without them a machine could not find a graph that another has built.
The record is that of the same stage, configuration and paths. It counts only if nothing that the configuration names exists here: files
that are here are digested here.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from graphmill.assets.storage.files.documents import parse_document, raw_schema, seal
from graphmill.assets.storage.names.home import store_url
from graphmill.assets.storage.names.version import canonical, canonical_json, locations
from graphmill.assets.storage.remote.objects import require_objects

FOLDER = "raw"


def keep_raw_digests(stage: str, semantic: Any, raw: Mapping[str, str]) -> None:
    """Records the digests of the raw files that an artifact was built from; does nothing without an object store, or without paths.

    Args:
        raw: name -> SHA-256 of the external content.
    """
    if not store_url() or not raw or not locations(semantic):
        return
    objects, key, data = require_objects(), _key(stage, semantic), seal({"raw": dict(raw)})
    if objects.read(key) != data:
        objects.write(key, data)


def kept_raw_digests(stage: str, semantic: Any) -> dict[str, str] | None:
    """Returns the recorded digests, None if there are none or no object store; arguments are those of `keep_raw_digests`."""
    if not store_url() or not locations(semantic):
        return None
    key = _key(stage, semantic)
    data = require_objects().read_document(key)
    try:
        return None if data is None else parse_document(data, key, raw_schema)["raw"]
    except ValueError:
        return None  # damaged, which is as good as none


def _key(stage: str, semantic: Any) -> str:
    named = canonical_json([stage, canonical(semantic), locations(semantic)])
    return f"{FOLDER}/{hashlib.sha256(named).hexdigest()}.json"
