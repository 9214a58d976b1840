"""Numbers that torchrun or another launcher sets in the environment of a rank."""

import pytest

from graphmill.kernels.errors import InputError
from graphmill.trainers import __main__ as entry
from graphmill.trainers.__main__ import main
from graphmill.trainers.ranks.group import coming
from graphmill.trainers.ranks.launch import PARENT, asked_ranks, launcher_id, launcher_number


@pytest.mark.parametrize(
    ("rank", "world"),
    [("abc", "2"), ("0", "two"), ("0", "-1"), ("0", "0"), ("2", "2"), ("-1", "2"), ("1.0", "2"), ("", "2"), ("٣", "9")],
)
def test_ranks_that_are_none_are_named(monkeypatch, rank, world):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(InputError, match=r"the environment says (RANK|WORLD_SIZE) = "):
        asked_ranks()


@pytest.mark.parametrize("rank", ["0", "1"])
def test_copies_that_srun_starts_are_refused_unless_they_are_told_how_to_meet(monkeypatch, capsys, rank):
    monkeypatch.setenv("SLURM_PROCID", rank)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    assert main(["cora", "gcn"]) == 1
    said = capsys.readouterr().err
    assert "srun started this process as one of several" in said and "RANK, WORLD_SIZE, MASTER_ADDR" in said
    trained = []
    monkeypatch.setattr(entry, "train", trained.append)
    assert main(["cora", "gcn", "--on", "auto"]) == int(rank)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["cora", "gcn"]) == 0 and len(trained) == 2 - int(rank)


def test_without_a_launcher_there_is_one_rank(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert asked_ranks() == (0, 1)


@pytest.mark.parametrize("port", ["abc", "99999", "0", "1" * 40])
def test_a_port_that_is_none_is_named(monkeypatch, port):
    monkeypatch.setenv("MASTER_PORT", port)
    with pytest.raises(InputError, match="MASTER_PORT"):
        launcher_number("MASTER_PORT", "", 1, 65535)


def test_a_launcher_that_is_none_is_named(monkeypatch):
    monkeypatch.setenv(PARENT, "me")
    with pytest.raises(InputError, match=PARENT):
        launcher_id()


def test_a_thread_that_the_system_refuses_blames_no_other_rank(monkeypatch):
    """With little address space a rank could not start one, and was told that another rank is gone."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def refuses(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("graphmill.trainers.ranks.group.open_store", refuses)
    with pytest.raises(InputError, match="may start no more threads"), coming():
        pass
