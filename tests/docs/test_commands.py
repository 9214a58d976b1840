"""Every command that README and docs show is run, or checked as far as it can be without a server, a GPU or hours.

tests/docs/pages.py says what counts as a command. `RULES` has one rule per program; a command without a rule fails. `graphmill` and
`python -m graphmill.trainers` are run in this process on the README's own pipeline, with `USER_WORDS` in place of words in capitals. A
name of a shipped pipeline must exist, and the same small pipeline is run in its place. What stands in a sentence may leave arguments out
(`graphmill gc`); then only its name and its options are checked.
"""

import io
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest

from benchmarks.__main__ import NAMES, ON_DEMAND
from benchmarks.__main__ import parser as benchmark_parser
from graphmill.assets.pipeline.file import pipeline_files
from graphmill.jobs import cli
from graphmill.jobs.command import graphmill as group
from graphmill.jobs.operations import rates
from graphmill.jobs.runs.children import ChildProcesses
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.__main__ import main as trainers_main
from tests import forks
from tests.assets.sources.folders import FOLDERS
from tests.docs.pages import GENERATED, PAGES, ROOT, WALKED, Command, commands, fences, parsed
from tests.e2e.commands import COMMAND, train_in_fork

pytestmark = pytest.mark.first

COMMANDS = [
    command
    for path in PAGES
    if path.relative_to(ROOT).as_posix() not in WALKED + GENERATED
    for command in commands(path)
]
OF_PROJECT = "shop/defs/communities/communities.toml"
"""The pipeline file of the project on the page of Dagster."""
SHIPPED = set(pipeline_files()) - set(pipeline_files(shipped=False))
ENVIRONMENT = {"DAGSTER_HOME", "GRAPHMILL_HOME", "GRAPHMILL_PIPELINES", "GRAPHMILL_TEST_DATA"}
NOT_RUN = {
    "ui": "serves until it is stopped; tests/jobs/served/test_server.py runs it",
    "demo": "takes a minute; `make demo` is run by itself",
}
"""Commands of graphmill whose options alone are checked."""
MADE_FIRST = ("bundle", "mine.toml", "sage", "out-bundle")
"""The command that makes the bundle from which others train."""
SHELL_SYNTAX = ("|", "||", "&", "&&", ";", "<", ">", ">>", "\\")


# The README's own example, built and trained once.


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A folder with the README's graph and pipeline, and a home in which the pipeline has run."""
    folder = tmp_path_factory.mktemp("readme")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):  # a launch sets both; so they are put back
            patch.setenv(name, str(folder / "home"))
        patch.setattr(ChildProcesses, "_run_to_end", train_in_fork)
        # `plan` and `doctor --refresh` measure the machine: with the smallest file of which each page is read once, and each start once.
        patch.setattr(rates, "SAMPLE_BYTES", rates.PAGES_READ * PAGE_BYTES)
        patch.setattr(rates, "_import", cache(rates._import))
        random = np.random.default_rng(0)
        train_ids, valid_ids, test_ids = np.split(random.permutation(120), [60, 90])
        (code,) = readme_blocks("python")
        exec(
            code,
            {
                "edge_index": random.integers(0, 120, (2, 900)),
                "features": random.random((120, 8), np.float32),
                "labels": random.integers(0, 3, 120),
                "train_ids": train_ids,
                "valid_ids": valid_ids,
                "test_ids": test_ids,
            },
        )
        (folder / "mine.toml").write_text(readme_blocks("toml")[0])
        graphmill("run", "mine.toml")
        (folder / "my-tables").mkdir()
        FOLDERS["roads"](folder / "my-tables", random)
        versions = {
            stage: next(each.name[:12] for each in (folder / "home/store" / stage).iterdir())
            for stage in ("graph", "features", "model")
        }
        yield SimpleNamespace(folder=folder, words=user_words(**versions), succeeded=set())


def user_words(graph: str, features: str, model: str) -> dict[str, str]:
    """Returns what stands in a command -> what a user of the example would give."""
    return {
        "A": f"graph/{graph}",
        "AGE": "30d",
        "B": f"model/{model}",
        "COMMAND": "run",
        "FILE.parquet": "out.parquet",
        "FOLDER": "my-tables",
        "MODEL": model,
        "N": "3",
        "NAME": "sage",
        "OTHER": "mine.toml",
        "PIPELINE": "mine.toml",
        "PIPELINE/NAME": "mine.toml/sage",
        "PIPELINE/STEP": "mine.toml/graph",
        "OUT": "out-bundle",
        "SELECT ...": "SELECT stage, version FROM artifacts",
        "SOURCE": "mine.npz",
        "VERSION": graph,
        "cache_plan/VERSION": f"graph/{graph}",
        "features/VERSION": f"features/{features}",
        "graph/VERSION": f"graph/{graph}",
        "graph=VERSION": f"graph={graph}",
        "features=VERSION": f"features={features}",
    }


def readme_blocks(language: str) -> list[str]:
    """Returns the README's fences of a language, except those of a Dagster project, which tests/graphmill/test_component.py runs."""
    return [fence.text for fence in fences(PAGES[0]) if fence.language == language and "communities" not in fence.text]


def graphmill(*arguments: str) -> None:
    """Runs the command line in this process; an error fails the test."""
    try:
        cli.main(arguments)
    except SystemExit as error:
        pytest.fail(f"graphmill {' '.join(arguments)} ended with {error.code}; its message is in the captured output")


# One rule per program.


def check_graphmill(command: Command, example: SimpleNamespace) -> None:
    name, *rest = replaced(command.words[1:], example)
    if name in ("--help", "-h"):
        return graphmill(name)
    assert name in group.commands, f"{command}: graphmill has no command {name}"
    parser = group.commands[name]
    if "--help" in rest:
        return graphmill(name, *rest)
    try:
        parser.make_context(name, list(rest))
    except click.MissingParameter:
        assert not command.shown, f"{command}: arguments are missing"
        return None
    # Several commands become the same one on the example; one that has succeeded would again.
    if name not in NOT_RUN and (name, *rest) not in example.succeeded:
        if name == "new":  # another command may have written the file of this name
            (example.folder / "pipelines" / f"{rest[0]}.toml").unlink(missing_ok=True)
        graphmill(name, *rest)
        example.succeeded.add((name, *rest))
    return None


def check_trainers(command: Command, example: SimpleNamespace) -> None:
    arguments = replaced(command.words[3:], example)
    if not arguments:
        assert not command.shown, f"{command}: arguments are missing"
        return
    if "--from" in arguments and not (example.folder / "out-bundle").exists():
        graphmill(*MADE_FIRST)
        example.succeeded.add(MADE_FIRST)
    try:
        assert trainers_main(arguments) == 0, command
    except SystemExit as error:
        pytest.fail(f"{command} ended with {error.code}; its message is in the captured output")


def check_benchmarks(command: Command, example: SimpleNamespace) -> None:
    known = {*NAMES, *ON_DEMAND}
    try:
        options = benchmark_parser().parse_args(command.words[3:])
    except SystemExit as error:
        raise AssertionError(f"{command}: no such option") from error
    unknown = [name for name in options.names if name not in known]
    assert not unknown, f"{command}: no benchmark {unknown}"
    assert all((ROOT / "benchmarks" / f"{name}.py").is_file() for name in known)


def check_benchmark(command: Command) -> None:
    """A part of one benchmark: its file names every word."""
    path = ROOT / f"{command.words[2].replace('.', '/')}.py"
    assert path.is_file(), f"{command}: no benchmark {path.stem}"
    unknown = [
        word for word in command.words[3:] if not re.search(rf"\b{re.escape(word.lstrip('-'))}\b", path.read_text())
    ]
    assert not unknown, f"{command}: {path.name} knows no {unknown}"


def check_python(command: Command, example: SimpleNamespace) -> None:
    assert command.words[1] == "-m", f"{command}: only modules are known"
    if command.words[2].startswith("benchmarks."):
        check_benchmark(command)
        return
    {"graphmill.trainers": check_trainers, "benchmarks": check_benchmarks}[command.words[2]](command, example)


def check_make(command: Command, example: SimpleNamespace) -> None:
    text = (ROOT / "Makefile").read_text()
    for word in command.words[1:]:
        if "=" in word:
            assert f"$({word.partition('=')[0]})" in text, f"{command}: the Makefile uses no such variable"
        else:
            assert re.search(rf"^{re.escape(word)}:", text, re.M), f"{command}: the Makefile has no target {word}"


def check_pytest(command: Command, example: SimpleNamespace) -> None:
    markers = {re.split("[(:]", each)[0] for each in project()["tool"]["pytest"]["ini_options"]["markers"]}
    words = list(command.words[1:])
    while words:
        word = words.pop(0)
        if word == "-m":
            assert words.pop(0) in markers, f"{command}: no such marker"
        else:
            assert not word.startswith("-") and (ROOT / word).exists(), f"{command}: what is {word}?"


def check_pip(command: Command, example: SimpleNamespace) -> None:
    if command.words[1:4] == ("install", "-c", "constraints.txt"):
        assert re.fullmatch(r"dist/graphmill-[\d.]+-\w+-\w+-linux_x86_64\.whl", command.words[4]), command
        return
    assert command.words[1:3] == ("install", "-e"), f"{command}: only `pip install -e` is known"
    match = re.fullmatch(r"\.\[([\w,]+)\]", command.words[3])
    assert match and len(command.words) == 4, command
    assert set(match[1].split(",")) <= set(project()["project"]["optional-dependencies"]), command


def check_dagster(command: Command, example: SimpleNamespace) -> None:
    """A job is not launched, since its run would wait for the daemon of a running UI; definitions are loaded.

    tests/jobs/served/test_server.py launches one, and materialises an asset as the page says.
    """
    words = list(command.words)
    if words[1:3] == ["asset", "materialize"]:
        assert words[3] == "-f" and (ROOT / words[4]).is_file() and words[5] == "--select" and len(words) == 7, command
        (key,) = re.findall(r'^key:"([^"]+)"$', words[6])
        assert key in asset_keys(), f"{command}: no such asset"
        return
    if words[1:] == ["definitions", "validate"]:
        assert "Validation successful for code location graphmill" in validated(example.folder)
        return
    assert words[1:3] == ["job", "launch"], f"{command}: only `dagster job launch` and `definitions validate` are known"
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options.keys() <= launch_options(), f"{command}: no such option"
    if not options:
        assert not command.shown, f"{command}: options are missing"
        return
    assert set(options) == {"-w", "-j"}, f"{command}: give the workspace and the job"
    assert (ROOT / options["-w"]).is_file(), f"{command}: no such workspace"
    assert options["-j"] in job_names(), f"{command}: no such job; there are {sorted(job_names())}"
    earlier = [each for each in COMMANDS if each.page == command.page and each.shown and each.line < command.line]
    exported = {word.partition("=")[0] for each in earlier if each.words[0] == "export" for word in each.words[1:]}
    assert {"DAGSTER_HOME", "GRAPHMILL_HOME"} <= exported, f"{command}: the page does not say where the history is"


def check_dg(command: Command, example: SimpleNamespace) -> None:
    """Its commands and options exist; tests/graphmill/test_dg.py carries out those of docs/dagster.md."""
    found: click.Command = pytest.importorskip("dagster_dg_cli.cli").create_dg_cli()
    words = list(command.words[1:])
    while isinstance(found, click.Group) and words and "." not in words[0]:  # a name with a dot is a component
        word, context = words.pop(0), click.Context(found)
        assert word in found.list_commands(context), f"{command}: dg has no command {word}"
        found = found.get_command(context, word) or found
    options = {option for each in found.params for option in each.opts}
    unknown = [word for word in words if word.startswith("--") and word not in options]
    assert not unknown, f"{command}: no such option"


def check_eval(command: Command, example: SimpleNamespace) -> None:
    """The shell's completion: what is evaluated is a script that asks graphmill."""
    inner = re.fullmatch(r"\$\((\w+)=(\w+) graphmill\)", command.words[1])
    assert inner and inner[1] == "_GRAPHMILL_COMPLETE", command
    asked = os.environ | {inner[1]: inner[2], "PYTHONPATH": str(ROOT)}
    answer = forks.run(COMMAND[1:], cwd=example.folder, env=asked, imports=forks.COMMANDS)
    assert "graphmill" in answer.stdout and "complete" in answer.stdout


def validated(folder: Path) -> str:
    """Returns what Dagster says about the definitions that it finds in the checkout by itself."""
    environment = os.environ | {"DAGSTER_HOME": str(folder / "dagster")}
    (folder / "dagster").mkdir()
    command = [sys.executable, "-m", "dagster", "definitions", "validate"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def check_export(command: Command, example: SimpleNamespace) -> None:
    values = dict(word.split("=", 1) for word in command.words[1:])
    assert values.keys() <= ENVIRONMENT, f"{command}: nothing reads this variable"
    for name in values.keys() & {"DAGSTER_HOME", "GRAPHMILL_HOME"}:
        assert values[name] == "$PWD/.graphmill", (
            f"{command}: Dagster wants an absolute path, and the home is ./.graphmill"
        )


def check_source(command: Command, example: SimpleNamespace) -> None:
    folder = re.search(r"^VENV\s*:=\s*(\S+)$", (ROOT / "Makefile").read_text(), re.M)
    assert folder and command.words[1:] == (f"{folder[1]}/bin/activate",), command


def check_foreign(command: Command, example: SimpleNamespace) -> None:
    """Programs that do not come with graphmill: there is nothing to compare them with."""


RULES: dict[str, Callable[[Command, SimpleNamespace], None]] = {
    "dagster": check_dagster,
    "dg": check_dg,
    "eval": check_eval,
    "export": check_export,
    "graphmill": check_graphmill,
    "htpasswd": check_foreign,
    "make": check_make,
    "pip": check_pip,
    "pytest": check_pytest,
    "python": check_python,
    "source": check_source,
    "ssh": check_foreign,
}


def replaced(words: tuple[str, ...], example: SimpleNamespace) -> list[str]:
    """Returns a command's words as a user of the example would write them."""
    found = ["mine.toml" if word in SHIPPED or word == OF_PROJECT else example.words.get(word, word) for word in words]
    unknown = [word for word in found if any(re.fullmatch("[A-Z]+", piece) for piece in re.split("[/=.]", word))]
    assert not unknown, f"{unknown}: say in user_words what a user gives"
    return found


@cache
def launch_options() -> set[str]:
    from dagster._cli.job import job_launch_command

    return {option for each in job_launch_command.params for option in each.opts}


@cache
def job_names() -> set[str]:
    from graphmill.jobs.definitions import build_defs

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHMILL_PIPELINES", os.devnull)
        patch.setenv("GRAPHMILL_TEST_DATA", os.environ.get("GRAPHMILL_TEST_DATA", "data"))
        return {job.name for job in build_defs().jobs or ()}


@cache
def asset_keys() -> set[str]:
    from graphmill.jobs.definitions import build_defs

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHMILL_PIPELINES", os.devnull)
        patch.setenv("GRAPHMILL_TEST_DATA", os.environ.get("GRAPHMILL_TEST_DATA", "data"))
        return {spec.key.to_user_string() for spec in build_defs().resolve_all_asset_specs()}


@cache
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


# The tests.


def test_there_are_commands() -> None:
    assert len([command for command in COMMANDS if command.shown]) >= 30
    assert {command.words[0] for command in COMMANDS} == set(RULES), (
        "a rule without a command, or a command without a rule"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_command(command: Command, example: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.words and command.words[0] in RULES, f"{command}: RULES has no rule for it"
    assert not set(command.words) & set(SHELL_SYNTAX), f"{command}: one command per line, without syntax of the shell"
    names = {each.partition("=")[0] for each in command.assignments}
    assert names <= ENVIRONMENT, f"{command}: nothing reads this variable"
    monkeypatch.chdir(example.folder)
    monkeypatch.setenv("GRAPHMILL_HOME", str(example.folder / "home"))
    monkeypatch.setenv("DAGSTER_HOME", str(example.folder / "home"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # the answer to `graphmill gc`
    RULES[command.words[0]](command, example)


def test_commands_that_need_other_machines_have_options_that_exist(example: SimpleNamespace) -> None:
    """They stand in `text` fences: nobody runs them on one machine, in a minute, without another program."""
    lines = [
        parsed(fence.page, fence.line, line, shown=False)
        for path in PAGES
        if path.relative_to(ROOT).as_posix() not in WALKED + GENERATED
        for fence in fences(path)
        if fence.language == "text"
        for line in fence.text.splitlines()
        if re.match(r"(graphmill [a-z-]+ [A-Z]|torchrun |docker build )", line)
    ]
    assert {line.words[0] for line in lines} == {"graphmill", "torchrun", "docker"}
    for line in lines:
        if line.words[0] == "graphmill":
            name, *rest = replaced(line.words[1:], example)
            group.commands[name].make_context(name, list(rest))
        elif line.words[0] == "torchrun":
            place = line.words.index("-m")
            assert line.words[place + 1] == "graphmill.trainers" and (ROOT / "trainers" / "__main__.py").is_file(), line
            known = {"--nnodes", "--node-rank", "--nproc-per-node", "--master-addr", "--master-port"}
            assert {word for word in line.words[:place] if word.startswith("--")} <= known, line
        else:
            assert (ROOT / line.words[line.words.index("-f") + 1]).is_file(), line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frobnicate --now", "no rule"),
        ("graphmill rnu PIPELINE", "no command rnu"),
        ("graphmill run PIPELINE --fast", "No such option"),
        ("graphmill run corra", "ended with 1"),
        ("graphmill train PIPELINE TABLE", "say in user_words"),
        ("graphmill gc", "arguments are missing"),
        ("graphmill ls | wc", "one command per line"),
        ("graphmill show model", "ended with 1"),
        ("make dmeo", "no target dmeo"),
        ("make test PYTEST_FLAGS=-x", "no such variable"),
        ("python -m benchmarks agregate", "agregate"),
        ("python -m graphmill.trainers PIPELINE NAME --grahp VERSION", "ended with 2"),
        ("dagster job launch -w workspace.yaml -j python-environment__all", "no such job"),
        ("dagster job launch -w workspace.yaml --jobb cora__all", "no such option"),
        ("dagster asset materialize -f jobs/definitions.py --select 'key:\"cora/grahp\"'", "no such asset"),
        ("dg lunch --assets x", "no command lunch"),
        ("dg launch --asset x", "no such option"),
        ("pytest -m gppu tests", "no such marker"),
        ('pip install -e ".[cuda14]"', "cuda14"),
        ("GRAPHMIL_HOME=x graphmill ls", "nothing reads"),
    ],
)
def test_a_wrong_command_is_found(
    text: str, message: str, example: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = parsed("README.md", 10**6, text, shown=True)
    with pytest.raises((AssertionError, click.UsageError, pytest.fail.Exception), match=message):
        test_command(command, example, monkeypatch)


def test_the_tables_of_the_readme_fit_together(example: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables that the README adds to its first pipeline make a valid one."""
    monkeypatch.chdir(example.folder)
    first, *added = readme_blocks("toml")
    assert len(added) == 1
    (example.folder / "cached.toml").write_text(first + added[0])
    graphmill("validate", "cached.toml")
    graphmill("run", "cached.toml")
