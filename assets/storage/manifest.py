"""Facts that follow from a manifest alone, and the names of an artifact's own files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xxhash

from graphmill.assets.storage.leases import Address

FORMAT = 1
MANIFEST, RUN, WORDS = "manifest.json", "run.json", "block_digests.bin"
OWN_FILES = frozenset({MANIFEST, RUN, WORDS})


def content_digest(manifest: Mapping[str, Any]) -> str:
    """Returns a digest of the contents that a manifest lists, 32 hex digits.

    Figures do not count: another version of the library that draws them makes other bytes of the same numbers. Derived files do not either:
    they follow from the others, and an artifact of an older version of graphmill lacks them.
    """
    summary = manifest["summary"]
    left_out = {*summary.get("figures", {}).values(), *summary.get("derived", ())}
    digests = {name: entry["digest"] for name, entry in manifest["files"].items() if name not in left_out}
    return xxhash.xxh3_128_hexdigest(json.dumps(digests, sort_keys=True).encode())


def references(manifest: Mapping[str, Any]) -> tuple[Address, ...]:
    """Returns the addresses of the inputs and parts that a manifest names; of an empty one none."""
    named = (*manifest.get("inputs", {}).values(), *manifest.get("parts", ()))
    return tuple((entry["stage"], entry["version"]) for entry in named)


def whole_of(manifest: Mapping[str, Any]) -> Address | None:
    """Returns the address of the artifact that a manifest's own is a part of, None if it is not a part."""
    part = manifest.get("part")
    return (part["stage"], part["of"]) if part else None
