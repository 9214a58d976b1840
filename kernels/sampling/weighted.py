"""Neighbour sampling in proportion to weights, with and without replacement, into blocks (FGNN, section 7.1: weighted sampling).

Without replacement means successive draws: a neighbour is drawn in proportion to its weight, then the next one in proportion to the
weights of those that are left, until there are k. That is the distribution of Efraimidis and Spirakis (Weighted random sampling with a
reservoir, 2006), who give every neighbour a key u^(1/w) and take the k largest, which reads the whole row. Here a draw comes
from the row's alias table (kernels/sampling/alias.py), and one that repeats an earlier one is rejected, which leaves the same
distribution. A row with one dominant weight would reject for long; so after 4 k + 16 draws the missing neighbours are drawn by adding up
the masses of the neighbours that are left, each draw exactly in proportion to them.

    draws 0 .. 4 k + 15 of the row's key    a position by the alias table, taken unless it is there already
    draws 4 k + 16 .. on                    bounded(draw, mass that is left): the first position up to which masses exceed it

All decisions are made on integers, so the CPU and a GPU agree byte for byte, and positions are ascending. A neighbour with the weight 0 is
never drawn; a row with at most k others is taken whole, without drawing, and so is every row if the fanout is -1.

Shares. A mean over neighbours that were drawn by weight estimates the weighted mean over all of them. So blocks carry `share`: 1 / k on a
row that was drawn, and mass / (d 2^32), the exact weighted mean, on a row that was taken whole. Layers that average use them.
With replacement the estimate is unbiased; without, it leans towards small weights, the more so the larger k is beside the row.

Cost: O(k) per row that is drawn, whatever its length; O(d) if masses are added up or a row has weights of 0 and at most k others. Rows pass
through three steps, 8 rows apart: look up the row and ask for its table's entries, choose, read. Memory beside that of `Sampler`: 8 bytes
per edge of the table, mapped or not, and 8 bytes per neighbour of the longest row whose masses are added up.

Known limit: threads share rows, and a row is one thread's, even if it is taken whole and has a million neighbours (docs/log.md).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmill.kernels.arrays import check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import absorb, bounded, draws
from graphmill.kernels.sampling.alias import AliasTables, masses, pick_reference
from graphmill.kernels.sampling.sample import Sampler, blocks_reference
from graphmill.kernels.types import Array, BatchKey, Block, Topology


def most_draws(taken: int) -> int:
    """Returns how many draws are made before masses are added up."""
    return 4 * taken + 16


def choose_weighted_reference(
    row_key: int, table: Array, fanout: int, replace: bool = False, admitted: Sequence[int] | None = None
) -> list[int]:
    """Returns the ascending positions that are chosen from a row (the rule in plain Python).

    Args:
        row_key: key of (seed, stream, epoch, step, layer, node).
        table: u32[d, 2], the row's alias table.
        fanout: number of neighbours, -1 for all that have weight.
        admitted: positions that may be chosen, ascending; None for all.
    """
    row = [(int(threshold), int(alias)) for threshold, alias in table]
    weighty = [i for i in (range(len(row)) if admitted is None else admitted) if row[i][0]]
    if not weighty or fanout < 0 or (not replace and len(weighty) <= fanout):
        return weighty
    chosen: list[int] = []
    for counter in range(most_draws(fanout)):
        position = pick_reference(int(draws(row_key, counter)), row)
        if position in weighty and (replace or position not in chosen) and len(chosen) < fanout:
            chosen.append(position)
    mass, counter = [int(m) for m in masses(table)], most_draws(fanout)
    while len(chosen) < fanout:
        left = [m if i in weighty and (replace or i not in chosen) else 0 for i, m in enumerate(mass)]
        below, position = bounded(int(draws(row_key, counter)), sum(left)), 0
        while below >= left[position]:
            below -= left[position]
            position += 1
        chosen.append(position)
        counter += 1
    return sorted(chosen)


def shares_reference(
    table: Array, chosen: Sequence[int], fanout: int, replace: bool, admitted: Sequence[int]
) -> list[float]:
    """Returns the shares of chosen positions in the mean over a row (the rule in plain Python).

    Args:
        table, fanout, replace, admitted: as of `choose_weighted_reference`.
    """
    weighty = [i for i in admitted if table[i, 0]]
    if fanout >= 0 and (replace or len(weighty) > fanout):
        return [float(np.float32(1) / np.float32(max(1, len(chosen))))] * len(chosen)
    mass = masses(table)
    total = float(sum(int(mass[i]) for i in weighty))
    return [float(mass[position]) / total for position in chosen]


def native_tables(tables: AliasTables, topology: Topology) -> dict[str, Any]:
    """Returns the arguments of a native sampler for alias tables; raises InputError if they are not of the topology's size."""
    table, support = tables.table, tables.support
    sound = table.dtype == np.uint32 and table.shape == (topology.num_edges, 2)
    sound &= support is None or (support.dtype == np.int32 and support.shape == (topology.num_nodes,))
    if not sound:
        problem = f"tables are {table.dtype}{list(table.shape)}, the graph has {topology.num_edges} edges"
        raise InputError(problem, "build the tables of this graph: graphmill.kernels.sampling.alias.build_alias")
    arrays = [None if each is None else np.require(each, requirements=["C", "A"]) for each in (table, support)]
    return {"table": arrays[0], "support": arrays[1]}


def weighted_reference(
    topology: Topology,
    tables: AliasTables,
    fanouts: Sequence[int],
    batch: BatchKey,
    seeds: Array,
    *,
    seed: int,
    replace: bool = False,
) -> tuple[Block, ...]:
    """Returns the blocks of a batch as `WeightedSampler.sample` does, without transposes (the rule in plain Python)."""

    def pick(layer_key: int, v: int, fanout: int) -> tuple[list[int], list[float]]:
        first, last = int(topology.indptr[v]), int(topology.indptr[v + 1])
        table = tables.table[first:last]
        chosen = choose_weighted_reference(absorb(layer_key, v), table, fanout, replace)
        shares = shares_reference(table, chosen, fanout, replace, range(last - first))
        return [int(topology.indices[first + position]) for position in chosen], shares

    return blocks_reference(fanouts, batch, seeds, pick, seed=seed, dtype=topology.indices.dtype)


class WeightedSampler(Sampler):
    """Samples the blocks of mini-batches, neighbours in proportion to weights; see `Sampler` for the rest.

    Args:
        fanouts: number of neighbours per node, from the seeds outwards; -1 takes all that have weight.
        replace: whether to draw with replacement: a row with weights gives exactly `fanout`, repeats included.

    Raises:
        InputError: fanouts, the topology or the tables break these rules. A table that does not fit its row is found when that is sampled.
    """

    BY_RELATION = False

    def __init__(
        self,
        topology: Topology,
        tables: AliasTables,
        fanouts: Sequence[int],
        *,
        seed: int,
        replace: bool = False,
        threads: int = 1,
    ):
        self.tables = tables
        super().__init__(topology, fanouts, seed=seed, replace=replace, threads=threads)

    def _open(self, replace: bool, threads: int, **more: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super()._open(replace, check_threads(threads), **native_tables(self.tables, self.topology), **more)
