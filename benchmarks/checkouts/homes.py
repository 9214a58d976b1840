"""What differs between two homes in which the same pipeline was run: versions, manifests and the bytes of the content.

Artifacts are paired by stage and version. Where a text of the recipes was renamed deliberately, versions differ; such artifacts are
paired by their recipes in the new words. run.json is not compared, since it holds times and hosts.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

RUN, MANIFEST, WORDS = "run.json", "manifest.json", "block_digests.bin"
FOLLOWS = re.compile(rf"{WORDS}|{MANIFEST}: (digest|block_digests|files\..*)$")
"""Digests, which follow from everything else of an artifact."""
VERSION = re.compile("[0-9a-f]{64}")
MOST_LINES = 6
"""Differences that are listed of one artifact."""


@dataclass(frozen=True)
class Home:
    """What one pipeline built, with artifacts named so that those of two homes can be paired."""

    # The home folder.
    folder: Path
    # Old text -> new text.
    renames: Mapping[str, str]

    @cached_property
    def manifests(self) -> dict[str, dict[str, Any]]:
        """Version -> manifest."""
        paths = (self.folder / "store").glob(f"[!.]*/*/{MANIFEST}")
        return {path.parent.name: json.loads(path.read_text()) for path in paths}

    def identity(self, version: str) -> str:
        """Returns the version, or where a renamed text is in the recipe, a digest of the recipe in the new words."""
        manifest = self.manifests.get(version)
        if manifest is None or not self.renames:
            return version
        inputs = {role: self.identity(entry["version"]) for role, entry in manifest["inputs"].items()}
        moved = any(inputs[role] != entry["version"] for role, entry in manifest["inputs"].items())
        if not moved and not self.mentions(manifest["config"]):
            return version
        part = manifest.get("part", {}).get("name")
        recipe = [manifest["stage"], manifest["code_version"], self.renamed(manifest["config"]), inputs, part]
        text = json.dumps([recipe, manifest["raw"]], sort_keys=True)
        return f"renamed-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def artifacts(self) -> dict[tuple[str, str], str]:
        """Returns (stage, identity) -> version."""
        return {(manifest["stage"], self.identity(each)): each for each, manifest in self.manifests.items()}

    def renamed(self, value: Any) -> Any:
        """Returns a JSON value in the new words."""
        if isinstance(value, dict):
            return {key: self.renamed(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.renamed(each) for each in value]
        return self.renames.get(value, value) if isinstance(value, str) else value

    def mentions(self, value: Any) -> bool:
        """Tells whether a JSON value contains a text that is renamed, by its old or its new name."""
        if isinstance(value, dict | list):
            return any(self.mentions(each) for each in (value.values() if isinstance(value, dict) else value))
        return isinstance(value, str) and (value in self.renames or value in self.renames.values())

    def comparable(self, version: str, ignored: set[str]) -> dict[str, Any]:
        """Returns the manifest flattened, with identities instead of versions, and without what hangs on ignored files."""
        manifest = dict(self.manifests[version])
        manifest["files"] = {name: each for name, each in manifest["files"].items() if name not in ignored}
        flat = flattened(self.renamed(manifest))
        if self.renames:  # the manifest's digest of itself follows from the rest
            del flat["digest"]
        if ignored:
            del flat["block_digests"]
        for name, value in flat.items():
            if isinstance(value, str) and VERSION.fullmatch(value):
                flat[name] = self.identity(value)
        if "part.of" in flat and self.identity(version) != version:  # the parent's recipe is the part's
            del flat["part.of"]
        return flat


@dataclass
class Outcome:
    """What the comparison of a pipeline found."""

    # Texts that say what differs.
    differences: list[str] = field(default_factory=list)
    # How much was compared, by name.
    counts: Counter[str] = field(default_factory=Counter)


def flattened(value: Any, name: str = "") -> dict[str, Any]:
    """Returns a JSON value as one level of dotted names."""
    if not isinstance(value, dict | list) or not value:
        return {name: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return {key: leaf for each, inner in pairs for key, leaf in flattened(inner, f"{name}.{each}".lstrip(".")).items()}


def compare_homes(one: Home, other: Home) -> Iterator[tuple[str, Outcome]]:
    """Yields each kind of artifact with its outcome."""
    ours, theirs = one.artifacts(), other.artifacts()
    for stage in sorted({stage for stage, _ in ours.keys() | theirs.keys()}):
        outcome = Outcome()
        keys = sorted(key for key in ours.keys() | theirs.keys() if key[0] == stage)
        for key in keys:
            if key in ours and key in theirs:
                compare_artifacts((one, ours[key]), (other, theirs[key]), key, outcome)
            else:
                where = one.folder if key in ours else other.folder
                outcome.differences.append(f"{stage}/{key[1][:20]} is only in {where}")
        yield stage, outcome


def compare_artifacts(one: tuple[Home, str], other: tuple[Home, str], key: tuple[str, str], outcome: Outcome) -> None:
    """Compares the manifest and every content file of two artifacts, and adds to the outcome."""
    folders = [home.folder / "store" / key[0] / version for home, version in (one, other)]
    inside = [{str(path.relative_to(each)) for path in each.rglob("*") if path.is_file()} for each in folders]
    names = inside[0] | inside[1]
    drawn = one[0].mentions(one[0].manifests[one[1]]) or one[0].identity(one[1]) != one[1]
    ignored = {name for name in names if drawn and name.endswith(".png")}
    found = {}
    for name in sorted(names - ignored - {RUN, MANIFEST} - ({WORDS} if ignored else set())):
        if not all(name in each for each in inside):
            found[name] = f"is only in {folders[0 if name in inside[0] else 1]}"
        elif not filecmp.cmp(folders[0] / name, folders[1] / name, shallow=False):
            found[name] = how_unequal(folders[0] / name, folders[1] / name)
        outcome.counts.update({"files": 1, "bytes": (folders[name not in inside[0]] / name).stat().st_size, name: 1})
    unequal = unequal_keys(*(home.comparable(version, ignored) for home, version in (one, other)))
    found |= {f"{MANIFEST}: {name}": how for name, how in unequal}
    # Digests follow from the rest, so they are news only where the rest is equal.
    found = {name: how for name, how in found.items() if not FOLLOWS.match(name)} or found
    outcome.counts.update({"artifacts": 1, "figures left out": len(ignored)})
    texts = [f"{key[0]}/{key[1][:20]} {name}: {how}" for name, how in found.items()]
    outcome.differences += texts[:MOST_LINES]
    if len(texts) > MOST_LINES:
        outcome.differences.append(f"{key[0]}/{key[1][:20]}: {len(texts) - MOST_LINES} more differences")


def unequal_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns each name whose values differ, and how they do; a value's type counts, too."""
    names = sorted(one.keys() | other.keys())
    pairs = [(name, json.dumps(one.get(name, "(none)")), json.dumps(other.get(name, "(none)"))) for name in names]
    return [(name, f"is {first} and {second}") for name, first, second in pairs if first != second]


def how_unequal(one: Path, other: Path) -> str:
    """Says where two files differ: in elements of arrays, tensors, keys, lines or bytes."""
    if one.suffix == ".npy":
        left, right = np.load(one, mmap_mode="r"), np.load(other, mmap_mode="r")
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            return f"{left.dtype}{list(left.shape)} and {right.dtype}{list(right.shape)}"
        places = np.argwhere(left != right)
        firsts = [
            f", first at {place.tolist()}: {left[tuple(place)]} and {right[tuple(place)]}" for place in places[:1]
        ]
        return f"{len(places)} of {left.size} elements differ{''.join(firsts)}"
    if one.suffix == ".safetensors":
        from safetensors.numpy import load_file

        left, right = load_file(one), load_file(other)
        same = {name for name in left.keys() & right.keys() if np.array_equal(left[name], right[name])}
        names = sorted((left.keys() | right.keys()) - same)
        return f"tensors differ: {', '.join(names)}"
    if one.suffix == ".json":
        unequal = unequal_keys(*(flattened(json.loads(each.read_text())) for each in (one, other)))
        return f"{len(unequal)} values differ: " + "; ".join(" ".join(pair) for pair in unequal[:3])
    left, right = one.read_bytes(), other.read_bytes()
    unit = "bytes"
    if one.suffix == ".jsonl":
        left, right, unit = left.splitlines(), right.splitlines(), "lines"
    pairs = enumerate(zip(left, right, strict=False))
    first = next((f"number {i} is {a!r} and {b!r}" for i, (a, b) in pairs if a != b), "one goes on after the other")
    return f"{len(left)} and {len(right)} {unit}, {first}"
