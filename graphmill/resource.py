"""A home of graphmill as a resource of Dagster: own assets call its functions, and inputs that are loaded by it are what they are typed as.

    @dg.asset(ins={"sage": dg.AssetIn(["communities", "sage"], input_manager_key="graphmill")})
    def largest_class(sage: polars.DataFrame): ...

Dagster reads the types of fields and arguments at run time, so this file has no `from __future__ import annotations`.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from graphmill import calls
from graphmill.assets.definitions import failing_by_message
from graphmill.assets.pipeline.shown import HOME, PIPELINE_FILE
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.upstream import steps_of
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    import polars
    from torch.utils.data import DataLoader

    from graphmill.calls import Asked


class GraphmillHome(dg.ConfigurableIOManager):
    """A home of artifacts, as a resource whose methods are the functions of graphmill, and as the manager of inputs.

    As `input_manager_key` of an input whose asset is a step of a pipeline it gives what the argument's type asks for: the predictions of a
    model as a `polars.DataFrame` or a `pyarrow.Table`; the batches of its training as a `torch.utils.data.DataLoader`; a
    `graphmill.Artifact`; with another type, or none, what `graphmill.open` returns, such as a `graphmill.Trained`. The metadata of the
    input may hold the other arguments of the method that loads it: `dg.AssetIn(..., metadata={"seed": 1})`.

    Attributes:
        home: folder of the artifacts, relative to the current one. None stands for the home of the asset that an input loads, and in the
            other methods for `$GRAPHMILL_HOME`, or `.graphmill` in the current folder.
    """

    home: str | None = None

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Any]:
        """Gives the steps of a run the models of the tables that the run loaded; called by Dagster."""
        with steps_of(context.run.run_id if context.run else ""), super().yield_for_execution(context) as value:
            yield value

    def artifact(self, source: "Asked", step: str = "") -> Artifact:
        """Returns an artifact of the home, as `graphmill.artifact` does."""
        return calls.artifact(source, step, home=self.home)

    def open(self, source: "Asked", step: str = "") -> Any:
        """Opens an artifact of the home as what it is, as `graphmill.open` does."""
        return calls.open(source, step, home=self.home)

    def predictions(self, source: "Asked", name: str, **options: Any) -> "polars.DataFrame":
        """Returns the class of every node, a row each, as the trained model of a table predicts it.

        Args:
            source, name: the pipeline and the name of its `[[train]]` table.
            options: `seed`, `nodes`, `types`, `probabilities`, `top`, `thresholds`, `workspace` or `threads` of `graphmill.predict`, which
                names the columns.

        Raises:
            InputError: the model is not trained, or a named node does not exist.
        """
        import polars

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "predictions.parquet"
            calls.predict(source, name, path, home=self.home, **options)
            return polars.read_parquet(path, glob=False)

    def loader(self, source: "Asked", name: str, **options: Any) -> "DataLoader":
        """Returns a loader of torch whose items are the batches of `graphmill.batches`; each iteration is the next epoch.

        Args:
            source, name: the pipeline and the name of its `[[train]]` table.
            options: `epoch`, `start`, `seed` or `split` of `graphmill.batches`.

        Raises:
            InputError: an artifact is missing, or the table's technique does not train on batches in one process.
        """
        from torch.utils.data import DataLoader

        return DataLoader(calls.batches(source, name, home=self.home, **options), batch_size=None)

    def load_input(self, context: dg.InputContext) -> Any:
        """Returns the value of an input whose asset is a step of a pipeline; called by Dagster.

        Raises:
            dagster.Failure: the asset is not graphmill's, or what its type asks for is not built; with the remedy.
        """
        with failing_by_message():
            above = context.upstream_output
            about: Mapping[str, Any] = above.definition_metadata if above is not None else {}
            if PIPELINE_FILE not in about:
                problem = f"{context.asset_key.to_user_string()} is not a step of a pipeline of graphmill"
                raise InputError(problem, "load it by the IO manager that stores it")
            home = GraphmillHome(home=self.home or about[HOME].value)
            load = home._loads(context.dagster_type.typing_type)
            return load(about[PIPELINE_FILE].value, context.asset_key.path[-1], **context.definition_metadata)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Refuses what an asset of the project returns: a home holds what the steps of pipelines build, and nothing else.

        Raises:
            dagster.Failure: always.
        """
        with failing_by_message():
            problem = (
                f"{context.asset_key.to_user_string()} is not a step of a pipeline, so graphmill does not store it"
            )
            raise InputError(problem, 'leave io_manager_key out: "graphmill" is for input_manager_key of dg.AssetIn')

    def _loads(self, kind: Any) -> Callable[..., Any]:
        """Returns the method that loads what a type asks for; types are known by their names, since their packages may not be installed."""
        package, name = getattr(kind, "__module__", "").partition(".")[0], getattr(kind, "__name__", "")
        known: dict[str, Callable[..., Any]] = {
            "polars.DataFrame": self.predictions,
            "pyarrow.Table": lambda *asked, **options: self.predictions(*asked, **options).to_arrow(),
            "torch.DataLoader": self.loader,
            "graphmill.Artifact": _by_seed(self.artifact),
        }
        return known.get(f"{package}.{name}", _by_seed(self.open))


def _by_seed(load: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of a pipeline and a step that takes the seed of a model apart from the name of the step."""
    return lambda source, step, seed=None: load(source, step if seed is None else f"{step}/{seed}")
