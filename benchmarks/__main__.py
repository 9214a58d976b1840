"""Runs benchmarks: `python -m benchmarks [--quick] [NAME ...]`."""

import argparse
import importlib

NAMES = (
    "aggregate",
    "cache",
    "cache_plan",
    "chunks",
    "csr2",
    "direct_io",
    "disk",
    "disk_graphs",
    "disk_packing",
    "disk_widths",
    "distributed",
    "epoch",
    "factored",
    "factored_epochs",
    "fresh",
    "fresh_delivery",
    "fullgraph",
    "gather",
    "gpu",
    "hotness",
    "import",
    "orders",
    "partitions",
    "predict",
    "sampling",
    "step",
    "typed",
    "verifying",
    "wide_rows",
)
ON_DEMAND = (
    "big", "disk_quality", "drawn", "drawn_quality", "ends", "fresh_quality", "fullgraph_quality", "gather_cuda", "quality",
)  # fmt: skip
"""In need of a GPU, or of graphs that the project does not contain; "big", "ends" and "quality" take longer than a minute even when
quick."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help=f"which of: {', '.join(NAMES + ON_DEMAND)}")
    parser.add_argument("--quick", action="store_true", help="under a minute each")
    parser.add_argument("--scale", type=float, help="of big: 1 is 111M nodes and 1.6G edges; default 1/8")
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES + ON_DEMAND:
            parser.error(f"no benchmark {name!r}; there are: {', '.join(NAMES + ON_DEMAND)}")
        more = {"scale": options.scale} if name == "big" else {}
        importlib.import_module(f"benchmarks.{name}").main(quick=options.quick, **more)


if __name__ == "__main__":
    main()
