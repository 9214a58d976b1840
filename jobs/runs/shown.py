"""The pipeline files that the web UI shows: all of a user's own, and of the shipped ones those that ran.

A newcomer's page of assets would otherwise begin with a dozen examples. So a shipped pipeline appears with its first
run in this home, however that was started, and stays for as long as the history knows it. A home without anything to show has the
pipeline of `make demo`, which needs no data: there is something to press. Commands know all names in any case, and the schedules of a
user's own files do not depend on this.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import dagster as dg

from graphmill.assets.pipeline.file import Pipeline, pipeline_files
from graphmill.assets.pipeline.shown import TRIAL
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.system.filesystem import read_whole_file
from graphmill.jobs.runs.instance import SETTINGS, open_instance, reporting_history
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError

VARIABLE = environment.EXAMPLES
CHOICES: dict[str, Literal["none", "all", "ran"]] = {"0": "none", "1": "all", "": "ran"}
DEMO = "python-environment"
"""The shipped pipeline that a home without any other shows."""
REPORTS = "/graphmill/report/"
"""Beginning of the paths of reports in the web UI (jobs/web/report_page.py); the name of a pipeline follows."""


def report_address(pipeline: Pipeline) -> str:
    """Returns the path of a pipeline's report in the web UI, "" for a file that is not found by name or with keys set by --set."""
    return REPORTS + quote(pipeline.reference) if pipeline.reference in pipeline_files() else ""


def shown_examples() -> Literal["none", "all", "ran"]:
    """Returns which of the shipped pipelines the web UI shows: none with `$GRAPHMILL_EXAMPLES` 0, all with 1, else those that ran.

    Raises:
        InputError: the variable is neither 0 nor 1.
    """
    value = environment.read(VARIABLE)
    if value not in CHOICES:
        show = "set it to 0 to leave the shipped pipelines out of the web UI, to 1 to show all of them"
        raise InputError(f"{VARIABLE} is {value!r}", f"{show}, or unset it to show those that ran")
    return CHOICES[value]


def shown_files() -> dict[Path, bytes]:
    """Returns path -> content of the pipeline files that the web UI of this home shows.

    Raises:
        InputError: `$GRAPHMILL_EXAMPLES` is neither 0 nor 1.
    """
    files = {}
    for path in _shown_paths(shown_examples()):
        try:
            files[path] = read_whole_file(path)
        except OSError:  # removed since it was listed, or not a file
            continue
    return files


def _shown_paths(examples: Literal["none", "all", "ran"]) -> list[Path]:
    own = pipeline_files(shipped=False)
    if examples == "none":
        return list(own.values())
    found = pipeline_files()
    if examples == "ran":
        ran = pipelines_that_ran(home_folder(None))
        # A shipped pipeline in a folder has the folder in its own name, too.
        shown = {name: path for name, path in found.items() if name in own or name.replace("/", "-") in ran}
        found = shown or {DEMO: found[DEMO]}
    return list(found.values())


def shown_trials() -> dict[Path, bytes]:
    """Returns the keys of the assets that trials of this home have left, NAME/trial/STEP, as paths: they are noticed like new files."""
    keys = assets_of(home_folder(None))
    return {Path(key.to_user_string()): b"" for key in keys if len(key.path) == 3 and key.path[1] == TRIAL}


def pipelines_that_ran(home: Path) -> set[str]:
    """Returns the names of the pipelines that the history of a home has assets of; none if the history cannot be read."""
    return {key.path[0] for key in assets_of(home)}


def assets_of(home: Path) -> Sequence[dg.AssetKey]:
    """Returns the keys of the assets that the history of a home has; none if the history cannot be read."""
    if not (home / SETTINGS).is_file():
        return []
    try:
        with reporting_history(home), open_instance(home) as instance:
            return instance.get_asset_keys()
    except InputError:  # the web UI, which reads the same history, reports it
        return []
