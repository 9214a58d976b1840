"""Every remedy of the program names what there is: commands, options, tables of a pipeline file, and pages of the docs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from graphmill.assets.pipeline.file import SHIPPED
from graphmill.assets.pipeline.rules import table_names
from graphmill.jobs.command import graphmill
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.laws.test_house import LAYERS, ROOT

HOLE = "\0"
"""A value in a message."""
OTHERS = ("torchrun", "ray ", "pip ", "df ", "nvidia-smi", "iconv", "python -m", "redis", "tensorboard --", "ulimit")
"""Programs of others, whose options are theirs."""
TABLES = {*table_names(), "train", "schedule", "run"}
WRITTEN = re.compile(r"(?<![\w\0])\[{1,2}([a-z_]{2,})(?:\.([\w-]+))?(?:\.[\w-]+)*\]{1,2}")
TRAINER_OPTIONS = {"--from", "--input", "--home", "--resume", "--retrain", "--ranks", "--quiet", "--on"}
"""Options of `python -m graphmill.trainers`."""


def remedies() -> Iterator[tuple[str, str]]:
    """Yields (place, text with a hole for each value) of every remedy that stands in a call of an error."""
    for path in (path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error"):
                text = spoken(node.args[1]) if len(node.args) > 1 else ""
                yield from [(f"{path.relative_to(ROOT)}:{node.lineno}", text)] if text else []


def spoken(node: ast.expr) -> str:
    """Returns the text of a literal, "" for another expression."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else HOLE for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def commands() -> dict[str, click.Command]:
    """Returns name -> command."""
    return dict(graphmill.commands)


def options_of(command: click.Command) -> set[str]:
    """Returns the options of a command, those of its own commands included."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    own = {each for parameter in command.params for each in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*(options_of(each) for each in below), {"--help"})


def wrong_words(text: str) -> Iterator[str]:
    """Yields the words of a remedy that name nothing."""
    known, common = commands(), options_of(graphmill) | TRAINER_OPTIONS
    everything = common.union(*(options_of(each) for each in known.values()))
    for name, rest in re.findall(r"graphmill (?:--home \S+ )?([a-z][a-z-]*)\b([^;,]*)", text):
        if name not in known and name not in ("for", "here"):  # which are no commands in "update graphmill here"
            yield f"graphmill {name}"
        elif name in known:
            said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest))
            yield from (f"graphmill {name} {each}" for each in said - options_of(known[name]) - options_of(graphmill))
    if not any(other in text for other in OTHERS):
        yield from (each for each in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text) if each not in everything)
    yield from (page for page in re.findall(r"docs/[\w/-]+\.md", text) if not (ROOT / page).is_file())
    for table, sub in WRITTEN.findall(text):
        if table not in TABLES:
            yield f"[{table}]"
        elif table == "train" and sub and sub not in {*TECHNIQUES, "NAME"}:
            yield f"[train.{sub}]"


def test_every_remedy_names_what_there_is() -> None:
    found = [*remedies()]
    assert len(found) > 300
    assert [(place, word) for place, text in found for word in wrong_words(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "run graphmill biuld x",
        "graphmill gc --kep 3",
        "see docs/nothing.md",
        "set method in [samplings]",
        "leave --rank out",
        "set rows in [train.farm]",
    ],
)
def test_a_remedy_that_names_nothing_is_noticed(text: str) -> None:
    assert [*wrong_words(text)]
    assert SHIPPED.is_dir() and Path(ROOT / "docs").is_dir()
