"""Proves that a refactoring changed no artifact: two checkouts run the same pipelines, and everything that they built is compared.

    python -m benchmarks.checkouts BASE CHANGED [--only NAME] [--all] [--work FOLDER] [--reuse-base] [--rename OLD=NEW]

Each pipeline, shipped or from the folder of recipes, is run by each checkout's own command line in a home of its own. The
versions must be equal, and so must the manifests (configs, inputs, digests, numbers, checks) and every byte of the content:
arrays, weights, metrics, ledgers, figures. Only run.json is left out, since it holds times and hosts. Without CHANGED, only
the base side is run.

--rename says that a text in pipelines, configs and summaries was renamed deliberately. CHANGED then gets recipes with the new
text. Artifacts whose recipes contain it, or depend on one that does, have other versions: they are paired by their recipes in
the new words. Figures of artifacts that mention the text may show it, so they are not compared; the table counts them.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkouts.homes import Home, Outcome, compare_homes

RECIPES = Path(__file__).resolve().parent / "recipes"
LONG = ("cora", "disk-photo", "minesweeper", "photo", "rmat", "rmat-disk")
"""Pipelines that take a minute or more; --all or --only runs them."""
MEMORY = {"disk_bytes": 64 << 30, "memory_bytes": 16 << 30}
"""What both sides find as measured, so that budgets of "auto" do not follow the machine of the day."""
FINISHED = "finished.json"
"""Marks a home whose pipeline ended well."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two checkouts and what it runs."""

    # The checkout.
    folder: Path
    # Holds one home for each pipeline.
    homes: Path
    # The recipes, in the words of this checkout.
    recipes: Path
    # Homes that are finished are taken as they are.
    reuse: bool

    def pipelines(self) -> dict[str, Path]:
        """Returns name -> file of every pipeline, shipped ones first."""
        files = [*sorted((self.folder / "jobs" / "pipelines").glob("*.toml")), *sorted(self.recipes.glob("*.toml"))]
        return {path.stem: path for path in files}

    def environment(self, home: Path) -> dict[str, str]:
        """Returns the variables of a child process, whose imports come from the checkout."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHMILL_PIPELINES")}
        own = {"PYTHONPATH": str(self.folder), "GRAPHMILL_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
        return kept | own | {"COMPARE_DATA": str(self.homes.parent / "data")}

    def check_imports(self) -> None:
        """Ends the program unless the checkout's packages are imported from the checkout, its native module included."""
        above = self.entry()[0].removesuffix("jobs.cli")  # the layers of older checkouts are packages of their own
        names = [
            "graphmill",
            *(f"{above}{each}" for each in ("assets", "jobs", "kernels", "trainers", "kernels._native")),
        ]
        code = "import importlib, sys\nfor name in sys.argv[1:]: print(importlib.import_module(name).__file__)"
        command = [sys.executable, "-c", code, *names]
        found = subprocess.run(
            command, cwd=self.folder, env=self.environment(self.homes), capture_output=True, text=True, check=False
        )
        astray = [line for line in found.stdout.splitlines() if not Path(line).is_relative_to(self.folder)]
        if found.returncode or astray:
            sys.exit(f"{self.folder} does not import its own packages: {found.stderr or astray}")

    def entry(self) -> tuple[str, str]:
        """Returns the module and the function of the checkout's command line."""
        script = tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]["scripts"]["graphmill"]
        module, _, function = script.partition(":")
        return module, function

    def run(self, name: str) -> float | None:
        """Runs a pipeline in its home, and returns the seconds it took, None where it failed."""
        path, home = self.pipelines().get(name), self.homes / name
        if path is None:
            print(f"{name}: {self.folder} has no such pipeline")
            return None
        mark = {"recipe": hashlib.sha256(path.read_bytes()).hexdigest(), "checkout": str(self.folder)}
        mark["data"] = (self.homes.parent / "data").stat().st_mtime_ns
        if self.reuse and (home / FINISHED).is_file():
            found = json.loads((home / FINISHED).read_text())
            if found["mark"] == mark:
                return found["seconds"]
        shutil.rmtree(home, ignore_errors=True)
        (home / "measured").mkdir(parents=True)
        (home / "measured" / "memory.json").write_text(json.dumps(MEMORY, sort_keys=True, indent=1) + "\n")
        module, function = self.entry()
        command = [sys.executable, "-c", f"from {module} import {function}; {function}()", "run", str(path)]
        started = time.perf_counter()
        with open(home / "output.txt", "w") as output:
            environment = self.environment(home)
            ended = subprocess.run(
                command, cwd=self.folder, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
            )
        seconds = round(time.perf_counter() - started, 1)
        if ended.returncode:
            tail = (home / "output.txt").read_text().splitlines()[-15:]
            print(f"{name}: {self.folder} failed:", *tail, sep="\n    ", flush=True)
            return None
        (home / FINISHED).write_text(json.dumps({"mark": mark, "seconds": seconds}) + "\n")
        return seconds


def compare_pipeline(name: str, base: Side, changed: Side, renames: Mapping[str, str]) -> Outcome:
    """Compares what both sides have built of a pipeline, prints a line for each kind of artifact, and returns the sum."""
    total = Outcome()
    for stage, outcome in compare_homes(Home(base.homes / name, renames), Home(changed.homes / name, renames)):
        counts = outcome.counts
        verdict = "DIFFERENT" if outcome.differences else "equal"
        print(
            f"{name:24} {stage:20} {counts['artifacts']:3} artifacts {counts['files']:4} files  {verdict}", flush=True
        )
        for text in outcome.differences:
            print(f"    {text}", flush=True)
        total.counts.update(counts)
        total.differences += outcome.differences
    if not total.counts["artifacts"]:
        total.differences.append("nothing was built")
    return total


def chosen(sides: list[Side], only: list[str], everything: bool) -> list[str]:
    """Returns the names of the pipelines to run; says which are left out, and why."""
    files = {name: path for side in sides for name, path in side.pipelines().items()}
    if unknown := set(only) - files.keys():
        sys.exit(f"no pipeline is called {', '.join(sorted(unknown))}; there are: {', '.join(files)}")
    reasons = {name: "" for name in (only or files)}
    for name in reasons:
        if name.startswith("dgl-") and importlib.util.find_spec("dgl") is None:
            reasons[name] = "DGL is not installed"
        elif "GRAPHMILL_TEST_DATA" in files[name].read_text() and not os.environ.get("GRAPHMILL_TEST_DATA"):
            reasons[name] = "GRAPHMILL_TEST_DATA names no folder of real graphs"
        elif name in LONG and not (only or everything):
            reasons[name] = "it is long; --all runs it"
        if reasons[name]:
            print(f"{name} is left out: {reasons[name]}")
    return [name for name, reason in reasons.items() if not reason]


def open_sides(options: argparse.Namespace, renames: Mapping[str, str]) -> list[Side]:
    """Returns one side or two, with the data of the recipes written and, where texts are renamed, recipes in the new words."""
    work, recipes = options.work.resolve(), options.recipes.resolve()
    work.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, str(recipes / "write_data.py"), str(work / "data")], check=True)
    sides = [Side(folder=options.base.resolve(), homes=work / "home-base", recipes=recipes, reuse=options.reuse_base)]
    if options.changed is not None:
        if renames:
            shutil.rmtree(work / "renamed-recipes", ignore_errors=True)
            recipes = shutil.copytree(recipes, work / "renamed-recipes")
        for path in recipes.glob("*.toml") if renames else ():
            text = path.read_text()
            for old, new in renames.items():
                text = text.replace(f'"{old}"', f'"{new}"')
            path.write_text(text)
        changed = options.changed.resolve()
        sides.append(Side(folder=changed, homes=work / "home-changed", recipes=recipes, reuse=False))
    for side in sides:
        side.check_imports()
    return sides


def main() -> None:
    """Runs, compares and prints; the exit code is 1 where anything differs or failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("changed", type=Path, nargs="?")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a pipeline; may be repeated")
    parser.add_argument("--all", action="store_true", help=f"also {', '.join(LONG)}")
    parser.add_argument("--work", type=Path, default=Path(".compare"), help="homes and data; default %(default)s")
    parser.add_argument("--recipes", type=Path, default=RECIPES)
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--reuse-base", action="store_true", help="take finished homes of BASE as they are")
    options = parser.parse_args()
    renames = dict(each.split("=", 1) for each in options.rename)
    sides = open_sides(options, renames)
    table, failed = [], 0
    for name in chosen(sides, options.only, options.all):
        seconds = [side.run(name) for side in sides]
        outcome = Outcome()
        if None in seconds:
            outcome.differences.append("failed")
        elif len(sides) == 2:
            outcome = compare_pipeline(name, *sides, renames)
        else:
            print(f"{name}: {seconds[0]} s", flush=True)
        failed += bool(outcome.differences)
        counted = ("artifacts", "files", "bytes", "weights.safetensors", "ledger.json", "figures left out")
        table.append([name, *(outcome.counts[each] for each in counted), *seconds, len(outcome.differences)])
    heads = ("pipeline", "artifacts", "files", "bytes", "weights", "ledgers", "no figures", "base s", "changed s")
    heads = (*heads[: 7 + len(sides)], "differences")
    for row in (heads, *table):
        print(f"{row[0]:24}", *(f"{'failed' if each is None else each:>11}" for each in row[1:]))
    print(f"{len(table) - failed} pipelines are equal, {failed} are not" if len(sides) == 2 else f"{failed} failed")
    sys.exit(1 if failed or not table else 0)


if __name__ == "__main__":
    main()
