"""Imports go one way: from layer to layer (kernels <- assets <- trainers <- jobs <- graphmill), from room to room, and inside a room.

A module that is named as text counts as imported. Heavy packages load only where they are used.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import pytest

from graphmill.trainers.recipe.techniques import TECHNIQUES

ROOT = Path(__file__).parents[2]
LAYERS = ("kernels", "assets", "trainers", "jobs", "graphmill")
HEAVY = ("torch", "dgl", "cupy", "polars", "duckdb", "matplotlib", "pymetis")


def sources(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


def layer_of(module: str) -> str:
    """The layer of a module of ours ("graphmill" for the public names), the top-level package of any other."""
    first, _, rest = module.partition(".")
    inside = rest.partition(".")[0]
    return inside if first == "graphmill" and inside in LAYERS else first


def imported(path: Path, *, only_top: bool = False) -> list[tuple[str, int]]:
    """Every (layer or top-level package, line) that a file imports; with only_top those that run when it is imported."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if only_top else list(ast.walk(tree))
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(layer_of(alias.name), node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "graphmill":
            found += [(layer_of(f"graphmill.{alias.name}"), node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((layer_of(node.module), node.lineno))
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_no_import_runs_upwards(layer: str) -> None:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    assert sources(layer)
    wrong = [(p.relative_to(ROOT), line, name) for p in sources(layer) for name, line in imported(p) if name in above]
    assert not wrong
    targets = {(name, target) for name, found in arrows().items() if room_of(name)[0] == layer for target in found}
    assert not [(name, target) for name, target in targets if room_of(target)[0] in above]


@pytest.mark.parametrize("layer", ["kernels", "assets", "jobs", "graphmill"])
def test_heavy_packages_are_imported_inside_functions(layer: str) -> None:
    wrong = [
        (path.relative_to(ROOT), line, name)
        for path in sources(layer)
        for name, line in imported(path, only_top=True)
        if name in HEAVY
    ]
    assert not wrong


def test_dagster_is_in_two_files_of_assets_and_in_jobs_only() -> None:
    files = [p.relative_to(ROOT) for layer in LAYERS[:3] for p in sources(layer) if "dagster" in dict(imported(p))]
    assert set(files) <= {Path("assets/definitions.py"), Path("assets/pipeline/shown.py")}


@pytest.mark.parametrize("layer", LAYERS)
def test_the_folders_are_ours(layer: str) -> None:
    """The layers are imported as parts of graphmill, from the folders of this tree."""
    module = layer if layer == "graphmill" else f"graphmill.{layer}"
    command = [sys.executable, "-c", f"import {module} as found; print(found.__file__)"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found) == ROOT / layer / "__init__.py"


# The rooms of a layer, lowest first: a room imports rooms before it only. A room is a file or folder directly in a layer.
ROOMS = {
    "kernels": "errors environment _native types arrays ranges warn_once rng cuda graph blocks sampling temporal links hotness rows "
    "disk_cache layers chunks history",
    "assets": "sizes tasks storage costs building score cluster figures sources graph features partitions chunks shards sampling "
    "sampling_tables hotness budgets samples cache_plan packed_chunks pipeline definitions",
    "trainers": "record devices ranks rows batches recipe models tasks loop inference techniques training run notebook __main__",
    "jobs": "figures runs web operations definitions launch scaling planning commands report command cli",
    "graphmill": "calls resource component",
}


def modules() -> dict[str, Path]:
    """Every module of ours, named as if its layer were a package of its own, and its file."""
    files = [path.relative_to(ROOT) for layer in LAYERS for path in sources(layer)]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def shortened(module: str) -> str:
    """The name of a module as `modules` has it."""
    return module.removeprefix("graphmill.") if layer_of(module) != "graphmill" else module


def module_imports(path: Path, known: Collection[str]) -> set[str]:
    """The project's modules that a file imports anywhere, for a type checker alone, too."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = {alias: shortened(f"{node.module}.{alias.name}") for alias in node.names}
            found |= {full[a] if full[a] in known else shortened(node.module) for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {shortened(alias.name) for alias in node.names}
    return {name for name in found if name in known}


ENTRY_POINTS = ("assets.pipeline.catalogue", "assets.sources.registry", "trainers.recipe.techniques")
"""Tables whose rows name what stands above them as text, so that a stage, a source or a technique is one line. They are not counted."""
MODULE_NAME = re.compile(r"(graphmill(?:\.\w+)+)(?::\w+)?")


def module_texts(path: Path, known: Collection[str]) -> set[str]:
    """The project's modules that a file names as text, "graphmill.a.b" or "graphmill.a.b:name": it imports or starts them."""
    texts = {node.value for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.Constant)}
    found = (MODULE_NAME.fullmatch(text) for text in texts if isinstance(text, str))
    return {name for match in found if match and (name := shortened(match[1])) in known}


@cache
def arrows() -> Mapping[str, set[str]]:
    """Module -> the modules that it imports or names as text."""
    known = modules()
    texts = {name: set() if name in ENTRY_POINTS else module_texts(path, known) for name, path in known.items()}
    return {name: (module_imports(path, known) | texts[name]) - {name} for name, path in known.items()}


def test_modules_that_are_named_as_text_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "door.py"
    file.write_text(
        'import_module("graphmill.assets.a"); OPEN = "graphmill.jobs.b:open_it"; SAID = "graphmill.assets.c is"'
    )
    assert module_texts(file, {"assets.a", "jobs.b", "assets.c"}) == {"assets.a", "jobs.b"}


def test_every_table_of_entry_points_names_modules() -> None:
    known = modules()
    assert all(module_texts(known[name], known) for name in ENTRY_POINTS)


def room_of(module: str) -> tuple[str, str]:
    layer, _, rest = module.partition(".")
    return layer, rest.split(".")[0]


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """A circle of a graph, [] where it has none."""
    state: dict[str, int] = {}

    def visit(node: str, path: list[str]) -> list[str]:
        state[node] = 1
        for target in sorted(graph.get(node, ())):
            if state.get(target) == 1:
                return [*path, node, target]
            if target not in state and (found := visit(target, [*path, node])):
                return found
        state[node] = 2
        return []

    return next((found for node in sorted(graph) if node not in state and (found := visit(node, []))), [])


def test_a_circle_is_found() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": []}) == []
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["a", "b", "c", "b"]


@pytest.mark.parametrize("layer", LAYERS)
def test_no_import_runs_to_a_higher_room(layer: str) -> None:
    order = ROOMS[layer].split()
    rooms = {room for place, room in map(room_of, modules()) if place == layer and room}
    assert rooms == set(order), "the list above names every room of the layer, lowest first"
    wrong = [
        f"{name} imports {target}"
        for name, targets in arrows().items()
        for target in targets
        if room_of(name)[0] == room_of(target)[0] == layer
        and room_of(target)[1]
        and room_of(name)[1]  # a package itself, if it imports anything, stands above its rooms
        and order.index(room_of(name)[1]) < order.index(room_of(target)[1])
    ]
    assert not wrong


def floors(graph: Mapping[str, Collection[str]]) -> int:
    """The rooms on the longest chain of imports."""

    @cache
    def height(room: str) -> int:
        return 1 + max((height(below) for below in graph.get(room, ())), default=0)

    return max(height(room) for room in graph)


def rooms_below(layer: str) -> dict[str, set[str]]:
    """Room of a layer -> the other rooms of the layer that it imports."""
    below: dict[str, set[str]] = {}
    for name, targets in arrows().items():
        place, room = room_of(name)
        if place == layer and room:
            inside = {other for place, other in map(room_of, targets) if place == layer and other and other != room}
            below.setdefault(room, set()).update(inside)
    return below


def test_rooms_of_trainers_stand_on_eight_floors() -> None:
    """A technique is one folder, and what techniques share lies below them: more rooms or floors than these hide the way of a batch."""
    below = rooms_below("trainers")
    assert len(below) <= 15
    assert floors(below) <= 8
    assert sum(map(len, below.values())) <= 60


def test_rooms_of_assets_stand_on_ten_floors() -> None:
    assert floors(rooms_below("assets")) <= 10


def place_of(module: str) -> str:
    """The folder directly in a room, or the file there, that a module is or lies in."""
    return ".".join(module.split(".")[:3])


def places_below() -> dict[str, set[str]]:
    """Folder or file directly in a room -> those of the same room that it imports."""
    below: dict[str, set[str]] = {}
    for name, targets in arrows().items():
        same = {place_of(target) for target in targets if room_of(target) == room_of(name)}
        below.setdefault(place_of(name), set()).update(same - {place_of(name)})
    return below


def test_folders_of_a_room_import_one_another_in_no_circle() -> None:
    rooms: dict[str, dict[str, set[str]]] = {}
    for place, targets in places_below().items():
        rooms.setdefault(".".join(place.split(".")[:2]), {})[place] = targets
    assert {room: round for room, graph in rooms.items() if (round := circle(graph))} == {}


MOST_FILES = 16
SOURCE_FILES = (".py", ".cpp", ".h", ".cu", ".cuh")
FULL_FOLDERS = {"kernels/native/layers": 21}
"""Folders of the product that still have more files -> how many. None may be added, and none may grow."""


def test_no_folder_has_more_than_sixteen_files() -> None:
    files = [path for layer in LAYERS for path in (ROOT / layer).rglob("*") if path.suffix in SOURCE_FILES]
    counted = Counter(str(path.parent.relative_to(ROOT)) for path in files)
    found = {folder: number for folder, number in counted.items() if number > MOST_FILES}
    assert found.keys() == FULL_FOLDERS.keys()
    assert all(number <= FULL_FOLDERS[folder] for folder, number in found.items())


def test_files_import_one_another_in_no_circle() -> None:
    assert circle(arrows()) == []


def test_no_technique_imports_another() -> None:
    """What several techniques open is in openings.py. A technique whose name is made of two others' is made of these two."""
    begin = "trainers.techniques."
    techniques = {shortened(row.module).removeprefix(begin).partition(".")[0] for row in TECHNIQUES.values()}

    def technique_of(module: str) -> str | None:
        name = module.removeprefix(begin).partition(".")[0]
        return name if module.startswith(begin) and name in techniques else None

    wrong = [
        f"{name} imports {target}"
        for name, targets in arrows().items()
        for target in targets
        if (own := technique_of(name)) and (other := technique_of(target)) and other not in (own, *own.split("_"))
    ]
    assert not wrong


def test_only_stages_add_rooms_to_assets() -> None:
    """A stage is one room; besides them there are store, costs, building, sources, figures, pipeline, the table of a
    stage that trainers build, and what puts them together."""
    stages = {path.parent.name for path in (ROOT / "assets").glob("*/stage.py")} - {"building", "sources"}
    others = set(ROOMS["assets"].split()) - stages
    assert others == {
        "sizes",
        "tasks",
        "storage",
        "costs",
        "building",
        "score",
        "cluster",
        "figures",
        "sources",
        "sampling",
        "pipeline",
        "definitions",
    }
