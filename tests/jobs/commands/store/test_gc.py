import re
import sys

import click
import pytest

from graphmill.assets.storage.local.collect import find_garbage
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.store.gc import collect_garbage
from graphmill.kernels.errors import InputError
from tests.assets.storage.tiny_artifacts import address, present, put


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    for number in range(3):
        put(store, "graph", number)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / f"{'c' * 64}.safetensors").write_bytes(b"12345")
    return store


def answer(monkeypatch, said):
    def confirm(question):
        if said is None:
            raise click.Abort
        return said

    monkeypatch.setattr(click, "confirm", confirm)


def test_it_shows_before_it_asks(store, monkeypatch, capsys):
    before = present(store)
    answer(monkeypatch, False)
    assert collect_garbage(store, 1) == 0 and present(store) == before
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["remove", "remove", "2", "nothing"]
    assert lines[2].endswith("1 artifacts and 1 checkpoints stay (-v names them)")
    assert collect_garbage(store, 1, verbose=True) == 0 and present(store) == before
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["keep", "keep", "remove", "remove"]
    assert "one of the newest 1 of stage graph" in lines[0]
    assert "checkpoint of cccccccccccc" in lines[1] and "unfinished run: --resume goes on from it" in lines[1]
    assert all("not among the newest 1" in line for line in lines[2:4])
    assert lines[4].startswith("2 to remove, ") and lines[5] == "nothing was removed"
    answer(monkeypatch, True)
    assert collect_garbage(store, 1) > 0 and len(present(store)) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("freed ")


def test_names_and_scores_are_shown(tmp_path, capsys):
    store = Store(tmp_path)
    for number in range(2):
        scores = {"valid_accuracy": 0.8125 + number / 100, "test_accuracy": 0.75, "epochs_run": 3}
        put(store, "model", number, asked_by="cora/gcn", scores=scores, train={}, seed=7)
    collect_garbage(store, 1, dry_run=True, verbose=True)
    kept, removed, _ = capsys.readouterr().out.splitlines()
    scores = r"cora/gcn, seed 7, valid accuracy 8[12].25 %, test accuracy 75.00 %"
    assert re.search(rf"keep .*one of the newest 1 of cora/gcn, seed 7  \({scores}\)", kept)
    assert re.search(rf"remove .*not among the newest 1  \({scores}\)", removed)


def test_a_dry_run_and_an_empty_listing_never_ask(store, monkeypatch, capsys):
    answer(monkeypatch, None)
    assert collect_garbage(store, 1, dry_run=True) == 0 and len(present(store)) == 3
    assert collect_garbage(store, 3) == 0
    assert collect_garbage(store, 1, yes=True) > 0 and len(present(store)) == 1
    assert "0 to remove" in capsys.readouterr().out


def test_without_a_terminal_it_names_the_options(store, monkeypatch):
    answer(monkeypatch, None)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(InputError, match="add --yes, or --dry-run"):
        collect_garbage(store, 1)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(click.Abort):
        collect_garbage(store, 1)
    assert len(present(store)) == 3


def test_what_comes_into_use_while_it_asks_is_spared(store, monkeypatch, capsys):
    garbage = find_garbage(store, 1)
    used = next(artifact for artifact in store.artifacts() if address(artifact) == garbage.artifacts[0].address)
    lease = store.lease(address(used))

    def confirm(question):
        lease.__enter__()
        return True

    monkeypatch.setattr(click, "confirm", confirm)
    collect_garbage(store, 1)
    lease.__exit__(None, None, None)
    assert address(used) in present(store) and len(present(store)) == 2
    assert f"spared  graph/{used.version[:12]}: it came into use meanwhile" in capsys.readouterr().out
