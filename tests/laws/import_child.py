"""A process that imports a graph again and again, each time in a fork that is killed at another line of the import.

    python -m tests.laws.import_child FOLDER NUM_KILLS

It prints one line of JSON: how many lines the import has, how many kills came before and after publication, and what was
wrong. "between" counts the kills after which one of the two artifacts was whole and the other absent. DuckDB is only used inside the forks,
since its threads do not survive one.
"""

import json
import os
import random
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

from graphmill.assets.storage.local import writer
from graphmill.assets.storage.store import Store
from tests.assets.sources.own_data import build, contents, staging
from tests.laws.crashes import at_line, die


class Published(Exception):
    """The first artifact of an import is there."""


def main(folder: Path, num_kills: int) -> None:
    keys = json.loads((folder / "keys.json").read_text())
    keys = {name: folder / value if name in ("edges", "nodes") else value for name, value in keys.items()}
    reference = in_fork(lambda: digest(folder / "reference", keys))
    examine(folder / "reference")  # what it remembers leaves later forks fewer lines
    num_lines = int(in_fork(lambda: at_line(0, die, lambda: build(folder / "counted", "edges", **keys))) or 0)
    draw, outcome = random.Random(0), {"absent": 0, "between": 0, "whole": 0}
    problems = []
    between = int(in_fork(lambda: at_line(0, die, lambda: build_until_published(folder / "first", keys))) or 0)
    # Drawn lines, and some behind the first publication.
    counts = {*draw.sample(range(1, num_lines), num_kills), *(between + step for step in (20, 200, 400))}
    for count in sorted(each for each in counts if each < num_lines):
        home = folder / "killed"
        answer = in_fork(lambda home=home, count=count: at_line(count, die, lambda: build(home, "edges", **keys)))
        if answer is not None:
            problems.append(f"line {count} was never reached")
        left, damaged = examine(home)
        outcome[("absent", "between", "whole")[len(left)]] += 1
        if len(left) == 1 and left != ["features"]:
            problems.append(f"line {count}: {left} is whole, which is published last")
        if damaged or staging(home) or os.listdir(os.environ["TMPDIR"]):
            problems.append(f"line {count}: {damaged} {staging(home)} {os.listdir(os.environ['TMPDIR'])}")
        if in_fork(lambda home=home: digest(home, keys)) != reference or staging(home):
            problems.append(f"line {count}: built again, it differs, or left {staging(home)}")
        shutil.rmtree(home)
    print(json.dumps({"lines": num_lines, "problems": problems} | outcome))


def examine(home):
    """Returns the stages of a home's artifacts, and what is damaged after a sweep."""
    left = [each.stage for each in Store(home).artifacts()]
    Store(home).sweep()
    return left, Store(home).damaged()


def build_until_published(home, keys):
    """Ends an import behind its first publication."""
    publish = writer.rename_folder

    def publish_and_end(*given):
        assert publish(*given)
        raise Published

    writer.rename_folder = publish_and_end
    with suppress(Published):
        build(home, "edges", **keys)


def digest(home, keys):
    """Builds what is missing; what was whole before the call is reused."""
    import hashlib

    whole = {each.stage for each in Store(home).artifacts()}
    built = build(home, "edges", **keys)
    assert built.verify() == [] and built.reused == ("graph" in whole, "features" in whole)
    return hashlib.sha256(b"".join(contents(built).values())).hexdigest()


def in_fork(work):
    """Returns what `work` returned in a forked child, as text, or None when the child was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, str(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return answer.decode() if status == 0 else None


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
