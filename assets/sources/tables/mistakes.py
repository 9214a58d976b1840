"""All mistakes in the tables of node types and relations: files, columns, and the values of the columns that are sound."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from graphmill.assets.sources.edges.edge_columns import Marking
from graphmill.assets.sources.edges.mistakes import READ_BYTES
from graphmill.assets.sources.edges.open_table import named_by
from graphmill.assets.sources.readers.duck import Duck, scratch_duck
from graphmill.assets.sources.tables.config import OF_RELATION, NodeTable, TypedTableKeys
from graphmill.assets.sources.tables.node_type import NodeType
from graphmill.assets.sources.tables.relation import ENDS, RelationFiles
from graphmill.kernels.errors import Attempts, InputError, refused_by


def opened_tables(
    config: TypedTableKeys, duck: Duck, attempts: Attempts
) -> tuple[dict[str, NodeType], list[RelationFiles]]:
    """Returns the node types, by name, and the relations whose files can be opened."""
    types = [
        attempts(NodeType, duck, name, keys, number, _named_by_relations(config, keys), config.encodes, config.task)
        for number, (name, keys) in enumerate(config.nodes.items())
    ]
    marking = Marking(config.marks, config.task)
    relations = [attempts(RelationFiles, duck, name, keys, marking) for name, keys in config.edges.items()]
    return {each.name: each for each in types if each is not None}, [each for each in relations if each is not None]


def _named_by_relations(config: TypedTableKeys, nodes: NodeTable) -> dict[str, str]:
    """Returns column -> key of a relation that names it, of relations whose edges stand in the table of the nodes."""
    named: dict[str, str] = {}
    for relation in config.edges.values():
        if set(relation.files) & set(nodes.files):
            named |= named_by(relation, OF_RELATION)
    return named


def find_mistakes(config: TypedTableKeys) -> list[InputError]:
    """Returns the mistakes of the tables: of files and columns, then of values: ids, labels, splits, features and edges, each apart.

    What stands in a wrong column, or names nodes whose ids are wrong, is left out; values of tables of more than `READ_BYTES` are not read.
    """
    attempts = Attempts()
    with scratch_duck(config.duck_bytes, "mistakes") as duck:
        types, relations = opened_tables(config, duck, attempts)
        for name, each in types.items():
            attempts.errors += each.leave_out(config.rules(name))
        for each in relations:
            attempts.errors += each.leave_out()
        types = {name: each for name, each in types.items() if each.sound}
        for each in relations:
            attempts.errors += _other_kinds(each, types)
        tables = [each.table for each in (*types.values(), *relations) if each.table is not None]
        if sum(path.stat().st_size for table in tables for path in table.paths) > READ_BYTES:
            return attempts.errors
        sound = set()
        for name, each in types.items():
            wrong = refused_by([lambda each=each: each.numbering])
            attempts.errors += [*wrong, *refused_by(each.value_checks(config.rules(name)))]
            sound |= set() if wrong else {name}
        checks = [check for each in relations for check in _edge_checks(each, types, sound)]
        return attempts.errors + refused_by(checks)


def type_widths(config: TypedTableKeys) -> dict[str, tuple[float, float]]:
    """Returns node type -> fewest and most columns of its features, as far as headers tell; also of tables with mistakes."""
    with scratch_duck(config.duck_bytes, "widths") as duck:
        types, _ = opened_tables(config, duck, Attempts())
        return {name: each.width_bounds(config.rules(name)) for name, each in types.items()}


def _other_kinds(relation: RelationFiles, types: Mapping[str, NodeType]) -> list[InputError]:
    """Returns the errors of ends whose ids are of another type than the nodes', and adds them to the relation's wrong ones."""
    found = []
    for role, name in zip(ENDS, relation.ends, strict=True):
        if role not in relation.wrong and name in types:
            errors = refused_by([partial(relation.require_kind, role, types[name])])
            relation.wrong |= {role} if errors else set()
            found += errors
    return found


def _edge_checks(
    relation: RelationFiles, types: Mapping[str, NodeType], sound: Collection[str]
) -> list[Callable[[], object]]:
    """Returns checks of the ends of all edges, and of their weights; of one end alone if ids or column of the other one are wrong."""
    usable = [
        role for role, name in zip(ENDS, relation.ends, strict=True) if name in sound and role not in relation.wrong
    ]
    tried = [relation] if len(usable) == len(ENDS) else [relation.of_end(role) for role in usable]
    tried += [each.unweighted() for each in tried if each.keys.weight_column is not None]
    return [partial(_read, each, [types[name] for name in each.ends]) for each in tried]


def _read(relation: RelationFiles, ends: Sequence[NodeType]) -> None:
    for _ in relation.relation(*ends, weighted=False).batches():
        pass
