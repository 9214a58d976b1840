"""`threads = "auto"`: the cores of the machine, shared, recorded and not hashed; a resumed training keeps the checkpoint's number."""

from pathlib import Path
from typing import Any

import pytest
import torch

from graphmill.assets.building.stage import Progress
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.checkpoint_head import checkpoint_facts
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.training.thread_count import ThreadCount, decide_threads
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import content, train_small

CORES = "graphmill.trainers.training.thread_count.usable_cores"
LIBRARY = "graphmill.trainers.training.thread_count.own_library"
FAST: dict[str, Any] = {"epochs": 2, "threads": "auto"}


class Stopping(Progress):
    """Interrupts a training when an epoch begins (0 = never), and keeps the lines that are told."""

    def __init__(self, epoch: int = 0):
        self.label, self.lines = f"epoch {epoch}/", []

    def start(self, label: str, total: int | None, unit: str) -> None:
        if label.startswith(self.label):
            raise KeyboardInterrupt

    def tell(self, line: str) -> None:
        self.lines.append(line)


def train_on(cores: int, home: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setattr(CORES, lambda: cores)
    return train_small(home, **(FAST | options))


def test_the_number_of_cores_is_recorded_and_not_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (train_on(cores, tmp_path / str(cores), monkeypatch) for cores in (1, 2))
    assert one.version == two.version and one.config["train"]["threads"] == "auto"
    assert [model.run_record()["threads"] for model in (one, two)] == [1, 2]
    # An equal number of threads gives equal bits, whichever way it was chosen.
    given = train_small(tmp_path / "given", epochs=2, threads=2)
    assert given.version != two.version and content(given) == content(two)
    assert given.config["train"]["threads"] == given.run_record()["threads"] == 2


def test_the_technique_sees_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    train_on(3, tmp_path, monkeypatch)
    assert seen[0] == 3


def settings(**keys: Any) -> TrainConfig:
    return TrainConfig(trainer="factored", settings=FactoredSettings(**keys), accumulate=4)


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        (TrainConfig(), 12),
        (TrainConfig(threads=5), 5),
        (settings(samplers=1, trainers=1), 12),
        (settings(samplers=1, trainers=3), 4),
        (settings(samplers=2, devices=6), 3),
        (settings(devices=7), 2),
        (settings(), 1),
        (settings(sharing="time", devices=4), 3),
        (settings(samplers=1, trainers=40), 1),
    ],
)
def test_trainers_of_one_process_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, train: TrainConfig, expected: int
) -> None:
    monkeypatch.setattr(CORES, lambda: 12)
    (found,) = run_threads(1, lambda ranks: decide_threads(train, ranks, ()))
    assert found == ThreadCount(number=expected)


def test_ranks_on_one_machine_share_its_cores_and_take_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CORES, lambda: 12)
    alike = run_threads(3, lambda ranks: decide_threads(TrainConfig(), ranks, ()))
    assert [each.number for each in alike] == [4, 4, 4]
    # Two ranks here, and a third one on a machine of its own with fewer cores than their share.
    import threading

    names: dict[int, str] = {}
    cores = {"here": 12, "there": 5}
    monkeypatch.setattr("graphmill.trainers.training.thread_count.here_and_now", lambda: names[threading.get_ident()])
    monkeypatch.setattr(CORES, lambda: cores[names[threading.get_ident()]])

    def decide(ranks: Any) -> ThreadCount:
        names[threading.get_ident()] = "there" if ranks.rank == 2 else "here"
        return decide_threads(TrainConfig(), ranks, [2, 9] if ranks.rank == 0 and again else ())

    again = False
    assert [each.number for each in run_threads(3, decide)] == [5, 5, 5]
    again = True
    found = run_threads(3, decide)
    assert found == [ThreadCount(number=5, before=(2, 9))] * 3, (
        "the third one has too few cores for the checkpoint's number"
    )
    cores["there"] = 9
    assert [each.number for each in run_threads(3, decide)] == [9, 9, 9]


def test_a_resumed_training_keeps_the_number_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train_on(2, tmp_path / "whole", monkeypatch, epochs=4)
    with pytest.raises(KeyboardInterrupt):
        train_on(2, tmp_path / "stopped", monkeypatch, epochs=4, progress=Stopping(3))
    (path,) = (tmp_path / "stopped" / "checkpoints").glob("*.safetensors")
    assert checkpoint_facts(path)["threads"] == [2]
    progress = Stopping()
    resumed = train_on(7, tmp_path / "stopped", monkeypatch, epochs=4, resume=True, progress=progress)
    assert resumed.run_record()["threads"] == 2 and "threads_before" not in resumed.run_record()
    assert content(resumed) == content(whole) and not any("goes on with" in line for line in progress.lines)


def test_a_resumed_training_with_fewer_cores_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch, cores in ((3, 2), (4, 1)):
        with pytest.raises(KeyboardInterrupt):
            train_on(cores, tmp_path, monkeypatch, epochs=5, resume=True, progress=(progress := Stopping(epoch)))
    assert (
        "goes on with 1 of 2 threads, since there are fewer cores than before: the last bits may differ"
        in progress.lines[0]
    )
    (path,) = (tmp_path / "checkpoints").glob("*.safetensors")
    assert checkpoint_facts(path)["threads"] == [2, 1]
    model = train_on(1, tmp_path, monkeypatch, epochs=5, resume=True, progress=(progress := Stopping()))
    assert not any("goes on with" in line for line in progress.lines)
    assert (model.run_record()["threads"], model.run_record()["threads_before"]) == (1, [2])


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02" + b"\0" * 7 + b"{}", b"\x02" + b"\0" * 7 + b"[]", None])
def test_a_damaged_checkpoint_names_no_number(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "one").write_bytes(data)
    assert checkpoint_facts(tmp_path / "one") == {}


def test_other_words_are_refused() -> None:
    with pytest.raises(InputError, match="threads = 'many' is not \"auto\", nor a whole number"):
        TrainConfig(threads="many")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="threads = 0 is below 1"):
        TrainConfig(threads=0)


def test_other_weights_of_one_recipe_are_told_with_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("graphmill.trainers.run._weights", lambda model: str(model.run_record()["threads"]))
    for cores in (1, 2):
        train_on(cores, tmp_path, monkeypatch, report=lines.append, retrain=True)
    assert lines[-1].endswith("with other weights than the same recipe gave before on 1 thread, not 2")
    train_on(2, tmp_path, monkeypatch, report=lines.append, retrain=True)
    assert lines[-1].endswith("with the same weights to the bit")


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
def test_a_resumed_training_keeps_the_products_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"epochs": 4, "hidden": 512}
    whole = {}
    for name in ("blas", "onednn"):
        monkeypatch.setattr(LIBRARY, lambda name=name: name)
        whole[name] = train_on(2, tmp_path / name, monkeypatch, **options)
        assert whole[name].run_record()["products"] == name
    assert content(whole["blas"]) != content(whole["onednn"]), "equal bits would test nothing"
    monkeypatch.setattr(LIBRARY, lambda: "blas")
    with pytest.raises(KeyboardInterrupt):
        train_on(2, tmp_path / "stopped", monkeypatch, progress=Stopping(3), **options)
    monkeypatch.setattr(LIBRARY, lambda: "onednn")
    resumed = train_on(2, tmp_path / "stopped", monkeypatch, resume=True, **options)
    assert content(resumed) == content(whole["blas"]) and resumed.run_record()["products"] == "blas"
