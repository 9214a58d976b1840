"""The version of a user's code: the source of what a reference names and of all that this uses, without comments and docstrings.

Nothing is imported. In the module of a reference, the statements that bind the name are taken, then those that bind the names that these
read, and so on: classes and their bases, functions, constants, and imported names of other local modules. So another class in the file, a
comment or a blank line changes no version. Statements that are run for their effect (`register(Net)`, `torch.manual_seed(0)`) always count,
but for `if __name__ == "__main__"`.

Modules of the standard library, of installed packages and of this project are not looked at. Of a reference into an installed package its
release and the module's file count. A file that Python cannot parse counts as a whole, and so does a module that does not bind a name by a
statement, or that is used as a whole (`vars(helper)`), or whose names are reached by `globals`, `eval` or `exec`.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
import symtable
import sys
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from graphmill.assets.storage.names.user_code import find_module, find_source, folders_of

EVERYTHING = "*"
"""In place of a name: all names of a module."""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Import = ast.Import | ast.ImportFrom
INSTALLED = ("site-packages", "dist-packages")
"""Names of the folders of installed packages."""
DYNAMIC = frozenset({"globals", "eval", "exec", "__import__"})
"""Functions that reach names which are not written out."""


def source_digest(reference: str) -> str:
    """Returns the SHA-256, 64 hex digits, of the source that a reference leads to; raises InputError if the module does not exist."""
    path, (module, _, name) = find_source(reference), reference.partition(":")
    if (release := _release(path)) is not None:
        return hashlib.sha256(release.encode() + path.read_bytes()).hexdigest()
    code = _Code(folders_of(reference))
    code.add(module, name.partition(".")[0])
    parts = {each.name: each.source() for each in code.modules.values() if each is not None}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _release(path: Path) -> str | None:
    """Returns the name and release of the installed package that a file is of, None for a file elsewhere."""
    place = next((each for each in path.parents if each.name in INSTALLED), None)
    if place is None:
        return None
    top = path.relative_to(place).parts[0].removesuffix(".py")
    return " ".join(sorted(each.name for each in place.glob(f"{top}-*.dist-info"))) or top


class _Code:
    """The local modules that a reference leads to, and the statements of each that count."""

    def __init__(self, folders: list[str]):
        self.folders = folders
        self.modules: dict[str, _Module | None] = {}

    def module(self, name: str) -> _Module | None:
        """Returns a local module, None for any other."""
        if name not in self.modules:
            is_other = name.partition(".")[0] in {*sys.stdlib_module_names, "graphmill"}
            path = None if is_other else find_module(name, self.folders)
            self.modules[name] = None if path is None or _release(path) is not None else _Module(name, path)
        return self.modules[name]

    def add(self, module_name: str, name: str) -> None:
        """Adds a name of a module, and all that it uses."""
        waiting, added = [(module_name, name)], set[tuple[str, str]]()
        while waiting:
            if (pair := waiting.pop()) not in added:
                added.add(pair)
                if (module := self.module(pair[0])) is not None:
                    waiting += module.add(pair[1])


@dataclass(eq=False)
class _Module:
    """A local module, cut into the statements at its top.

    Attributes:
        taken: places of the statements that count.
        names: names whose statements are among them.
    """

    name: str
    path: Path
    taken: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    @cached_property
    def statements(self) -> list[ast.stmt] | None:
        """The statements, without docstrings and with one name per import; None if the file cannot be parsed."""
        try:
            tree = _bare(ast.parse(self.path.read_bytes()))
        except (SyntaxError, ValueError, RecursionError):
            return None
        return [part for each in tree.body if not _is_main(each) for part in _apart(each)]

    @cached_property
    def bound(self) -> list[set[str]]:
        """For each statement the names that it binds or changes."""
        return [set(_bound(each)) for each in self.statements or []]

    @cached_property
    def imports(self) -> list[tuple[_Import, ast.alias]]:
        """The imports at the top of the module."""
        return [
            found for each in self.statements or [] if not isinstance(each, DEFINITIONS) for found in _imports(each)
        ]

    def source(self) -> Any:
        """Returns the statements that count as plain values, or the digest of the file if it cannot be parsed."""
        if self.statements is None:
            return hashlib.sha256(self.path.read_bytes()).hexdigest()
        return [_plain(self.statements[place]) for place in sorted(self.taken)]

    def add(self, name: str) -> Iterator[tuple[str, str]]:
        """Takes a name that another module uses; yields (module, name) of others that this leads to."""
        for place, statement in enumerate(self.statements or []):
            if _has_effect(statement):
                yield from self._take_statement(place)
        yield from self._take(name)
        for node, alias in self.imports:
            if name in (EVERYTHING, _local(alias)):
                yield from self._followed(node, alias, None)
            elif alias.name == "*" and name not in self.names:
                yield self._origin(node), name
        if name not in self.names and not any(alias.name == "*" for _, alias in self.imports):
            yield from self._take(EVERYTHING)

    def _take(self, name: str) -> Iterator[tuple[str, str]]:
        """Takes the statements that bind a name, and those of the names that they read."""
        for place, bound in enumerate(self.bound):
            if name == EVERYTHING or name in bound:
                self.names.add(name)
                yield from self._take_statement(place)

    def _take_statement(self, place: int) -> Iterator[tuple[str, str]]:
        if self.statements is None or place in self.taken:
            return
        self.taken.add(place)
        statement = self.statements[place]
        read = set(_read(statement))
        inside = [*_imports(statement)] if isinstance(statement, DEFINITIONS) else []
        for node, alias in [*(each for each in self.imports if _local(each[1]) in read), *inside]:
            yield from self._followed(node, alias, statement)
        for name in {EVERYTHING} if read & DYNAMIC else read:
            yield from self._take(name)
            if name not in self.names and not hasattr(builtins, name):
                yield from ((self._origin(node), name) for node, alias in self.imports if alias.name == "*")

    def _followed(self, node: _Import, alias: ast.alias, statement: ast.stmt | None) -> Iterator[tuple[str, str]]:
        """Yields (module, name) that an imported name stands for, and, if it is a module, its names that a statement reads.

        Args:
            statement: the statement that reads the name; None for one of another module.
        """
        if isinstance(node, ast.Import):
            whole = alias.asname is None and "." in alias.name
            yield from (
                (alias.name, name) for name in ({EVERYTHING} if whole else _attributes(_local(alias), statement))
            )
        elif alias.name != "*":
            yield self._origin(node), alias.name
            module = f"{self._origin(node)}.{alias.name}"
            yield from ((module, name) for name in _attributes(_local(alias), statement))

    def _origin(self, node: _Import) -> str:
        """Returns the full name of the module that names are imported from."""
        if not isinstance(node, ast.ImportFrom):
            return ""
        parts, inside = self.name.split("."), self.path.name == "__init__.py"
        base = parts[: len(parts) - node.level + inside] if node.level else []
        return ".".join([*base, *([node.module] if node.module else [])])


def _attributes(local: str, statement: ast.stmt | None) -> set[str]:
    """Returns the names that a statement reads of an imported module; `EVERYTHING` if it uses it in another way than `helper.name`."""
    if statement is None:
        return {EVERYTHING}
    found, others = set[str](), 0
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == local:
            found.add(node.attr)
            others -= 1
        others += isinstance(node, ast.Name) and node.id == local
    return {EVERYTHING} if others else found


def _imports(statement: ast.stmt) -> Iterator[tuple[_Import, ast.alias]]:
    for node in ast.walk(statement):
        if isinstance(node, _Import):
            yield from ((node, alias) for alias in node.names)


def _local(alias: ast.alias) -> str:
    """Returns the name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]


def _apart(statement: ast.stmt) -> list[ast.stmt]:
    """Returns a statement, or one for each name of an import."""
    if not isinstance(statement, _Import):
        return [statement]
    parts = [copy(statement) for _ in statement.names]
    for part, alias in zip(parts, statement.names, strict=True):
        part.names = [alias]
    return [*parts]


def _bare(tree: ast.Module) -> ast.Module:
    """Returns a tree without texts that stand alone, such as docstrings."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, name, None), list):
                left = [
                    each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
                ]
                setattr(node, name, left or [ast.Pass()] if body and name == "body" else left)
    return tree


def _is_main(statement: ast.stmt) -> bool:
    """Tells whether a statement is `if __name__ == "__main__"`, which no import runs."""
    return isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yields the names that a statement at the top of a module binds, or whose value it changes (`Net.width = 3`)."""
    if isinstance(statement, DEFINITIONS):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, DEFINITIONS):
            yield node.name
        elif isinstance(node, ast.alias):
            yield _local(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield from (each.id for each in ast.walk(node.value) if isinstance(each, ast.Name))


def _has_effect(statement: ast.stmt) -> bool:
    """Tells whether a statement may be run for its effect alone: it has a call whose value nothing takes, at the top of the module."""
    if isinstance(statement, DEFINITIONS):
        return False
    if isinstance(statement, ast.Expr):
        return True
    return any(_has_effect(node) for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt))


def _read(statement: ast.stmt) -> Iterator[str]:
    """Yields the names of the module that a statement reads, those of functions inside included, without their own variables."""
    waiting = [symtable.symtable(ast.unparse(ast.Module([statement], [])), "source", "exec")]
    while waiting:
        table = waiting.pop()
        top = table.get_type() == "module"
        yield from (
            each.get_name() for each in table.get_symbols() if (each.is_referenced() if top else each.is_global())
        )
        waiting += table.get_children()


def _plain(node: Any) -> Any:
    """Returns a syntax tree as plain values, which are the same in every version of Python that parses it."""
    if isinstance(node, ast.AST):
        fields = {
            name: _plain(value) for name, value in ast.iter_fields(node) if name not in ("kind", "ctx", "type_comment")
        }
        return {"node": type(node).__name__} | {
            name: value for name, value in fields.items() if value not in (None, [])
        }
    if isinstance(node, list):
        return [_plain(each) for each in node]
    return node if isinstance(node, str | None) else {"value": repr(node)}
