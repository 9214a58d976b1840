"""Graphs that DGL saved: one graph of a `save_graphs` file, or all of them as one, with features, labels and masks.

    ndata["feat"]                                features [N, F] or [N]
    ndata["label"]                               labels [N], -1 or NaN unknown
    ndata["train_mask"], ["val_mask"], ["test_mask"]   masks [N], or [N, S] with `split = s`, of true and false or of 0 and 1
    edata[weight]                                weights [E], if `weight` names them

With `index = "all"` all graphs of the file are one graph, whose node type `graph` has the labels: a tensor [G] beside the graphs
(assets/sources/named/many.py).

Data of other names are not read, which `graphmill inspect` says; a name that probably means one that is missing is refused. A file may
have any of DGL's sparse formats. Node types of a heterograph become ranges of ids, its canonical edge types become edge types, both in
DGL's order. One node type may have labels.

DGL may crash on a damaged file, so it reads it in a child process (assets/sources/dgl/reader.py), which passes the arrays on as files. Peak
memory: the child's, which holds the whole graph, then as assets/sources/edges/source.py states. Disk while building: the graph's arrays
once more.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from graphmill.assets.building.child import child_environment, run_child
from graphmill.assets.building.keys import within
from graphmill.assets.sources.interface import FEATURES_TOO
from graphmill.assets.sources.named.arrays import MASKS, MEANT, NamedArrays, Words, require_one_file
from graphmill.assets.sources.named.source import NamedSource
from graphmill.kernels.errors import InputError

SAVE_AGAIN = "save the graph again with dgl.save_graphs"
WORDS = Words(
    feature="feat",
    label="label",
    features=("x", "h", *MEANT["x"]),
    labels=("y", *MEANT["y"]),
    data=("ndata ", "ndata", "edata"),
    nodes="ndata of node type '{}'",
    edges="",
    saved="graph",
    rename="graph.ndata['{mask}'] = graph.ndata.pop('{name}'), and save the graph again",
    no_weight="{where} have no edata '{name}'; they have {has}",
    wide_weight=("{file}: edata '{name}' of {kind} has several columns", "keep one weight per edge"),
)


@dataclass(frozen=True, kw_only=True)
class DglConfig(NamedSource):
    """`[graph]` with `source = "dgl"`."""

    # names this kind of source
    source: str = field(default="dgl", metadata=FEATURES_TOO)
    # the file; relative to the pipeline file
    path: Path
    # number of the graph in the file, from 0; "all" = all of them, with a labelled node for each
    index: int | Literal["all"] = field(default=0, metadata=within(0, **FEATURES_TOO))

    one_name = "ndata has"
    edge_feature = "feat"
    example: ClassVar[Mapping[str, Any]] = {"path": "graph.dgl"}

    def files(self) -> Mapping[str, Path]:
        """Returns the whole file, which both the graph and its features need."""
        return {"dgl": self.path}

    def load(self, folder: Path, features: Sequence[str | None]) -> NamedArrays:
        """Reads the file in a child process, which passes the arrays on as files."""
        times = () if self.node_time is None else (self.node_time,)
        names = [*(name or WORDS.feature for name in features), self.label or WORDS.label, *MASKS, *times]
        of_edges = [*self.edge_names, *(MASKS if self.marks == "given" else ())]
        request = {"index": self.index, "names": names, "of_edges": of_edges, "label": self.label or WORDS.label}
        found = _run_reader(self.path, folder, request)
        return NamedArrays(
            where=str(self.path),
            nodes={each["kind"]: _data(each, folder) for each in found["nodes"]},
            edges={(a, b, c): _data(each, folder) for each in found["edges"] for a, b, c in [each["kind"]]},
            counts={each["kind"]: each["count"] for each in found["nodes"]},
            whole=[
                *(f"'{name}' of whole graphs" for name in found["beside"]),
                *([f"{found['others']:,} other graphs of the file"] if found["others"] else []),
            ],
            words=WORDS,
        )


def _data(entry: Mapping[str, Any], folder: Path) -> dict[str, Path | None]:
    """Returns name -> file of the data of a type; None for those that are not wanted."""
    return {name: folder / entry["files"][name] if name in entry["files"] else None for name in entry["names"]}


def _run_reader(path: Path, folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    require_one_file(path, ("*.bin", "*.dgl"))
    arguments = [str(os.getpid()), str(path), str(folder), json.dumps(request)]
    command = [sys.executable, "-m", "graphmill.assets.sources.dgl.reader", *arguments]
    child = run_child(command, child_environment({"DGLBACKEND": "pytorch"}))
    answer = next((line for line in reversed(child.stdout.splitlines()) if line.startswith("{")), None)
    if answer is None:
        last = (child.stderr.strip().splitlines() or ["no reason was given"])[-1]
        how = (
            f"died of signal {-child.returncode}" if child.returncode < 0 else f"ended with {child.returncode}: {last}"
        )
        raise InputError(f"{path}: DGL could not read it and {how}", f"the file is damaged: copy it, or {SAVE_AGAIN}")
    found = json.loads(answer)
    if "problem" in found:
        raise InputError(found["problem"], found["remedy"])
    return found
