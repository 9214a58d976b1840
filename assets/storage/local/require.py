"""Checks of an artifact against its reader's needs, before the reader starts: one error reports all mismatches."""

from collections.abc import Iterator, Mapping
from typing import Any

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import canonical, short
from graphmill.kernels.errors import InputError


def require(artifact: Artifact, needs: Mapping[str, Any], command: str = "graphmill build PIPELINE") -> None:
    """Checks that an artifact meets its reader's needs.

    Args:
        needs: any of
            "stage": the stage it must come from;
            "arrays": names, or name -> {"dtype": name or names, "ndim": int, "shape": tuple with None for any length};
            "files": names of other files;
            "config": key -> expected value;
            "inputs": role -> expected `Artifact` or version; if only an aspect was read, an artifact with an equal one will do;
            "numbers": summary name -> expected value.

    Raises:
        InputError: lists every mismatch with the stored and the expected value.
    """
    unknown = set(needs) - {"stage", "arrays", "files", "config", "inputs", "numbers"}
    assert not unknown, f"unknown needs {unknown}"
    problems = list(_mismatches(artifact, needs))
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise InputError(f"{artifact.label} is not what is needed here:{listed}", f"build what fits: {command}")


def _mismatches(artifact: Artifact, needs: Mapping[str, Any]) -> Iterator[str]:
    if needs.get("stage", artifact.stage) != artifact.stage:
        yield f"stage: stored {artifact.stage}, expected {needs['stage']}"
    arrays = needs.get("arrays", {})
    for name in arrays:
        rule = arrays[name] if isinstance(arrays, Mapping) else {}
        yield from _array_mismatches(name, artifact.files.get(f"{name}.npy"), rule)
    for name in needs.get("files", ()):
        if name not in artifact.files:
            yield f"file {name}: stored none, expected one"
    for role, wanted in needs.get("inputs", {}).items():
        version, stored = getattr(wanted, "version", wanted), artifact.inputs.get(role, {}).get("version")
        aspect = artifact.inputs.get(role, {}).get("aspect", "")
        if aspect in getattr(wanted, "aspects", {}):
            # Of the input only this was read, so another artifact with the same one will do.
            version, stored = wanted.aspects[aspect], artifact.inputs[role]["aspect_version"]
        if stored != version:
            yield f"input {role}: stored {short(stored) if stored else 'none'}, expected {short(version)}"
    for kind, values in (("config", artifact.config), ("numbers", artifact.summary.get("numbers", {}))):
        for key, wanted in needs.get(kind, {}).items():
            stored, expected = values.get(key), canonical(wanted)
            if stored != expected:
                yield f"{kind} {key}: stored {stored!r}, expected {expected!r}"


def _array_mismatches(name: str, entry: Mapping[str, Any] | None, rule: Mapping[str, Any]) -> Iterator[str]:
    if entry is None:
        yield f"array {name}: stored none, expected one"
        return
    dtypes = rule.get("dtype")
    allowed = (dtypes,) if isinstance(dtypes, str) else dtypes
    if allowed and entry["dtype"] not in allowed:
        yield f"array {name}: stored {entry['dtype']}, expected {' or '.join(allowed)}"
    shape, stored = rule.get("shape"), entry["shape"]
    ndim = len(shape) if shape is not None else rule.get("ndim")
    if ndim is not None and len(stored) != ndim:
        yield f"array {name}: stored shape {stored}, expected {ndim} dimensions"
    elif shape is not None and any(want not in (None, have) for want, have in zip(shape, stored, strict=True)):
        yield f"array {name}: stored shape {stored}, expected {[want if want is not None else 'any' for want in shape]}"
