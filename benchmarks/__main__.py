"""Runs benchmarks: `python -m benchmarks [--quick] [NAME ...]`."""

import argparse
import importlib
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.record import require_clean_tree

NAMES = (
    "aggregate",
    "cache",
    "cache_plan",
    "chunks",
    "cluster",
    "csr2",
    "direct_io",
    "disk",
    "disk_graphs",
    "disk_packing",
    "disk_space",
    "disk_systems",
    "disk_widths",
    "distributed",
    "distributed_scaling",
    "edge_features",
    "epoch",
    "extract",
    "factored",
    "factored_dgl",
    "factored_epochs",
    "fresh",
    "fresh_delivery",
    "fresh_io",
    "fresh_overhead",
    "fullgraph",
    "fullgraph_breakdown",
    "fullgraph_chunks",
    "fullgraph_memory",
    "gather",
    "gpu",
    "hotness",
    "import",
    "import_rivals",
    "link_ranks",
    "links",
    "needs",
    "orders",
    "overhead",
    "partitions",
    "predict",
    "products",
    "relations",
    "rivals",
    "row_files",
    "sampling",
    "step",
    "temporal",
    "typed",
    "verifying",
    "whole_wait",
    "wide_rows",
)
ON_DEMAND = (
    "big",
    "disk_accuracy",
    "disk_quality",
    "distributed_quality",
    "drawn",
    "drawn_quality",
    "edge_rows",
    "ends",
    "factored_staleness",
    "figures",
    "fresh_drift",
    "fresh_packing",
    "fresh_quality",
    "fresh_thresholds",
    "fullgraph_quality",
    "gather_cuda",
    "gpu_trainers",
    "growth",
    "limited",
    "movielens",
    "payoff",
    "plans",
    "predicted",
    "published",
    "quality",
    "setting_quality",
    "subset",
    "topology",
    "training_memory",
    "typed_quality",
    "whole_scores",
)  # fmt: skip
"""In need of a GPU, of graphs that the project does not contain, or of rows of another; "big", "edge_rows", "ends", "factored_staleness",
"fresh_packing", "gpu_trainers", "limited", "movielens", "payoff", "published", "quality", "topology", "training_memory" and "whole_scores"
take longer than a minute even when quick."""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help=f"which of: {', '.join(NAMES + ON_DEMAND)}")
    parser.add_argument("--quick", action="store_true", help="under a minute each")
    parser.add_argument("--dirty", action="store_true", help="on uncommitted changes; no page cites these rows")
    parser.add_argument(
        "--scale",
        type=lambda text: float(Fraction(text)),
        help="of big, gpu and needs: 1 is 111M nodes and 1.6G edges; default 1/8, of gpu 1; "
        "of topology: 1 is 1G edges, default 5/16 of the ways and 1 of the pipeline",
    )
    parser.add_argument(
        "--home",
        type=Path,
        help="of big, edge_rows, fresh_packing, gpu_trainers, limited, payoff, plans, row_files, topology, whole_scores, whole_wait: "
        "folder kept",
    )
    parser.add_argument(
        "--parts",
        type=lambda text: tuple(text.split(",")),
        help="of big, edge_rows, gpu_trainers, limited, links, payoff, plans, rivals, row_files, setting_quality, topology, "
        "training_memory, whole_scores, whole_wait: what is run",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="of big, edge_rows, fresh_packing, limited, payoff, plans, whole_scores, whole_wait: train once more what is trained",
    )
    return parser


def main() -> None:
    options = parser().parse_args()
    require_clean_tree(options.dirty)
    kept: dict[str, Any] = {"home": options.home, "parts": options.parts, "again": options.again}
    extra = {
        "big": kept | {"scale": options.scale},
        "edge_rows": kept,
        "limited": kept,
        "fresh_packing": {"home": options.home, "again": options.again},
        "whole_scores": kept,
        "whole_wait": kept,
        "payoff": kept,
        "plans": kept,
        "links": {"parts": options.parts},
        "rivals": {"parts": options.parts},
        "row_files": {"home": options.home, "parts": options.parts},
        "setting_quality": {"parts": options.parts},
        "training_memory": {"parts": options.parts},
        "needs": {"scale": options.scale},
        "gpu": {"scale": options.scale},
        "gpu_trainers": {"parts": options.parts, "home": options.home},
        "topology": {"scale": options.scale, "home": options.home, "parts": options.parts},
    }
    for name in options.names:
        if name not in NAMES + ON_DEMAND:
            parser().error(f"no benchmark {name!r}; there are: {', '.join(NAMES + ON_DEMAND)}")
        importlib.import_module(f"benchmarks.{name}").main(quick=options.quick, **extra.get(name, {}))


if __name__ == "__main__":
    main()
