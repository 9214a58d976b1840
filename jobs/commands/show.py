"""What the store holds, for people: `graphmill ls`, `show` and `verify`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assets.sizes import format_bytes
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from assets.storage.version import short
from kernels.errors import InputError

LONGEST_LIST = 8


def print_artifacts(store: Store, stage: str | None) -> None:
    """Prints a line an artifact, of one stage or of all, then the damaged ones. Parts are summed up in the line of what they
    belong to, unless their own stage is asked for, or nothing lists them yet.

    Raises:
        InputError: the store has no artifact of that stage.
    """
    found = [artifact for artifact in store.artifacts() if stage in (None, artifact.stage)]
    if stage and not found:
        stages = sorted({artifact.stage for artifact in store.artifacts()})
        raise InputError(
            f"no artifact of stage {stage!r} in {store.root}", f"stages are: {', '.join(stages) or '(none)'}"
        )
    for artifact in [artifact for artifact in found if stage or not _belongs(artifact, found)]:
        run = artifact.run_record()
        parts = f"{len(artifact.parts)} parts  " if artifact.parts else ""
        inputs = parts + " ".join(f"{role}={short(entry['version'])}" for role, entry in artifact.inputs.items())
        built = f"{run.get('started', '?')}  {run.get('seconds', float('nan')):8.1f} s"
        print(f"{artifact.label:32} {format_bytes(artifact.total_bytes):>10}  {built}  {inputs}".rstrip())
    for path, reason in store.damaged().items():
        print(f"{path.parent.name}/{short(path.name)}  DAMAGED: {reason}")
    print(f"{len(found)} artifacts, {format_bytes(sum(artifact.num_bytes for artifact in found))} in {store.root}")


def print_artifact(artifact: Artifact) -> None:
    """Prints one artifact: recipe, inputs, checks, numbers, files and how it was run."""
    print(f"{artifact.stage}/{artifact.version}\n{artifact.path}")
    _print_section("config", artifact.config)
    _print_section("inputs", {role: _input(entry) for role, entry in artifact.inputs.items()})
    _print_section("aspects", {name: short(version) for name, version in artifact.aspects.items()})
    parts = [f"{name}  {short(e['version'])}  {format_bytes(e['bytes'])}" for name, e in artifact.parts.items()]
    if parts:
        print(f"\n{len(parts)} parts, {format_bytes(artifact.total_bytes - artifact.num_bytes)}")
        for line in _abbreviated(parts):
            print(f"  {line}")
    if artifact.part_of:
        print(f"\npart {artifact.manifest['part']['name']} of {artifact.part_of[0]}/{short(artifact.part_of[1])}")
    checks = artifact.summary["checks"]
    _print_section(
        "checks", {c["name"]: f"{'passed' if c['passed'] else 'FAILED'}  {c['detail']}".rstrip() for c in checks}
    )
    _print_section("numbers", artifact.summary["numbers"])
    _print_section("figures", {title: artifact.path / name for title, name in artifact.summary["figures"].items()})
    _print_section("files", {name: _described(entry) for name, entry in artifact.files.items()})
    _print_section("run", artifact.run_record())


def _belongs(artifact: Artifact, found: list[Artifact]) -> bool:
    """Tells whether an artifact is a part of one that is there."""
    return artifact.part_of is not None and any((each.stage, each.version) == artifact.part_of for each in found)


def verify_artifacts(store: Store, prefixes: tuple[str, ...]) -> bool:
    """Reads every byte of the named artifacts with their parts, or of all, prints a line each, and returns whether all are sound."""
    named = [store.resolve(prefix) for prefix in prefixes]
    named += [artifact.open_part(name) for artifact in named for name in artifact.parts]
    artifacts = named if prefixes else store.artifacts()
    sound = True
    for artifact in artifacts:
        problems = artifact.verify(threads=2)
        sound &= not problems
        print(f"{artifact.label}: {'sound' if not problems else 'DAMAGED'} ({format_bytes(artifact.num_bytes)})")
        for problem in problems:
            print(f"  {problem}")
        if problems:
            print(f"  remedy: remove {artifact.path} and run the pipeline again: it will be rebuilt")
    for path, reason in {} if prefixes else store.damaged().items():
        sound = False
        print(
            f"{path.parent.name}/{short(path.name)}: DAMAGED\n  {reason}\n  remedy: remove {path} and run the pipeline again"
        )
    return sound


def _input(entry: Mapping[str, str]) -> str:
    """Returns an input in words: the artifact, and what of it was read where that is not all."""
    only = f", of which only {entry['aspect']} {short(entry['aspect_version'])} counts" if "aspect" in entry else ""
    return f"{entry['stage']}/{short(entry['version'])}{only}"


def _print_section(title: str, values: Any) -> None:
    if not values:
        return
    print(f"\n{title}")
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(_abbreviated(value), default=str)
        print(f"  {name:24} {text}")


def _abbreviated(value: Any) -> Any:
    """Cuts long lists, such as the seconds of every epoch; the file has them whole."""
    if isinstance(value, dict):
        return {key: _abbreviated(each) for key, each in value.items()}
    if isinstance(value, list) and len(value) > LONGEST_LIST:
        return [*value[:LONGEST_LIST], f"... {len(value) - LONGEST_LIST} more"]
    return value


def _described(entry: Any) -> str:
    shape = f"{entry['dtype']}{entry['shape']}  " if "dtype" in entry else ""
    return f"{shape}{format_bytes(entry['bytes'])}  xxh3 {entry['digest']}"
