"""What a node says of itself: the digest of its code, and whether it sees the home."""

import socket
from pathlib import Path

import pytest

from graphmill.assets.cluster.nodes import about_this_node, code_digest, home_here, marked
from graphmill.assets.storage.names.home import ROOT, STORE_VARIABLE, VARIABLE


def test_the_digest_of_the_code_is_that_of_its_sources(tmp_path: Path) -> None:
    for layer in ("kernels", "assets", "trainers"):
        (tmp_path / layer).mkdir()
        (tmp_path / layer / "a.py").write_text("x = 1\n")
    before = code_digest(tmp_path)
    (tmp_path / "kernels" / "a.so").write_bytes(b"built for this machine")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.py").write_text("x = 1\n")
    assert code_digest(tmp_path) == before
    (tmp_path / "assets" / "a.py").write_text("x = 2\n")
    edited = code_digest(tmp_path)
    assert edited != before
    (tmp_path / "assets" / "a.py").rename(tmp_path / "assets" / "b.py")
    assert code_digest(tmp_path) not in (before, edited)


def test_a_node_knows_the_home_by_its_mark_at_the_same_path_or_its_own(tmp_path, monkeypatch) -> None:
    home, mounted = tmp_path / "home", tmp_path / "mounted"
    home.mkdir()
    mounted.symlink_to(home)
    monkeypatch.delenv(VARIABLE, raising=False)
    (home / "cluster").mkdir()
    (
        home / "cluster" / f"{socket.gethostname()}@{1 << 23}@a"
    ).touch()  # of a process that was killed: no id is as large
    with marked(home) as mark:
        assert [path.name for path in (home / "cluster").iterdir()] == [mark]
        assert home_here(home, mark) == home
        assert home_here(tmp_path / "elsewhere", mark) is None
        monkeypatch.setenv(VARIABLE, str(mounted))
        assert home_here(tmp_path / "elsewhere", mark) == mounted
        assert about_this_node(str(home), mark) | {"python": ""} == {
            "host": about_this_node("", "")["host"],
            "root": str(ROOT),
            "code": code_digest(),
            "python": "",
            "home": str(home),
        }
    assert home_here(home, mark) is None and list(home.iterdir()) == []


def test_with_an_object_store_there_is_no_mark(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "s3://bucket/shared")
    with marked(tmp_path) as mark:
        assert mark == "" and list(tmp_path.iterdir()) == []
    monkeypatch.setenv(STORE_VARIABLE, "")  # as deploy/values.yaml has it where machines share a volume
    with marked(tmp_path) as mark:
        assert (tmp_path / "cluster" / mark).exists()


@pytest.mark.parametrize("own", ["", "own"])
def test_without_a_mark_a_node_has_a_home_of_its_own(tmp_path, monkeypatch, own: str) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / own) if own else "")
    assert home_here(tmp_path / "home", "") == (tmp_path / (own or "home"))
