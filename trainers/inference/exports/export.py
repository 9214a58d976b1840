"""Writes a trained model for programs without graphmill: torch programs, and modules of PyG and DGL with their state dicts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmill.assets.building.page import markdown_text
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.exports.convolutions import NoCounterpartError
from graphmill.trainers.inference.exports.modules import WEIGHTS, ModuleText, kind_of_weights
from graphmill.trainers.inference.exports.programs import WITH_OWN, parts_of, relations_of, write_part
from graphmill.trainers.inference.trained import OpenedData, find_model, find_recipe, load_model, reopened
from graphmill.trainers.models.cut.trace import first_line
from graphmill.trainers.models.ends import TypedProjection
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.own import Model, OwnLayers, OwnModule, dtype_of
from graphmill.trainers.models.own_layers import WholeLayer
from graphmill.trainers.recipe.inputs import find_model_inputs

OF_MODULES = {
    "subgraph": "`x` float[nodes, columns], `edge_index` int64[2, edges], and `edge_weight` or `edge_type` if the module reads them",
    "pyg": "`x` float[sources of the first block, columns], `edges`, a list of int64[2, edges] of each block, and `nodes`, a list of the "
    "ids of the sources of the first block and of the destinations of each",
}
"""Form of a module's batches -> the arguments of its program."""
PROGRAMS = """`run_layers.logits(x, edge_index, ...)` needs torch alone. A program takes its arguments by their names:

- `h` float[sources, columns]; `own` int64[destinations], their places among the sources;
- `edge_index` int64[2, edges], places of sources in row 0, of destinations in row 1;
- `edge_weight`, `self_weight`, `edge_type`, values of the edges and of destinations, where it reads them."""
"""What a README says of the programs of layers."""
LIBRARIES = {"pyg": "torch_geometric.nn", "dgl": "dgl.nn"}


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A folder that was written.

    Attributes:
        label: stage and version of the model.
        files: name of a file -> its contents in a few words.
        left_out: what could not be written -> the reason.
    """

    label: str
    folder: Path
    files: dict[str, str]
    left_out: dict[str, str]


def export_table(store: Store, pipeline: Pipeline, name: str, folder: Path, seed: int | None = None) -> Exported:
    """Writes the trained model of a `[[train]]` table into a new folder.

    Args:
        folder: the folder; it may not exist, or is empty.
        seed: seed of the table's model; None for the first.

    Raises:
        InputError: the model is not trained, or the folder has files or cannot be made.
    """
    trained = _opened(store, pipeline, name, seed)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already", "remove it, or name another folder with --to")
    folder = folder.absolute()
    begun = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(begun, ignore_errors=True)
    try:
        begun.mkdir(parents=True)
        files, left_out = _write(trained, f"{pipeline.name}/{name}", begun)
        folder.mkdir(exist_ok=True)
        for path in begun.iterdir():
            path.rename(folder / path.name)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}", "name another folder with --to") from error
    finally:
        shutil.rmtree(begun, ignore_errors=True)
    return Exported(label=trained.artifact.label, folder=folder, files=files, left_out=left_out)


class _Trained(NamedTuple):
    """A trained model, in evaluation, with its data."""

    artifact: Artifact
    model: Model
    data: OpenedData


def _opened(store: Store, pipeline: Pipeline, name: str, seed: int | None) -> _Trained:
    """Returns the trained model of a table; errors are those of `export_table`."""
    pipeline.require_one_split()
    table, semantic = find_recipe(pipeline, name, seed)
    inputs = find_model_inputs(pipeline, table, store, {})
    artifact, data = find_model(store, pipeline, name, semantic, inputs), reopened(store, inputs)
    model = load_model(artifact, semantic, data.graph, data.features)
    model.eval()
    return _Trained(artifact, model, data)


def _write(trained: _Trained, name: str, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Writes all files of a model, and returns them with their contents, and what was left out with the reasons."""
    model, files, left_out = trained.model, {}, {}
    programs = list(_programs(trained, folder, left_out))
    files |= {program: "a torch program" for program in programs}
    if isinstance(model, LayeredModel) and len(programs) >= len(model.layers) and not left_out:
        (folder / "run_layers.py").write_text(_run_layers(model, name, programs))
        files["run_layers.py"] = "runs the programs on a whole graph"
    own = isinstance(model, OwnLayers | OwnModule)
    if own:
        _save(folder / "state.safetensors", own_state(model))
        files["state.safetensors"] = (
            "the weights by the keys of your module, or of a torch.nn.ModuleList of your layers"
        )
    for library, nn in LIBRARIES.items() if isinstance(model, LayeredModel) and not own else ():
        try:
            text = ModuleText(model, library)  # pyright: ignore[reportArgumentType]
        except NoCounterpartError as error:
            left_out[nn] = str(error)
            continue
        title = f"The model {name} as a module of {nn}, with the weights of {trained.artifact.label}."
        (folder / f"{library}_model.py").write_text(text.text(title, f"{library}.safetensors"))
        _save(folder / f"{library}.safetensors", text.tensors)
        files |= {f"{library}_model.py": f"a module of {nn}", f"{library}.safetensors": "its state dict"}
    (folder / "README.md").write_text(_readme(trained, name, files, left_out))
    return files, left_out


def _programs(trained: _Trained, folder: Path, left_out: dict[str, str]) -> Iterator[str]:
    """Writes the programs, yields the names of their files, and adds those that cannot be written to `left_out`."""
    topology, model = trained.data.graph.topology, trained.model
    there = {"edge_weight": topology.weights, "edge_type": topology.edge_types}
    if isinstance(model, OwnModule) and getattr(model, "form", "") == "dgl":
        left_out["a torch program"] = "the module reads graphs of DGL, which are not tensors"
    try:
        for part in parts_of(
            model, trained.data.features.width, tuple(n for n, each in there.items() if each is not None)
        ):
            if reason := write_part(part, folder):
                left_out[f"the program {part.name}"] = reason
            else:
                yield from (path.name for path in folder.glob(f"{part.name}.pt*"))
    except Exception as error:  # a layer of the user's own that reads more of a block than its edges
        left_out["torch programs"] = f"a layer does not run on edges alone: {first_line(error)}"


def own_state(model: Any) -> dict[str, Tensor]:
    """Returns the state dict of a model of the user's own by the keys of the module that their code made.

    A list of layers has the keys of a `torch.nn.ModuleList`; with a projection or a head, those of a `LayeredModel`.
    """
    state = model.state_dict()
    if isinstance(model, OwnModule):
        return {key.removeprefix("inner."): value for key, value in state.items()}
    whole = [f"layers.{i}." for i, layer in enumerate(model.layers) if isinstance(layer, WholeLayer)]
    for begin in whole:
        state = {key.replace(f"{begin}inner.", begin, 1): value for key, value in state.items()}
    ends = model.projection is not None or model.readout is not None
    return {key if ends else key.removeprefix("layers."): value for key, value in state.items()}


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    save_file(
        {key: value.detach().clone(memory_format=torch.contiguous_format) for key, value in tensors.items()}, path
    )


def _run_layers(model: LayeredModel, name: str, programs: list[str]) -> str:
    """Returns the text of a Python file that runs the programs of layers on a whole graph."""
    files = {program.partition(".")[0]: f'program("{program}")' for program in programs}
    kind, weights = kind_of_weights(model), model.edge_weight or ""
    data, typed = "data" in weights, isinstance(model.projection, TypedProjection)
    relations = any(relations_of(layer) for layer in model.layers)
    more = {"edge_weight": data, "edge_type": relations, "node_ids": typed}
    given = ["x", "edge_index", *(each for each, there in more.items() if there)]
    fields = {"edge_weight": weights, "self_weight": kind in WITH_OWN, "edge_type": relations}
    edges = ", ".join(f"{each}={each}" for each in ("edge_index", *(name for name, there in fields.items() if there)))
    lines, rows = ["own = torch.arange(len(x))", *_weight_lines(kind, weights)], ["x"]
    if "input" in files:
        rows = ["h0"]
        lines.append(f"h0 = {files['input']}(x=x{', node_ids=node_ids' if typed else ''})")
    for number in range(1, len(model.layers) + 1):
        lines.append(f"h{number} = {files[f'layer-{number}']}(h={rows[-1]}, own=own, {edges})")
        rows.append(f"h{number}")
    read = ", ".join(rows[1:] if model.jumps else rows[-1:])
    lines.append(f"return {files['head']}(outputs=[{read}])" if "head" in files else f"return {rows[-1]}")
    body = "\n".join(f"    {line}" for line in lines)
    return f'''"""The model {name} by its programs, on a whole graph. On a sampled block `own` are the places of its destinations among its
sources."""

from pathlib import Path

import torch

{WEIGHTS[kind].lstrip() if kind else ""}

def program(name):
    """Returns a program of this folder."""
    path = Path(__file__).with_name(name)
    return torch.jit.load(path) if name.endswith(".pt") else torch.export.load(path).module()


def logits({", ".join(given)}):
    """Returns float[nodes, columns] from the features of all nodes, and edges from row 0 to row 1 of edge_index."""
{body}
'''


def _weight_lines(kind: str, weights: str) -> list[str]:
    """Returns the lines that compute the weights of edges which the programs read.

    Args:
        kind: entry of `WEIGHTS`, "" if the data's weights are all that they read.
    """
    if weights == "sum":
        return ["edge_weight = torch.ones(edge_index.shape[1], dtype=x.dtype)"]
    if not weights:
        return []
    call = f"weights(edge_index, len(x){', edge_weight' if 'data' in weights else ''})"
    cast = "edge_weight = edge_weight.to(x.dtype)"
    if kind not in WITH_OWN:
        return [f"edge_weight = {call}.to(x.dtype)" if kind else cast]
    return [f"edge_weight, self_weight = {call}", cast, "self_weight = self_weight.to(x.dtype)"]


def _readme(trained: _Trained, name: str, files: dict[str, str], left_out: dict[str, str]) -> str:
    """Returns the text of the folder's README."""
    lines = [f"# {name}", "", f"The model {trained.artifact.label}, written by `graphmill export`.", ""]
    lines += ["| file | has |", "|---|---|", *(f"| `{file}` | {contents} |" for file, contents in files.items()), ""]
    if left_out:
        lines += ["| left out | because |", "|---|---|"]
        lines += [*(f"| {what} | {markdown_text(why)} |" for what, why in left_out.items()), ""]
    if "run_layers.py" in files:
        lines += [PROGRAMS, ""]
    if isinstance(trained.model, OwnModule) and "model.pt2" in files:
        lines += [f"`model.pt2` takes, by their names, {OF_MODULES[trained.model.form]}.", ""]
    for library in LIBRARIES:
        if f"{library}_model.py" in files:
            lines += [f"`{library}_model.trained()` returns the module of {LIBRARIES[library]} with its weights.", ""]
    width, kept = trained.data.features.width, str(dtype_of(trained.model)).removeprefix("torch.")
    lines += [f"`x` has {width} columns of features, in the order of the pipeline; the model computes in {kept}."]
    lines += [
        "Give the edges of the graph as they are: models add an edge from each node to itself where they need one.",
        "",
    ]
    return "\n".join(lines)
