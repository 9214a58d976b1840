"""Graphs that DGL saved: one graph of a `save_graphs` file, with its features, labels and masks.

    ndata["feat"]                                features [N, F] or [N]
    ndata["label"]                               labels [N], -1 or NaN unknown
    ndata["train_mask"], ["val_mask"], ["test_mask"]   masks [N], or [N, S] with `split = s`
    edata[weight]                                weights [E], where `weight` names them

Node types of a heterograph become ranges of ids, its canonical edge types become edge types, both in DGL's order. One node
type may have labels.

DGL reads a damaged file into a crash, so it reads it in a child process (assets/sources/dgl/reader.py), which hands the
arrays over as files. Peak memory: the child's, which holds the whole graph, then as assets/sources/edges/source.py states. Disk
while building: the graph's arrays once more.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.building.child import child_environment, run_child
from assets.sources.readers.mapped_arrays import mapped_block, mapped_relation, open_plain
from assets.sources.registry import RawGraph
from assets.sources.spooled import SpooledConfig, known_labels
from assets.sources.typed_graph import TypedGraph, first_ids, import_typed
from kernels.errors import InputError
from kernels.types import Array

if TYPE_CHECKING:
    from assets.building.stage import Progress
    from assets.sources.survey import Survey
    from assets.storage.writer import Writer

MASKS = ("train_mask", "val_mask", "test_mask")
SAVE_AGAIN = "save the graph again with dgl.save_graphs"


@dataclass(frozen=True, kw_only=True)
class Config(SpooledConfig):
    """`[graph]` with `source = "dgl"`.

    Raises:
        InputError: a value is outside its range.
    """

    # names this kind of source
    source: str = "dgl"
    # the file; relative to the pipeline file
    path: Path
    # which graph of the file, from 0
    index: int = 0
    # names in ndata; None takes "feat" and "label" where they are there
    feature: str | None = None
    label: str | None = None
    # name of the weights in edata
    weight: str | None = None
    # column of masks [N, S]
    split: int | None = None

    @property
    def weighted(self) -> bool:
        """Whether edges get weights."""
        return self.weight is not None

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        for key in ("index", "split"):
            if (getattr(self, key) or 0) < 0:
                raise InputError(f"{key} = {getattr(self, key)} is negative", "count from 0")


def raw(config: Config) -> dict[str, str]:
    """Returns the content digest of the file.

    Raises:
        InputError: it is missing or unreadable.
    """
    from assets.storage.digests import sha256_file

    return {"dgl": sha256_file(config.path)}


def load(config: Config, writer: Writer, execution: Any, progress: Progress) -> RawGraph:
    """Has the file read, writes the features, and spools the edges.

    Raises:
        InputError: what is wrong with the file.
    """
    folder = writer.scratch()
    return import_typed(read(config, folder), config, writer, progress)


def read(config: Config, folder: Path) -> TypedGraph:
    """Reads the file in a child process and returns its graph, whose arrays lie in `folder`.

    Raises:
        InputError: DGL is not installed, cannot read the file, or data do not fit.
    """
    wanted = {"feature": config.feature, "label": config.label, "weight": config.weight}
    found = _run_reader(config.path, folder, {"index": config.index, "names": wanted})
    node_types = {entry["name"]: entry["count"] for entry in found["nodes"]}
    starts = first_ids(node_types)
    labels = np.full(sum(node_types.values()), -1, np.int32)
    blocks, masks = [], {}
    for number, entry in enumerate(found["nodes"]):
        name, count, where = entry["name"], entry["count"], f"{config.path}: ndata of node type '{entry['name']}'"
        if entry["feature"]:
            blocks.append(
                mapped_block(
                    folder / f"node.{number}.feature.npy", starts[name], count, f"{where}: '{entry['feature']}'"
                )
            )
        if entry["label"]:
            values = _one_column(open_plain(folder / f"node.{number}.label.npy"), count, f"{where}: '{entry['label']}'")
            labels[starts[name] : starts[name] + count] = known_labels(values, count, f"{where}: '{entry['label']}'")
        if entry["masks"]:
            masks[name] = (number, entry["masks"], where)
    relations = []
    for number, entry in enumerate(found["edges"]):
        names = (entry["source"], entry["name"], entry["target"])
        weight = open_plain(folder / f"edge.{number}.weight.npy") if entry["weight"] else None
        where = f"{config.path}: edges {'/'.join(names)}"
        relations.append(mapped_relation(folder / f"edge.{number}.npy", names, where, weight))
    return TypedGraph(
        where=str(config.path),
        node_types=node_types,
        relations=relations,
        blocks=blocks,
        labels=labels,
        splits=_splits(config, folder, masks, node_types),
        weights=config.weight is not None,
    )


def _run_reader(path: Path, folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Runs the child and returns what it found."""
    if not path.is_file():
        raise InputError(f"{path}: no such file", "correct `path` in [graph]; it is relative to the pipeline file")
    command = [sys.executable, "-m", "assets.sources.dgl.reader", str(path), str(folder), json.dumps(request)]
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


def _one_column(values: Array, count: int, where: str) -> Array:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (count,):
        raise InputError(f"{where} has shape {list(values.shape)}, not [{count}]", "keep one label per node")
    return values


def _splits(
    config: Config, folder: Path, masks: dict[str, tuple[int, list[str], str]], node_types: dict[str, int]
) -> tuple[Array, Array, Array] | None:
    if not masks:
        if config.split is not None:
            raise InputError(f"{config.path}: split = {config.split}, but it has no masks", "leave `split` out")
        return None
    parts: list[list[Array]] = [[], [], []]
    for name, (number, present, where) in masks.items():
        missing = [mask for mask in MASKS if mask not in present]
        if missing:
            raise InputError(f"{where}: lacks {', '.join(missing)}", "save all three masks, an empty one too")
        for part, mask in zip(parts, MASKS, strict=True):
            chosen = _chosen(config, open_plain(folder / f"node.{number}.{mask}.npy"), f"{where}: '{mask}'")
            part.append(np.flatnonzero(chosen) + first_ids(node_types)[name])
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2])


def _chosen(config: Config, mask: Array, where: str) -> Array:
    """Returns bool[N]: a mask, or the column `split` of several."""
    if mask.ndim == 2:
        if (config.split or 0) >= mask.shape[1]:
            raise InputError(
                f"{where}: split = {config.split}, but it has {mask.shape[1]} columns", "give a smaller `split`"
            )
        mask = mask[:, config.split or 0]
    if mask.ndim != 1 or mask.dtype.kind not in "biu" or not np.isin(mask, (0, 1)).all():
        raise InputError(f"{where} is {mask.dtype}{list(mask.shape)}, not true or false for each node", SAVE_AGAIN)
    return mask != 0


def survey(config: Config) -> Survey:
    """Describes the graph; DGL reads the whole file for that, in a child process."""
    import tempfile

    from assets.sources.typed_survey import survey_typed

    with tempfile.TemporaryDirectory(prefix="graphmill-inspect-") as name:
        return survey_typed(read(config, Path(name)), config, {config.path.name: config.path})
