"""The open files of the node types and relations that the keys of `source = "tables"` name."""

from __future__ import annotations

from graphmill.assets.sources.edges.open_table import named_by
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.tables.config import OF_RELATION, NodeTable, TypedTableKeys
from graphmill.assets.sources.tables.node_type import NodeType
from graphmill.assets.sources.tables.relation import RelationFiles
from graphmill.kernels.errors import Attempts


def opened_tables(
    config: TypedTableKeys, duck: Duck, attempts: Attempts
) -> tuple[dict[str, NodeType], list[RelationFiles]]:
    """Returns the node types, by name, and the relations whose files can be opened."""
    types = [
        attempts(NodeType, duck, name, keys, number, _named_by_relations(config, keys), config.encodes, config.task)
        for number, (name, keys) in enumerate(config.nodes.items())
    ]
    relations = [attempts(RelationFiles, duck, name, keys, config.marks) for name, keys in config.edges.items()]
    return {each.name: each for each in types if each is not None}, [each for each in relations if each is not None]


def _named_by_relations(config: TypedTableKeys, nodes: NodeTable) -> dict[str, str]:
    """Returns column -> key of a relation that names it, of relations whose edges stand in the table of the nodes."""
    named: dict[str, str] = {}
    for relation in config.edges.values():
        if set(relation.files) & set(nodes.files):
            named |= named_by(relation, OF_RELATION)
    return named
