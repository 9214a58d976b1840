"""`graphmill bundle`: copies the artifacts that one training needs into a folder."""

from collections.abc import Callable
from pathlib import Path

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.bundle import write_bundle
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import find_table
from graphmill.trainers.recipe.inputs import find_table_inputs


def bundle_table(store: Store, pipeline: Pipeline, name: str, out: Path, report: Callable[[str], None]) -> None:
    """Writes the bundle of a `[[train]]` table.

    Raises:
        InputError: the table does not exist, an artifact is not built, the folder holds something else, or the disk is full.
    """
    pipeline.require_one_split()
    table = find_table(pipeline, name)
    found = find_table_inputs(pipeline, table, store, {})
    recipe = {"pipeline": pipeline.name, "file": pipeline.path.name, "text": pipeline.text, "table": name}
    bundle = write_bundle(store, out, {**found.inputs, **found.reads}, recipe, report)
    count = len(bundle.addresses())
    report(
        f"{out} has {count} artifacts, {format_bytes(bundle.num_bytes)}; there: python -m graphmill.trainers --from {out}"
    )
