"""Reads the imports, identifiers and classes of one Python module. Also the program of the parsing processes.

Run as a script, it answers one line of JSON for each line of input, and ends at the end of its input: when its parent dies by any signal,
the pipe closes and no process is left behind. It imports only the standard library, so it starts in milliseconds and never runs the
caller's main module.

Identifiers are names, attributes, parameters, keywords and definitions. Every name that stands in an import statement of the module is left
out, as a module, as an imported name and as its alias: features and edges are then separate information.
"""

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


def describe(path: str, name: str, is_package: bool, width: int, class_width: int = 0) -> dict[str, Any]:
    """Reads one module.

    Args:
        is_package: whether the file is an `__init__.py`.
        class_width: number of feature columns of a class; 0 leaves the classes out.

    Returns:
        "problem": "", "unreadable" or "syntax"; "imports": dotted names, the longest known prefix of each is a module; "columns"
        ascending and "values": the non-zero features, 1 to 64. With classes also "classes", "aliases" and "stars", see `_classes`.
    """
    blank: dict[str, Any] = {"problem": "unreadable", "imports": [], "columns": [], "values": []}
    if class_width:
        blank |= {"classes": [], "aliases": {}, "stars": []}
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
    package = name if is_package else name.rpartition(".")[0]
    imports, words, mentioned = _walk(tree, package)
    columns, values = _features(words, mentioned, width)
    found = {"problem": "", "imports": imports, "columns": columns, "values": values}
    return found | (_classes(tree, package, mentioned, class_width) if class_width else {})


def _features(words: Counter[str], mentioned: set[str], width: int) -> tuple[list[int], list[int]]:
    """Returns the columns of the words that no import statement mentions, ascending, and the bit length of the count in each."""
    for word in mentioned:
        words.pop(word, None)
    buckets = hash_words(words, width)
    columns = sorted(buckets)
    return columns, [buckets[column].bit_length() for column in columns]


def hash_words(words: Counter[str], width: int) -> dict[int, int]:
    """Returns column -> number of occurrences of the words hashed into it (CRC-32, scaled to `width` columns)."""
    buckets: Counter[int] = Counter()
    for word, count in words.items():
        buckets[(zlib.crc32(word.encode("utf-8", "surrogatepass")) * width) >> 32] += count
    return dict(buckets)


def _walk(tree: ast.AST, package: str) -> tuple[list[str], Counter[str], set[str]]:
    """Returns the imported names, sorted, all identifiers outside import statements, and the words inside them."""
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
    return sorted(imports), words, mentioned


def _targets(node: Any, package: str) -> Iterator[str]:
    """Yields the absolute dotted names in an import statement."""
    if type(node) is ast.Import:
        yield from (alias.name for alias in node.names)
        return
    base = _imported_from(node, package)
    if base is not None:
        yield from (base if alias.name == "*" else f"{base}.{alias.name}" for alias in node.names)


def _imported_from(node: Any, package: str) -> str | None:
    """Returns the absolute name after `from`; None if it goes above the top-level package, which Python refuses too."""
    base = node.module or ""
    if not node.level:
        return base
    parents = package.split(".") if package else []
    kept = len(parents) - (node.level - 1)
    return ".".join(parents[:kept] + ([base] if base else [])) if kept > 0 else None


def _mentioned(node: Any) -> Iterator[str]:
    """Yields every word of an import statement."""
    for alias in node.names:
        yield from alias.name.split(".")
        if alias.asname:
            yield alias.asname
    yield from (getattr(node, "module", None) or "").split(".")


def _classes(tree: ast.Module, package: str, mentioned: set[str], width: int) -> dict[str, Any]:
    """Returns what tells the classes of a module and their bases.

    "classes": [name, bases as they are written, columns, values] of each class of the module's top level, under `if`, `try` and `with`
    too; the first of a name counts. "aliases": name that an import statement there binds -> dotted name. "stars": modules of which it
    imports all names.
    """
    classes: dict[str, list[Any]] = {}
    aliases: dict[str, str] = {}
    stars: list[str] = []
    for node in _top_level(tree.body):
        if type(node) is ast.ClassDef:
            _, words, _ = _walk(node, package)
            bases = [base for base in map(_written, node.bases) if base]
            classes.setdefault(node.name, [node.name, bases, *_features(words, mentioned, width)])
        elif type(node) is ast.Import:
            for alias in node.names:
                first = alias.name.partition(".")[0]
                aliases[alias.asname or first] = alias.name if alias.asname else first
        elif type(node) is ast.ImportFrom and (base := _imported_from(node, package)) is not None:
            stars += [base for alias in node.names if alias.name == "*"]
            aliases |= {alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names if alias.name != "*"}
    return {"classes": [*classes.values()], "aliases": aliases, "stars": stars}


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements of a module that run when it is imported, but for those of loops."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)


def _written(base: ast.expr) -> str:
    """Returns a base class as a dotted name, "" if it is none; `Base[int]` is `Base`."""
    words: list[str] = []
    while isinstance(base, ast.Subscript | ast.Attribute):
        if isinstance(base, ast.Attribute):
            words.append(base.attr)
        base = base.value
    return ".".join([base.id, *reversed(words)]) if isinstance(base, ast.Name) else ""


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
