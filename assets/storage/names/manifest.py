"""Addresses of artifacts, the names of their own files, and facts that follow from a manifest alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from graphmill.assets.storage.names.version import short

Address = tuple[str, str]
"""Stage and version (64 hex digits) of an artifact, present or not."""
FORMAT = 1
MANIFEST, RUN, WORDS = "manifest.json", "run.json", "block_digests.bin"
OWN_FILES = frozenset({MANIFEST, RUN, WORDS})
CHECKPOINTS, CHECKPOINTED = "checkpoints", "model"
"""Folder of a home or an object store with `<version>.safetensors`, and the stage whose versions these are."""


def address_of(folder: Path) -> Address:
    """Returns the address of the artifact in a folder `.../STAGE/VERSION`."""
    return folder.parent.name, folder.name


def label_of(address: Address) -> str:
    """Returns stage and short version, for people."""
    return f"{address[0]}/{short(address[1])}"


def repair_remedy(address: Address) -> str:
    """Returns the advice about an artifact that is damaged."""
    return f"run `graphmill repair {label_of(address)}`, then the same command again: it will be rebuilt"


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


def file_sizes(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Returns name -> bytes of every content file that a manifest lists, and of the list of their digests."""
    files = manifest["files"]
    num_blocks = sum(entry["num_blocks"] for entry in files.values())
    return {**{name: entry["bytes"] for name, entry in files.items()}, WORDS: 8 * num_blocks}


@dataclass(frozen=True, kw_only=True)
class Described:
    """An artifact as its documents describe it.

    Attributes:
        manifest: the manifest as plain JSON values; do not change it.
        run: the record of the run if an object store gave it; empty for an artifact of the home, whose file is read.
    """

    manifest: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def stage(self) -> str:
        """The stage that built it."""
        return self.manifest["stage"]

    @property
    def version(self) -> str:
        """Its version, 64 hex digits."""
        return self.manifest["version"]

    @property
    def address(self) -> Address:
        """Stage and version."""
        return self.stage, self.version

    @property
    def config(self) -> Mapping[str, Any]:
        """The canonical Semantic config that it was built with."""
        return self.manifest["config"]

    @property
    def inputs(self) -> Mapping[str, Mapping[str, str]]:
        """Role -> {"stage", "version", "content"} of each input artifact, and {"aspect", "aspect_version"} if only an aspect was read.

        "content" is the digest of the input's files; artifacts of older versions of graphmill do not have it.
        """
        return self.manifest["inputs"]

    @property
    def summary(self) -> Mapping[str, Any]:
        """{"numbers": {name: value}, "checks": [{"name", "passed", "detail"}], "figures": {title: file name}}."""
        return self.manifest["summary"]

    @property
    def aspects(self) -> Mapping[str, str]:
        """Aspect -> its version. An aspect is a part of the content that stages may read without the rest; most artifacts have none."""
        return self.manifest.get("aspects", {})

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """File name -> {"bytes", "digest", "first_block", "num_blocks"}, arrays with "dtype" and "shape"."""
        return self.manifest["files"]

    @property
    def num_bytes(self) -> int:
        """Bytes of all content files."""
        return sum(entry["bytes"] for entry in self.files.values())

    @property
    def content(self) -> str:
        """Digest of the contents of all files except figures and derived ones, 32 hex digits; each part has a digest of its own."""
        return content_digest(self.manifest)

    @property
    def parts(self) -> Mapping[str, Mapping[str, Any]]:
        """Name -> {"stage", "version", "bytes"} of each part of a fan-out artifact, in order; empty for any other."""
        return {entry["name"]: entry for entry in self.manifest.get("parts", ())}

    @property
    def part_of(self) -> Address | None:
        """(stage, version) of the artifact that this is a part of, None if it is not a part; the other need not exist."""
        return whole_of(self.manifest)

    @property
    def total_bytes(self) -> int:
        """Bytes of all content files, those of its parts included."""
        return self.num_bytes + sum(entry["bytes"] for entry in self.parts.values())

    @property
    def label(self) -> str:
        """Stage and short version, for people."""
        return label_of(self.address)
