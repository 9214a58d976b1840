"""The page of an asset in the web UI: a text that stands beside its stage, and a headline made of its numbers.

A stage brings a `Page` of its own, beside its class. Nothing here knows the UI; assets/pipeline/shown.py shows it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import one_line

MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")
"""Characters that may change how Markdown shows the text around them; a backslash before each keeps it as it is."""


def markdown_text(text: str) -> str:
    """Returns a name of data as Markdown shows it as it stands, on one line."""
    return MARKDOWN_SPECIAL.sub(r"\\\1", one_line(text))


def markdown_code(text: str) -> str:
    """Returns a name of data as code in Markdown, on one line; its fence is longer than any in the name."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " * (len(fence) > 1)
    return f"{fence}{blank}{one_line(text)}{blank}{fence}"


WORTH = (
    re.compile(r"accuracy|roc_auc|_macro|_micro|_weighted|loss|_ratio|_share"),
    re.compile("seconds"),
    re.compile("memory"),
    re.compile("bytes"),
)
"""What the name of a number has in it, the most interesting kind first: a score, a time, memory, other bytes."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """The page of the assets of one stage.

    Attributes:
        about: three sentences: what it is, what it is for, what to look at on this page.
        docs: path in the repository of the page of the docs that explains it.
        headline: the artifacts of an asset -> one line of Markdown, with the most important number between two pairs of asterisks.
        first: names of the numbers that matter most, in their order; the UI shows them before the others.
        recorded: names of facts of the build that the UI shows where run.json has them: what passes over a file took.
        labels: name of a number -> its label in the UI, with its unit, for numbers whose name says too little.
        columns: arrays of the artifact that are the columns of one table -> description of each; empty without a table.
        file: a Parquet file of the artifact with more columns of the same table; they stand in `columns`, too.
        kinds: libraries that it is made with, as Dagster's icons name them; NumPy for most stages.
    """

    about: str
    docs: str
    headline: Callable[[Sequence[Artifact]], str] = lambda artifacts: ""
    first: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    kinds: frozenset[str] = frozenset({"numpy"})


def table_of(page: Page, artifact: Artifact) -> tuple[int, dict[str, tuple[str, str]]]:
    """Returns the number of rows of an artifact's table, and column -> (type, description); (0, {}) if it is not a table.

    Columns that the artifact lacks are left out. A column of several values per row has their number in its type: "float32[64]".
    """
    files = {name: artifact.files[f"{name}.npy"] for name in page.columns if f"{name}.npy" in artifact.files}
    columns = {}
    for name, entry in files.items():
        width = "".join(f"[{size}]" for size in entry["shape"][1:])
        columns[name] = (f"{entry['dtype']}{width}", page.columns[name])
    if page.file in artifact.files:
        import polars

        schema = polars.scan_parquet(artifact.file(page.file), glob=False).collect_schema()
        columns |= {name: (str(schema[name]).lower(), page.columns[name]) for name in page.columns if name in schema}
    lengths = {entry["shape"][0] for entry in files.values()}
    assert len(lengths) <= 1, f"columns of {artifact.label} have {sorted(lengths)} rows"
    return (lengths.pop() if lengths else 0), columns


def ordered(page: Page | None, numbers: Mapping[str, Any]) -> list[str]:
    """Returns the names of numbers as a page shows them: those of `first`, then single values by their worth, then lists and tables."""
    first = [name for name in (page.first if page else ()) if name in numbers]
    rest = [name for name in numbers if name not in first]
    return first + sorted(rest, key=lambda name: (isinstance(numbers[name], list | dict), _place(name)))


def _place(name: str) -> int:
    """Returns the place of a number's kind in `WORTH`; other numbers come last."""
    return next((place for place, kind in enumerate(WORTH) if kind.search(name)), len(WORTH))
