"""graphmill from Python: `import graphmill`, and everything that `docs/python.md` shows is a name of this package.

The names come from the four packages beside this one, and each is imported when it is first used: importing graphmill itself loads
neither torch nor Dagster. Nothing in those packages imports this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assets.features.read import open_features as open_features
    from assets.graph.read import open_graph as open_graph
    from assets.pipeline.exports.frames import node_frame as node_frame
    from assets.pipeline.exports.graphs import to_dgl as to_dgl
    from assets.pipeline.exports.graphs import to_pyg as to_pyg
    from assets.pipeline.file import Pipeline as Pipeline
    from assets.storage.artifact import Artifact as Artifact
    from assets.storage.store import Store as Store
    from graphmill.calls import artifact as artifact
    from graphmill.calls import batches as batches
    from graphmill.calls import open as open
    from graphmill.calls import pipeline as pipeline
    from graphmill.calls import predict as predict
    from graphmill.calls import run as run
    from graphmill.component import PipelineComponent as PipelineComponent
    from jobs.launch import Outcome as Outcome
    from jobs.launch import StepError as StepError
    from kernels.errors import InputError as InputError
    from kernels.sampling.sample import Sampler as Sampler
    from kernels.types import BatchKey as BatchKey
    from kernels.types import Block as Block
    from kernels.types import Stream as Stream
    from trainers.batches.batch import MiniBatch as MiniBatch
    from trainers.models.attention import attend as attend
    from trainers.models.ends import LinearHead as LinearHead
    from trainers.models.ends import Projection as Projection
    from trainers.models.layer import LayeredModel as LayeredModel
    from trainers.models.ops import aggregate as aggregate
    from trainers.models.ops import dropout as dropout
    from trainers.notebook import Trained as Trained

_PLACES = {
    "assets.features.read": ("open_features",),
    "assets.graph.read": ("open_graph",),
    "assets.pipeline.exports.frames": ("node_frame",),
    "assets.pipeline.exports.graphs": ("to_dgl", "to_pyg"),
    "assets.pipeline.file": ("Pipeline",),
    "assets.storage.artifact": ("Artifact",),
    "assets.storage.store": ("Store",),
    "graphmill.calls": ("artifact", "batches", "open", "pipeline", "predict", "run"),
    "graphmill.component": ("PipelineComponent",),
    "jobs.launch": ("Outcome", "StepError"),
    "kernels.errors": ("InputError",),
    "kernels.sampling.sample": ("Sampler",),
    "kernels.types": ("BatchKey", "Block", "Stream"),
    "trainers.batches.batch": ("MiniBatch",),
    "trainers.models.attention": ("attend",),
    "trainers.models.ends": ("LinearHead", "Projection"),
    "trainers.models.layer": ("LayeredModel",),
    "trainers.models.ops": ("aggregate", "dropout"),
    "trainers.notebook": ("Trained",),
}
"""Module -> its public names, the same as above, where a type checker reads them."""
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'graphmill' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(_MODULES)
