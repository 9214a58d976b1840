"""I/O savings of embeddings of earlier steps by caching policy, depth and topology (FreshGNN, Figures 14, 16a, 17a and 17b).

Every cell is measured as benchmarks/fresh.py does it; only counts are compared, and its checks hold here, too: the ledger's rows are the
survivors of pruning, and rows of plain sampling are those of batches that are drawn once more.

    14    policies, with the bytes of an embedding 0.67 of those of a feature row, as on MAG240M; and arenas of ARENAS
    16a   models of two to five layers, [20, 15, 10, 5, 5]
    17a   R-MAT graphs of other numbers of neighbours per node
    17b   one degree distribution, edges within a band of the adjacency matrix, so of other diameters; two layers, since such
          graphs have no isolated nodes, and a batch of three takes many of them

    python -m benchmarks.fresh_io 16a 17b

measures some figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.charts import bar_chart
from benchmarks.command_line import asked_for
from benchmarks.disk_inputs import home
from benchmarks.fresh import ARENA_SHARE, QUICK_SHARE, Cell, measured
from benchmarks.fresh_graphs import BANDS, DEGREES, hops_from, made
from benchmarks.record import record
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.trainers.devices.malloc import keep_freed_memory

WARM, STEPS = 200, 300
ARENAS: tuple[tuple[float, int | str], ...] = ((0.011, "epoch/6"), (0.06, "epoch/6"), (0.06, 20))
"""Arenas of Figure 14, as shares of the rows, and the ages at which their embeddings leave."""
POLICIES = ("accuracy", "accuracy+features", "performance+features")
FIGURES: dict[str, tuple[Cell, ...]] = {
    "14": tuple(
        Cell(policy=policy, ratio=0.67, arena=arena, t_stale=age) for arena, age in ARENAS for policy in POLICIES
    ),
    "16a": tuple(Cell(layers=layers) for layers in (2, 3, 4, 5)),
    "17a": tuple(Cell(graph=f"degree-{degree}") for degree in DEGREES),
    "17b": tuple(Cell(graph=f"band-{band or 'none'}", layers=2) for band in (*BANDS, 0)),
}
QUICK: dict[str, tuple[Cell, ...]] = {
    name: tuple(replace(each, graph=graph, arena=QUICK_SHARE) for each in cells)
    for name, graph, cells in (
        ("14", "quick", FIGURES["14"][:2]),
        ("16a", "quick", FIGURES["16a"][2:3]),
        ("17b", "quick-band", FIGURES["17b"][:1]),
    )
}


def main(quick: bool, figures: Sequence[str] = tuple(FIGURES)) -> None:
    """Measures the cells of some figures, of all by default, and records a row for each cell."""
    keep_freed_memory()
    with home() as store:
        for figure, cells in (QUICK if quick else FIGURES).items():
            if figure not in figures:
                continue
            for cell in cells:
                row = measured(store, cell, *((20, 20) if quick else (WARM, STEPS)))
                topology = made(store, cell.graph).open().topology
                middle = topology.num_nodes // 2
                row |= (
                    {"edges": topology.num_edges, "hops": hops_from(topology, middle)}
                    if figure.startswith("17")
                    else {}
                )
                _show(figure, row)
                record("fresh_io", {"figure": figure, "scale": "quick" if quick else "full"} | row)


def _show(figure: str, row: dict[str, Any]) -> None:
    cell, alone = row["cell"], {name: row[f"features_by_{name}"] for name in ("degree", "pagerank", "hotness")}
    shares = ", ".join(f"{name} {100 * share:.1f}" for name, share in alone.items())
    print(
        f"{figure:4} {cell['graph']} {cell['policy']} ratio {cell['ratio']} arena {cell['arena']} layers {cell['layers']}: saves "
        f"{100 * row['saving']:.1f} %, {row['saving'] / row['features_by_degree']:.2f} times features by degree ({shares}); a batch takes "
        f"{100 * row['batch_coverage']:.2f} % of the nodes; {row['embeddings_held']:,} embeddings, {row['features_held']:,} rows held"
        + (f"; {row['edges']:,} edges, {row['hops']} hops" if "hops" in row else ""),
        flush=True,
    )


ALONE = {
    "features, by degree": "features_by_degree",
    "features, by PageRank": "features_by_pagerank",
    "features, by hotness": "features_by_hotness",
}
NAMED = {
    "accuracy": "stable embeddings",
    "accuracy+features": "these displace features",
    "performance+features": "ranked together",
}
"""Bars of Figure 14."""


def last_rows(rows: Sequence[dict[str, Any]], figure: str) -> list[dict[str, Any]]:
    """Returns the last full row of each cell of a figure that was measured, in the order of the cells."""
    found = {str(row["cell"]): row for row in rows if row["figure"] == figure and row["scale"] == "full"}
    return [found[name] for name in (str(vars(cell)) for cell in FIGURES[figure]) if name in found]


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws FreshGNN's Figures 14, 16a, 17a and 17b, as far as they were measured."""
    policies: dict[str, dict[str, float]] = {}
    for row in last_rows(rows, "14"):
        name = f"{100 * row['cell']['arena']:g} % of rows, t_stale {row['t_stale_steps']}"
        bars = policies.setdefault(name, {label: 100 * row[key] for label, key in ALONE.items()})
        bars[NAMED[row["cell"]["policy"]]] = 100 * row["saving"]
    label = "rows not loaded, %"
    says = "R-MAT of 2M nodes and 33M edges, batches of 100, [20, 15, 10]; an embedding has 0.67 of the bytes of a row. A bar is a policy."
    found = [bar_chart("fresh-policies", "I/O saving by caching policy", says, policies, label=label)]
    of = {
        "16a": ("depth", "number of layers", lambda row: f"{row['cell']['layers']} layers"),
        "17a": ("degree", "average degree", lambda row: f"degree {row['edges'] / 2e6:.3g}"),
        "17b": ("band", "band of the adjacency matrix", _band),
    }
    for figure, (name, over, row_name) in of.items():
        values = {
            row_name(row): {
                "features, by degree": 100 * row["features_by_degree"],
                "with embeddings": 100 * row["saving"],
            }
            for row in last_rows(rows, figure)
        }
        says = f"Graphs of 2M nodes, batches of 100; both bars have the same bytes, {100 * ARENA_SHARE:g} % of those of all features."
        if values:
            found.append(bar_chart(f"fresh-{name}", f"I/O saving by {over}", says, values, label=label))
    return found


def _band(row: dict[str, Any]) -> str:
    return f"{row['cell']['graph'].replace('band-', 'band ')}, {row['hops']} hops"


if __name__ == "__main__":
    main(*asked_for(tuple(FIGURES), "figure"))
