"""Law 6: the store survives kill -9, truncation, flipped bits and a full disk. An artifact is whole or absent."""

import multiprocessing
import os
import random
import shutil
import signal

import numpy as np
import pytest

from graphmill.assets.building.materialize import materialize
from graphmill.assets.storage.local.writer import STAGING
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.toy_stage import Execution, Semantic, ToyStage
from tests.assets.storage.limits import file_size_limit
from tests.laws.crashes import assert_clean, at_line, die, run_child

FORK = multiprocessing.get_context("fork")


def build(home, rows=5):
    return materialize(Store(home), ToyStage(), Semantic(rows=rows), Execution(), {})


def contents(artifact):
    names = [*artifact.files, "manifest.json", "block_digests.bin"]
    return {name: (artifact.path / name).read_bytes() for name in names}


def assert_whole_or_absent(home):
    store = Store(home)
    assert store.damaged() == {}
    for artifact in store.artifacts():
        assert artifact.verify() == []
    return len(store.artifacts())


def test_kill_at_drawn_lines_of_a_build(tmp_path):
    reference = contents(build(tmp_path / "reference"))
    num_lines = at_line(0, die, lambda: build(tmp_path / "counted"))
    assert num_lines > 300  # the trace sees the build, not only its call
    draw, published = random.Random(0), 0
    # Half of the points from the whole build, half from its end, where publication is.
    end = range(num_lines * 9 // 10, num_lines + 1)
    for count in sorted({*draw.sample(range(1, num_lines), 40), *draw.sample(end, min(40, len(end)))}):
        home = tmp_path / "killed"
        assert run_child(lambda home=home, count=count: at_line(count, die, lambda: build(home))) == -signal.SIGKILL
        published += assert_whole_or_absent(home)
        repeated = build(home)
        assert contents(repeated) == reference and repeated.verify() == []
        Store(home).sweep()
        assert_clean(home)
        shutil.rmtree(home)
    assert published > 0  # some kills came after the rename: both outcomes were seen


def test_kill_at_drawn_lines_of_a_replacement(tmp_path):
    """The artifact that stands there is damaged; a writer that dies while it replaces it leaves no half."""
    home = tmp_path / "home"

    def damage():
        path = build(home).path
        os.truncate(path / "features.npy", 4100)

    damage()
    num_lines = at_line(0, die, lambda: build(home))
    for count in random.Random(1).sample(range(num_lines // 2, num_lines), 24):
        if Store(home).artifacts():
            damage()
        run_child(lambda count=count: at_line(count, die, lambda: build(home)))
        assert all("features.npy has 4100 bytes" in reason for reason in Store(home).damaged().values())
        assert build(home).verify() == []
        Store(home).sweep()
        assert_clean(home)


def test_an_interrupt_at_drawn_lines_leaves_nothing_behind(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    num_lines = at_line(0, interrupt, lambda: build(tmp_path / "counted"))
    for count in random.Random(2).sample(range(1, num_lines), 30):
        home = tmp_path / "home"
        with pytest.raises(KeyboardInterrupt):
            at_line(count, interrupt, lambda home=home: build(home))
        assert_whole_or_absent(home)
        build(home)
        Store(home).sweep()
        shutil.rmtree(home)


def test_the_folder_of_a_living_writer_is_not_swept(tmp_path):
    store = Store(tmp_path)
    with store.writer("toy", "0" * 64) as writer:
        writer.path("note").write_text("alive")
        assert run_child(lambda: _expect(store.sweep() == [])) == 0
        build(tmp_path)
        assert writer.path("note").read_text() == "alive"
        writer.publish({}, {}, {}, {})
    assert_clean(tmp_path)


def test_a_dead_writers_folder_is_swept_by_the_next(tmp_path):
    def die_inside():
        with Store(tmp_path).writer("toy", "0" * 64) as writer:
            writer.save("values", [1, 2, 3])
            die()

    assert run_child(die_inside) == -signal.SIGKILL
    assert len(os.listdir(Store(tmp_path).root / STAGING)) == 2
    build(tmp_path)
    assert_clean(tmp_path)


def test_workers_that_outlive_a_killed_writer_do_not_hold_its_folder(tmp_path):
    reader, writer_end = os.pipe()

    def die_with_a_child_left():
        with Store(tmp_path).writer("toy", "0" * 64) as writer:
            writer.save("values", [1, 2, 3])
            child = os.fork()
            if child == 0:
                os.write(writer_end, os.getpid().to_bytes(8, "little"))
                signal.pause()
            die()

    assert run_child(die_with_a_child_left) == -signal.SIGKILL
    worker = int.from_bytes(os.read(reader, 8), "little")
    try:
        assert len(Store(tmp_path).sweep()) == 1
        assert_clean(tmp_path)
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_forked_child_does_not_clean_up_after_its_parent(tmp_path):
    store = Store(tmp_path)
    with store.writer("toy", "0" * 64) as writer:
        writer.path("note").write_text("alive")
        assert run_child(lambda: writer.__exit__(None, None, None)) == 0
        assert store.sweep() == [] and writer.path("note").read_text() == "alive"


def test_orphans_without_a_lock_are_swept(tmp_path):
    build(tmp_path)
    orphan = "0" * 32
    (Store(tmp_path).root / STAGING / orphan / "sub").mkdir(parents=True)
    assert Store(tmp_path).sweep() == [orphan]
    assert_clean(tmp_path)


def _expect(holds):
    assert holds


def _race(home, barrier, results, seeds):
    for rows in seeds:
        barrier.wait()
        made = build(home, rows)
        results.put((rows, made.reused, made.verify()))


def test_processes_that_build_one_version_agree(tmp_path):
    num_processes, seeds = 4, range(1, 9)
    barrier, results = FORK.Barrier(num_processes), FORK.Queue()
    workers = [FORK.Process(target=_race, args=(tmp_path, barrier, results, seeds)) for _ in range(num_processes)]
    for worker in workers:
        worker.start()
    rows = [results.get(timeout=60) for _ in range(num_processes * len(seeds))]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    for seed in seeds:
        mine = [(reused, problems) for found, reused, problems in rows if found == seed]
        assert sorted(mine) == [(False, [])] + [(True, [])] * (num_processes - 1)  # exactly one of them published
    assert assert_whole_or_absent(tmp_path) == len(seeds)
    assert_clean(tmp_path)


def _race_over_damage(home, barrier, results, rounds):
    for _ in range(rounds):
        barrier.wait()
        results.put(build(home).verify())
        if barrier.wait() == 0:
            os.truncate(build(home).path / "features.npy", 4100)


def test_processes_that_replace_one_damaged_version_agree(tmp_path):
    num_processes, rounds = 4, 8
    barrier, results = FORK.Barrier(num_processes), FORK.Queue()
    workers = [
        FORK.Process(target=_race_over_damage, args=(tmp_path, barrier, results, rounds)) for _ in range(num_processes)
    ]
    for worker in workers:
        worker.start()
    assert [results.get(timeout=60) for _ in range(num_processes * rounds)] == [[]] * num_processes * rounds
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert_clean(tmp_path)


def test_truncation_of_any_file_shows_at_opening(tmp_path):
    made, draw = build(tmp_path), random.Random(3)
    for name, whole in contents(made).items():
        path = made.path / name
        for size in {0, len(whole) - 1, draw.randrange(len(whole))}:
            path.write_bytes(whole[:size])
            assert Store(tmp_path).find("toy", made.version) is None
            with pytest.raises(InputError, match=f"is damaged: .*{path.name}"):
                Store(tmp_path).open("toy", made.version)
        path.unlink()
        assert Store(tmp_path).find("toy", made.version) is None
        path.write_bytes(whole)
    assert made.verify() == []


def test_every_flipped_bit_shows(tmp_path):
    """Of every file, run.json included: `verify` reads every byte."""
    made, draw = build(tmp_path, rows=200_000), random.Random(4)  # 2.3 MiB: several digest blocks
    for path in sorted(path for path in made.path.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for bit in {
            0,
            8 * len(whole) - 1,
            *(draw.randrange(8 * len(whole)) for _ in range(60 if len(whole) < 9000 else 12)),
        }:
            _flip(path, bit)
            try:
                problems = Store(tmp_path).open("toy", made.version).verify()
            except InputError as error:
                problems = [str(error)]
            assert any(path.name in problem for problem in problems), (path.name, bit)
            _flip(path, bit)
    assert made.verify(threads=2) == []


def test_verify_names_the_damaged_bytes(tmp_path):
    made = build(tmp_path, rows=200_000)
    _flip(made.path / "features.npy", 8 * (1 << 20) + 5)
    assert made.verify() == ["features.npy: bytes 1048576 to 2097151 do not match their digest"]


def _flip(path, bit):
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        value = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([value ^ 1 << bit % 8]))


@pytest.mark.parametrize("limit", [1, 100, 4096, 5000, 100_000, 2_000_000])
def test_a_file_size_limit_is_one_clear_error(tmp_path, limit):
    build(tmp_path)
    with file_size_limit(limit), pytest.raises(InputError) as caught:
        build(tmp_path, rows=200_000)
    assert "cannot write" in str(caught.value) and "ulimit -f" in str(caught.value) and "are free" in str(caught.value)
    assert assert_whole_or_absent(tmp_path) == 1
    assert_clean(tmp_path)


def test_a_full_disk_at_any_point_is_one_clear_error(small_disk):
    """Disks of 1, 2, 3, ... pages: each build fails at another write, until one fits."""
    num_failed = 0
    for pages in range(1, 40):
        home = small_disk(4096 * pages)
        try:
            made = build(home)
        except InputError as error:
            assert "the file system is full" in str(error) and "bytes" in str(error) and "GRAPHMILL_HOME" in str(error)
            assert Store(home).folders() == []
            if (Store(home).root / STAGING).exists():
                assert_clean(home)
            num_failed += 1
        else:
            assert made.verify() == []
            break
    assert 3 < num_failed < 39


def test_one_version_has_the_same_bytes_at_any_thread_count(tmp_path):
    written = []
    for threads in (1, 2, 8):
        with Store(tmp_path / str(threads)).writer("toy", "0" * 64, threads) as writer:
            writer.save("values", np.arange(10_000_000, dtype=np.int64))  # 77 MiB: more than one span of blocks
            written.append(contents(writer.publish({}, {}, {}, {"threads": threads})))
    assert written[0] == written[1] == written[2]
