"""The shards stage: one pass over the features writes the rows of every part."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Summary, TogetherFanOut
from graphmill.assets.costs.needs import LIBRARIES, Need, Sizes, Speed, Term
from graphmill.assets.features.read import open_features, require_nodes
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution, part_name
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.assets.storage.files.digests import page_digests_of
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import read_rows
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.ranges import NODES_AT_ONCE, node_ranges
from graphmill.kernels.types import Array, id_dtype

EVERY_ROW, ROWS_EQUAL = "every row is in one shard", "rows are the features"
CHECKED_ROWS = 64
"""Rows per shard that are compared with the features, at equal distances."""


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the number of shards, and the size of the largest beside that of all."""
    numbers = artifacts[0].summary["numbers"]
    largest = max(numbers["shard_bytes"], default=0)
    return (
        f"**{numbers['num_parts']:,} shards**, {format_bytes(numbers['feature_bytes'])} in all, "
        f"{format_bytes(largest)} in the largest"
    )


SHARDS_PAGE = Page(
    about="The feature rows of each part of the graph, in an artifact of its own. A rank of a training across machines opens the shards of "
    "its own parts and asks other ranks for all other rows, so no machine needs all features. "
    "Look at the largest shard over the mean: the rank that has it needs the most memory.",
    docs="docs/stages/shards.md",
    headline=_headline,
    first=("num_parts", "num_rows", "feature_bytes", "balance_rows"),
    labels={
        "num_rows": "rows of all shards",
        "feature_bytes": "features of all shards (MiB)",
        "shard_bytes": "bytes by part",
        "balance_rows": "largest shard over the mean",
    },
    columns={"row_of": "row of node i in the shard of its part, -1 without features"},
)


def shards_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the shards stage; the written files are mapped."""
    nodes = sizes.num_nodes
    lists = Term("lists of the nodes of each part", 9 * nodes + 24 * min(nodes, NODES_AT_ONCE))
    stored = sizes.feature_bytes + (4 + sizes.id_bytes) * sizes.num_nodes
    return Need(name="shards", phases=((LIBRARIES, lists),), stored=stored, work=sizes.feature_bytes)


class ShardsStage(TogetherFanOut):
    """Builds the shards; `SHARDS` is the one instance."""

    page = SHARDS_PAGE
    name = "shards"
    code_version = 2  # 2: digests of the pages of every shard
    work_unit = "MiB"
    Semantic = ShardsConfig
    Execution = ShardsExecution
    need = staticmethod(shards_need)
    speed = Speed(per_second=500e6)
    reads_stages = ("features", "partitions")
    says: Mapping[str, str] = {
        EVERY_ROW: "Each node with features has one row, in the shard of its part and in the order of the nodes.",
        ROWS_EQUAL: "Rows drawn from every shard are those of the feature table, byte by byte.",
    }
    of_one_feature_table = True

    def wanted(self, pipeline: Any) -> ShardsConfig | None:
        """Returns the config if a training reads shards."""
        read = pipeline.table("partitions") is not None and pipeline.is_read(self.name)
        return ShardsConfig() if read else None

    def parts(self, inputs: Mapping[str, Artifact], semantic: ShardsConfig) -> Sequence[str]:
        """Returns the name of each part's shard."""
        return [part_name(part) for part in range(int(inputs["partitions"].config["parts"]))]

    def work(self, inputs: Mapping[str, Artifact], semantic: ShardsConfig, part: str) -> int:
        """Returns the number of MiB of a part of average size."""
        num_parts = int(inputs["partitions"].config["parts"])
        return (open_features(inputs["features"]).num_bytes >> 20) // num_parts + 1

    def build_parts(self, buildings: Sequence[Building[ShardsConfig, ShardsExecution]]) -> Sequence[Summary]:
        """Writes the shards in one pass; raises InputError if the features are of other nodes, or a block of them is damaged."""
        inputs, semantic = buildings[0].inputs, buildings[0].semantic
        table, of_part = open_features(inputs["features"]), _node_lists(inputs)
        numbers = [self.parts(inputs, semantic).index(building.part) for building in buildings]
        outs = []
        for number, building in zip(numbers, buildings, strict=True):
            building.writer.save("node_ids", of_part[number])
            outs.append(building.writer.create("rows", (len(of_part[number]), table.width), table.dtype))
        read_rows(table, [(table.rows_of(of_part[n]), out) for n, out in zip(numbers, outs, strict=True)])
        for building in buildings:
            building.writer.save("page_digests", page_digests_of(building.writer.path("rows.npy"), DATA_OFFSET))
            building.progress.advance(self.work(inputs, semantic, building.part))
        return [
            Summary(
                numbers={"part": number, "num_rows": len(of_part[number]), "num_features": table.width},
                checks=[_compared(table, of_part[number], out)],
            )
            for number, out in zip(numbers, outs, strict=True)
        ]

    def build(self, building: Building[ShardsConfig, ShardsExecution]) -> Summary:
        """Writes the place of each node's row."""
        inputs, writer = building.inputs, building.writer
        table, partitions = open_features(inputs["features"]), open_partitions(inputs["partitions"])
        shards = [inputs[name] for name in self.parts(inputs, building.semantic)]
        row_of = np.full(len(partitions.part_of), -1, np.int32)
        misplaced = 0
        for number, shard in enumerate(shards):
            node_ids = np.asarray(shard.array("node_ids"))
            misplaced += int(np.count_nonzero(partitions.part_of[node_ids] != number))
            misplaced += int(np.count_nonzero(np.diff(node_ids) <= 0))
            row_of[node_ids] = np.arange(len(node_ids), dtype=np.int32)
        num_rows = np.array([shard.files["rows.npy"]["shape"][0] for shard in shards], np.int64)
        writer.save("row_of", row_of)
        writer.save("num_rows", num_rows)
        numbers = {
            "num_parts": len(shards),
            "num_nodes": len(row_of),
            "num_rows": int(num_rows.sum()),
            "num_features": table.width,
            "feature_dtype": table.dtype,
            "feature_bytes": int(num_rows.sum()) * table.row_bytes,
            "shard_bytes": (num_rows * table.row_bytes).tolist(),
            "balance_rows": float(num_rows.max(initial=0) * len(shards) / max(1, num_rows.sum())),
        }
        numbers |= {} if table.type_columns is None else {"type_columns": list(table.type_columns)}
        return Summary(numbers=numbers, checks=_checks(shards, table, row_of, misplaced))


SHARDS = ShardsStage()


def _node_lists(inputs: Mapping[str, Artifact]) -> list[Array]:
    """Returns ids[n_p] per part, ascending: its nodes with features."""
    table, partitions = open_features(inputs["features"]), open_partitions(inputs["partitions"])
    require_nodes(table, len(partitions.part_of), "the parts")
    lists: list[list[Array]] = [[] for _ in range(partitions.num_parts)]
    for low, high in node_ranges(len(partitions.part_of)):
        places = np.arange(high - low) if table.row_of is None else np.flatnonzero(table.row_of[low:high] >= 0)
        part_of = partitions.part_of[low:high][places]
        order = places[np.argsort(part_of, kind="stable")]
        ends = np.cumsum(np.bincount(part_of, minlength=len(lists)))[:-1]
        for found, node_ids in zip(lists, np.split(order, ends), strict=True):
            found.append((low + node_ids).astype(id_dtype(len(partitions.part_of))))
    return [np.concatenate(found or [np.zeros(0, np.int32)]) for found in lists]


def _compared(table: FeatureTable, node_ids: Array, rows: Array) -> Check:
    """Compares rows at equal distances with the table, read through its mapping."""
    places = np.unique(np.linspace(0, max(0, len(node_ids) - 1), CHECKED_ROWS).astype(np.int64))[: len(node_ids)]
    wanted = table.open()[table.rows_of(node_ids[places])] if len(places) else rows[:0]
    wrong = int(np.count_nonzero((wanted.view(np.uint8) != rows[places].view(np.uint8)).any(axis=1)))
    return Check(
        name=ROWS_EQUAL,
        passed=wrong == 0,
        detail=f"{len(places):,} drawn rows of {len(node_ids):,} were compared with the features; {wrong:,} differ",
        numbers={"rows compared": len(places), "rows that differ": wrong},
    )


def _checks(shards: Sequence[Artifact], table: FeatureTable, row_of: Array, misplaced: int) -> list[Check]:
    have, found = table.num_rows, int(np.count_nonzero(row_of >= 0))
    held = sum(shard.files["rows.npy"]["shape"][0] for shard in shards)
    made = [check for shard in shards for check in shard.summary["checks"]]
    counts = {name: sum(check["numbers"][name] for check in made) for name in ("rows compared", "rows that differ")}
    return [
        Check(
            name=EVERY_ROW,
            passed=found == have == held and misplaced == 0,
            detail=f"{held:,} rows in {len(shards):,} shards for {have:,} rows of the features, {misplaced:,} misplaced",
            numbers={"rows in shards": held, "rows of the features": have, "rows misplaced": misplaced},
        ),
        Check(
            name=ROWS_EQUAL,
            passed=all(check["passed"] for check in made),
            detail=f"{counts['rows compared']:,} drawn rows of {held:,} were compared; {counts['rows that differ']:,} differ",
            numbers=counts,
        ),
    ]
