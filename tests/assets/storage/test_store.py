import errno
import os
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.storage.local import writer as staging
from graphmill.assets.storage.local.writer import REPLACE_LOCK, STAGING
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.filesystem import locked
from graphmill.kernels.errors import InputError
from tests.assets.storage.tiny_artifacts import numbers_of


def version(number):
    return version_of("toy", 1, {"number": number}, {}, {})


def publish(store, number=0, value=1, stage="toy"):
    with store.writer(stage, version(number)) as writer:
        writer.save("values", np.full((3, 2), value, np.int32))
        writer.path("sub/note.txt").write_text("a note")
        return writer.publish(
            {"number": number}, {}, {"numbers": {"value": value} | numbers_of(stage)}, {"seconds": 1.5}
        )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


def test_what_is_published_is_found_and_sound(store):
    made = publish(store)
    found = store.open("toy", version(0))
    assert found == made == store.find("toy", version(0)) and not made.reused
    assert found.array("values").tolist() == [[1, 1]] * 3 and not found.array("values").flags.writeable
    assert found.file("sub/note.txt").read_text() == "a note"
    assert found.config == {"number": 0} and found.summary["numbers"] == {"value": 1} and found.inputs == {}
    assert found.run_record()["seconds"] == 1.5
    assert found.verify() == [] and store.damaged() == {} and store.artifacts() == [found]
    assert set(found.files) == {"values.npy", "sub/note.txt"}


def test_the_content_says_nothing_of_the_run(store, tmp_path):
    publish(store)
    other = Store(tmp_path / "elsewhere")
    with other.writer("toy", version(0), threads=8) as writer:
        writer.path("sub/note.txt").write_text("a note")
        writer.create("values", (3, 2), np.int32)[...] = 1
        made = writer.publish({"number": 0}, {}, {"numbers": {"value": 1}}, {"seconds": 99})
    for name in ("manifest.json", "block_digests.bin", "values.npy"):
        assert (made.path / name).read_bytes() == (store.open("toy", version(0)).path / name).read_bytes()


def test_a_table_describes_rows_on_disk(store):
    table = publish(store).table("values")
    assert (table.offset, table.num_rows, table.width, table.dtype, table.row_bytes) == (4096, 3, 2, "int32", 8)
    assert table.open().tolist() == [[1, 1]] * 3
    from graphmill.assets.storage.files.digests import block_digests

    assert table.block_digest.tolist() == block_digests(table.path).tolist()


def test_inputs_are_recorded_by_version(store):
    graph = publish(store, 1, stage="graph")
    with store.writer("model", version(2)) as writer:
        made = writer.publish(
            {}, {"graph": graph}, {"numbers": numbers_of("model")}, {}, code_version=3, raw={"file": "00"}
        )
    assert made.inputs == {"graph": {"stage": "graph", "version": version(1), "content": graph.content}}
    assert made.manifest["code_version"] == 3 and made.manifest["raw"] == {"file": "00"}


def test_opening_a_store_and_asking_it_writes_nothing(store):
    assert store.artifacts() == [] and store.find("toy", version(0)) is None and store.sweep() == []
    with pytest.raises(InputError, match=r"is not in .* which has 0 versions of toy"):
        store.open("toy", version(0))
    assert not store.home.exists()


def test_an_exception_leaves_nothing(store):
    with pytest.raises(KeyError), store.writer("toy", version(0)) as writer:
        writer.save("values", [1, 2])
        raise KeyError
    assert store.folders() == [] and os.listdir(store.root / STAGING) == []


def test_a_block_that_does_not_publish_leaves_nothing(store):
    with store.writer("toy", version(0)) as writer:
        writer.save("values", [1, 2])
    assert store.folders() == [] and os.listdir(store.root / STAGING) == []


def test_the_second_writer_gets_the_winners_artifact(store):
    with store.writer("toy", version(0)) as slow:
        slow.save("values", [1])
        first = publish(store, value=5)
        second = slow.publish({}, {}, {}, {})
    assert second.reused and not first.reused and second.path == first.path
    assert second.array("values").tolist() == first.array("values").tolist() == [[5, 5]] * 3
    assert second.verify() == [] and os.listdir(store.root / STAGING) == []


def test_a_damaged_artifact_is_replaced_by_the_next_writer(store):
    damaged = publish(store)
    os.truncate(damaged.path / "values.npy", 4100)
    assert store.find("toy", version(0)) is None and list(store.damaged()) == [damaged.path]
    with pytest.raises(InputError, match=r"values\.npy has 4100 bytes instead of 4120"):
        store.open("toy", version(0))
    assert not publish(store).reused
    assert store.open("toy", version(0)).verify() == [] and os.listdir(store.root / STAGING) == []


def test_a_sound_artifact_is_never_set_aside(store, monkeypatch):
    """Between finding damage and taking the lock, another writer may have replaced the damaged artifact."""
    os.truncate(publish(store).path / "values.npy", 4100)

    def slow_lock(path):
        assert path.name == REPLACE_LOCK
        monkeypatch.undo()
        assert not publish(store, value=7).reused
        return locked(path)

    monkeypatch.setattr("graphmill.assets.storage.local.writer.locked", slow_lock)
    late = publish(store, value=8)
    assert late.reused and late.array("values").tolist() == [[7, 7]] * 3


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_writer_that_replaces_takes_the_place_of_a_sound_artifact(store, monkeypatch, exchanges):
    """Also where the file system cannot exchange two folders; whoever reads the old one goes on reading it."""
    if not exchanges:
        monkeypatch.setattr("graphmill.assets.storage.local.writer.exchange_folders", lambda first, second: False)
    old = publish(store, value=7).array("values")
    with store.writer("toy", version(0), replaces=True) as writer:
        writer.save("values", np.full((3, 2), 8, np.int32))
        new = writer.publish({"number": 0}, {}, {"numbers": {"value": 8}}, {"seconds": 2.5})
    assert not new.reused and new.verify() == [] and new.run_record()["seconds"] == 2.5
    assert store.open("toy", version(0)).array("values").tolist() == [[8, 8]] * 3 and old.tolist() == [[7, 7]] * 3
    assert os.listdir(store.root / STAGING) == []


def test_an_artifact_that_is_replaced_is_there_at_every_moment(store):
    """A reader that opens it over and over while it is replaced finds the old or the new one, whole."""
    publish(store, value=0)
    stop, seen, failed = threading.Event(), set(), []

    def read():
        while not stop.is_set():
            found = store.find("toy", version(0))
            if found is None:
                failed.append("absent")
            else:
                seen.add(found.summary["numbers"]["value"])

    reader = threading.Thread(target=read)
    reader.start()
    for value in range(1, 30):
        with store.writer("toy", version(0), replaces=True) as writer:
            writer.save("values", np.full((3, 2), value, np.int32))
            writer.publish({"number": 0}, {}, {"numbers": {"value": value}}, {"seconds": 1.5})
    stop.set()
    reader.join()
    assert not failed and len(seen) > 1


def test_arrays_are_closed_for_writing_by_publication(store):
    with store.writer("toy", version(0)) as writer:
        values = writer.create("values", 3, np.int32)
        writer.publish({}, {}, {}, {})
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1


def test_files_that_were_added_or_removed_are_found(store):
    made = publish(store)
    (made.path / "stray").write_text("")
    (made.path / "sub" / "note.txt").unlink()
    (made.path / "run.json").unlink()
    assert made.verify() == ["sub/note.txt is missing", "run.json cannot be read: No such file or directory"] + [
        "stray is not in the manifest"
    ]
    assert made.run_record() == {}


def test_a_damaged_digest_list_shows_at_opening(store):
    path = publish(store).path / "block_digests.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    with pytest.raises(InputError, match=r"block_digests\.bin does not match the manifest"):
        store.open("toy", version(0))


def test_an_error_of_another_language_is_known_as_a_full_disk(store):
    with pytest.raises(InputError, match="the file system is full"), store.writer("toy", version(0)):
        raise RuntimeError("parquet: No space left on device (os error 28)")
    assert store.folders() == []


def test_an_artifact_in_the_wrong_folder_is_damaged(store):
    made = publish(store)
    made.path.rename(made.path.with_name(version(1)))
    assert store.find("toy", version(1)) is None
    assert "belongs to toy/" + version(0) in store.damaged()[made.path.with_name(version(1))]


def test_a_manifest_of_another_format_says_so(store, monkeypatch):
    monkeypatch.setattr("graphmill.assets.storage.local.writer.FORMAT", 99)
    with pytest.raises(ValueError, match="format is 99, and this version of graphmill reads 1"):
        publish(store)


def test_missing_names_are_answered_with_near_ones(store):
    made = publish(store)
    with pytest.raises(InputError, match=r"no file value\.npy \(did you mean values\.npy\?\)"):
        made.array("value")
    with pytest.raises(InputError, match=r"it has sub/note\.txt, values\.npy"):
        made.file("elsewhere")


def test_an_array_of_another_shape_than_the_manifest_says_is_refused(store):
    made = publish(store)
    (made.path / "values.npy").unlink()
    from graphmill.assets.storage.files.arrays import write_array

    write_array(made.path / "values.npy", np.zeros((2, 3), np.int32))
    with pytest.raises(InputError, match=r"is int32\[2, 3\], the manifest says int32\[3, 2\]"):
        made.array("values", verified=False)
    with pytest.raises(InputError, match="do not match their digest"):
        made.array("values")


def test_prefixes_resolve_when_they_are_unique(store):
    made = [publish(store, number) for number in range(20)]
    for artifact in made:
        assert store.resolve(artifact.version[:12]) == artifact == store.resolve("toy/" + artifact.version)
    common = next(a.version[0] for a in made if sum(b.version[0] == a.version[0] for b in made) > 1)
    with pytest.raises(InputError, match=f"'{common}' is the beginning of"):
        store.resolve(common)
    for none in ("xyz", "", "graph/" + made[0].version[:12]):
        with pytest.raises(InputError, match="no artifact"):
            store.resolve(none)


def test_discard_removes_one_version(store):
    keep, drop = publish(store, 0), publish(store, 1)
    store.discard("toy", drop.version)
    store.discard("toy", drop.version)
    assert store.artifacts() == [keep] and os.listdir(store.root / STAGING) == []


def test_npy_files_must_be_padded(store):
    with pytest.raises(AssertionError, match="is not padded"), store.writer("toy", version(0)) as writer:
        np.save(writer.path("values.npy"), np.zeros(3))
        writer.publish({}, {}, {}, {})


@pytest.mark.parametrize("name", ["manifest.json", "run.json", "../escape", "/etc/x", ".hidden"])
def test_file_names_stay_inside(store, name):
    with pytest.raises(AssertionError), store.writer("toy", version(0)) as writer:
        writer.path(name)


def test_links_are_not_content(store, tmp_path):
    with pytest.raises(AssertionError, match="not a plain file"), store.writer("toy", version(0)) as writer:
        writer.path("link").symlink_to(tmp_path)
        writer.publish({}, {}, {}, {})


def test_everything_is_synced_before_it_is_visible(store, monkeypatch):
    """The order is the crash safety: data before the manifest, all of it and the directory before the rename, then the parent."""
    events = []
    for name in ("fsync", "rename"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (_record(events, name, args), real(*args))[1])
    made = publish(store)
    names = [(kind, path.name) for kind, path in events]
    rename = next(at for at, (kind, _) in enumerate(names) if kind == "rename")
    manifest = names.index(("fsync", "manifest.json"))
    staging = ("fsync", names[rename][1])
    for content in ("values.npy", "note.txt", "block_digests.bin", "run.json", "sub"):
        assert names.index(("fsync", content)) < manifest < rename
    assert staging in names[:manifest] and staging in names[manifest:rename]
    assert names[rename + 1 :] == [("fsync", "toy")]
    assert ("fsync", "home") in names and ("fsync", "store") in names  # the entries of the folders made on the way
    assert made.verify() == []


def _record(events, name, args):
    path = Path(os.readlink(f"/proc/self/fd/{args[0]}")) if name == "fsync" else Path(args[0])
    events.append((name, path))


def test_the_staging_of_another_user_is_left_alone(tmp_path, monkeypatch):
    """Whose umask shares nothing; root may open everything, so the refusal is made up."""
    area = tmp_path / "store" / ".staging"
    owner = uuid.uuid4().hex
    (area / owner).mkdir(parents=True)

    def refused(path, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(staging, "take_lock", refused)
    assert Store(tmp_path).sweep() == [] and (area / owner).is_dir()
    monkeypatch.undo()
    assert Store(tmp_path).sweep() == [owner] and not (area / owner).exists()
