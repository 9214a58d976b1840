"""The child process that reads a DGL file: `python -m graphmill.assets.sources.dgl.reader PARENT FILE FOLDER REQUEST`.

It writes arrays of one graph into FOLDER as `.npy` files and prints one line of JSON: the names of the graph's data and those files, or a
problem and its remedy. A file that makes DGL crash ends this process and not the one that builds the artifact.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.building.child import end_with_parent
from graphmill.kernels.errors import InputError, install_extra


def main(arguments: list[str]) -> None:
    """Reads, writes, and prints the answer."""
    end_with_parent(int(arguments[0]))
    path, folder, request = Path(arguments[1]), Path(arguments[2]), json.loads(arguments[3])
    try:
        graph, beside, others = open_graph(path, request["index"])
        answer = describe(graph, path, folder, request["names"], request["of_edges"])
        answer |= {"beside": beside, "others": others}
    except InputError as error:
        answer = {"problem": error.problem, "remedy": error.remedy}
    print(json.dumps(answer), flush=True)


def open_graph(path: Path, index: int) -> tuple[Any, list[str], int]:
    """Returns graph `index` of a file as a DGLGraph, the names of the tensors beside the graphs, and the number of other graphs.

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
        problem = f"{path}: is no file of dgl.save_graphs, or a damaged one"
        raise InputError(problem, "copy it again, or save the graph again") from error
    if index >= len(graphs):
        raise InputError(f"{path}: index = {index}, but it holds {len(graphs)} graphs", "give a smaller `index`")
    if graphs[index].is_block:
        raise InputError(f"{path}: graph {index} is a block of a mini-batch", "save the whole graph")
    graph = graphs[index]
    # A graph that was saved in CSR or CSC alone has no list of edges until COO is allowed again.
    formats = graph.formats()
    graph = graph if "coo" in (*formats["created"], *formats["not created"]) else graph.formats(["coo", "csr", "csc"])
    return graph, sorted(map(str, beside)), len(graphs) - 1


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
