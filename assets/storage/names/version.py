"""The version of an artifact: a pure function of the stage, its configuration, and the bytes that enter it.

version = SHA-256 over (stage name, stage code version, Semantic config, versions of the inputs, digests of the raw
files), written as canonical JSON: sorted keys, no spaces, floats by their shortest exact form. The same content has
the same version on every machine, and it is known before anything is built. A `Path` in a config, and any field with
`metadata={"hashed": False}`, gives the place of bytes, not their content, so it is left out; the raw digest of those bytes stands for it. A
field with `metadata={"hashed": "unless default"}` was added to a config that had been released: at its default it is left out as well, so
that artifacts that were built before the field existed keep their versions. Changing such a default takes a new `code_version`.
"""

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.storage.names.user_code import Reference

SHORT_DIGITS = 12
_AS_THEY_ARE = frozenset({type(None), bool, int, str})
"""Types whose values are their own canonical form."""


def canonical(config: Any) -> Any:
    """Returns a config as plain JSON values: dataclasses become dicts, tuples lists, enums and NumPy scalars plain values.

    Fields that name the place of bytes are left out (see the module's docstring); `locations` has them.

    Raises:
        TypeError: a value that has no exact JSON form (a set, an object, a float that is not finite).
    """
    kind = type(config)
    if kind in _AS_THEY_ARE:  # most values, so they are asked for first
        return config
    if kind is not dict and dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {
            field.name: getattr(config, field.name) for field in dataclasses.fields(config) if _is_hashed(config, field)
        }
    if isinstance(config, Mapping):
        return {_key(key): canonical(value) for key, value in config.items() if not isinstance(value, Path)}
    if isinstance(config, list | tuple):
        return [canonical(value) for value in config]
    if isinstance(config, enum.Enum):
        return canonical(config.value)
    if isinstance(config, np.generic):
        return canonical(config.item())
    if isinstance(config, int | str):
        return config
    if isinstance(config, float) and config - config == 0:
        return config
    raise TypeError(f"{config!r} has no canonical form")


def _is_hashed(config: Any, field: dataclasses.Field[Any]) -> bool:
    """Returns whether a field of a config enters its canonical form."""
    hashed = field.metadata.get("hashed", True)
    if hashed != "unless default":
        return bool(hashed)
    has_factory = field.default_factory is not dataclasses.MISSING
    default = field.default_factory() if has_factory else field.default  # pyright: ignore[reportCallIssue]
    value = getattr(config, field.name)
    # Equal values of two types (1, 1.0, True) have different canonical forms, and so different versions.
    return type(value) is not type(default) or value != default


def locations(config: Any, prefix: str = "") -> dict[str, str]:
    """Returns the paths inside a config, and the folders of references, by dotted field name: the values that `canonical` leaves out, for
    the record of a run."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    if isinstance(config, Path):
        return {prefix: str(config)}
    if isinstance(config, Reference) and config.folder is not None:
        return {prefix: str(config.folder)}
    if isinstance(config, list | tuple):
        config = dict(enumerate(config))
    if not isinstance(config, Mapping):
        return {}
    found: dict[str, str] = {}
    for key, value in config.items():
        found |= locations(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def canonical_json(value: Any) -> bytes:
    """Returns the one spelling of a JSON value that digests are computed over."""
    return spelled(canonical(value))


def spelled(value: Any) -> bytes:
    """Returns `canonical_json` of a value that consists of plain JSON values; raises ValueError if a number in it is not finite."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def version_of(
    stage_name: str, code_version: int, semantic: Any, input_versions: Mapping[str, str], raw: Mapping[str, str]
) -> str:
    """Returns the version of an artifact, or of an aspect of it, 64 hex digits.

    Args:
        stage_name, code_version: name and code version of the stage that builds it; STAGE/ASPECT names an aspect.
        semantic: the artifact's Semantic config, a dataclass or the `canonical` form of one; of an aspect the part that it depends on.
        raw: name -> SHA-256 of each external input; for an aspect those that it depends on.
    """
    hashed = {
        "stage": stage_name,
        "code_version": code_version,
        "config": canonical(semantic),
        "inputs": dict(input_versions),
        "raw": dict(raw),
    }
    return hashlib.sha256(canonical_json(hashed)).hexdigest()


def part_version(parent_version: str, part: str) -> str:
    """Returns the version of one part of a fan-out artifact, 64 hex digits: a function of the parent's version and the part's name."""
    return hashlib.sha256(canonical_json({"of": parent_version, "part": part})).hexdigest()


def short(version: str) -> str:
    """Returns the 12 digits of a version that people see."""
    return version[:SHORT_DIGITS]


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is not a text")
    return key
