"""The child process that reads a DGL file: `python -m graphmill.assets.sources.dgl.reader PARENT FILE FOLDER REQUEST`.

It writes the arrays of one graph into FOLDER as `.npy` files and prints one line of JSON: a description of the arrays, or a problem and its
remedy. A file that makes DGL crash ends this process and not the one that builds the artifact.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.building.child import end_with_parent
from graphmill.assets.sources.unread import unread_words
from graphmill.kernels.errors import InputError, did_you_mean, install_extra

MASKS = ("train_mask", "val_mask", "test_mask")


def main(arguments: list[str]) -> None:
    """Reads, writes, and prints the answer."""
    end_with_parent(int(arguments[0]))
    path, folder, request = Path(arguments[1]), Path(arguments[2]), json.loads(arguments[3])
    try:
        graph, beside = open_graph(path, request["index"])
        answer = describe(graph, path, folder, request["names"]) | {"beside": beside}
    except InputError as error:
        answer = {"problem": error.problem, "remedy": error.remedy}
    print(json.dumps(answer), flush=True)


def open_graph(path: Path, index: int) -> tuple[Any, list[str]]:
    """Returns graph `index` of a file as a DGLGraph, and the names of the tensors that the file holds beside its graphs.

    Raises:
        InputError: DGL is not installed, the file is not a file of graphs, or lacks the graph.
    """
    try:
        import dgl
    except ImportError as error:
        raise InputError(f"reading {path} needs DGL: {error}", f"{install_extra('dgl')} (Python 3.11)") from error
    try:
        graphs, beside = dgl.load_graphs(str(path))
    except Exception as error:  # DGL raises its own error, torch's and plain ones
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        reason = first.split("Check failed:")[-1].strip()
        raise InputError(
            f"{path}: is no file of dgl.save_graphs, or a damaged one: {reason}",
            "copy it again, or save the graph again",
        ) from error
    if index >= len(graphs):
        raise InputError(f"{path}: index = {index}, but it holds {len(graphs)} graphs", "give a smaller `index`")
    if graphs[index].is_block:
        raise InputError(f"{path}: graph {index} is a block of a mini-batch", "save the whole graph")
    graph = graphs[index]
    # A graph that was saved in CSR or CSC alone has no list of edges until COO is allowed again.
    return (graph if "coo" in _formats(graph) else graph.formats(["coo", "csr", "csc"])), sorted(map(str, beside))


def _formats(graph: Any) -> list[str]:
    """Returns the sparse formats that a graph may have or make."""
    found = graph.formats()
    return [*found["created"], *found["not created"]]


def describe(graph: Any, path: Path, folder: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Writes the arrays of a graph and returns their description, with all mistakes in the names and kinds of its data.

    Raises:
        InputError: a tensor has no NumPy form.
    """
    nodes = [_write_nodes(graph, number, folder, names, path) for number in range(len(graph.ntypes))]
    wrong = _missing(graph, names, path, nodes)
    labelled = [entry["name"] for entry in nodes if entry["label"]]
    if len(labelled) > 1:
        remedy = "keep those of one type: their classes would mix"
        wrong.append((f"{path}: the node types {', '.join(labelled)} have labels", remedy))
    edges = []
    for number, (source, name, target) in enumerate(graph.canonical_etypes):
        kind = (source, name, target)
        src, dst = graph.edges(etype=kind, order="eid")
        _save(folder / f"edge.{number}.npy", np.stack([src.numpy(), dst.numpy()]))
        edges.append({"source": source, "name": name, "target": target, "weight": bool(names["weight"])})
        if names["weight"]:
            wrong += _write_weights(graph, number, len(src), folder, names["weight"], path)
    return {"nodes": nodes, "edges": edges, "unread": _unread(graph, nodes, names), "wrong": wrong}


def _write_weights(graph: Any, number: int, count: int, folder: Path, weight: str, path: Path) -> list[tuple[str, str]]:
    """Writes the weights of an edge type; returns the problem and remedy if it has none."""
    kind = graph.canonical_etypes[number]
    data = graph.edges[kind].data
    if weight not in data:
        has = f"; they have {', '.join(sorted(map(str, data))) or 'none'}"
        return [(f"{path}: edges {'/'.join(kind)} have no edata '{weight}'{has}", "correct `weight` in [graph]")]
    values = _numpy(data[weight], f"{path}: edata '{weight}'").reshape(-1)
    if len(values) != count:
        return [(f"{path}: edata '{weight}' of {'/'.join(kind)} has several columns", "keep one weight per edge")]
    _save(folder / f"edge.{number}.weight.npy", values)
    return []


def _write_nodes(graph: Any, number: int, folder: Path, names: dict[str, Any], path: Path) -> dict[str, Any]:
    kind = graph.ntypes[number]
    data = graph.nodes[kind].data

    def taken(name: str) -> str | None:
        return name if name in data else None

    features = [taken(name or "feat") for name in names["features"]]
    for place, name in enumerate(features):
        if name:
            values = _numpy(data[name], f"{path}: ndata '{name}' of node type '{kind}'")
            values = values.reshape(len(values), 1) if values.ndim == 1 else values
            _save(folder / f"node.{number}.feature.{place}.npy", values)
    label = taken(names["label"] or "label")
    if label:
        values = _numpy(data[label], f"{path}: ndata '{label}' of node type '{kind}'")
        _save(folder / f"node.{number}.label.npy", values)
    masks = [mask for mask in MASKS if mask in data]
    for mask in masks:
        _save(folder / f"node.{number}.{mask}.npy", _numpy(data[mask], f"{path}: ndata '{mask}'"))
    unread = sorted(str(name) for name in data if name not in {*features, label, *masks})
    found = {"name": kind, "count": int(graph.num_nodes(kind)), "masks": masks, "features": features, "label": label}
    return found | {"unread": unread}


def _unread(graph: Any, nodes: list[dict[str, Any]], names: dict[str, Any]) -> list[str]:
    """Returns phrases about the ndata and edata that no key of the pipeline names."""
    found = []
    for entry in nodes:
        read = {*entry["features"], *names["others"], entry["label"], *entry["masks"]}
        left = [f"'{name}'" for name in graph.nodes[entry["name"]].data if name not in read]
        found += unread_words("ndata", "ndata", left, f" of node type '{entry['name']}'")
    for kind in graph.canonical_etypes:
        left = [f"'{name}'" for name in graph.edges[kind].data if name != names["weight"]]
        found += unread_words("edata", "edata", left, f" of edges {'/'.join(kind)}")
    return found


def _missing(graph: Any, names: dict[str, Any], path: Path, nodes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Returns problem and remedy of each configured name that no node type has."""
    asked = [("feature", name, [entry["features"][i] for entry in nodes]) for i, name in enumerate(names["features"])]
    has = sorted({str(key) for kind in graph.ntypes for key in graph.nodes[kind].data})
    return [
        (
            f"{path}: no node type has ndata '{name}'{did_you_mean(name, has, chr(39))}; they have {', '.join(has) or 'none'}",
            f"correct `{key}` in [graph]" + (", or `columns` in [features]" if key == "feature" else ""),
        )
        for key, name, found in (*asked, ("label", names["label"], [entry["label"] for entry in nodes]))
        if name and not any(found)
    ]


def _numpy(tensor: Any, where: str) -> Any:
    try:
        return tensor.numpy()
    except TypeError as error:
        raise InputError(f"{where} is {tensor.dtype}, which NumPy lacks", "save it as float32") from error


def _save(path: Path, values: Any) -> None:
    np.save(path, np.ascontiguousarray(values))


if __name__ == "__main__":
    main(sys.argv[1:])
