"""Tables that are taken for a graph, by a guess about a folder or by the keys of a pipeline: what a profile is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphmill.assets.sources.edges.config import OF_NODES
from graphmill.assets.sources.edges.node_tables import label_columns
from graphmill.assets.sources.edges.open_table import features_read, named_by
from graphmill.assets.sources.encoders.rules import encoder_of
from graphmill.assets.sources.folder.guess import Guess
from graphmill.assets.sources.folder.roles import no_label_words, split_column
from graphmill.assets.sources.folder.tables import FoundTable, profile_columns
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.tables.config import OF_NODE_TYPE, OF_RELATION, NodeTable, RelationTable, TypedTableKeys
from graphmill.assets.tasks.labels import CLASSES

if TYPE_CHECKING:
    from graphmill.assets.sources.edges.config import EdgeTableKeys

LEFT_OUT = "not read"


@dataclass(frozen=True)
class Ids:
    """The ids of a node type: a column of a table; 0 to count - 1 without a table; those that edges name if there is no count either."""

    table: FoundTable | None
    column: str = ""
    count: int | None = None


@dataclass(frozen=True)
class Joined:
    """Rows of a table as edges: the column of each end and the node type that it names, of the source first."""

    name: str
    table: FoundTable
    ends: tuple[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class TableGraph:
    """The parts of a graph in open tables.

    Attributes:
        roles: name of a table -> column -> what it is taken for.
        features: name of a table -> its feature columns.
        label, split: table and column of the classes, and the column of the split beside it; None without one, as of other kinds of labels.
        no_label: values of the column of classes that mean no label, in small letters.
        problems: lines about files that could not be read.
    """

    tables: Sequence[FoundTable]
    node_types: Mapping[str, Ids]
    relations: Sequence[Joined]
    roles: Mapping[str, Mapping[str, str]]
    features: Mapping[str, Sequence[str]]
    label: tuple[FoundTable, str] | None = None
    split: str | None = None
    no_label: frozenset[str] = frozenset()
    problems: Sequence[str] = ()


def guessed_graph(guess: Guess) -> TableGraph:
    """Returns the graph that a folder of tables is taken for."""
    encoders = {each.name: guess.encoders(each) if each in guess.node_types else {} for each in guess.tables}
    relations = [
        Joined(each.name, each.table, ((each.source_column, each.source.name), (each.to.column, each.target.name)))
        for each in guess.relations
    ]
    label = guess.label
    return TableGraph(
        tables=guess.tables,
        node_types={each.name: Ids(each, guess.ids[each.name]) for each in guess.node_types if each.name in guess.ids},
        relations=relations,
        roles={each.name: _with_encoders(guess.roles(each), encoders[each.name]) for each in guess.tables},
        features={name: [*of] for name, of in encoders.items()},
        label=label,
        split=None if label is None else split_column(label[0]),
        no_label=frozenset() if label is None else frozenset(map(str.lower, no_label_words(*label))),
        problems=guess.problems,
    )


def _with_encoders(roles: Mapping[str, str], encoders: Mapping[str, str]) -> dict[str, str]:
    """Returns roles of columns, with the encoders of those that are features."""
    also = {name: "" if roles[name] == "feature" else f"{roles[name]}, " for name in encoders}
    return {**roles, **{name: f"{also[name]}feature by {encoder}" for name, encoder in encoders.items()}}


def described_graph(config: TypedTableKeys, duck: Duck) -> TableGraph:
    """Returns the graph that the keys of a pipeline describe; raises InputError if a file cannot be read."""
    tables = {f"nodes.{name}": _found(duck, f"nodes.{name}", name, each) for name, each in config.nodes.items()}
    # A relation may be called like a node type.
    called = {name: f"edges.{name}" if name in config.nodes else name for name in config.edges}
    tables |= {
        f"edges.{name}": _found(duck, f"edges.{name}", called[name], each) for name, each in config.edges.items()
    }
    relations, roles, features = [], {}, {}
    for name, keys in config.nodes.items():
        table = tables[f"nodes.{name}"]
        if table is None:
            continue
        roles[table.name] = {c: role.removesuffix("_column") for c, role in named_by(keys, OF_NODE_TYPE).items()}
        labels = label_columns(table.files, keys, config.task)
        roles[table.name] |= {each.name: "label" for each in table.columns if each.first in labels}
        read, rules = features_read(table.files, keys.features), config.rules(name)
        features[table.name] = [each.name for each in table.columns if each.first in read]
        for each in (each for each in table.columns if each.first in read):
            encoder, other = encoder_of(rules, each.first), roles[table.name].get(each.name)
            said = "feature" if encoder is None else f"feature by {encoder.name}"
            roles[table.name][each.name] = f"{other}, {said}" if other else said
    for name, keys in config.edges.items():
        table = tables[f"edges.{name}"]
        ends = ((keys.source_column, keys.source_type), (keys.target_column, keys.target_type))
        assert table is not None
        relations.append(Joined(name, table, ends))
        roles[table.name] = {c: role.removesuffix("_column") for c, role in named_by(keys, OF_RELATION).items()}
        roles[table.name] |= {column: f"id of {node_type}" for column, node_type in ends}
    shown = [each for each in tables.values() if each is not None]
    labelled = [
        (name, keys) for name, keys in config.nodes.items() if keys.label_column is not None and keys.path is not None
    ]
    labelled = labelled if config.task == CLASSES else []
    name, keys = labelled[0] if labelled else ("", None)
    of_label = tables.get(f"nodes.{name}")
    return TableGraph(
        tables=shown,
        node_types={n: Ids(tables[f"nodes.{n}"], each.id_column, each.num_nodes) for n, each in config.nodes.items()},
        relations=relations,
        roles={each.name: {c.name: roles[each.name].get(c.name, LEFT_OUT) for c in each.columns} for each in shown},
        features=features,
        label=None if keys is None or of_label is None else (of_label, str(keys.label_column)),
        split=None if keys is None else keys.split_column,
        no_label=frozenset() if keys is None else frozenset(str(word).strip().lower() for word in keys.no_label),
    )


def as_typed(config: EdgeTableKeys) -> TypedTableKeys:
    """Returns the keys of edge and node tables as those of one node type, "nodes", and one relation, "edges"."""
    form: dict[str, Any] = {key: getattr(config, key) for key in ("delimiter", "comment")}
    of_nodes = {
        key: getattr(config.unlinked, key) for key in (*OF_NODES, "label_columns", "features", "labels", "no_label")
    }
    of_edges = {key: getattr(config, key) for key in config.edge_roles}
    if config.nodes is None:
        nodes = NodeTable(path=None, num_nodes=config.num_nodes or 1)
    else:
        of_nodes["time_column"] = config.node_time_column
        nodes = NodeTable(path=config.nodes, header=config.text_form("nodes").header, **form, **of_nodes)
    header = config.text_form("edges").header
    edges = RelationTable(
        path=config.edges, source_type="nodes", target_type="nodes", header=header, **form, **of_edges
    )
    task: dict[str, Any] = {"task": config.task, "links": config.links, "times": config.times}
    return TypedTableKeys(nodes={"nodes": nodes}, edges={"edges": edges}, encode=config.encode, **task)


def _found(duck: Duck, key: str, name: str, keys: NodeTable | RelationTable) -> FoundTable | None:
    """Returns an open table with its profile, None for nodes without a table."""
    if not keys.files:
        return None
    taken = named_by(keys, OF_NODE_TYPE if isinstance(keys, NodeTable) else OF_RELATION)
    files = TableFiles(duck, keys.files, key, keys.form(key), taken)
    for column, role in taken.items():
        files.require(role, column)
    return FoundTable(name, keys.files[0], files, tuple(profile_columns(files, apart=taken)))
