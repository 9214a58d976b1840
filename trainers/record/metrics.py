"""Sends the numbers of each epoch to programs that draw them during a training: TensorBoard and MLflow.

Off by default: `metrics_to` of a train table names them, and the packages are extras. They receive the numbers of the model's metrics.jsonl
and do not affect the model. A program that cannot be opened is an error before the training; one that fails later is named in a line and
dropped, and the training continues.

- TensorBoard has a folder per training, `<home>/tensorboard/PIPELINE/NAME-seed-SEED-VERSION`: `tensorboard --logdir <home>/tensorboard`.
- MLflow has a run per training in the experiment PIPELINE, on the server that its own variable MLFLOW_TRACKING_URI names.

A training that continues from a checkpoint appends to TensorBoard's folder and begins a new run of MLflow.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from graphmill.kernels.errors import InputError, install_extra

PROGRAMS = ("tensorboard", "mlflow")
"""The programs, which are the names of their packages, too."""
_REACHED = {
    "tensorboard": "the folder tensorboard of the home can be written",
    "mlflow": "the server that MLFLOW_TRACKING_URI names answers",
}


@dataclass(frozen=True, kw_only=True)
class Label:
    """The training that the numbers belong to; its recipe is plain values by name."""

    home: Path
    pipeline: str
    name: str
    seed: int
    version: str
    recipe: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The name of the training among those of its pipeline."""
        return f"{self.name}-seed-{self.seed}-{self.version[:12]}"


class MetricWriter(Protocol):
    """Sends numbers to a program."""

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        """Sends the numbers of a finished epoch; epochs count from 1."""
        ...

    def close(self) -> None:
        """Ends the writing after the training."""
        ...


class TensorBoard:
    """Writes event files that TensorBoard reads."""

    def __init__(self, label: Label):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(label.home / "tensorboard" / label.pipeline / label.text))

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        """Writes a point of each curve, so that it shows at once."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


class MLflow:
    """Logs to a run of MLflow, under its own experiment."""

    def __init__(self, label: Label):
        import mlflow  # pyright: ignore[reportMissingImports]

        self._client = mlflow.MlflowClient()
        found = self._client.get_experiment_by_name(label.pipeline)
        experiment = found.experiment_id if found else self._client.create_experiment(label.pipeline)
        self._run = self._client.create_run(experiment, run_name=label.text).info.run_id
        for name, value in {**label.recipe, "seed": label.seed, "version": label.version}.items():
            self._client.log_param(self._run, name, value)

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        """Logs each number with the epoch as its step."""
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=number)

    def close(self) -> None:
        """Marks the run as finished."""
        self._client.set_terminated(self._run)


def absent_programs(programs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (program, sentence with its remedy) for each program of `metrics_to` whose package is not installed."""
    for program in programs:
        if find_spec(program) is None:
            yield (
                program,
                f'metrics_to names "{program}", which is not installed: {install_extra(program)}, or remove the key',
            )


def open_writers(programs: Sequence[str], label: Label) -> list[MetricWriter]:
    """Opens programs of `PROGRAMS`; raises InputError if a package is not installed, or its server does not answer."""
    writers: list[MetricWriter] = []
    for program in programs:
        try:
            writers.append({"tensorboard": TensorBoard, "mlflow": MLflow}[program](label))
        except ImportError as error:
            problem = f'metrics_to names "{program}", which cannot be imported: {error}'
            raise InputError(problem, f"{install_extra(program)}, or remove the key") from error
        except Exception as error:
            problem = f'metrics_to names "{program}", which cannot be opened: {type(error).__name__}: {error}'
            raise InputError(problem, f"see to it that {_REACHED[program]}, or remove the key") from error
    return writers
