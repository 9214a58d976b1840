"""The store's facts about its artifacts, as flat rows: the views of `graphmill sql`.

Every view is read from manifests, run records and metric files at the moment of the question; nothing is indexed, so
nothing can be out of date. Only the tables of nodes are large; these stay in their Parquet files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

from assets.sampling.config import SamplingConfig
from assets.storage.artifact import Artifact
from assets.storage.version import short
from kernels.errors import InputError
from trainers.recipe.config import TrainConfig

TYPES = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "tuple[int, ...]": "JSON"}
"""DuckDB's type for the annotation of a config field; text for any other."""

NODES = {"version": "VARCHAR", "node_id": "BIGINT", "original_id": "BIGINT", "name": "VARCHAR", "class": "VARCHAR"}
"""Columns of the view `nodes`."""


MODEL_COLUMNS = {
    "pipeline": "VARCHAR",
    "train_table": "VARCHAR",
    "seed": "BIGINT",
    "split": "VARCHAR",
    "version": "VARCHAR",
    "graph": "VARCHAR",
}
MODEL_COLUMNS |= {"model": "VARCHAR", "trainer": "VARCHAR", "metric": "VARCHAR", "valid": "DOUBLE", "test": "DOUBLE"}
MODEL_COLUMNS |= {"best_epoch": "BIGINT", "epochs_run": "BIGINT", "started": "TIMESTAMP", "seconds": "DOUBLE"}
"""Columns of the view `models`."""


@dataclass(frozen=True, kw_only=True)
class View:
    """A named table of facts."""

    # Name -> DuckDB type.
    columns: Mapping[str, str]
    # JSON values by column; a missing one is NULL.
    rows: list[dict[str, Any]] = field(repr=False)


def views(artifacts: Iterable[Artifact]) -> dict[str, View]:
    """Returns name -> view of everything but the node tables."""
    artifacts = list(artifacts)
    key = {"stage": "VARCHAR", "version": "VARCHAR"}
    recipe = key | {"full_version": "VARCHAR", "code_version": "BIGINT", "started": "TIMESTAMP", "seconds": "DOUBLE"}
    size = {"bytes": "BIGINT", "num_files": "BIGINT", "host": "VARCHAR", "path": "VARCHAR"}
    plain = {
        "artifacts": (_artifact, recipe | size | {"config": "JSON", "raw": "JSON", "run": "JSON"}),
        "numbers": (_numbers, key | {"name": "VARCHAR", "value": "DOUBLE", "text": "VARCHAR"}),
        "checks": (_checks, key | {"name": "VARCHAR", "passed": "BOOLEAN", "blocking": "BOOLEAN", "detail": "VARCHAR"}),
        "inputs": (_inputs, key | {"role": "VARCHAR", "input_stage": "VARCHAR", "input_version": "VARCHAR"}),
        "config": (_config, key | {"key": "VARCHAR", "value": "VARCHAR"}),
        "files": (
            _files,
            key | {"name": "VARCHAR", "bytes": "BIGINT", "dtype": "VARCHAR", "shape": "JSON", "digest": "VARCHAR"},
        ),
        "models": (partial(_models, splits_of(artifacts)), MODEL_COLUMNS),
        "ledger": (
            _moves,
            {"version": "VARCHAR", "link": "VARCHAR", "kind": "VARCHAR", "phase": "VARCHAR", "layer": "BIGINT"}
            | {"requests": "BIGINT", "asked_bytes": "BIGINT", "moved_bytes": "BIGINT"},
        ),
        "ledger_counts": (
            _counts,
            {"version": "VARCHAR", "name": "VARCHAR", "layer": "BIGINT", "n": "BIGINT"},
        ),
    }
    made = {
        name: View(columns=columns, rows=[row for artifact in artifacts for row in rows_of(artifact)])
        for name, (rows_of, columns) in plain.items()
    }
    return made | {"metrics": _metrics(artifacts)}


def readable(artifacts: Iterable[Artifact]) -> tuple[list[Artifact], list[str]]:
    """Returns the artifacts whose files of facts are sound, and a sentence about each other one."""
    sound, damaged = [], []
    for artifact in artifacts:
        try:
            for name in {"metrics.jsonl", "ledger.json"} & {*artifact.files}:
                artifact.file(name)
        except InputError as error:
            damaged.append(error.problem)
        else:
            sound.append(artifact)
    return sound, damaged


def flattened(config: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the leaves of nested dicts by dotted key; a list is a leaf."""
    if not isinstance(config, Mapping):
        return {prefix: config}
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        leaves |= flattened(value, f"{prefix}.{key}" if prefix else key)
    return leaves


def read_metrics(artifact: Artifact) -> list[dict[str, Any]]:
    """Returns the rows of an artifact's metrics.jsonl, one per epoch; none if it lacks the file."""
    if "metrics.jsonl" not in artifact.files:
        return []
    return [json.loads(line) for line in artifact.file("metrics.jsonl").read_text().splitlines()]


def _key(artifact: Artifact) -> dict[str, Any]:
    return {"stage": artifact.stage, "version": short(artifact.version)}


def _artifact(artifact: Artifact) -> Iterator[dict[str, Any]]:
    run, manifest = artifact.run_record(), artifact.manifest
    yield _key(artifact) | {
        "full_version": artifact.version,
        "code_version": manifest["code_version"],
        "started": _utc(run.get("started")),
        "seconds": run.get("seconds"),
        "bytes": artifact.num_bytes,
        "num_files": len(artifact.files),
        "host": run.get("host", {}).get("name"),
        "path": str(artifact.path),
        "config": manifest["config"],
        "raw": manifest["raw"],
        "run": run,
    }


def _numbers(artifact: Artifact) -> Iterator[dict[str, Any]]:
    for name, value in artifact.summary.get("numbers", {}).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        yield _key(artifact) | {"name": name, "value": value if number else None, "text": _text(value)}


def _checks(artifact: Artifact) -> Iterator[dict[str, Any]]:
    for check in artifact.summary.get("checks", ()):
        yield _key(artifact) | dict(check)


def _inputs(artifact: Artifact) -> Iterator[dict[str, Any]]:
    for role, entry in artifact.inputs.items():
        yield _key(artifact) | {
            "role": role,
            "input_stage": entry["stage"],
            "input_version": short(entry["version"]),
        }
    for name, entry in artifact.parts.items():
        yield _key(artifact) | {
            "role": f"part {name}",
            "input_stage": entry["stage"],
            "input_version": short(entry["version"]),
        }


def _config(artifact: Artifact) -> Iterator[dict[str, Any]]:
    for key, value in flattened(artifact.config).items():
        yield _key(artifact) | {"key": key, "value": _text(value)}


def _files(artifact: Artifact) -> Iterator[dict[str, Any]]:
    for name, entry in artifact.files.items():
        yield _key(artifact) | {"name": name} | dict(entry)


def splits_of(artifacts: Iterable[Artifact]) -> dict[str, str]:
    """Returns version -> split, for graphs with one of several splits of their source."""
    found = {each.version: each.config.get("split") for each in artifacts if each.stage == "graph"}
    return {version: str(split) for version, split in found.items() if split is not None}


def _models(splits: Mapping[str, str], artifact: Artifact) -> Iterator[dict[str, Any]]:
    """A model with the pipeline and table that asked for it first, the split of its graph, and its scores."""
    train, numbers, run = artifact.config.get("train"), artifact.summary.get("numbers", {}), artifact.run_record()
    if artifact.stage != "model" or train is None:
        return
    pipeline, _, table = str(run.get("execution", {}).get("asked_by", "")).partition("/")
    graph = artifact.inputs.get("graph", {}).get("version")
    metric = train.get("metric", TrainConfig.metric)
    yield {
        "pipeline": pipeline or None,
        "train_table": table or None,
        "seed": artifact.config.get("seed"),
        "split": splits.get(graph or ""),
        "version": short(artifact.version),
        "graph": short(graph) if graph else None,
        "model": train.get("model", TrainConfig.model),
        "trainer": train.get("trainer", TrainConfig.trainer),
        "metric": metric,
        "valid": numbers.get(f"valid_{metric}"),
        "test": numbers.get(f"test_{metric}"),
        "best_epoch": numbers.get("best_epoch"),
        "epochs_run": numbers.get("epochs_run"),
        "started": _utc(run.get("started")),
        "seconds": run.get("seconds"),
    }


def _moves(artifact: Artifact) -> Iterator[dict[str, Any]]:
    for row in _ledger(artifact).get("moves", ()):
        yield {"version": short(artifact.version)} | row


def _counts(artifact: Artifact) -> Iterator[dict[str, Any]]:
    for row in _ledger(artifact).get("counts", ()):
        yield {"version": short(artifact.version)} | row


def _ledger(artifact: Artifact) -> dict[str, Any]:
    return json.loads(artifact.file("ledger.json").read_text()) if "ledger.json" in artifact.files else {}


def _metrics(artifacts: Iterable[Artifact]) -> View:
    """One row per model and epoch, with the whole config in columns, so that a question needs no join."""
    columns = {"version": "VARCHAR", "graph": "VARCHAR", "epoch": "BIGINT", "loss": "DOUBLE", "valid": "DOUBLE"}
    columns |= {"seed": "BIGINT", "split": "VARCHAR"}
    splits = splits_of(artifacts)
    keys = [
        each for schema in (TrainConfig, SamplingConfig) for each in fields(schema) if each.metadata.get("key", True)
    ]
    columns |= {each.name: TYPES.get(str(each.type), "VARCHAR") for each in keys}
    # A manifest leaves out keys that were added to its configuration later and have their default.
    added = {each.name: each.default for each in keys if each.metadata.get("hashed") == "unless default"}
    rows: list[dict[str, Any]] = []
    for artifact in artifacts:
        measured = read_metrics(artifact)
        config = (
            {key.rpartition(".")[2]: value for key, value in flattened(artifact.config).items()} if measured else {}
        )
        graph = artifact.inputs.get("graph", {}).get("version")
        about = config | {"version": short(artifact.version), "graph": short(graph) if graph else None}
        about["split"] = splits.get(graph or "")
        rows += [added | about | row for row in measured]
    # A column that later recipes record beside the known ones keeps its name and takes the type of its values.
    for name in sorted({name for row in rows for name in row} - columns.keys()):
        columns[name] = _type([row[name] for row in rows if row.get(name) is not None])
    return View(columns=columns, rows=rows)


def _type(values: list[Any]) -> str:
    kinds = {type(value) for value in values}
    names = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
    return names.get(kinds.pop(), "JSON") if len(kinds) == 1 else "DOUBLE" if kinds == {int, float} else "JSON"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _utc(started: str | None) -> str | None:
    """Returns a time as DuckDB's TIMESTAMP without zone, in UTC: reading the type with a zone needs one more package."""
    if started is None:
        return None
    return datetime.fromisoformat(started).astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")
