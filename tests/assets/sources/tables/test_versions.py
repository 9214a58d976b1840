"""What a changed file or key of tables builds anew: the graph, its features, both or neither."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from graphmill.assets.building.materialize import stage_version
from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.tables.source import TypedTablesConfig
from tests.assets.sources.tables.tables import frames, shop, write


def versions(config: TypedTablesConfig) -> tuple[str, str]:
    return stage_version(GRAPH, config, {}), stage_version(FEATURES, features_config(config), {})


def stayed(before: tuple[str, str], after: tuple[str, str]) -> tuple[bool, bool]:
    return before[0] == after[0], before[1] == after[1]


@pytest.mark.parametrize(
    ("table", "columns", "same"),
    [
        ("users", {"a": pl.lit(9.0, pl.Float32)}, (True, False)),
        ("users", {"team": pl.lit("red")}, (False, True)),
        ("users", {"note": pl.lit("unread")}, (True, True)),
        ("items", {"id": pl.Series([30, 10, 20, 71])}, (False, False)),
        ("buys", {"amount": pl.lit(1.0)}, (False, True)),
        ("buys", {"note": pl.lit("unread")}, (True, True)),
    ],
)
def test_a_changed_column_changes_what_reads_it(tmp_path: Path, table: str, columns: dict, same: tuple) -> None:
    write(tmp_path)
    before = versions(shop(tmp_path))
    write(tmp_path, changed={table: frames()[table].with_columns(**columns)})
    assert stayed(before, versions(shop(tmp_path))) == same


def test_the_order_of_types_and_of_relations_is_part_of_the_version(tmp_path: Path) -> None:
    write(tmp_path)
    config = shop(tmp_path)
    before = versions(config)
    nodes = dict([*config.nodes.items()][::-1])
    assert stayed(before, versions(replace(config, nodes=nodes))) == (False, False)
    edges = dict([*config.edges.items()][::-1])
    assert stayed(before, versions(replace(config, edges=edges))) == (False, True)


def test_keys_change_what_they_decide(tmp_path: Path) -> None:
    write(tmp_path)
    config = shop(tmp_path)
    before = versions(config)
    user = replace(config.nodes["user"], features=("b", "a"))
    assert stayed(before, versions(replace(config, nodes={**config.nodes, "user": user}))) == (True, False)
    city = replace(config.nodes["city"], num_nodes=4)
    assert stayed(before, versions(replace(config, nodes={**config.nodes, "city": city}))) == (False, False)
    buys = replace(config.edges["buys"], weight_column=None)
    assert stayed(before, versions(replace(config, edges={**config.edges, "buys": buys}))) == (False, True)


def test_sampling_does_not_depend_on_labels_beside_a_column_of_splits(tmp_path: Path) -> None:
    write(tmp_path)
    config = shop(tmp_path)
    before = config.sampled(GRAPH.raw(config))
    write(tmp_path, changed={"users": frames()["users"].with_columns(team=pl.Series(["x", "y", "x", "y", None]))})
    assert config.sampled(GRAPH.raw(config)) == before
    user = replace(config.nodes["user"], split_column=None)
    drawn = replace(config, nodes={**config.nodes, "user": user})
    assert drawn.sampled(GRAPH.raw(drawn))[0] == drawn
