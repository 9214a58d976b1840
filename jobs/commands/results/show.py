"""The contents of the store as text: `graphmill ls`, `show` and `verify`."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.repair import lineage_problems
from graphmill.assets.storage.names.manifest import address_of, label_of
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.refused import unread
from graphmill.jobs.commands.aligned import aligned
from graphmill.jobs.commands.names import find_artifact
from graphmill.jobs.figures.class_scores import (
    calibration_sentence,
    class_document,
    class_table,
    column_document,
    column_table,
    confused,
)
from graphmill.kernels.errors import InputError
from graphmill.trainers.record.class_scores import read_scores
from graphmill.trainers.record.column_scores import read_columns

LONGEST_LIST = 8
FETCHED = "the files are fetched when they are read"
PARTS = ".parts"
"""End of the folder's name of the parts of a stage."""


def print_artifacts(store: Store, stage: str | None) -> None:
    """Prints a line per artifact, of one stage or of all, then the damaged ones.

    Without `stage`, the line of an artifact sums up its parts; only parts that no artifact lists yet have their own lines.

    Raises:
        InputError: the store has no artifact of that stage.
    """
    found = [artifact for artifact in store.artifacts() if stage in (None, artifact.stage)]
    stored = store.stored_only(stage or "")
    if stage and not found and not stored:
        stages = sorted({artifact.stage for artifact in store.artifacts()})
        problem = f"no artifact of stage {stage!r} in {store.root}"
        raise InputError(problem, f"stages are: {', '.join(stages) or '(none)'}")
    addresses = {(artifact.stage, artifact.version) for artifact in (*found, *stored)}
    listed, away = (
        [artifact for artifact in each if stage or artifact.part_of not in addresses] for each in (found, stored)
    )
    width = max((len(asked_by(artifact)) for artifact in (*listed, *away)), default=0)
    for artifact in listed:
        print(_line(artifact, width))
    for artifact in away:
        print(f"{_line(artifact, width)}  ONLY IN THE OBJECT STORE")
    for path, reason in store.damaged().items():
        print(f"{label_of(address_of(path))}  DAMAGED: {reason}")
    for path, reason in store.unread().items():
        print(f"{label_of(address_of(path))}  NOT READ: {reason}")
    inside = f", and {len(found) - len(listed)} parts of them" if len(found) > len(listed) else ""
    size = format_bytes(sum(artifact.num_bytes for artifact in found))
    print(f"{len(listed)} artifact{'s' if len(listed) != 1 else ''}{inside}, {size} in {store.root}")
    if url := store.backend.url:
        print(f"{len(away)} more only in {url}; {FETCHED}")


def _line(artifact: Artifact, width: int) -> str:
    """Returns the line about an artifact, whose column of askers has a width."""
    run = artifact.run_record()
    parts = f"{len(artifact.parts)} parts  " if artifact.parts else ""
    inputs = parts + " ".join(f"{role}={short(entry['version'])}" for role, entry in artifact.inputs.items())
    built = f"{run.get('started', '?')}  {run.get('seconds', float('nan')):8.1f} s"
    size = f"{format_bytes(artifact.total_bytes):>10}"
    return f"{artifact.label:32} {asked_by(artifact):{width}} {size}  {built}  {inputs}".rstrip()


def asked_by(artifact: Artifact) -> str:
    """Returns PIPELINE/TABLE of the training that first made a model; "" for other artifacts."""
    return str(artifact.run_record().get("execution", {}).get("asked_by", ""))


def artifacts_json(store: Store, stage: str | None) -> list[dict[str, Any]]:
    """Returns a JSON-ready row for each artifact of a stage, or of all; parts are rows of their own."""
    rows = []
    for artifact in (*store.artifacts(), *store.stored_only(stage or "")):
        if stage in (None, artifact.stage):
            run = artifact.run_record()
            rows.append(
                {
                    "stage": artifact.stage,
                    "version": artifact.version,
                    "asked_by": asked_by(artifact) or None,
                    "bytes": artifact.total_bytes,
                    "started": run.get("started"),
                    "seconds": run.get("seconds"),
                    "inputs": {role: f"{each['stage']}/{each['version']}" for role, each in artifact.inputs.items()},
                    "part_of": None if artifact.part_of is None else "/".join(artifact.part_of),
                    "path": str(artifact.path),
                    **({"in_home": not artifact.is_remote} if store.backend.url else {}),
                }
            )
    return rows


def print_artifact(artifact: Artifact) -> None:
    """Prints one artifact: recipe, inputs, checks, numbers, files and run record."""
    print(f"{artifact.stage}/{artifact.version}\n{artifact.path}")
    if artifact.is_remote:
        print(f"only in {artifact.backend.url}; {FETCHED}")
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
    for line in _class_lines(artifact):
        print(line)
    _print_section("figures", {title: artifact.path / name for title, name in artifact.summary["figures"].items()})
    _print_section("files", {name: _described(entry) for name, entry in artifact.files.items()})
    _print_section("run", artifact.run_record())


def _class_lines(artifact: Artifact) -> Iterator[str]:
    """Yields the scores by class, label or target of a model: for each split a table, of classes also calibration and what is confused."""
    if (columns := read_columns(artifact)) is not None:
        for split in columns.splits:
            table = column_table(columns, split)
            yield from ("", table.title, *aligned(table, indent="  "))
    if (scores := read_scores(artifact)) is not None:
        for split, counts in scores.splits.items():
            table = class_table(scores, split)
            yield from ("", table.title, *aligned(table, indent="  "))
            yield from (f"  {line}" for line in confused(scores, split))
            yield f"  {calibration_sentence(counts)}"


def artifact_json(artifact: Artifact) -> dict[str, Any]:
    """Returns an artifact as JSON-ready values: path, manifest, record of its run, and the scores by class, label or target of a model."""
    found = {"path": str(artifact.path), "manifest": dict(artifact.manifest), "run": artifact.run_record()}
    if (scores := read_scores(artifact)) is not None:
        found["scores_by_class"] = class_document(scores)
    if (columns := read_columns(artifact)) is not None:
        found[f"scores_by_{columns.word}"] = column_document(columns)
    return found


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The result of reading every byte of an artifact."""

    # Stage and short version.
    label: str
    # Its folder.
    path: str
    # None if it could not be opened.
    num_bytes: int | None
    # What is wrong with it, one text each.
    problems: list[str]
    # Why it could not be read now, and the remedy; "" if it was read.
    unread: str = ""


def verify_artifacts(store: Store, names: tuple[str, ...]) -> Iterator[Verified]:
    """Reads every byte of the named artifacts and stages with their parts, or of all, and yields the results, one after the other.

    Of an object store those that are not named are looked at without reading them: their entries, and the sizes of their files.

    Raises:
        InputError: a name means no artifact.
    """
    stored, places = store.artifacts(), [path.parent.name for path in (*store.damaged(), *store.unread())]
    known = {name.removesuffix(PARTS) for name in (*(each.stage for each in stored), *places)}
    stages = known & set(names) if names else known
    named = [find_artifact(store, name) for name in names if name not in stages]
    named += [artifact.open_part(name) for artifact in named for name in artifact.parts]
    for artifact in (*named, *(each for each in stored if each.stage.removesuffix(PARTS) in stages)):
        about = {"label": artifact.label, "path": str(artifact.path), "num_bytes": artifact.num_bytes}
        try:
            yield Verified(**about, problems=_problems(artifact) + lineage_problems(store, artifact))
        except OSError as error:
            yield Verified(**about, problems=[], unread=unread(error))
    for path, reason in store.damaged().items():
        if path.parent.name.removesuffix(PARTS) in stages:
            yield Verified(label=label_of(address_of(path)), path=str(path), num_bytes=None, problems=[reason])
    for path, reason in store.unread().items():
        if path.parent.name.removesuffix(PARTS) in stages:
            yield Verified(label=label_of(address_of(path)), path=str(path), num_bytes=None, problems=[], unread=reason)
    if not names:
        addresses = sorted(store.backend.addresses())
        for address, problems in store.backend.problems(addresses, every_byte=False).items():
            yield Verified(label=label_of(address), path=store.backend.url, num_bytes=None, problems=problems)


def _problems(artifact: Artifact) -> list[str]:
    """Reads every byte of an artifact, where it is, and returns its damage."""
    if artifact.is_remote:
        return artifact.backend.problems([artifact.address]).get(artifact.address, [])
    return artifact.verify(threads=2)


def print_verified(found: Verified) -> None:
    """Prints a line, and the problem with its remedy."""
    size = "" if found.num_bytes is None else f" ({format_bytes(found.num_bytes)})"
    how = "DAMAGED" if found.problems else "NOT READ" if found.unread else "sound"
    print(f"{found.label}: {how}{size}", flush=True)
    if found.unread:
        print(f"  {found.unread}")
    for problem in found.problems:
        print(f"  {problem}")
    if found.problems:
        print(f"  remedy: graphmill repair {found.label}, then run the pipeline again: it will be rebuilt")


def _input(entry: Mapping[str, str]) -> str:
    """Returns an input in words: the artifact, and the aspect of it if only that was read."""
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
