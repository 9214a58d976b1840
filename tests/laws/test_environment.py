"""One table has every environment variable that is read, and one module reads them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from graphmill.kernels import environment
from graphmill.kernels.errors import InputError

ROOT = Path(__file__).parents[2]
LAYERS = ("kernels", "assets", "trainers", "jobs", "graphmill")
READER = ROOT / "kernels" / "environment.py"


def reads(text: str) -> list[int]:
    """The lines of a module that read `os.environ`; to set a variable of the own process or to forget one is no reading."""
    tree = ast.parse(text)
    written = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            written.add(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("update", "clear") or (node.func.attr == "pop" and node.args):
                written.add(node.func.value)
            if node.func.attr == "setdefault" and isinstance(node.func.value, ast.Attribute):
                written.add(node.func.value)
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and (node.attr in ("getenv", "environb", "getenvb") or (node.attr == "environ" and node not in written))
    ]


def test_only_one_module_reads_the_environment() -> None:
    files = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py")) if path != READER]
    assert len(files) > 300
    found = [(str(path.relative_to(ROOT)), line) for path in files for line in reads(path.read_text())]
    assert found == [], "graphmill.kernels.environment reads variables, and has them in its table"
    native = [path for path in (ROOT / "kernels" / "native").rglob("*.*") if "getenv" in path.read_text()]
    assert native == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = os.environ['A']", [1]),
        ("\nx = os.environ.get('A')", [2]),
        ("x = 'A' in os.environ", [1]),
        ("f(os.environ | {})", [1]),
        ("os.getenv('A')", [1]),
        ("for name in os.environ.items(): pass", [1]),
        (
            "os.environ['A'] = 'b'; os.environ.update({}); os.environ.setdefault('A', 'b'); os.environ.pop('A', None)",
            [],
        ),
    ],
)
def test_a_reading_is_noticed(text: str, lines: list[int]) -> None:
    assert reads(text) == lines


def test_the_table_is_complete() -> None:
    """Each variable that the module names by a constant is a row, and each row says who sets it and what it means."""
    named = {value for name, value in vars(environment).items() if name.isupper() and isinstance(value, str)}
    named -= {environment.USER, environment.OURS, environment.TORCHRUN, environment.SLURM, environment.MPI}
    assert named <= environment.VARIABLES.keys()
    for variable in environment.VARIABLES.values():
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*(\.\.\.)?", variable.name) and variable.set_by
        assert (
            variable.meaning.endswith(".") and variable.meaning[0].isupper()
        ) or variable.name == environment.EXAMPLES
    with pytest.raises(AssertionError, match="NOT_LISTED is not in the table"):
        environment.read("NOT_LISTED")


@pytest.mark.parametrize("text", ["", " ", "abc", "-1", "1.5", "1e3", "٣", "0x10", "+1", "1 2", "9" * 40, "nan"])
def test_what_is_no_number_is_told_with_the_name_of_its_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (environment.RANK, environment.WORLD_SIZE, environment.MASTER_PORT, environment.RANKS_PARENT):
        monkeypatch.setenv(variable, text)
        with pytest.raises(InputError, match=f"^the environment says {variable} = "):
            environment.whole_number(variable, "1", 0, 9, "unset it")


SEVERAL = [
    {"RANK": "0", "WORLD_SIZE": "2"},
    {"RANK": "x", "WORLD_SIZE": "two"},
    {"RANK": "1", "WORLD_SIZE": "-2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
    {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"},
    {"SLURM_PROCID": "3"},
    {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
    {"PMI_RANK": "1", "PMI_SIZE": "2"},
    {"PMIX_RANK": "1"},
]
ONE = [
    {},
    {"RANK": "7"},
    {"WORLD_SIZE": "2"},
    {"RANK": "", "WORLD_SIZE": ""},
    {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},
    {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
    {"PMIX_RANK": "0"},
]


@pytest.mark.parametrize("variables", SEVERAL)
def test_one_of_several_processes_is_noticed(variables: dict[str, str]) -> None:
    program, told = environment.launcher(variables)
    assert program in ("torchrun", "srun", "mpirun") and told == variables


@pytest.mark.parametrize("variables", ONE)
def test_a_single_process_and_the_script_of_a_job_are_not(variables: dict[str, str]) -> None:
    assert environment.launcher(variables) == ("", {})
