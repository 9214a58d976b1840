"""graphmill from Python: `import graphmill`, and everything that `docs/python.md` shows is a name of this package.

The names come from its four layers, `graphmill.kernels`, `graphmill.assets`, `graphmill.trainers` and `graphmill.jobs`, and each is
imported when it is first used: importing graphmill itself loads neither torch nor Dagster. No layer uses these names.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmill.assets.features.encode import encode as encode
    from graphmill.assets.features.read import open_features as open_features
    from graphmill.assets.graph.read import open_graph as open_graph
    from graphmill.assets.pipeline.exports.frames import node_frame as node_frame
    from graphmill.assets.pipeline.exports.frames import to_pandas as to_pandas
    from graphmill.assets.pipeline.exports.graphs import to_dgl as to_dgl
    from graphmill.assets.pipeline.exports.graphs import to_pyg as to_pyg
    from graphmill.assets.pipeline.file import Pipeline as Pipeline
    from graphmill.assets.storage.local.artifact import Artifact as Artifact
    from graphmill.assets.storage.store import Store as Store
    from graphmill.calls import artifact as artifact
    from graphmill.calls import batches as batches
    from graphmill.calls import export as export
    from graphmill.calls import leaderboard as leaderboard
    from graphmill.calls import open as open
    from graphmill.calls import pipeline as pipeline
    from graphmill.calls import plan as plan
    from graphmill.calls import predict as predict
    from graphmill.calls import report as report
    from graphmill.calls import run as run
    from graphmill.component import PipelineComponent as PipelineComponent
    from graphmill.component import PipelineFolderComponent as PipelineFolderComponent
    from graphmill.jobs.launch import Outcome as Outcome
    from graphmill.jobs.launch import StepError as StepError
    from graphmill.kernels.errors import InputError as InputError
    from graphmill.kernels.sampling.sample import Sampler as Sampler
    from graphmill.kernels.types import BatchKey as BatchKey
    from graphmill.kernels.types import Block as Block
    from graphmill.kernels.types import Stream as Stream
    from graphmill.resource import GraphmillHome as GraphmillHome
    from graphmill.trainers.batches.batch import MiniBatch as MiniBatch
    from graphmill.trainers.models.attention import attend as attend
    from graphmill.trainers.models.ends import LinearHead as LinearHead
    from graphmill.trainers.models.ends import Projection as Projection
    from graphmill.trainers.models.layer import LayeredModel as LayeredModel
    from graphmill.trainers.models.ops import aggregate as aggregate
    from graphmill.trainers.models.ops import dropout as dropout
    from graphmill.trainers.notebook import Trained as Trained
    from graphmill.trainers.training.dataset import Batches as Batches

# An installed package holds its layers. In a clone they are the folders beside this one.
if not os.path.isdir(os.path.join(__path__[0], "kernels")):
    __path__.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_PLACES = {
    "graphmill.assets.features.encode": ("encode",),
    "graphmill.assets.features.read": ("open_features",),
    "graphmill.assets.graph.read": ("open_graph",),
    "graphmill.assets.pipeline.exports.frames": ("node_frame", "to_pandas"),
    "graphmill.assets.pipeline.exports.graphs": ("to_dgl", "to_pyg"),
    "graphmill.assets.pipeline.file": ("Pipeline",),
    "graphmill.assets.storage.local.artifact": ("Artifact",),
    "graphmill.assets.storage.store": ("Store",),
    "graphmill.calls": (
        "artifact",
        "batches",
        "export",
        "leaderboard",
        "open",
        "pipeline",
        "plan",
        "predict",
        "report",
        "run",
    ),
    "graphmill.component": ("PipelineComponent", "PipelineFolderComponent"),
    "graphmill.jobs.launch": ("Outcome", "StepError"),
    "graphmill.kernels.errors": ("InputError",),
    "graphmill.kernels.sampling.sample": ("Sampler",),
    "graphmill.kernels.types": ("BatchKey", "Block", "Stream"),
    "graphmill.resource": ("GraphmillHome",),
    "graphmill.trainers.batches.batch": ("MiniBatch",),
    "graphmill.trainers.models.attention": ("attend",),
    "graphmill.trainers.models.ends": ("LinearHead", "Projection"),
    "graphmill.trainers.models.layer": ("LayeredModel",),
    "graphmill.trainers.models.ops": ("aggregate", "dropout"),
    "graphmill.trainers.notebook": ("Trained",),
    "graphmill.trainers.training.dataset": ("Batches",),
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
