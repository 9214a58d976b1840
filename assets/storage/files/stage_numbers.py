"""The numbers that each stage publishes in its manifest: their types and bounds, and those that follow from the shapes of its arrays.

Some twenty readers take these numbers by name. So a manifest with other numbers is damaged, and its readers never see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from graphmill.assets.storage.files.schema import (
    Check,
    Fields,
    boolean,
    listed,
    mapped,
    matches,
    name,
    number,
    plain,
    text,
    whole,
)

MOST_COUNTED = 10**13
"""Largest number of nodes, edges, rows or batches; no disk holds as many."""
COUNT, BYTES, VALUE, SHARE = whole(most=MOST_COUNTED), whole(), number(), number(0, 1)
TEXTS, COUNTS = listed(text), listed(COUNT)
STORED_TYPE = matches(re.compile("float(16|32|64)|u?int(8|16|32|64)"), "the type of an array")
SPREAD = Fields({"min": COUNT, "mean": number(0), "max": COUNT})
VOLUMES = Fields({"schedule": name, "v_ori": COUNT, "v_p2p": COUNT, "v_ru": COUNT})


@dataclass(frozen=True, kw_only=True)
class PublishedNumbers:
    """The numbers of a stage. Names stand in texts, with blanks between them; one with a star at its end stands for all that begin so.

    Attributes:
        always: names of the numbers that every artifact has, which are declared below as well; their readers need them.
        counts: names of whole numbers of things.
        sizes: names of numbers of bytes.
        values: names of numbers of any size.
        shares: names of numbers from 0 to 1.
        words: names of short texts.
        others: name -> check.
        lengths: name -> (array, axis, surplus): the number is the length of this axis, less the surplus.
    """

    always: str = ""
    counts: str = ""
    sizes: str = ""
    values: str = ""
    shares: str = ""
    words: str = ""
    others: Mapping[str, Check] = field(default_factory=dict)
    lengths: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)

    @cached_property
    def checks(self) -> Mapping[str, Check]:
        """Name, or the beginning of names with a star -> check."""
        kinds = {"counts": COUNT, "sizes": BYTES, "values": VALUE, "shares": SHARE, "words": name}
        return {each: check for kind, check in kinds.items() for each in getattr(self, kind).split()} | {**self.others}

    def check_of(self, called: str) -> Check | None:
        """Returns the check of a number, None for one that the stage does not declare, such as those of a user's source."""
        families = (check for each, check in self.checks.items() if each[-1] == "*" and called.startswith(each[:-1]))
        return self.checks.get(called) or next(families, None)

    def problems(self, numbers: Mapping[str, Any], files: Mapping[str, Any]) -> Iterator[str]:
        """Yields the problems of the numbers of a manifest."""
        yield from (f"summary/numbers/{each} is missing" for each in self.always.split() if each not in numbers)
        for each, value in numbers.items():
            try:
                if check := self.check_of(each):
                    check(value, f"summary/numbers/{each}")
            except ValueError as error:
                yield str(error)
        for each, (array, axis, surplus) in self.lengths.items():
            shape = files.get(f"{array}.npy", {}).get("shape", ())
            if each in numbers and len(shape) > axis and numbers[each] != shape[axis] - surplus:
                yield f"summary/numbers/{each} is not {shape[axis] - surplus}, which follows from {array}.npy"


NUMBERS: Mapping[str, PublishedNumbers] = {
    "graph": PublishedNumbers(
        always="num_nodes num_edges num_classes class_names num_train num_valid num_test homophily_ratio",
        counts="num_nodes num_edges num_classes num_labelled num_train num_valid num_test num_isolated num_duplicates num_self_loops "
        "num_ids_of_both_ends num_dropped_edges num_links num_train_links num_valid_links num_test_links",
        sizes="topology_bytes",
        others={
            "class_names": TEXTS,
            "class_counts": COUNTS,
            "in_degree_quantiles": mapped(number(0)),
            "homophily_ratio": number(-1, 1),
            "edge_types": TEXTS,
            "node_types": TEXTS,
            "reverse_of": listed(whole(-1, 255)),
            "predicted": listed(whole(0, 255)),
        },
        lengths={
            "num_links": ("link_split", 0, 0),
            "num_nodes": ("indptr", 0, 1),
            "num_edges": ("indices", 0, 0),
            **{f"num_{part}": (f"{part}_ids", 0, 0) for part in ("train", "valid", "test")},
        },
    ),
    "features": PublishedNumbers(
        always="num_rows num_features feature_dtype feature_bytes num_without_features",
        counts="num_nodes num_edges num_rows num_features num_without_features",
        sizes="feature_bytes",
        words="feature_dtype",
        others={"type_columns": COUNTS, "beyond_float32": text},
        lengths={"num_rows": ("rows", 0, 0), "num_features": ("rows", 1, 0)},
    ),
    "sampling_tables": PublishedNumbers(
        always="num_edges num_without_weight num_empty_rows weights",
        counts="num_nodes num_edges num_without_weight num_empty_rows",
        values="effective_neighbours smallest_weight largest_weight",
        words="weights",
        lengths={"num_edges": ("table", 0, 0)},
    ),
    "partitions": PublishedNumbers(
        always="num_parts method edge_cut replication",
        counts="num_nodes num_parts",
        values="replication* balance_*",
        shares="edge_cut*",
        others={"method": name, "method_chosen": text, "beside_random": listed(mapped(plain))},
        lengths={"num_nodes": ("part_of", 0, 0), "num_parts": ("cut", 0, 0)},
    ),
    "shards": PublishedNumbers(
        always="num_parts num_features feature_dtype feature_bytes shard_bytes",
        counts="num_parts num_nodes num_rows num_features",
        sizes="feature_bytes",
        values="balance_rows",
        others={"feature_dtype": STORED_TYPE, "shard_bytes": listed(BYTES), "type_columns": COUNTS},
        lengths={"num_nodes": ("row_of", 0, 0), "num_parts": ("num_rows", 0, 0)},
    ),
    "shards.parts": PublishedNumbers(
        counts="part num_rows num_features", lengths={"num_rows": ("rows", 0, 0), "num_features": ("rows", 1, 0)}
    ),
    "chunks": PublishedNumbers(
        always="num_nodes num_distinct num_parts chunks_per_part schedule v_ori v_ru volumes_by_schedule",
        counts="num_nodes num_distinct num_parts num_fetched chunks_per_part v_ori v_p2p v_ru most_*",
        values="replication byte_nanoseconds*",
        words="schedule schedule_of_fewest_rows",
        others={
            "traffic_cut_ratio": VALUE,
            "volumes_by_schedule": listed(VOLUMES),
            "replication_by_chunks": listed(Fields({"chunks": COUNT, "replication": VALUE})),
        },
        lengths={
            "num_nodes": ("node_ids", 0, 0),
            "num_parts": ("schedule", 0, 0),
            "chunks_per_part": ("schedule", 1, 0),
        },
    ),
    "hotness": PublishedNumbers(
        always="num_nodes",
        counts="num_nodes "
        + " ".join(
            f"{kind}_{each}"
            for kind in ("presample", "evaluate")
            for each in ("epochs", "batches", "inputs", "edges", "visited_nodes")
        ),
        values="presample_* evaluate_* hit_ratio_* expected_hit_ratio_*",
        lengths={"num_nodes": ("order", 0, 0)},
    ),
    "budgets": PublishedNumbers(
        always="feature_bytes automatic device_bytes host_bytes disk_bytes device_rows host_rows",
        counts="device_rows host_rows",
        sizes="feature_bytes row_bytes device_bytes host_bytes disk_bytes device_total_bytes memory_bytes",
        words="device host disk device_share host_share",
        others={"automatic": listed(name)},
    ),
    "samples": PublishedNumbers(
        always="num_epochs num_batches sample_bytes inputs_a_batch",
        counts="num_epochs num_batches num_evaluation_batches num_parts num_accesses num_accessed_nodes",
        sizes="sample_bytes largest_batch_bytes",
        others={"inputs_a_batch": SPREAD, "edges_a_batch": SPREAD, "hottest_nodes_access_ratio": mapped(VALUE)},
    ),
    "samples.parts": PublishedNumbers(counts="epoch first_step num_batches", lengths={"num_batches": ("bounds", 0, 1)}),
    "cache_plan": PublishedNumbers(
        always="moved_bytes amplification num_segments read_bytes_by_tier num_batches full_packing_bytes feature_bytes",
        counts="num_* segment_size*",
        sizes="row_bytes asked_bytes moved_bytes disk_bytes disk_budget_bytes full_packing_bytes feature_bytes",
        values="amplification* rows_as_printed_ratio",
        words="order",
        others={"read_bytes_by_tier": Fields({"device": BYTES, "host": BYTES}, {"cached": BYTES, "packed": BYTES})},
        lengths={
            "num_batches": ("tier_rows", 0, 0),
            "num_device_rows": ("device_ids", 0, 0),
            "num_host_rows": ("host_ids", 0, 0),
        },
    ),
    "packed_chunks": PublishedNumbers(
        always="num_batches num_segments chunk_bytes cache_bytes",
        counts="num_* packed_rows cached_rows device_rows host_rows",
        sizes="row_bytes chunk_bytes cache_bytes largest_chunk_bytes",
        lengths={"num_batches": ("offsets", 0, 0), "num_segments": ("cache_offsets", 0, 0)},
    ),
    "packed_chunks.parts": PublishedNumbers(
        counts="first_segment first_batch num_batches num_rows", lengths={"num_batches": ("bounds", 0, 1)}
    ),
    "model": PublishedNumbers(
        always="best_epoch epochs_run",
        counts="best_epoch epochs_run parameters",
        values="train_* valid_* test_* loss exact_evaluation_seconds sampled_evaluation_seconds",
        words="evaluation",
        others={"repeatable": boolean},
    ),
    "score": PublishedNumbers(
        always="num_predicted largest_mean_shift largest_deviation_factor num_drifted_columns",
        counts="num_predicted num_drifted_columns",
        values="largest_mean_shift largest_deviation_factor answer_shift known_*",
        shares="moved_share",
        others={"answers": listed(mapped(plain)), "drifted_columns": listed(mapped(plain))},
    ),
}
"""Stage -> its numbers. A test compares them with what every stage publishes (tests/assets/storage/files/test_stage_numbers.py)."""
