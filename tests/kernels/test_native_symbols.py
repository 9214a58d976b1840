"""No two classes of the native module have one name, and what is a file's own stands in an anonymous namespace.

C++ calls a second definition of a name a violation of the one-definition rule and lets the linker merge the two silently: with two
classes `Rows` of different size, `std::vector<Rows>::push_back` of one file may be what the other file runs. Three rules exclude it:

- a type outside anonymous namespaces is defined in one file;
- what a `.cpp` defines is in an anonymous namespace, unless it is a function that another file declares, or a member of a class;
- a header has no anonymous namespace, since each file that includes it would have types of its own.

The sources are read without a compiler: of names only those at the scope of namespaces are looked at. Macros and what they select are
not followed. The names that the built module has, where it is there, say whether anything was overlooked.
"""

import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphmill.kernels import _native

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "kernels" / "native"
MODULE = Path(_native.BUILD_FILE)

IGNORED = re.compile(
    r"""//[^\n]*|/\*.*?\*/                    # comments
    |^[ \t]*\#(?:[^\n\\]|\\.)*                # directives, with their continuations
    |"(?:[^"\\\n]|\\.)*"|(?<!\w)'(?:[^'\\]|\\.)*'  # strings and characters; not the ' within a number""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
ATTRIBUTES = re.compile(r"\[\[.*?\]\]|\b(?:__attribute__|alignas)\s*\(\)")
TYPE = re.compile(
    r"(?:typedef )?(?:class|struct|union|enum(?: class| struct)?) ?(?P<name>[\w:]*(?: ?<.*>)?(?:::\w+)?)(?: final)?(?: ?:(?!:).*)?"
)
FUNCTION = re.compile(r"(?P<name>operator ?\W+|[\w:~]+)(?: ?<[^()<>]*>)? ?\(\)")


@dataclass(frozen=True)
class Name:
    """A name at the scope of a namespace. `kind`: type, function, variable, alias; a declared one ends with no body."""

    name: str
    kind: str
    namespace: str
    anonymous: bool
    defined: bool
    static: bool


def read(source: str) -> list[Name]:
    """Returns the names that a source file declares or defines outside functions and classes."""
    scopes: list[str | None] = []  # of each open brace: the name of a namespace, or None for any other
    names: list[Name] = []
    text, parentheses, tail = "", 0, False  # tail: a type or value is complete but for its semicolon

    def note(defined: bool) -> str:
        found = classify(text, defined)
        if found is None:
            return ""
        spaces = [scope for scope in scopes if scope]
        static = re.search(r"\bstatic\b", text) is not None
        names.append(Name(*found, "::".join(spaces), "" in scopes, defined or found[1] == "variable", static))
        return found[1]

    for token in re.findall(r"[A-Za-z_]\w*|\s+|.", IGNORED.sub(" ", source), re.DOTALL):
        if None in scopes:
            if token in "{}":
                scopes.append(None) if token == "{" else scopes.pop()
        elif token in "()":
            parentheses += 1 if token == "(" else -1
            text += token if parentheses == (token == "(") else ""
        elif parentheses:
            continue  # arguments say nothing about a name
        elif token == "{":
            space = re.fullmatch(r"(?:inline )?namespace ?([\w:]*)", tidy(text))
            if space:
                scopes.append(space[1])
            else:
                tail = tail or note(defined=True) in ("type", "variable", "alias")
                scopes.append(None)
            text = ""
        elif token == "}":
            scopes.pop()
            text = ""
        elif token == ";":
            if not tail:
                note(defined=False)
            text, tail = "", False
        else:
            text += token
    assert not scopes and not parentheses, "the braces of the file do not match"
    return names


def tidy(text: str) -> str:
    return " ".join(text.split())


def classify(text: str, body: bool) -> tuple[str, str] | None:
    """Returns (name, kind) of a statement up to its body or semicolon, without what stands in parentheses; None if it names nothing."""
    text = tidy(ATTRIBUTES.sub(" ", without_templates(text)))
    if not text or text.startswith(("static_assert", "namespace", "friend", "using namespace")):
        return None
    if alias := re.match(r"using (\w+)|typedef .*?(\w+)$", text):
        return alias[1] or alias[2], "alias"
    if kind := TYPE.fullmatch(text):
        return (kind["name"].replace(" ", ""), "type") if body else None
    before = text.split("=")[0] if "operator" not in text else text
    if function := FUNCTION.search(before):
        return function["name"], "function"
    if variable := re.search(r"(\w+)(?: ?\[.*\])*$", before.strip()):
        return variable[1], "variable"
    return None


def without_templates(text: str) -> str:
    """Drops `template <...>` at the front."""
    text = text.strip()
    while text.startswith("template"):
        end = depth = text.find("<") + 1
        depth = 1
        while end and depth:
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        text = text[end or len("template") :].strip()
    return text


def defined_twice(sources: dict[str, str]) -> list[str]:
    """Returns the types that several files define outside anonymous namespaces, each with its files."""
    files = defaultdict(set)
    for path, source in sources.items():
        for found in read(source):
            if found.kind == "type" and not found.anonymous:
                files[f"{found.namespace}::{found.name}"].add(path)
    return [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(files.items()) if len(paths) > 1]


def exposed(sources: dict[str, str]) -> list[str]:
    """Returns what stands outside an anonymous namespace and is used in one file only, and the headers that have such a namespace."""
    names = {path: read(source) for path, source in sources.items()}
    wrong = []
    for path, found in names.items():
        if path.endswith(".h"):
            wrong += [f"{path}: {each.name} is in an anonymous namespace" for each in found if each.anonymous]
            continue
        declared = {
            each.name
            for other, others in names.items()
            for each in others
            if other != path and each.kind == "function" and not each.defined
        }
        for each in found:
            own = each.defined or each.kind == "alias"
            shared = each.kind == "function" and not each.static and each.name in {*declared, "NB_MODULE"}
            if own and not each.anonymous and not shared and "::" not in each.name:
                wrong.append(f"{path}: {each.kind} {each.name} is not in an anonymous namespace")
    return wrong


def sources() -> dict[str, str]:
    paths = sorted([*NATIVE.rglob("*.cpp"), *NATIVE.rglob("*.h")])
    return {str(path.relative_to(NATIVE)): path.read_text() for path in paths}


def test_no_type_is_defined_twice() -> None:
    assert defined_twice(sources()) == []


def test_what_is_a_files_own_is_in_an_anonymous_namespace() -> None:
    assert exposed(sources()) == []


def test_the_sources_are_read_whole() -> None:
    """The built module has no name that was not read, and none on the other side of an anonymous namespace."""
    paths = [*NATIVE.rglob("*.cpp"), *NATIVE.rglob("*.h")]
    if not shutil.which("nm") or MODULE.stat().st_mtime < max(path.stat().st_mtime for path in paths):
        pytest.skip("no nm here, or the native module is older than its sources")
    symbols = subprocess.run(["nm", "-C", MODULE], capture_output=True, text=True, check=True).stdout
    built = set(re.findall(r"(?<![\w:])graphmill::(\(anonymous namespace\)::)?(\w+)", symbols))
    assert len(built) > 100
    known = set()
    for source in sources().values():
        for each in read(source):
            inner = each.namespace.removeprefix("graphmill").strip(":").split("::")[0]
            known.add(("(anonymous namespace)::" if each.anonymous else "", inner or re.sub("<.*", "", each.name)))
    assert sorted(built - known) == []


ROWS = "namespace graphmill {\nstruct Rows { int first; };\n}\n"
LONGER = "namespace graphmill {\ntemplate <class Id>\nclass Rows final : Base<Id> { Id first, last; };\n}\n"
HIDDEN = "namespace graphmill {\nnamespace {\nstruct Rows { int first, last; };\n}\n}\n"


def test_two_types_of_one_name_are_found() -> None:
    assert defined_twice({"a.h": ROWS, "b.h": LONGER, "c.cpp": HIDDEN}) == ["graphmill::Rows: a.h, b.h"]
    assert defined_twice({"a.cpp": ROWS, "b.cpp": ROWS}) == ["graphmill::Rows: a.cpp, b.cpp"]
    assert defined_twice({"a.h": ROWS, "c.cpp": HIDDEN, "d.h": ROWS.replace("graphmill", "other")}) == []


@pytest.mark.parametrize(
    "text",
    [
        "struct Rows { int first; };",
        "enum class Order { Up, Down };",
        "using Order = int;",
        "constexpr int PAGE = int{1} << 12;",
        'const char* const NAMES[] = {"a", "}"};',
        "int count(int given = {}) { return given; }",
        "template <class T> T largest(const std::vector<T>& all) { return all[0]; }",
        "static int shared(int given) { return given; }",
        "[[noreturn]] static void fail() { throw 1; }",
        "bool operator<(const A& a, const B& b) { return false; }",
        "template <> inline Vector<int> load<int>(const int* from) { return {}; }",
        "template <> struct Summed<Half> { using Type = float; };",
    ],
)
def test_what_is_exposed_is_found(text: str) -> None:
    others = {"a.h": "namespace graphmill { int shared(int); struct Rows; }"}
    assert len(exposed({**others, "b.cpp": f"namespace graphmill {{\n{text}\n}}"})) == 1
    assert exposed({**others, "b.cpp": f"namespace graphmill {{ namespace {{\n{text}\n}} }}"}) == []
    assert len(exposed({"b.h": f"namespace graphmill {{ namespace {{\n{text}\n}} }}"})) == 1


def test_what_other_files_declare_and_what_is_no_definition_may_stand_outside() -> None:
    text = """
        #define OPEN {  \\
            {
        // struct Rows {
        static_assert(sizeof(int) == 4, "struct Rows {");
        using namespace other;
        int own(int);
        int shared(int given) { struct Local { char brace = '{'; }; return 1'000; }
        NB_MODULE(native, m) { m.doc() = R"(text)"; }
    """
    assert exposed({"a.h": "int shared(int given);", "b.cpp": text}) == []
