import os
import threading

import numpy as np
import pytest

from graphmill.assets.storage.files.digests import BLOCK_BYTES
from graphmill.assets.storage.names.manifest import WORDS
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.remote import fetch
from graphmill.assets.storage.remote.entries import content_prefix, entry_key, read_entry
from graphmill.assets.storage.remote.objects import Objects
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.storage.tiny_artifacts import address, present, put

NUM_WORDS = 3 * BLOCK_BYTES // 8


WHOLE = version_of("whole", 1, {}, {}, {})


def version(number):
    return version_of("toy", 1, {"number": number}, {}, {})


def publish(store, number=0, seconds=1.0, first=0, replaces=False, note="a note", **more):
    with store.writer("toy", version(number), replaces=replaces) as writer:
        writer.save("values", np.arange(first, first + NUM_WORDS))
        writer.save("none", np.zeros(0, np.int32))
        writer.path("sub/note.txt").write_text(note)
        return writer.publish({"number": number}, {}, {"numbers": {"value": 1}}, {"seconds": seconds}, more=more)


def files(artifact):
    return {
        str(path.relative_to(artifact.path)): path.read_bytes() for path in artifact.path.rglob("*") if path.is_file()
    }


def test_what_one_home_publishes_another_reads_to_the_byte(stores):
    one, other = stores
    made = publish(one)
    found = other.open("toy", version(0))
    assert found.manifest == made.manifest and found.run_record() == made.run_record()
    assert present(other) == set() and other.has("toy", version(0)), "it is known, and nothing was fetched"
    assert found.table_facts("values").num_rows == NUM_WORDS and present(other) == set()
    assert found.array("values")[-1] == NUM_WORDS - 1
    assert files(found) == files(made) and found.verify() == []
    assert other.find("toy", version(0)) == made.__class__(**{**made.__dict__, "path": found.path})


def test_files_come_in_spans_by_several_threads(stores, monkeypatch):
    one, other = stores
    made = publish(one)
    monkeypatch.setattr(fetch, "SPAN_BLOCKS", 1)
    assert other.open("toy", version(0)).array("values")[-1] == NUM_WORDS - 1
    assert files(other.open("toy", version(0))) == files(made)


def test_a_small_file_is_read_without_the_others(stores, objects):
    one, other = stores
    made = publish(one)
    found = other.open("toy", version(0))
    assert found.content_of("sub/note.txt") == b"a note" and present(other) == set()
    assert np.array_equal(found.small_array("values"), made.array("values")) and present(other) == set()
    assert np.array_equal(made.small_array("values"), made.array("values"))
    entry = read_entry(objects, ("toy", version(0)))
    objects.write(entry.key("sub/note.txt"), b"a nota")
    with pytest.raises(InputError, match=r"sub/note.txt does not match its digest"):
        found.content_of("sub/note.txt")


def test_an_absent_artifact_is_in_neither(stores):
    assert stores[0].find("toy", version(0)) is None and not stores[0].has("toy", version(0))
    with pytest.raises(InputError, match=r"is not in .* or in s3://.*, which has 0 versions"):
        stores[0].open("toy", version(0))


@pytest.mark.parametrize("name", ["values.npy", "sub/note.txt", WORDS])
def test_a_damaged_object_is_never_published(stores, objects, name):
    one, other = stores
    publish(one)
    entry = read_entry(objects, ("toy", version(0)))
    data = bytearray(objects.read(entry.key(name)))
    data[len(data) // 2] ^= 1
    objects.write(entry.key(name), bytes(data))
    with pytest.raises(InputError, match=r"toy/.* in s3://.* is damaged: .*(do not match|does not match)") as error:
        other.open("toy", version(0)).array("values")
    assert "graphmill repair toy/" in error.value.remedy and present(other) == set()
    assert list((other.root / ".staging").iterdir()) == [] if (other.root / ".staging").exists() else True


def test_a_cut_and_a_missing_object_are_damage(stores, objects):
    one, other = stores
    publish(one)
    key = read_entry(objects, ("toy", version(0))).key("values.npy")
    objects.write(key, objects.read(key)[:-1])
    with pytest.raises(InputError, match=r"values\.npy has 3149823 bytes instead of 3149824"):
        other.open("toy", version(0)).array("values")
    objects.remove([key])
    with pytest.raises(InputError, match=r"is damaged: the object .*values.npy is missing"):
        other.open("toy", version(0)).array("values")


def test_a_damaged_entry_says_so(stores, objects):
    publish(stores[0])
    key = entry_key(("toy", version(0)))
    objects.write(key, objects.read(key).replace(b"a", b"b"))
    with pytest.raises(InputError, match=r"is damaged: its entry"):
        stores[1].find("toy", version(0))


def test_a_damaged_copy_of_the_home_is_fetched_again(stores):
    one, other = stores
    made = publish(one)
    other.open("toy", version(0)).array("values")
    os.truncate(other.root / "toy" / version(0) / "values.npy", 100)
    assert files(other.find("toy", version(0))) == files(made)


class Killed(BaseException):
    """Stands for SIGKILL, which no code catches."""


@pytest.mark.parametrize("after", range(4))
def test_a_killed_upload_leaves_no_artifact_and_the_next_one_works(stores, objects, monkeypatch, after):
    one, other = stores
    left = [after]

    def send(self, key, path, whole=Objects.send):
        if not left[0]:
            raise Killed
        left[0] -= 1
        whole(self, key, path)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Objects, "send", send)
        publish(one)
    assert other.find("toy", version(0)) is None and len(objects.listed("content")) == after
    one.open("toy", version(0)).shared()
    assert other.open("toy", version(0)).array("values")[1] == 1 and other.open("toy", version(0)).verify() == []


def test_of_two_writers_one_wins_and_the_other_takes_the_stored_one(stores, objects, monkeypatch):
    one, other = stores

    def create(self, key, data, whole=Objects.create):
        monkeypatch.undo_create()  # the other writer comes between files and entry of the first
        publish(other, first=7, note="the other's")
        return whole(self, key, data)

    monkeypatch.undo_create = lambda whole=Objects.create: monkeypatch.setattr(Objects, "create", whole)
    monkeypatch.setattr(Objects, "create", create)
    made = publish(one)
    assert made.reused and made.array("values")[0] == 7 and made.file("sub/note.txt").read_text() == "the other's"
    assert one.open("toy", version(0)).content == other.open("toy", version(0)).content
    uploads = {each.key.split("/")[3] for each in objects.listed(content_prefix(("toy", version(0))))}
    assert uploads == {read_entry(objects, ("toy", version(0))).upload}, "the loser's files are gone"


def test_an_own_entry_whose_answer_was_lost_is_a_success(stores, monkeypatch):
    def create(self, key, data, whole=Objects.create):
        assert whole(self, key, data)
        return whole(self, key, data)

    monkeypatch.setattr(Objects, "create", create)
    made = publish(stores[0])
    assert not made.reused and stores[1].open("toy", version(0)).array("values")[1] == 1


def test_an_equal_artifact_of_another_home_stays(stores, objects):
    publish(stores[0], seconds=1)
    upload = read_entry(objects, ("toy", version(0))).upload
    made = publish(stores[1], seconds=2)
    assert not made.reused and read_entry(objects, ("toy", version(0))).upload == upload


def test_a_replaced_artifact_takes_the_place_of_the_stored_one(stores, objects):
    one, other = stores
    publish(one)
    stale = other.open("toy", version(0))
    publish(one, first=5, replaces=True)
    assert stale.array("values")[0] == 5, "what was known before is fetched as it stands now"
    uploads = {each.key.split("/")[3] for each in objects.listed(content_prefix(("toy", version(0))))}
    assert uploads == {read_entry(objects, ("toy", version(0))).upload}


def test_what_was_built_before_the_store_was_set_follows_its_readers(stores, monkeypatch):
    one, other = stores
    with monkeypatch.context() as patch:
        patch.delenv("GRAPHMILL_STORE")
        before = Store(one.home)
        first = put(before, "first", 1)
        second = put(before, "second", 2, [first])
    assert other.find(*address(second)) is None
    third = put(one, "third", 3, [second, first])
    assert [other.open(*address(each)).array("values")[-1] for each in (first, second, third)] == [1, 2, 3]


def test_parts_are_known_without_being_fetched(stores):
    one, other = stores
    parts = [put(one, "whole.parts", number) for number in range(3)]
    named = [
        {"name": f"p{number}", "stage": part.stage, "version": part.version, "bytes": part.num_bytes}
        for number, part in enumerate(parts)
    ]
    with one.writer("whole", WHOLE) as writer:
        writer.save("values", np.arange(2))
        writer.publish({}, {}, {"numbers": {}}, {}, more={"parts": named})
    found = other.find("whole", WHOLE)
    assert found.part_problems() == [] and present(other) == set()
    assert found.open_part("p1").array("values").tolist() == [0, 1]
    assert present(other) == {address(parts[1])}
    assert other.open("whole", WHOLE).parts.keys() == {"p0", "p1", "p2"}


def test_a_part_that_neither_has_is_missing(stores, objects):
    one, other = stores
    part = put(one, "whole.parts", 0)
    named = [{"name": "p0", "stage": part.stage, "version": part.version, "bytes": part.num_bytes}]
    with one.writer("whole", WHOLE) as writer:
        writer.publish({}, {}, {"numbers": {}}, {}, more={"parts": named})
    objects.remove([entry_key(address(part))])
    assert other.find("whole", WHOLE) is None
    with pytest.raises(InputError, match=r"part p0 of whole/.* is missing"):
        other.open("whole", WHOLE)


def test_threads_that_want_one_artifact_fetch_it_once(stores, monkeypatch):
    one, other = stores
    publish(one)
    taken, whole = [], fetch._take
    monkeypatch.setattr(fetch, "_take", lambda *given: (taken.append(given), whole(*given)))
    threads = [threading.Thread(target=other.open("toy", version(0)).here) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1 and other.open("toy", version(0)).array("values")[1] == 1


def test_many_are_found_at_once(stores):
    one, other = stores
    far, near = publish(one), publish(other, 1)
    addresses = [address(far), ("toy", version(5)), address(near)]
    assert [each and each.version for each in other.find_many(addresses)] == [version(0), None, version(1)]
    assert present(other) == {address(near)}
    os.truncate(one.root / "toy" / version(0) / "values.npy", 100)
    assert one.find_many(addresses)[0].verify() == [], "it was fetched again"


def test_versions_of_both_places_are_resolved(stores):
    one, other = stores
    publish(one)
    publish(other, 1)
    assert other.resolve(f"toy/{version(0)[:10]}").version == version(0)
    assert [each.version for each in other.stored_only()] == [version(0)]
    assert other.stored_only("toys") == []


def test_a_home_with_a_folder_as_its_store(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_STORE", (tmp_path / "shared store").as_uri())
    one, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    made = publish(one)
    assert files(made).keys() == {*made.files, WORDS, "manifest.json", "run.json"}
    assert other.open("toy", version(0)).array("values")[-1] == NUM_WORDS - 1
    assert files(other.open("toy", version(0))) == files(made)
    assert publish(other, first=1).array("values")[0] == 0, "the stored one"


def test_without_the_variable_nothing_is_asked(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHMILL_STORE", raising=False)
    for name in ("open_objects", "require_objects"):
        monkeypatch.setattr(
            f"graphmill.assets.storage.remote.objects.{name}", lambda *_: pytest.fail("the store was asked for")
        )
    store = Store(tmp_path)
    made = publish(store)
    assert store.open(*address(made)).verify() == [] and store.find("toy", version(1)) is None
    assert store.stored_only() == []
