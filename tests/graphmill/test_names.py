"""`import graphmill`: what it offers, that it costs nothing until it is used, and that no folder of the same name hides it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import graphmill

ROOT = Path(__file__).parents[2]


def declared() -> dict[str, str]:
    """Returns name -> module of the imports that only a type checker makes."""
    (block,) = [
        node
        for node in ast.parse((ROOT / "graphmill/__init__.py").read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    found: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names:
            assert alias.asname == alias.name, "a type checker takes `X as X` for a public name"
            found[alias.name] = node.module
    return found


def python(code: str, *options: str, folder: Path = ROOT) -> str:
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_type_checker_sees_the_names_that_there_are() -> None:
    assert declared() == graphmill._MODULES
    assert sorted(declared()) == dir(graphmill)


@pytest.mark.parametrize("name", dir(graphmill))
def test_every_name_leads_to_an_object(name: str) -> None:
    assert getattr(graphmill, name) is not None


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="'graphmill' has no attribute 'opne'"):
        graphmill.opne  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_importing_loads_nothing_else() -> None:
    found = python("import sys; before = set(sys.modules); import graphmill; print(*{*sys.modules} - before)").split()
    assert [name for name in found if name.startswith("graphmill")] == ["graphmill"]
    assert not {"dagster", "numpy", "torch"} & {name.partition(".")[0] for name in found}


def test_what_needs_no_dagster_loads_none() -> None:
    code = "import graphmill, sys; graphmill.pipeline('sbm'); graphmill.open_graph; print('dagster' in sys.modules)"
    assert python(code).split() == ["False"]
    assert python("import graphmill, sys; graphmill.aggregate; print('dagster' in sys.modules)").split() == ["False"]


def test_a_clone_beside_a_script_does_not_hide_the_package(tmp_path: Path) -> None:
    """A clone has the name of the project, and Python takes a folder without `__init__` for a package if no path has a better one."""
    (tmp_path / "graphmill" / "graphmill").mkdir(parents=True)
    code = f"import sys; sys.path.append({str(ROOT)!r}); import graphmill; print(graphmill.__file__)"
    assert python(code, folder=tmp_path).strip() == str(ROOT / "graphmill" / "__init__.py")
