"""Runs benchmarks: `python -m benchmarks [--quick] [NAME ...]`."""

import argparse
import importlib

NAMES = ("epoch", "import")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help=f"which of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="under a minute each")
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"no benchmark {name!r}; there are: {', '.join(NAMES)}")
        importlib.import_module(f"benchmarks.{name}").main(quick=options.quick)


if __name__ == "__main__":
    main()
