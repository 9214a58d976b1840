"""Keeps the pipeline files of a launched run as they were when its code location was loaded.

Every step of a run is a new process that loads the definitions again. If it read the pipeline files again, an edit during a run
would change the artifacts of later steps. Dagster can carry values from the first load to the later ones, but only an internal class of
Dagster returns them, so it is used here and nowhere else. (`Definitions.with_reconstruction_metadata` would store them, but it cannot read
them back.) tests/jobs/runs/test_pinned.py notices when that class changes.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

KEY = "graphmill/pipeline_files"


def pinned_files(read: Callable[[], Mapping[Path, bytes]], name: str = "") -> dict[Path, bytes]:
    """Returns path -> content of the pipeline files: read now on a first load, and as they were then on every later one.

    Args:
        name: a name for these files, where one code location reads several sets of them.
    """
    context, key = DefinitionsLoadContext.get(), f"{KEY}/{name}" if name else KEY
    # Latin-1 maps each byte to one character and back, so a file that is not UTF-8 is reported as such, and not changed.
    if context.load_type == DefinitionsLoadType.RECONSTRUCTION and key in context.reconstruction_metadata:
        pinned = json.loads(context.reconstruction_metadata[key])
        return {Path(path): data.encode("latin-1") for path, data in pinned.items()}
    files = dict(read())
    text = json.dumps({str(path): data.decode("latin-1") for path, data in files.items()})
    context.add_to_pending_reconstruction_metadata(key, text)
    return files
