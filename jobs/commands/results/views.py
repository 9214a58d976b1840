"""The store's facts about its artifacts, as flat rows: the views of `graphmill sql`.

Every view is read from manifests, run records and metric files at the moment of the question; nothing is indexed, so
nothing can be out of date. Only the tables of nodes are large; these stay in their Parquet files.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import short
from graphmill.jobs.figures.cost import read_ledger, read_metrics
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainConfig

TYPES = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "tuple[int, ...]": "JSON"} | {
    "tuple[int | dict[str, int], ...]": "JSON"
}
"""DuckDB's type for the annotation of a config field; text for any other."""

KEY = "stage VARCHAR, version VARCHAR"
COLUMNS = {
    "artifacts": f"{KEY}, full_version VARCHAR, code_version BIGINT, started TIMESTAMP, seconds DOUBLE, bytes BIGINT, "
    "num_files BIGINT, host VARCHAR, path VARCHAR, config JSON, raw JSON, run JSON",
    "numbers": f"{KEY}, name VARCHAR, value DOUBLE, text VARCHAR",
    "checks": f"{KEY}, name VARCHAR, passed BOOLEAN, blocking BOOLEAN, detail VARCHAR",
    "inputs": f"{KEY}, role VARCHAR, input_stage VARCHAR, input_version VARCHAR",
    "config": f"{KEY}, key VARCHAR, value VARCHAR",
    "files": f"{KEY}, name VARCHAR, bytes BIGINT, dtype VARCHAR, shape JSON, digest VARCHAR",
    "models": "pipeline VARCHAR, train_table VARCHAR, seed BIGINT, split VARCHAR, version VARCHAR, graph VARCHAR, "
    "model VARCHAR, trainer VARCHAR, metric VARCHAR, valid DOUBLE, test DOUBLE, best_epoch BIGINT, epochs_run BIGINT, "
    "started TIMESTAMP, seconds DOUBLE",
    "ledger": "version VARCHAR, link VARCHAR, kind VARCHAR, phase VARCHAR, layer BIGINT, requests BIGINT, "
    "asked_bytes BIGINT, moved_bytes BIGINT",
    "ledger_counts": "version VARCHAR, name VARCHAR, layer BIGINT, n BIGINT",
    "metrics": "version VARCHAR, graph VARCHAR, epoch BIGINT, loss DOUBLE, valid DOUBLE, seed BIGINT, split VARCHAR",
    "nodes": "version VARCHAR, node_id BIGINT, original_id BIGINT, name VARCHAR, class VARCHAR",
}
"""View -> its columns with DuckDB's types; `metrics` has those of the configurations as well."""


def columns_of(view: str) -> dict[str, str]:
    """Returns name -> DuckDB type of the columns of a view in `COLUMNS`."""
    return dict(column.split() for column in COLUMNS[view].split(", "))


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
    made = {name: View(columns=columns_of(name), rows=[]) for name in COLUMNS if name not in ("metrics", "nodes")}
    splits = splits_of(artifacts)
    for artifact in artifacts:
        key = {"stage": artifact.stage, "version": short(artifact.version)}
        for name, rows in _facts(artifact, splits).items():
            made[name].rows.extend(key | dict(row) for row in rows)
    return made | {"metrics": _metrics(artifacts, splits)}


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


def _facts(artifact: Artifact, splits: Mapping[str, str]) -> dict[str, Iterable[Mapping[str, Any]]]:
    """Returns view -> rows of an artifact, without stage and version."""
    run, manifest, summary = artifact.run_record(), artifact.manifest, artifact.summary
    ledger = read_ledger(artifact) if "ledger.json" in artifact.files else {}
    read = [*artifact.inputs.items(), *((f"part {name}", entry) for name, entry in artifact.parts.items())]
    about = {
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
    return {
        "artifacts": [about],
        "numbers": [
            {"name": name, "value": value if is_number(value) else None, "text": _text(value)}
            for name, value in summary.get("numbers", {}).items()
        ],
        "checks": summary.get("checks", ()),
        "inputs": [
            {"role": role, "input_stage": entry["stage"], "input_version": short(entry["version"])}
            for role, entry in read
        ],
        "config": [{"key": key, "value": _text(value)} for key, value in flattened(artifact.config).items()],
        "files": [{"name": name} | dict(entry) for name, entry in artifact.files.items()],
        "models": _models(artifact, splits),
        "ledger": ledger.get("moves", ()),
        "ledger_counts": ledger.get("counts", ()),
    }


def splits_of(artifacts: Iterable[Artifact]) -> dict[str, str]:
    """Returns version -> split, for graphs with one of several splits of their source."""
    found = {each.version: each.config.get("split") for each in artifacts if each.stage == "graph"}
    return {version: str(split) for version, split in found.items() if split is not None}


def _models(artifact: Artifact, splits: Mapping[str, str]) -> Iterator[dict[str, Any]]:
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


def _metrics(artifacts: Iterable[Artifact], splits: Mapping[str, str]) -> View:
    """One row per model and epoch, with the whole config in columns, so that a question needs no join."""
    keys = [
        each
        for schema in (TrainConfig, SamplingConfig)
        for each in fields(schema)
        # What is not hashed is in no artifact's config.
        if each.metadata.get("key", True) and each.metadata.get("hashed", True)
    ]
    names = {each.name: each.type.__name__ if isinstance(each.type, type) else str(each.type) for each in keys}
    columns = columns_of("metrics") | {name: TYPES.get(of, "VARCHAR") for name, of in names.items()}
    columns["threads"] = "BIGINT"  # the number that the training took, also for "auto"
    # A manifest leaves out keys that were added to its configuration later and have their default.
    added = {each.name: each.default for each in keys if each.metadata.get("hashed") == "unless default"}
    rows: list[dict[str, Any]] = []
    for artifact in artifacts:
        if not (measured := read_metrics(artifact)):
            continue
        config = {key.rpartition(".")[2]: value for key, value in flattened(artifact.config).items()}
        graph = artifact.inputs.get("graph", {}).get("version")
        about = config | {"version": short(artifact.version), "graph": short(graph) if graph else None}
        about["split"] = splits.get(graph or "")
        about["threads"] = artifact.run_record().get("threads", _number(config.get("threads")))
        rows += [added | about | row for row in measured]
    # A column that later recipes record beside the known ones keeps its name and takes the type of its values.
    for name in sorted({name for row in rows for name in row} - columns.keys()):
        columns[name] = _type([row[name] for row in rows if row.get(name) is not None])
    return View(columns=columns, rows=rows)


def _type(values: list[Any]) -> str:
    kinds = {type(value) for value in values}
    names = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
    return names.get(kinds.pop(), "JSON") if len(kinds) == 1 else "DOUBLE" if kinds == {int, float} else "JSON"


def is_number(value: Any) -> bool:
    """Tells whether a JSON value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> int | float | None:
    return value if is_number(value) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _utc(started: str | None) -> str | None:
    """Returns a time as DuckDB's TIMESTAMP without zone, in UTC: reading the type with a zone needs one more package."""
    if started is None:
        return None
    return datetime.fromisoformat(started).astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")
