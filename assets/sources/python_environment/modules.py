"""Reads the imports and identifiers of one Python module. Also the program of the parsing processes.

Run as a script, it answers one line of JSON for each line of input, and ends at the end of its input: when its parent dies by any signal,
the pipe closes and no process is left behind. It imports only the standard library, so it starts in milliseconds and never runs the
caller's main module.

Identifiers are names, attributes, parameters, keywords and definitions. Every name that stands in an import statement
of the module is left out, as a module, as an imported name and as its alias: features and edges are then separate
information.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

FIELD_OF = {
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.arg: "arg",
    ast.keyword: "arg",
}
"""Kinds of syntax that carry an identifier -> its field."""


def describe(path: str, name: str, is_package: bool, width: int) -> dict[str, Any]:
    """Reads one module.

    Args:
        path: file of the module.
        name: dotted name of the module.
        is_package: whether the file is an `__init__.py`.
        width: number of feature columns.

    Returns:
        "problem": "", "unreadable" or "syntax"; "imports": dotted names, the longest known prefix of each is a module; "columns"
        ascending and "values": the non-zero features, 1 to 64.
    """
    blank = {"problem": "unreadable", "imports": [], "columns": [], "values": []}
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError:
        return blank
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # old or templated code, unknown encodings, null bytes: the module exists and can be imported by others
        return blank | {"problem": "syntax"}
    imports, words = _walk(tree, name if is_package else name.rpartition(".")[0])
    buckets = hash_words(words, width)
    columns = sorted(buckets)
    values = [buckets[column].bit_length() for column in columns]
    return {"problem": "", "imports": imports, "columns": columns, "values": values}


def hash_words(words: Counter[str], width: int) -> dict[int, int]:
    """Returns column -> number of occurrences of the words hashed into it (CRC-32, scaled to `width` columns)."""
    buckets: Counter[int] = Counter()
    for word, count in words.items():
        buckets[(zlib.crc32(word.encode("utf-8", "surrogatepass")) * width) >> 32] += count
    return dict(buckets)


def _walk(tree: ast.AST, package: str) -> tuple[list[str], Counter[str]]:
    """Returns the imported names, sorted, and the identifiers outside import statements."""
    imports: set[str] = set()
    mentioned: set[str] = set()
    words: Counter[str] = Counter()
    for node in ast.walk(tree):
        kind = type(node)
        field = FIELD_OF.get(kind)
        if field is not None:
            word = getattr(node, field)
            if word is not None:  # the `**kwargs` of a call is a keyword without a name
                words[word] += 1
        elif kind is ast.Import or kind is ast.ImportFrom:
            imports.update(_targets(node, package))
            mentioned.update(_mentioned(node))
    for word in mentioned:
        words.pop(word, None)
    return sorted(imports), words


def _targets(node: Any, package: str) -> Iterator[str]:
    """Yields the absolute dotted names in an import statement."""
    if type(node) is ast.Import:
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parents = package.split(".") if package else []
        kept = len(parents) - (node.level - 1)
        if kept <= 0:
            return  # goes above the top-level package: Python refuses it too
        base = ".".join(parents[:kept] + ([base] if base else []))
    yield from (base if alias.name == "*" else f"{base}.{alias.name}" for alias in node.names)


def _mentioned(node: Any) -> Iterator[str]:
    """Yields every word of an import statement."""
    for alias in node.names:
        yield from alias.name.split(".")
        if alias.asname:
            yield alias.asname
    yield from (getattr(node, "module", None) or "").split(".")


def serve() -> None:
    """Answers tasks from standard input until it ends: a JSON list of `describe` arguments per line."""
    for line in sys.stdin:
        answers = [describe(*task) for task in json.loads(line)]
        sys.stdout.write(json.dumps(answers, separators=(",", ":")) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    try:
        serve()
    except BrokenPipeError:
        os._exit(1)  # the parent is gone; an ordinary exit would flush into the broken pipe and report another error
