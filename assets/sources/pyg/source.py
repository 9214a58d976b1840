"""Graphs of PyG: one `HeteroData` or `Data` object that `torch.save` wrote, with its features, labels and masks.

Accepted are the object itself, the dictionary that its `to_dict` returns, and the tuple in processed/data.pt of an `InMemoryDataset` with
one graph. Of each node type:

    x                                    features [N, F] or [N]
    y                                    labels [N] or [N, 1], -1 or NaN unknown
    train_mask, val_mask, test_mask      masks [N], or [N, S] with `split = s`
    num_nodes                            number of nodes; else that of x, of y or of a mask, else the largest id among the edges + 1

Of each edge type: edge_index [2, E], from row 0 to row 1, and weights [E] or [E, 1], if `weight` names them. Of a `Data` object,
`edge_type` [E] holds the number of the relation of each edge. Data of other names are not read, which `graphmill inspect` says; a name
that probably means one that is missing is refused. Node types become ranges of ids and edge types relations, in the order of the file.

Reading runs no code from the file and does not need torch_geometric (assets/sources/pyg/stores.py). Tensors are mapped. Peak memory: as
assets/sources/edges/source.py states; pages of the file that were read count as the process's until the system needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.sources.classes import known_labels
from graphmill.assets.sources.dgl.reader import MASKS
from graphmill.assets.sources.feature_blocks import FeatureBlock
from graphmill.assets.sources.named_data import NamedDataConfig
from graphmill.assets.sources.pyg.edges import relations_of
from graphmill.assets.sources.pyg.names import name_mistakes, unread_data
from graphmill.assets.sources.pyg.stores import Stores, load_stores
from graphmill.assets.sources.pyg.values import as_array, data_of, num_nodes_of
from graphmill.assets.sources.readers.mapped_arrays import array_block
from graphmill.assets.sources.registry import FEATURES_TOO, TableConfig, one_split
from graphmill.assets.sources.splits import mask_ids
from graphmill.assets.sources.typed_graph import TypedGraph, TypedSource, first_ids, survey_typed
from graphmill.kernels.errors import Attempts, InputError
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress
    from graphmill.assets.sources.survey import Survey


@dataclass(frozen=True, kw_only=True)
class PygConfig(NamedDataConfig):
    """`[graph]` with `source = "pyg"`.

    Raises:
        InputError: a value is outside its range.
    """

    # names this kind of source
    source: str = field(default="pyg", metadata=FEATURES_TOO)

    one_name = "the data have"


def raw(config: PygConfig, table: TableConfig | None) -> dict[str, str]:
    """Returns the content digest of the whole file, which both the graph and its features have.

    Raises:
        InputError: the file is missing or unreadable.
    """
    from graphmill.assets.storage.digests import sha256_file

    return {"pyg": sha256_file(config.path)}


@contextmanager
def opened(
    config: PygConfig, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
) -> Iterator[TypedSource]:
    """Maps the file, once for the graph and all feature tables.

    Raises:
        InputError: the file is not sound.
    """
    names = config.feature_names(tables)
    found, blocks = read(config, names, wants_features=bool(names))

    def blocks_of(table: TableConfig) -> Sequence[FeatureBlock]:
        return blocks[config.for_table(table).feature]

    yield TypedSource(found, config, folder, blocks_of)


def read(
    config: PygConfig, features: Sequence[str | None], *, wants_features: bool
) -> tuple[TypedGraph, dict[str | None, list[FeatureBlock]]]:
    """Reads the file.

    Args:
        config: configuration of the source.
        features: names of data of nodes to read as features; None is "x" if it exists.
        wants_features: whether data that probably mean features, which are missing, are refused.

    Returns:
        (the graph, with the blocks of the first of the features; name -> blocks of each of them).

    Raises:
        InputError: the file cannot be read, or data do not fit: all that were found at once.
    """
    stores, attempts = load_stores(config.path, config.weight), Attempts()
    attempts.errors += name_mistakes(stores, config, features, wants_features=wants_features)
    relations = attempts(relations_of, stores, config.path, config.weight)
    attempts.settle()
    node_types = {name: attempts(num_nodes_of, stores, name, config) for name in stores.nodes}
    attempts.settle()
    starts = first_ids(node_types)
    blocks: dict[str | None, list[FeatureBlock]] = {
        asked: [
            attempts(_block, stores, name, asked or "x", starts[name], node_types[name], config)
            for name, data in stores.nodes.items()
            if (asked or "x") in data
        ]
        for asked in features
    }
    labels = attempts(_labels, stores, config, node_types)
    splits = attempts(_splits, stores, config, node_types)
    attempts.settle()
    graph = TypedGraph(
        where=str(config.path),
        node_types=node_types,
        relations=relations,
        blocks=blocks[features[0]] if features else [],
        labels=labels,
        splits=splits,
        unread=unread_data(stores, config, features),
    )
    return graph, blocks


def _block(stores: Stores, name: str, data_name: str, first: int, count: int, config: PygConfig) -> FeatureBlock:
    """Returns the features of a node type; one column may be [N]."""
    where = f"{data_of(stores, config.path, name)}: '{data_name}'"
    values, dtype = as_array(stores.nodes[name][data_name], where)
    block = array_block(values.reshape(-1, 1) if values.ndim == 1 else values, first, count, where, dtype=dtype)
    return replace(block, named_twice=config.named_twice(data_name, "y"))


def _labels(stores: Stores, config: PygConfig, node_types: dict[str, int]) -> Array:
    """Returns i32[N]."""
    name = config.label or "y"
    labelled = [kind for kind, data in stores.nodes.items() if name in data]
    if len(labelled) > 1:
        problem = f"{config.path}: the node types {', '.join(labelled)} have labels"
        raise InputError(problem, "keep those of one type: their classes would mix")
    labels, starts = np.full(sum(node_types.values()), -1, np.int32), first_ids(node_types)
    for kind in labelled:
        where = f"{data_of(stores, config.path, kind)}: '{name}'"
        values, _ = as_array(stores.nodes[kind][name], where, wide=True)
        labels[starts[kind] : starts[kind] + node_types[kind]] = known_labels(values, node_types[kind], where, name)
    return labels


def _splits(stores: Stores, config: PygConfig, node_types: dict[str, int]) -> tuple[Array, Array, Array] | None:
    """Returns the global ids of the masks; None without masks."""
    masked = {kind: data for kind, data in stores.nodes.items() if any(mask in data for mask in MASKS)}
    if not masked:
        if config.split is not None:
            raise InputError(f"{config.path}: split = {config.split}, but it has no masks", "leave `split` out")
        return None
    parts: list[list[Array]] = [[], [], []]
    for kind, data in masked.items():
        where = data_of(stores, config.path, kind)
        missing = [mask for mask in MASKS if mask not in data]
        if missing:
            raise InputError(f"{where}: lacks {', '.join(missing)}", "save all three masks, an empty one too")
        for part, mask in zip(parts, MASKS, strict=True):
            values, _ = as_array(data[mask], f"{where}: '{mask}'", wide=True)
            chosen = mask_ids(values, node_types[kind], one_split(config.split), f"{where}: '{mask}'", mask)
            part.append(chosen + first_ids(node_types)[kind])
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2])


def survey(config: PygConfig) -> Survey:
    """Describes the graph, of the mapped file."""
    graph, _ = read(config, [config.feature], wants_features=False)
    return survey_typed(graph, config, {config.path.name: config.path})
