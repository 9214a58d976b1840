"""What Dagster shows of a step and its artifacts: keys, the materialisation with its numbers and figures, results of checks."""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.assets.building.labels import join_checks, joined, labelled
from graphmill.assets.building.page import markdown_code, ordered, table_of
from graphmill.assets.building.stage import Check
from graphmill.assets.pipeline.steps import Step, Versions, joint_version
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import canonical, canonical_json

TRIAL = "trial"
"""Part of the keys of assets whose keys of the pipeline file were set for one command."""
CONFIG, SUMMARY = "config", "summary"
HOME, PIPELINE_FILE = "home", "pipeline file"
"""Metadata of a definition: the folder of the artifacts, and the file that asks for them; inputs of a project are loaded by them."""
FIGURE_BYTES = 100_000
"""Largest figure that is stored with a materialisation, which takes about twice its bytes; a larger one is named by its path."""
WHOLE = "stored bytes are whole"
"""The check of every asset that reads its artifacts again, when it is executed alone."""
WHOLE_SAYS = "Every byte of the stored artifact matches its digest. They are read when the check is executed alone."
NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_]")
INPUT_TAG = "dagster/input_data_version/"
DATA_TAG = "dagster/data_version"


class UndeclaredCheckError(RuntimeError):
    """A stage declares other checks than it makes; this is a defect of the stage."""


def allowed_name(name: str) -> str:
    """Returns the name of a check, or of a group, with the characters that Dagster allows."""
    return NOT_ALLOWED.sub("_", name)


def key_of(step: Step) -> dg.AssetKey:
    """Returns the asset key of a step; that of a trial leaves the last materialisation of the file's own step as it is."""
    return dg.AssetKey([step.pipeline, *([TRIAL] if step.trial else []), step.name])


def wholeness(artifacts: Sequence[Artifact], wrong: Sequence[str], *, read: bool) -> Check:
    """Returns the check of the bytes of artifacts, with the problems that were found if they were read."""
    num_bytes = sum(artifact.total_bytes for artifact in artifacts)
    how = "were read and compared with their digests" if read else "are stored; execute this check alone to read them"
    detail = "; ".join(wrong[:5]) or f"{num_bytes:,} bytes {how}"
    return Check(name=WHOLE, passed=not wrong, detail=detail, numbers={"problems": len(wrong), "bytes": num_bytes})


def config_of(step: Step) -> dg.MetadataValue:
    """Returns the config of a step; of several, which differ in the seed or the split, a list."""
    configs = [canonical(each) for each in step.configs]
    return dg.MetadataValue.json(configs[0] if len(configs) == 1 else configs)


def _column_lineage(step: Step, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns which columns of the source decide those that an artifact has, under Dagster's key; {} if none is known."""
    named = step.recipe.columns_from(step.configs[0]) if step.external else {}
    deps = {
        name: [dg.TableColumnDep(asset_key=raw_key(step), column_name=named[name])] for name in columns if name in named
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps_by_column=deps)} if deps else {}


def raw_key(step: Step) -> dg.AssetKey:
    """Returns the key of the outside content that a step reads."""
    return dg.AssetKey([step.pipeline, *([TRIAL] if step.trial else []), step.external])


def materialized(
    step: Step,
    artifacts: Sequence[Artifact],
    versions: Versions,
    *,
    reused: bool,
    extra: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.MaterializeResult:
    """Returns the materialisation of a step: versions, inputs, numbers, figures and checks.

    Args:
        reused: whether nothing had to be built.
    """
    read = {f"{INPUT_TAG}{key_of(source).to_user_string()}": versions.joint(source) for source in step.followed}
    if step.external:
        raw = versions.raw(step.recipe, step.configs[0])
        read[f"{INPUT_TAG}{raw_key(step).to_user_string()}"] = raw_version(raw)
    checks = [*join_checks(artifacts, step.checks, reused=reused), wholeness(artifacts, (), read=False)]
    shown = _metadata(step, artifacts, extra or {})
    return dg.MaterializeResult(
        asset_key=key_of(step),
        data_version=dg.DataVersion(joint_version(tuple(artifact.version for artifact in artifacts))),
        metadata=shown | {"artifacts": ", ".join(artifact.label for artifact in artifacts), "reused": reused},
        tags={**read, **(tags or {})},
        check_results=list(check_results(step, checks)),
    )


def figure(title: str, png: bytes) -> dg.MarkdownMetadataValue:
    """Returns a PNG as Markdown with the image inside: Dagster has no metadata type for images."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _metadata(step: Step, artifacts: Sequence[Artifact], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata for the UI, most important first: a headline, numbers, one summary with all figures, then lists and paths.

    Args:
        artifacts: its artifacts in the store; of several, numbers are means.
    """
    page, first = step.recipe.page, artifacts[0]
    names = page.labels if page else {}
    figures = {name: value.value for name, value in extra.items() if isinstance(value, dg.MarkdownMetadataValue)}
    found: dict[str, Any] = {
        name: joined([artifact.summary["numbers"].get(name) for artifact in artifacts])
        for name in first.summary["numbers"]
    }
    found |= {name: value for name, value in extra.items() if not isinstance(value, dg.MarkdownMetadataValue)}
    found["stored_bytes"] = sum(artifact.total_bytes for artifact in artifacts)
    found["build_seconds"] = sum(artifact.run_record().get("seconds", 0.0) for artifact in artifacts)
    record = first.run_record()
    if unread := record.get("unread"):
        found["not_read"] = "; ".join(unread)
    found |= {name: record[name] for name in (page.recorded if page else ()) if name in record}
    numbers: dict[str, Any] = {}
    for name in ordered(page, found):
        label, value = labelled(name, found[name])
        numbers[names.get(name, label)] = _shown(value)
    if len(artifacts) == 1:
        for title, file_name in first.summary["figures"].items():
            png, path = first.content_of(file_name), first.path / file_name
            figures[title] = (
                figure(title, png).value if len(png) <= FIGURE_BYTES else f"{title}: {markdown_code(str(path))}"
            )
    line = page.headline(artifacts) if page else ""
    shown: dict[str, Any] = {SUMMARY: dg.MetadataValue.md("\n\n".join([line, *figures.values()]))}
    if figures and line:
        # Dagster hides a long text behind a button, so the line stands above it, too.
        shown = {"headline": line.replace("**", "")} | shown
    scalars = {label: value for label, value in numbers.items() if not isinstance(value, dg.MetadataValue)}
    # The path of an artifact is too long for the table, which would then cut the rows above it.
    places = {"dagster/uri": first.path.as_uri(), CONFIG: config_of(step)}
    return shown | scalars | numbers | _table_metadata(step, first) | places


def _table_metadata(step: Step, artifact: Artifact) -> dict[str, Any]:
    """Returns rows, columns and where these come from under Dagster's keys; {} if no file of the artifact is a table."""
    num_rows, columns = table_of(step.recipe.page, artifact) if step.recipe.page else (0, {})
    if not columns:
        return {}
    listed = [dg.TableColumn(name, kind, description) for name, (kind, description) in columns.items()]
    schema = dg.MetadataValue.table_schema(dg.TableSchema(listed))
    return {"dagster/column_schema": schema, "dagster/row_count": num_rows} | _column_lineage(step, columns)


def _shown(value: Any) -> Any:
    """Returns a value as metadata: rows with the same columns as a table, other lists and dicts as JSON."""
    if isinstance(value, int | float | str | bool | dg.MetadataValue):
        return value
    if value and isinstance(value, list) and all(isinstance(r, dict) and r.keys() == value[0].keys() for r in value):
        # The subject of a row comes first: stored numbers have their keys in the order of the alphabet.
        columns = sorted(value[0], key=lambda name: not isinstance(value[0][name], str))
        return dg.MetadataValue.table(records=[dg.TableRecord({name: row[name] for name in columns}) for row in value])
    return dg.MetadataValue.json(value)


def check_results(step: Step, checks: Sequence[Check], *, whole: bool = True) -> Iterator[dg.AssetCheckResult]:
    """Yields one result for each check that the step declares, with its sentence and its numbers.

    A failed check that does not block is a warning; stages that read the artifact go on.

    Args:
        whole: whether an artifact was published; a stage whose checks failed may have stopped before it made the others.

    Raises:
        UndeclaredCheckError: the checks that were made differ from the declared ones, so that one would never be seen.
    """
    made = {name: [check for check in checks if check.name == name] for name in (*step.checks, WHOLE)}
    missing = [name for name, found in made.items() if not found]
    strange = sorted({check.name for check in checks} - made.keys())
    if strange or (missing and whole):
        raise UndeclaredCheckError(
            f"{'/'.join(step.key)} made no checks named {missing} and undeclared ones named {strange}"
        )
    for name, found in ((name, found) for name, found in made.items() if found):
        yield dg.AssetCheckResult(
            asset_key=key_of(step),
            check_name=allowed_name(name),
            passed=all(check.passed for check in found),
            severity=dg.AssetCheckSeverity.ERROR if any(c.blocking for c in found) else dg.AssetCheckSeverity.WARN,
            description="; ".join(check.detail for check in found if check.detail) or "passed",
            metadata={label: value for check in found for label, value in check.numbers.items()},
        )


def raw_version(digests: Mapping[str, str]) -> str:
    """Returns the data version of outside content with these digests."""
    return hashlib.sha256(canonical_json(dict(digests))).hexdigest()
