"""Graphs that DGL saved: one graph of a `save_graphs` file, with its features, labels and masks.

    ndata["feat"]                                features [N, F] or [N]
    ndata["label"]                               labels [N], -1 or NaN unknown
    ndata["train_mask"], ["val_mask"], ["test_mask"]   masks [N], or [N, S] with `split = s`, of true and false or of 0 and 1
    edata[weight]                                weights [E], if `weight` names them

Data of other names are not read, which `graphmill inspect` says; a name that probably means one that is missing is refused. A file may
have any of DGL's sparse formats. Node types of a heterograph become ranges of ids, its canonical edge types become edge types, both in
DGL's order. One node type may have labels.

DGL may crash on a damaged file, so it reads it in a child process (assets/sources/dgl/reader.py), which passes the arrays on as files. Peak
memory: the child's, which holds the whole graph, then as assets/sources/edges/source.py states. Disk while building: the graph's arrays
once more.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.building.child import child_environment, run_child
from graphmill.assets.building.keys import within
from graphmill.assets.sources.classes import known_labels
from graphmill.assets.sources.dgl.reader import MASKS
from graphmill.assets.sources.feature_blocks import FeatureBlock
from graphmill.assets.sources.named_data import NamedDataConfig
from graphmill.assets.sources.npz.arrays import MEANT
from graphmill.assets.sources.readers.mapped_arrays import array_block, mapped_relation, open_plain
from graphmill.assets.sources.registry import FEATURES_TOO, TableConfig, one_split
from graphmill.assets.sources.splits import mask_ids
from graphmill.assets.sources.typed_graph import Relation, TypedGraph, TypedSource, first_ids, survey_typed
from graphmill.kernels.errors import InputError, joined
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress
    from graphmill.assets.sources.survey import Survey

SAVE_AGAIN = "save the graph again with dgl.save_graphs"
FEATURES = ("x", "h", *MEANT["x"])
"""Names that others give to features in ndata; "feat" is ours and DGL's."""
LABELS = ("y", *MEANT["y"])
"""Names that others give to labels in ndata; "label" is ours and DGL's."""
OTHER_MASKS = {mask: (*MEANT[f"{mask}s"], mask.removesuffix("_mask"), f"{mask}s") for mask in MASKS}
"""Mask -> names that others give to it."""


@dataclass(frozen=True, kw_only=True)
class DglConfig(NamedDataConfig):
    """`[graph]` with `source = "dgl"`.

    Raises:
        InputError: a value is outside its range.
    """

    # names this kind of source
    source: str = field(default="dgl", metadata=FEATURES_TOO)
    # number of the graph in the file, from 0
    index: int = field(default=0, metadata=within(0, **FEATURES_TOO))

    one_name = "ndata has"


def raw(config: DglConfig, table: TableConfig | None) -> dict[str, str]:
    """Returns the content digest of the whole file, which both the graph and its features have.

    Raises:
        InputError: the file is missing or unreadable.
    """
    from graphmill.assets.storage.digests import sha256_file

    return {"dgl": sha256_file(config.path)}


@contextmanager
def opened(
    config: DglConfig, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
) -> Iterator[TypedSource]:
    """Reads the file in a child, once for the graph and all feature tables.

    Raises:
        InputError: the file is not sound.
    """
    names = config.feature_names(tables)
    found, blocks = read(config, folder, names, wants_features=bool(names))

    def blocks_of(table: TableConfig) -> Sequence[FeatureBlock]:
        return blocks[config.for_table(table).feature]

    yield TypedSource(found, config, folder, blocks_of)


def _meant(config: DglConfig, nodes: Sequence[dict[str, Any]], place: int | None) -> Iterator[InputError]:
    """Yields an error for unread data that probably mean missing ones: features (if `place` is their place), labels, masks."""
    unread = list(dict.fromkeys(name for entry in nodes for name in entry["unread"]))
    lacking = {
        "feature": place is not None and not any(entry["features"][place] for entry in nodes),
        "label": config.label is None and not any(entry["label"] for entry in nodes),
    }
    wanted = [(key, names) for key, names in {"feature": FEATURES, "label": LABELS}.items() if lacking[key]]
    for key, names in wanted:
        for name in [name for name in unread if name.lower() in names][:1]:
            yield InputError(
                f"{config.path}: ndata '{name}' is not read (did you mean {key} = \"{name}\"?)",
                f'set {key} = "{name}" in [graph], or leave it out of the graph that you save',
            )
    for entry in nodes:
        yield from _other_masks(entry, _where(config.path, entry))


def _where(path: Path, entry: dict[str, Any]) -> str:
    return f"{path}: ndata of node type '{entry['name']}'"


def read(
    config: DglConfig, folder: Path, features: Sequence[str | None], *, wants_features: bool
) -> tuple[TypedGraph, dict[str | None, list[FeatureBlock]]]:
    """Reads the file in a child process.

    Args:
        config: configuration of the source.
        folder: receives the arrays of the graph.
        features: names in ndata to read as features; None is "feat" if it exists.
        wants_features: whether data that probably mean features, which are missing, are refused.

    Returns:
        (the graph, with the blocks of the first of the features; name -> blocks of each of them).

    Raises:
        InputError: DGL is not installed, cannot read the file, or data do not fit: all that were found at once.
    """
    found = _run_reader(config.path, folder, {"index": config.index, "names": _names(config, features)})
    blocks: dict[str | None, list[FeatureBlock]] = {name: [] for name in features}
    node_types = {entry["name"]: entry["count"] for entry in found["nodes"]}
    starts = first_ids(node_types)
    labels = np.full(sum(node_types.values()), -1, np.int32)
    wrong = [InputError(problem, remedy) for problem, remedy in found["wrong"]]
    place = list(features).index(None) if wants_features and None in features else None
    wrong += _meant(config, found["nodes"], place)
    for number, entry in enumerate(found["nodes"]):
        name, count, where = entry["name"], entry["count"], _where(config.path, entry)
        for place, (asked, read_name) in enumerate(zip(features, entry["features"], strict=True)):
            if read_name:
                path = folder / f"node.{number}.feature.{place}.npy"
                block = array_block(open_plain(path), starts[name], count, f"{where}: '{read_name}'")
                blocks[asked].append(replace(block, named_twice=config.named_twice(read_name, "label")))
        if entry["label"]:
            label = f"{where}: '{entry['label']}'"
            try:
                given = known_labels(open_plain(folder / f"node.{number}.label.npy"), count, label, entry["label"])
                labels[starts[name] : starts[name] + count] = given
            except InputError as error:
                wrong.append(error)
    if wrong:
        raise joined(wrong)
    graph = TypedGraph(
        where=str(config.path),
        node_types=node_types,
        relations=[_relation(config.path, folder, *each) for each in enumerate(found["edges"])],
        blocks=blocks[features[0]] if features else [],
        labels=labels,
        splits=_splits(config, folder, _masks(config.path, found["nodes"]), node_types),
        unread=[*found["unread"], *(f"'{name}' of whole graphs" for name in found["beside"])],
    )
    return graph, blocks


def _masks(path: Path, nodes: Sequence[dict[str, Any]]) -> dict[str, tuple[int, list[str], str]]:
    """Returns node type -> (its number, its masks, words for its place), of the types that have masks."""
    return {
        each["name"]: (number, each["masks"], _where(path, each)) for number, each in enumerate(nodes) if each["masks"]
    }


def _names(config: DglConfig, features: Sequence[str | None]) -> dict[str, Any]:
    """Returns the names of data that are read; `others` are those of feature tables that are read another time."""
    others = [*config.feature_columns, config.feature or "feat"]
    return {"features": list(features), "others": others, "label": config.label, "weight": config.weight}


def _relation(path: Path, folder: Path, number: int, entry: Mapping[str, Any]) -> Relation:
    """Returns the edges of one type, of the file that the child wrote."""
    names = (entry["source"], entry["name"], entry["target"])
    weight = open_plain(folder / f"edge.{number}.weight.npy") if entry["weight"] else None
    return mapped_relation(folder / f"edge.{number}.npy", names, f"{path}: edges {'/'.join(names)}", weight)


def _run_reader(path: Path, folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Runs the child and returns its answer."""
    if not path.is_file():
        raise InputError(f"{path}: no such file", "correct `path` in [graph]; it is relative to the pipeline file")
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


def _other_masks(entry: dict[str, Any], where: str) -> Iterator[InputError]:
    """Yields an error if a node type lacks a mask and has another one that probably means it."""
    for mask in MASKS:
        meant = [name for name in entry["unread"] if name.lower() in OTHER_MASKS[mask]]
        if mask not in entry["masks"] and meant:
            yield InputError(
                f"{where}: '{meant[0]}' is not read (did you mean '{mask}'?)",
                f"graph.ndata['{mask}'] = graph.ndata.pop('{meant[0]}'), and save the graph again",
            )


def _splits(
    config: DglConfig, folder: Path, masks: dict[str, tuple[int, list[str], str]], node_types: dict[str, int]
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
            values = open_plain(folder / f"node.{number}.{mask}.npy")
            chosen = mask_ids(values, node_types[name], one_split(config.split), f"{where}: '{mask}'", mask)
            part.append(chosen + first_ids(node_types)[name])
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2])


def survey(config: DglConfig) -> Survey:
    """Describes the graph; DGL reads the whole file for that, in a child process."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="graphmill-inspect-") as name:
        graph, _ = read(config, Path(name), [config.feature], wants_features=False)
        return survey_typed(graph, config, {config.path.name: config.path})
