"""Fan-out stages: parts are artifacts, built here or in processes, found again after anything, listed by their parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphmill.assets.building import parts
from graphmill.assets.building.build import Build
from graphmill.assets.building.materialize import materialize, stage_version
from graphmill.assets.building.parts import Here, PartError
from graphmill.assets.building.stage import ChecksFailedError, Silent
from graphmill.assets.storage.local.collect import collect, find_garbage
from graphmill.assets.storage.names.version import part_version
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.parted_stage import PARTED, Execution, Semantic

ROOT = Path(__file__).parents[3]
PARTS = "parted.parts"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


def build(store, *, parts=4, progress=None, **execution):
    return materialize(store, PARTED, Semantic(parts=parts), Execution(**execution), {}, progress)


def parts_of(store):
    return {path.name for path in store.folders() if path.parent.name == PARTS}


def digests(artifact):
    parts = [artifact.open_part(name) for name in artifact.parts]
    return [dict(each.manifest, run=None) for each in (artifact, *parts)]


class Sum(Silent):
    def __init__(self):
        self.started, self.total = [], 0

    def start(self, label, total, unit):
        self.started.append((label, total, unit))

    def advance(self, n):
        self.total += n


@pytest.mark.parametrize("workers", [1, 3])
def test_the_parent_lists_its_parts_and_progress_is_their_sum(store, workers):
    progress = Sum()
    made = build(store, workers=workers, progress=progress)
    assert list(made.parts) == ["p0", "p1", "p2", "p3"] and made.array("sums").tolist() == [1000, 2001, 3003, 4006]
    assert {entry["version"] for entry in made.parts.values()} == parts_of(store)
    assert all(entry["version"] == part_version(made.version, name) for name, entry in made.parts.items())
    run, parts = made.run_record(), [made.open_part(name).run_record() for name in made.parts]
    assert run["seconds"] >= max(part["seconds"] for part in parts) and run["started"] <= parts[0]["started"]
    assert made.open_part("p2").part_of == ("parted", made.version) and made.part_of is None
    assert made.total_bytes == made.num_bytes + sum(made.open_part(name).num_bytes for name in made.parts)
    assert progress.started == [("parted, 4 parts", 10, "rows")] and progress.total == 10
    assert build(store).reused and not list((store.root / ".claims").iterdir())


def test_a_part_that_is_built_here_waits_for_nobody(store, monkeypatch):
    monkeypatch.setattr(parts, "POLL_SECONDS", "no wait")
    assert list(build(store).parts) == ["p0", "p1", "p2", "p3"]


def test_any_number_of_processes_builds_the_same_bytes(tmp_path):
    homes = [Store(tmp_path / str(workers)) for workers in (1, 2, 4)]
    made = [digests(build(home, workers=workers)) for home, workers in zip(homes, (1, 2, 4), strict=True)]
    assert made[0] == made[1] == made[2]


def test_versions_are_known_before_anything_is_built(store):
    assert build(store).version == stage_version(PARTED, Semantic(), {})


def test_a_stage_whose_parts_are_none_is_a_plain_one(store):
    made = materialize(store, PARTED, Semantic(parts=0), Execution(), {})
    assert made.parts == {} and "parts" not in made.manifest and not parts_of(store)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("trouble", "kind", "text"),
    [
        ("error", InputError, "part p2 of parted: a row is wrong\n  remedy: correct it"),
        ("defect", (PartError, ZeroDivisionError), "of the test"),
        ("check", ChecksFailedError, r"part p2 of parted: stage parted failed 1 check(?s:.*)fine: it was not"),
    ],
)
def test_an_error_names_the_part_and_leaves_finished_ones(store, workers, trouble, kind, text):
    with pytest.raises(kind, match=text) as caught:
        build(store, workers=workers, trouble=("p2", trouble))
    if isinstance(caught.value, PartError):
        assert "part p2 of parted failed" in str(caught.value)
    if isinstance(caught.value, ChecksFailedError):
        assert [check.name for check in caught.value.checks] == ["fine"]
    left = parts_of(store)
    assert part_version(stage_version(PARTED, Semantic(), {}), "p2") not in left
    assert workers == 2 or len(left) == 2  # p0 and p1 came before
    assert os.listdir(store.root / ".staging") == [] and not list((store.root / ".claims").iterdir())
    progress = Sum()
    assert not build(store, progress=progress).reused and progress.total == 10


def test_a_killed_process_of_the_pool_is_one_clear_error(store):
    with pytest.raises(InputError, match=r"the process that built part p1 of parted ended with SIGKILL(?s:.*)fewer `w"):
        build(store, workers=2, trouble=("p1", "die"))
    assert build(store).verify() == []


def test_cancellation_ends_the_pool(store):
    def children():
        """Processes of this one; other tests may have left some that live as long as it does."""
        found = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False)
        return {int(pid) for pid in found.stdout.split()}

    others = children()

    class Cancelling(Silent):
        pids = ()

        def advance(self, n):
            self.pids = children() - others
            if len(parts_of(store)) == 3:
                raise KeyboardInterrupt

    progress = Cancelling()
    with pytest.raises(KeyboardInterrupt):
        build(store, workers=2, trouble=("p1", "wait"), progress=progress)
    assert progress.pids
    for pid in progress.pids:
        assert not Path(f"/proc/{pid}").exists()
    assert os.listdir(store.root / ".staging") == [] and len(parts_of(store)) == 3
    assert build(store).verify() == []


def child(home, *arguments):
    code = (
        "import sys; from pathlib import Path; from graphmill.assets.storage.store import Store\n"
        "from graphmill.assets.building.materialize import materialize; from tests.assets.building.parted_stage import *\n"
        "workers, part, what = int(sys.argv[2]), sys.argv[3], sys.argv[4]\n"
        "made = materialize(Store(Path(sys.argv[1])), PARTED, Semantic(parts=6),"
        " Execution(workers=workers, trouble=(part, what)), {})\n"
        "print(made.reused, made.verify())"
    )
    command = [sys.executable, "-c", code, str(home), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_builder_takes_its_processes_along_and_is_resumed(store, workers):
    process = child(store.home, workers, "p4", "wait")
    until(lambda: len(parts_of(store)) >= (4 if workers == 1 else 5))
    kids = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False).stdout.split()
    assert len(kids) == (0 if workers == 1 else 2)
    process.kill()
    process.communicate()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in kids))
    before = parts_of(store)
    progress = Sum()
    made = build(store, parts=6, progress=progress)
    assert before < parts_of(store) and made.verify() == [] and progress.total == 21
    store.sweep()
    assert os.listdir(store.root / ".staging") == []


def test_processes_that_share_a_store_build_different_parts(store):
    """One holds part p4 until it is killed; the other builds all others, waits, and then takes p4 over."""
    first = child(store.home, 1, "p4", "wait")
    until(lambda: len(parts_of(store)) == 4 and any((store.root / ".claims").iterdir()))
    second = child(store.home, 1, "", "")
    until(lambda: len(parts_of(store)) == 5)
    time.sleep(0.5)
    assert second.poll() is None and first.poll() is None
    os.kill(first.pid, signal.SIGKILL)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert out.strip() == "False []" and len(parts_of(store)) == 6
    first.communicate()


def until(holds):
    for _ in range(2400):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within two minutes")


def test_a_damaged_or_missing_part_is_found_and_only_it_is_rebuilt(store):
    made = build(store)
    before = {name: made.open_part(name).path.stat().st_ino for name in made.parts}
    victim = made.open_part("p1").path
    os.truncate(victim / "values.npy", 4100)
    assert store.find("parted", made.version) is None
    with pytest.raises(InputError, match=r"part p1 of parted/\w+ \(.*\) is damaged: values.npy has 4100 bytes"):
        store.open("parted", made.version)
    assert sorted(path.parent.name for path in store.damaged()) == ["parted", PARTS]
    again = build(store)
    after = {name: again.open_part(name).path.stat().st_ino for name in again.parts}
    assert {name for name in before if before[name] != after[name]} == {"p1"} and not again.reused
    subprocess.run(["rm", "-r", str(victim)], check=True)
    with pytest.raises(InputError, match=r"part p1 of .* is missing"):
        store.open("parted", made.version)
    assert build(store).verify() == []


def test_parts_stay_and_go_with_their_parent(store):
    old, new = build(store, parts=2), build(store, parts=3)
    garbage = find_garbage(store, 1)
    assert {item.address[1] for item in garbage.artifacts} == {
        old.version,
        *(entry["version"] for entry in old.parts.values()),
    }
    collect(store, garbage)
    assert store.find("parted", new.version) and len(parts_of(store)) == 3
    with store.lease(("parted", new.version)):
        assert find_garbage(store, 0).artifacts == ()
    collect(store, find_garbage(store, 0))
    assert store.folders() == []


def test_parts_of_an_unfinished_build_count_as_one_version(store):
    build(store, parts=2)
    with pytest.raises(InputError):
        build(store, parts=4, trouble=("p3", "error"))
    unfinished = stage_version(PARTED, Semantic(parts=4), {})
    garbage = find_garbage(store, 1)
    assert len(garbage.artifacts) == 3 and len(garbage.kept) == 3  # the older version goes with its parts
    with store.lease(("parted", unfinished)):
        assert len(find_garbage(store, 0).artifacts) == 3
    collect(store, find_garbage(store, 0))
    assert store.folders() == []


def test_a_lease_on_the_whole_taken_after_the_listing_spares_its_parts(store):
    with pytest.raises(InputError):
        build(store, trouble=("p3", "error"))
    garbage = find_garbage(store, 0)
    assert len(garbage.artifacts) == 3
    with store.lease(("parted", stage_version(PARTED, Semantic(), {}))):
        assert collect(store, garbage) == 0 and len(parts_of(store)) == 3
    assert collect(store, garbage) > 0 and not parts_of(store)


def test_versions_of_plain_stages_stay_what_they_are(store):
    from graphmill.assets.graph.stage import GRAPH
    from graphmill.assets.sources.registry import config_class
    from tests.assets.building import toy_stage

    version = stage_version(GRAPH, config_class("rmat")(nodes=100, edges=500), {})
    assert version == "07cc39721c3fff19c2244338cf7b8672152b9308c4d549679af7bc2ccb51dacf"
    toy = materialize(store, toy_stage.ToyStage(), toy_stage.Semantic(), toy_stage.Execution(), {})
    assert toy.version == "0afb3e01233a4c8a587d8855c48cfe606e14c00eccb1cb99cf085e8f79306b3d"
    assert toy.parts == {} and toy.part_of is None and not {"part", "parts"} & toy.manifest.keys()


def test_commands_show_parts(store, capsys):
    from graphmill.jobs.commands.results.show import artifacts_json, print_artifact, print_artifacts, verify_artifacts
    from graphmill.jobs.commands.store.diff import difference

    small, large = build(store, parts=2), build(store, parts=3)
    print_artifacts(store, None)
    out = capsys.readouterr().out
    assert out.count("parted/") == 2 and "2 parts" in out and PARTS not in out
    assert out.splitlines()[-1].startswith("2 artifacts, and 5 parts of them, ")
    assert [row["part_of"] for row in artifacts_json(store, "parted")] == [None, None]
    assert {row["part_of"] for row in artifacts_json(store, PARTS)} == {
        f"parted/{each.version}" for each in (small, large)
    }
    print_artifacts(store, PARTS)
    assert capsys.readouterr().out.count(f"{PARTS}/") == 5
    print_artifact(large)
    assert "3 parts" in capsys.readouterr().out
    print_artifact(large.open_part("p1"))
    assert f"part p1 of {large.label}" in capsys.readouterr().out
    found = difference(small, large)
    assert {"p0/values.npy", "p1/values.npy"} <= set(found.equal_files)
    assert {change.name for change in found.files} == {"sums.npy", "p2/values.npy"}
    assert [found.problems for found in verify_artifacts(store, (small.version,))] == [[]] * 3
    with open(small.open_part("p1").path / "values.npy", "r+b") as file:
        file.seek(4100)
        file.write(b"x")
    assert [bool(found.problems) for found in verify_artifacts(store, (small.version,))] == [False, False, True]


class LateFolder:
    """Another machine on a mounted file system: what it has published is seen here some looks later."""

    def __init__(self, monkeypatch, looks):
        self.looks, see = looks, Build.find_parts

        def find_parts(build, names):
            self.looks -= 1
            return dict.fromkeys(names) if self.looks >= 0 else see(build, names)

        self.hide = lambda: monkeypatch.setattr(Build, "find_parts", find_parts)

    def open(self, build, num_missing, progress):
        self.hide()
        return Here(build, 0, progress)


def test_a_part_of_another_machine_may_be_seen_late(store, monkeypatch):
    given = store, PARTED, Semantic(), Execution(), {}
    monkeypatch.setattr(parts, "POLL_SECONDS", 0.01)
    made = materialize(*given, elsewhere=LateFolder(monkeypatch, 3))
    assert list(made.parts) == ["p0", "p1", "p2", "p3"]


def test_a_part_that_is_never_seen_is_named(store, monkeypatch):
    monkeypatch.setattr(parts, "SEEN_SECONDS", 0.05)
    with pytest.raises(InputError, match="part p0 of parted was removed or damaged"):
        materialize(store, PARTED, Semantic(), Execution(), {}, elsewhere=LateFolder(monkeypatch, 1 << 30))
