"""Numbers of epochs in other programs; the packages themselves are played by modules of the test."""

import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

from graphmill.assets.building.stage import Silent
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.recipes import load_tiny


class SummaryWriter:
    """The calls that TensorBoard's writer gets."""

    calls: ClassVar[list] = []

    def __init__(self, folder):
        self.calls.append(("open", folder))

    def add_scalar(self, name, value, step):
        assert isinstance(value, float)
        self.calls.append((name, value, step))

    def flush(self):
        self.calls.append(("flush",))

    def close(self):
        self.calls.append(("close",))


class MlflowClient:
    """The calls that MLflow's client gets."""

    calls: ClassVar[list] = []

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id="7") if name == "known" else None

    def create_experiment(self, name):
        self.calls.append(("experiment", name))
        return "8"

    def create_run(self, experiment, run_name):
        self.calls.append(("run", experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def log_param(self, run, name, value):
        self.calls.append(("param", name, value))

    def log_metric(self, run, name, value, step):
        self.calls.append((name, value, step))

    def set_terminated(self, run):
        self.calls.append(("end", run))


@pytest.fixture
def packages(monkeypatch):
    """Puts both packages there."""
    board, mlflow = ModuleType("torch.utils.tensorboard"), ModuleType("mlflow")
    board.SummaryWriter, mlflow.MlflowClient = SummaryWriter, MlflowClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setattr(SummaryWriter, "calls", [])
    monkeypatch.setattr(MlflowClient, "calls", [])


def train(folder, more="", progress=None):
    """Trains the tiny recipe, and returns its model."""
    pipeline = load_tiny(folder, tables=("sage",), more=more)
    assert bool(pipeline.train[0].metrics_to) == bool(more)
    store = Store(folder / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    (model,) = train_table(
        store,
        built.inputs,
        pipeline.train[0],
        pipeline.sampling,
        0,
        asked_by=f"{pipeline.name}/sage",
        report=lambda line: None,
        progress=progress,
    )
    return model


def test_each_epoch_is_sent_while_the_training_goes_on(packages, tmp_path):
    model = train(tmp_path, 'metrics_to = ["tensorboard", "mlflow"]\n')
    rows = [row for row in SummaryWriter.calls if row[0] == "loss"]
    assert [step for _, _, step in rows] == [1, 2]
    (_, folder) = SummaryWriter.calls[0]
    assert folder == str(tmp_path / "home" / "tensorboard" / "tiny" / f"sage-seed-0-{model.version[:12]}")
    assert {call[0] for call in SummaryWriter.calls} == {"open", "loss", "valid", "seconds", "flush", "close"}
    assert SummaryWriter.calls[-1] == ("close",)
    assert [call for call in MlflowClient.calls if call[0] == "loss"] == rows
    assert ("experiment", "tiny") in MlflowClient.calls and MlflowClient.calls[-1] == ("end", "r")
    assert ("param", "hidden", 8) in MlflowClient.calls and ("param", "version", model.version) in MlflowClient.calls


def test_nothing_is_sent_unless_asked_for_and_the_model_is_the_same(packages, tmp_path):
    plain = train(tmp_path / "plain")
    assert SummaryWriter.calls == MlflowClient.calls == []
    sent = train(tmp_path / "sent", 'metrics_to = ["mlflow"]\n')
    assert sent.version == plain.version and sent.files == plain.files and SummaryWriter.calls == []


class Telling(Silent):
    """Keeps the lines that a training tells."""

    def __init__(self):
        self.lines = []

    def tell(self, line):
        self.lines.append(line)


@pytest.mark.parametrize("call", ["log_metric", "set_terminated"])
def test_a_server_that_goes_away_ends_no_training(packages, tmp_path, monkeypatch, call):
    def gone(self, run, *args, step=2):
        if step == 2:
            raise ConnectionError("the server is gone\nTraceback of the library")

    monkeypatch.setattr(MlflowClient, call, gone)
    plain, progress = train(tmp_path / "plain"), Telling()
    sent = train(tmp_path / "sent", 'metrics_to = ["mlflow", "tensorboard"]\n', progress)
    assert sent.version == plain.version and sent.files == plain.files
    said = [line for line in progress.lines if "MLflow" in line]
    assert said == ["seed 0, MLflow gets no numbers from epoch 2 on: ConnectionError: the server is gone"]
    assert [step for name, _, step in (row for row in SummaryWriter.calls if row[0] == "loss")] == [1, 2]
    assert SummaryWriter.calls[-1] == ("close",)


@pytest.mark.parametrize(
    ("program", "kind", "call"),
    [("mlflow", MlflowClient, "create_run"), ("tensorboard", SummaryWriter, "__init__")],
)
def test_a_program_that_cannot_be_opened_is_refused_before_the_training(
    packages, tmp_path, monkeypatch, program, kind, call
):
    def closed(*args, **options):
        raise OSError("nobody answers")

    monkeypatch.setattr(kind, call, closed)
    with pytest.raises(InputError, match=rf'"{program}", which cannot be opened: OSError: nobody answers(?s:.*)remove'):
        train(tmp_path, f'metrics_to = ["{program}"]\n')


@pytest.mark.parametrize(("program", "module"), [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow")])
def test_a_package_that_is_not_installed_is_named_before_the_training(tmp_path, monkeypatch, program, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf'metrics_to names "{program}"(?s:.*)-e "\.\[{program}\]"'):
        train(tmp_path, f'metrics_to = ["{program}"]\n')


def test_an_unknown_program_is_a_mistake_of_the_file(tmp_path):
    with pytest.raises(InputError, match=r"metrics_to names \['wandb'\](?s:.*)the programs are: tensorboard, mlflow"):
        train(tmp_path, 'metrics_to = ["wandb"]\n')
