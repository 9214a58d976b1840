"""Rows of nodes in files: every read, and every restart from the last checkpoint, against a table in memory."""

import copy
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.assets.storage.system.filesystem import release_lock
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.rows import records, row_file
from graphmill.trainers.models.rows.row_file import FILES, RowFile

NUM_ROWS, WIDTH = 60, 3


def initial(rows: torch.Tensor) -> torch.Tensor:
    """Values of no other row."""
    return rows.float()[:, None] + torch.arange(WIDTH) / 10


def opened(folder: Path, named: str = "", *, resumed: bool = False, dtype: torch.dtype = torch.float32) -> RowFile:
    return RowFile(folder / "run.safetensors", (NUM_ROWS, WIDTH), dtype, initial, named=named, resumed=resumed)


def killed(file: RowFile) -> None:
    """What a kill does: its locks are gone, and its files stay as they are."""
    release_lock(file._lock)


def all_records(file: RowFile) -> torch.Tensor:
    return torch.stack(file.records(torch.arange(NUM_ROWS)), 1)


@pytest.fixture(params=["mapped", "past the page cache"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files are read and written; past the page cache with places for few rows in memory."""
    monkeypatch.setattr(row_file, "fits_memory", lambda num_bytes: request.param == "mapped")
    monkeypatch.setattr(records, "RECENT_BYTES", 7 * 3 * WIDTH * 8)
    return request.param


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_course_of_a_training_reads_what_memory_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, dtype: torch.dtype, seed: int
) -> None:
    monkeypatch.setattr(row_file, "DIRTY_BYTES", 40 * 4096)
    rng, file = np.random.default_rng(seed), opened(tmp_path, dtype=dtype)
    present = torch.zeros(NUM_ROWS, 3, WIDTH, dtype=dtype)
    present[:, 0] = initial(torch.arange(NUM_ROWS)).to(dtype)
    best, stored, seen = present, None, set()
    for _ in range(120):
        act = rng.choice(["write", "write", "save", "best", "kill", "end"], p=[0.3, 0.3, 0.15, 0.1, 0.1, 0.05])
        seen.add(str(act))
        if act == "write":
            rows = torch.from_numpy(rng.permutation(NUM_ROWS)[: rng.integers(0, 30)])
            made = torch.from_numpy(rng.normal(size=(len(rows), 3, WIDTH))).to(dtype)
            present = present.clone()
            present[rows] = made
            file.write(rows, *made.unbind(1))
        elif act in ("save", "best"):
            if act == "best":
                best = present
                file.keep_best()
            stored = file.sync().clone(), present, best
            file.commit()
        elif act == "kill" and stored is not None:
            killed(file)
            file = opened(tmp_path, file.name, resumed=True, dtype=dtype)
            file.restore(stored[0])
            present, best = stored[1:]
        elif act == "end" and stored is not None:
            file.take_best()
            present = best
        some = torch.from_numpy(rng.integers(0, NUM_ROWS, 20))
        assert torch.equal(file.read(some), present[some, 0])
        assert torch.equal(all_records(file), present)
    assert len(seen) == 5 and file.states.unique().numel() > 2


def test_a_training_of_one_checkpoint_has_one_file_and_no_space_for_more_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    file, rows = opened(tmp_path), torch.arange(5)
    for _ in range(3):
        file.write(rows, *torch.ones(3, 5, WIDTH))
    names = [file._path(number).name for number in FILES]
    assert [path.name for path in tmp_path.iterdir()] == names[:1]
    file.sync()
    file.commit()
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(28, os.strerror(28))))
        with pytest.raises(InputError, match="the file system is full"):
            file.write(rows, *torch.zeros(3, 5, WIDTH))
    assert torch.equal(file.read(rows), torch.ones(5, WIDTH))  # the step that was refused changed nothing
    file.write(rows, *torch.zeros(3, 5, WIDTH))
    assert {path.name for path in tmp_path.iterdir()} == {*names[:2]}
    file.keep_best()
    file.sync()
    file.commit()
    file.write(rows, *torch.ones(3, 5, WIDTH))  # the checkpoint and the best epoch are the same records
    assert {path.name for path in tmp_path.iterdir()} == {*names[:2]}
    file.sync()
    file.commit()
    file.write(rows, *torch.zeros(3, 5, WIDTH))
    assert {path.name for path in tmp_path.iterdir()} == {*names}
    file.close()
    file.close()
    assert len(list(tmp_path.iterdir())) == 3


def test_files_that_no_checkpoint_names_go_and_others_stay(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)  # two trainings of one recipe
    assert {first._path(1), second._path(1)} == {*tmp_path.iterdir()}
    second.sync()
    second.commit()
    assert first._path(1).exists()  # its training is running
    first.close()
    assert {*tmp_path.iterdir()} == {second._path(1)}  # it ended without a checkpoint
    killed(second)
    lost = opened(tmp_path, second.name)  # a new run leaves the files of the checkpoint
    killed(lost)
    third = opened(tmp_path, second.name)
    assert {*tmp_path.iterdir()} == {second._path(1), third._path(1)}
    third.sync()
    third.commit()
    assert {*tmp_path.iterdir()} == {third._path(1)}


def test_files_that_do_not_fit_are_named(tmp_path: Path, way: str) -> None:
    file = opened(tmp_path)
    file.write(torch.arange(5), *torch.ones(3, 5, WIDTH))
    stored = file.sync()
    file.commit()
    with pytest.raises(InputError, match=r"another process trains with .*-1\.npy"):
        opened(tmp_path, file.name, resumed=True)
    killed(file)
    with pytest.raises(InputError, match=r"has float32\[60, 3, 3\], and the training float64\[60, 3, 3\]"):
        opened(tmp_path, file.name, resumed=True, dtype=torch.float64)
    again, wrong = opened(tmp_path, file.name, resumed=True), copy.copy(stored)
    wrong[7] = 2
    with pytest.raises(ValueError, match=r"not in run\.safetensors\.rows-[0-9a-f]{32}-2\.npy"):
        again.restore(wrong)
    killed(again)
    file._path(1).write_bytes(b"no array")
    with pytest.raises(InputError, match=r"-1\.npy cannot be mapped"):
        opened(tmp_path, file.name, resumed=True)
    file._path(1).unlink()
    with pytest.raises(InputError, match="with the rows of nodes of the checkpoint, is not there"):
        opened(tmp_path, file.name, resumed=True)


def test_pages_that_a_disk_refuses_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    file = opened(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(InputError, match=r"cannot write the rows of nodes .*Input/output error"):
        file.sync()


@pytest.mark.parametrize("seed", range(5))
def test_recent_records_are_those_that_came_last(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(records, "RECENT_BYTES", 11 * 3 * WIDTH * 4)
    rng, found = np.random.default_rng(seed), 0
    recent, present = records.RecentRecords((NUM_ROWS, 3, WIDTH), torch.float32), torch.zeros(NUM_ROWS, 3, WIDTH)
    for _ in range(60):
        rows = torch.from_numpy(rng.permutation(NUM_ROWS)[: rng.integers(0, 20)])
        present[rows] = torch.from_numpy(rng.normal(size=(len(rows), 3, WIDTH)).astype(np.float32))
        recent.put(rows, present[rows])
        some = torch.from_numpy(rng.integers(0, NUM_ROWS, 20))
        out, lacking = recent.find(some)
        there = np.setdiff1d(np.arange(20), lacking.numpy())
        found += len(there)
        assert torch.equal(out[there], present[some[there]])
        _, lacking = recent.find(rows)
        assert len(lacking) == len(rows) - len({row % 11 for row in rows.tolist()})
    recent.clear()
    assert found and len(recent.find(torch.arange(NUM_ROWS))[1]) == NUM_ROWS


def test_every_page_of_a_new_file_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_file, "fits_memory", lambda num_bytes: False)
    monkeypatch.setattr(records, "ZEROS_BYTES", 3 * 4096)
    written, write = [], os.pwrite

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if len(data) > 1000 and offset:
            assert not np.asarray(data).any()
            written.extend(range(offset // 4096, (offset + len(data)) // 4096))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    file = RowFile(tmp_path / "run.safetensors", (4000, WIDTH), torch.float32, initial)
    if not file._direct:
        pytest.skip("this file system has no O_DIRECT")
    num_bytes = file._path(1).stat().st_size
    assert num_bytes % 4096 == 0 and written == [*range(1, num_bytes // 4096)]
    assert len(np.load(file._path(1))) == 4000
    file.close()
