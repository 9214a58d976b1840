"""The child process that reads a DGL file: `python -m graphmill.assets.sources.dgl.reader PARENT FILE FOLDER REQUEST`.

It writes arrays of one graph into FOLDER as `.npy` files, or of all graphs of the file as one (assets/sources/named/many.py), and prints
one line of JSON: the names of the graph's data and those files, or a problem and its remedy. A file that makes DGL crash ends this process
and not the one that builds the artifact.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.building.child import end_with_parent
from graphmill.assets.sources.named.many import joined_graphs, one_graph
from graphmill.kernels.errors import InputError, install_extra


def main(arguments: list[str]) -> None:
    """Reads, writes, and prints the answer."""
    end_with_parent(int(arguments[0]))
    path, folder, request = Path(arguments[1]), Path(arguments[2]), json.loads(arguments[3])
    try:
        graphs, beside = load(path)
        if request["index"] == "all":
            answer = describe_all(graphs, beside, path, folder, request["names"], request["label"])
        else:
            graph = chosen(graphs, path, request["index"])
            answer = describe(graph, path, folder, request["names"], request["of_edges"])
            answer |= {"beside": sorted(map(str, beside)), "others": len(graphs) - 1}
    except InputError as error:
        answer = {"problem": error.problem, "remedy": error.remedy}
    print(json.dumps(answer), flush=True)


def load(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Returns the DGLGraphs of a file, and name -> tensor of what stands beside them.

    Raises:
        InputError: DGL is not installed, or the file is not a file of graphs.
    """
    try:
        import dgl
    except ImportError as error:
        raise InputError(f"reading {path} needs DGL: {error}", f"{install_extra('dgl')} (Python 3.11)") from error
    try:
        return dgl.load_graphs(str(path))
    except Exception as error:  # DGL raises its own error, torch's and plain ones
        problem = f"{path}: is no file of dgl.save_graphs, or a damaged one"
        raise InputError(problem, "copy it again, or save the graph again") from error


def chosen(graphs: list[Any], path: Path, index: int) -> Any:
    """Returns graph `index`; raises InputError if the file lacks it, or it is a block."""
    if index >= len(graphs):
        raise InputError(f"{path}: index = {index}, but it holds {len(graphs)} graphs", "give a smaller `index`")
    graph = graphs[index]
    if graph.is_block:
        raise InputError(f"{path}: graph {index} is a block of a mini-batch", "save the whole graph")
    # A graph that was saved in CSR or CSC alone has no list of edges until COO is allowed again.
    formats = graph.formats()
    return graph if "coo" in (*formats["created"], *formats["not created"]) else graph.formats(["coo", "csr", "csc"])


def describe_all(
    graphs: list[Any], beside: dict[str, Any], path: Path, folder: Path, names: list[str], label: str
) -> dict[str, Any]:
    """Writes arrays of all graphs as one and returns the names of all its data, and which of them stand in which files.

    Args:
        beside: name -> tensor with a row per graph, the labels among them.
        names: names of data of nodes that are wanted.

    Raises:
        InputError: the file has no labels of its graphs, a graph has several node types, or the graphs do not fit together.
    """
    if label not in beside:
        problem = f"{path}: index = 'all' learns labels of whole graphs, and it has no tensor '{label}' beside them"
        known = f"it has {', '.join(sorted(map(str, beside))) or 'none'}"
        raise InputError(
            f"{problem}; {known}", f"dgl.save_graphs(PATH, graphs, {{'{label}': labels}}), or give `label`"
        )
    labels = _numpy(beside[label], f"{path}: the tensor '{label}'")
    if labels.ndim == 0 or len(labels) != len(graphs):
        problem = f"{path}: the tensor '{label}' is {list(labels.shape)}, and the file has {len(graphs)} graphs"
        raise InputError(problem, f"give {label} of shape [{len(graphs)}] or [{len(graphs)}, C]")
    found = []
    for number in range(len(graphs)):
        graph = chosen(graphs, path, number)
        if len(graph.ntypes) != 1 or len(graph.canonical_etypes) != 1:
            raise InputError(f"{path}: graph {number} has several types", "give `index` to read one of the graphs")
        ends = np.stack([end.numpy() for end in graph.edges(order="eid")])
        data = {str(name): _numpy(graph.ndata[name], f"{path}: ndata '{name}'") for name in graph.ndata}
        data.pop(label, None)
        own = {label: labels[number : number + 1]}
        found.append(one_graph(number, ends, data | own, graph.num_nodes(), path, label))
    joined, wanted = joined_graphs(found, path, label), {*names, label}
    nodes, edges = [], []
    for number, (kind, data) in enumerate(joined.nodes.items()):
        arrays, files = {name: values for name, values in data.items() if name != "num_nodes"}, {}
        for place, name in enumerate(arrays):
            if name in wanted:
                files[name] = _save(folder / f"node.{number}.{place}.npy", arrays[name])
        nodes.append({"kind": kind, "count": data["num_nodes"], "names": [*arrays], "files": files})
    for number, (kind, data) in enumerate(joined.edges.items()):
        files = {"edge_index": _save(folder / f"edge.{number}.npy", data["edge_index"])}
        edges.append({"kind": kind, "names": ["edge_index"], "files": files})
    left = sorted(str(name) for name in beside if name != label)
    return {"nodes": nodes, "edges": edges, "beside": left, "others": 0}


def describe(graph: Any, path: Path, folder: Path, names: list[str], of_edges: list[str]) -> dict[str, Any]:
    """Writes arrays of a graph and returns the names of all its data, and which of them stand in which files.

    Args:
        names: names of data of nodes that are wanted.
        of_edges: names of data of edges that are wanted.

    Raises:
        InputError: a tensor has no NumPy form.
    """
    nodes, edges = [], []
    for number, kind in enumerate(graph.ntypes):
        data, files = graph.nodes[kind].data, {}
        for place, name in enumerate(names):
            if name in data:
                values = _numpy(data[name], f"{path}: ndata '{name}' of node type '{kind}'")
                files[name] = _save(folder / f"node.{number}.{place}.npy", values)
        nodes.append({"kind": kind, "count": int(graph.num_nodes(kind)), "names": [*map(str, data)], "files": files})
    for number, kind in enumerate(graph.canonical_etypes):
        data, ends = graph.edges[kind].data, graph.edges(etype=kind, order="eid")
        files = {"edge_index": _save(folder / f"edge.{number}.npy", np.stack([end.numpy() for end in ends]))}
        for place, name in enumerate(of_edges):
            if name in data:
                values = _numpy(data[name], f"{path}: edata '{name}'")
                files[name] = _save(folder / f"edge.{number}.{place}.npy", values)
        edges.append({"kind": kind, "names": ["edge_index", *map(str, data)], "files": files})
    return {"nodes": nodes, "edges": edges}


def _numpy(tensor: Any, where: str) -> Any:
    try:
        return tensor.numpy()
    except TypeError as error:
        raise InputError(f"{where} is {tensor.dtype}, which NumPy lacks", "save it as float32") from error


def _save(path: Path, values: Any) -> str:
    np.save(path, np.ascontiguousarray(values))
    return path.name


if __name__ == "__main__":
    main(sys.argv[1:])
