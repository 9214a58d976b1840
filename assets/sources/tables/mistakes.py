"""All mistakes in the tables of node types and relations: files, columns, and the values of the columns that are sound."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphmill.assets.sources.edges.mistakes import READ_BYTES
from graphmill.assets.sources.readers.duck import scratch_duck
from graphmill.assets.sources.tables.config import TypedTableKeys
from graphmill.assets.sources.tables.node_type import NodeType
from graphmill.assets.sources.tables.opened import opened_tables
from graphmill.assets.sources.tables.relation import RelationFiles
from graphmill.assets.sources.typed_graph import Relation
from graphmill.kernels.errors import Attempts, InputError, refused_by


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
        joining = [each for each in relations if each.sound and {*each.ends} <= types.keys()]
        joining = [each for each in joining if _kinds_fit(each, types, attempts)]
        tables = [each.table for each in (*types.values(), *relations) if each.table is not None]
        if sum(path.stat().st_size for table in tables for path in table.paths) > READ_BYTES:
            return attempts.errors
        sound = set()
        for name, each in types.items():
            wrong = refused_by([lambda each=each: each.numbering])
            attempts.errors += [*wrong, *refused_by(each.value_checks(config.rules(name)))]
            sound |= set() if wrong else {name}
        unread = {*relations} - {each for each in joining if {*each.ends} <= sound}
        checks = [check for each in relations if each not in unread for check in _edge_checks(each, types)]
        return [*attempts.errors, *refused_by(checks), *(_not_checked(each) for each in relations if each in unread)]


def type_widths(config: TypedTableKeys) -> dict[str, tuple[float, float]]:
    """Returns node type -> fewest and most columns of its features, as far as headers tell; also of tables with mistakes."""
    with scratch_duck(config.duck_bytes, "widths") as duck:
        types, _ = opened_tables(config, duck, Attempts())
        return {name: each.width_bounds(config.rules(name)) for name, each in types.items()}


def _kinds_fit(relation: RelationFiles, types: Mapping[str, NodeType], attempts: Attempts) -> bool:
    wrong = refused_by([lambda: relation.require_kinds(*(types[name] for name in relation.ends))])
    attempts.errors += wrong
    return not wrong


def _not_checked(relation: RelationFiles) -> InputError:
    problem = f"[graph.{relation.key}]: the ids of its edges were not looked up, since columns of ids or nodes above are wrong"
    return InputError(problem, "correct those; what the edges hold shows then")


def _edge_checks(relation: RelationFiles, types: Mapping[str, NodeType]) -> list[Callable[[], object]]:
    """Returns checks of the ends of all edges, and of their weights."""
    ends = [types[name] for name in relation.ends]
    tried = [relation, relation.unweighted()] if relation.keys.weight_column is not None else [relation]
    return [lambda each=each: _read(each.relation(*ends, weighted=False)) for each in tried]


def _read(relation: Relation) -> None:
    for _ in relation.batches():
        pass
