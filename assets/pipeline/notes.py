"""Texts of a pipeline file for its readers: keys above the first table that the web UI shows, and that enter no version.

    description = "Papers and who cites whom."
    owners = ["ann@example.org", "team:graphs"]
    tags = { area = "citations" }

Dagster refuses a whole code location for one owner or tag that it cannot read, so its rules are checked here, and the mistakes get their
lines.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from graphmill.assets.pipeline.schema import Problem, Tables
from graphmill.assets.pipeline.toml_text import KeyPath, key_lines, line_of

E_MAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
TEAM = re.compile(r"team:\S.*")
TAG = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}")
TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}")
OUR_SPACES = ("dagster/", "graphmill/")
"""Tags that Dagster and graphmill set themselves begin with these."""


@dataclass(frozen=True, kw_only=True)
class Notes:
    """The keys above the first table that only people read."""

    # Markdown in the description of each asset, below what the asset is, and above that of each job.
    description: str = ""
    # E-mail addresses, or team:NAME.
    owners: tuple[str, ...] = ()
    # Tag -> value, on each asset and job.
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a step, and its file's texts about it; nothing of it enters a version.

    Attributes:
        path, line: the pipeline file, and the 1-based line of the table that asks for the step; None without a file.
    """

    path: Path | None = None
    line: int = 1
    notes: Notes = Notes()


def parse_notes(raw: Mapping[str, object], tables: Tables) -> tuple[Notes, list[Problem]]:
    """Returns a file's texts for its readers, and all mistakes in them."""
    found, problems = tables.parse(
        Notes, {key: raw[key] for key in ("description", "owners", "tags") if key in raw}, ()
    )
    if found is None:
        return Notes(), problems
    problems = [*_wrong_owners(found, tables), *_wrong_tags(found, tables)]
    return found, problems


def origin_of(path: Path, text: str, notes: Notes, *places: KeyPath) -> Origin:
    """Returns the origin of a step, at the first of the places that the file has."""
    lines = key_lines(text)
    place = next((place for place in places if place in lines), ())
    return Origin(path=path, line=line_of(lines, place), notes=notes)


def _wrong_owners(notes: Notes, tables: Tables) -> Iterator[Problem]:
    for index, owner in enumerate(notes.owners):
        if not E_MAIL.fullmatch(owner) and not TEAM.fullmatch(owner):
            text = f'owners[{index}] = "{owner}" is neither an e-mail address nor team:NAME'
            yield tables.problem(("owners", index), text)


def _wrong_tags(notes: Notes, tables: Tables) -> Iterator[Problem]:
    for tag, value in notes.tags.items():
        where, allowed = ("tags", tag), "at most 63 letters, digits, _, - and ."
        if not TAG.fullmatch(tag):
            text = f'tags: "{tag}" is not a tag: a tag has {allowed}, and may have a prefix of the same kind before a /'
            yield tables.problem(where, text)
        elif tag.startswith(OUR_SPACES):
            yield tables.problem(
                where, f'tags: "{tag}" has a prefix of tags that graphmill or Dagster sets; choose another'
            )
        if not TAG_VALUE.fullmatch(value):
            yield tables.problem(where, f'tags: {tag} = "{value}" is not a value of a tag, which has {allowed}')
