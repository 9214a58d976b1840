"""The baseline that hybrid partitioning is compared with: each rank has the in-edges of its own nodes alone (FastSample, section 3.3).

A rank samples the first layer under its seeds by itself. For each of the other L - 1 layers it sends the nodes of other ranks to their
owners, one round, and receives their neighbours, a second one; two more rounds bring the features, 2 L in all. Draws are keyed, so the
blocks have the bytes of those of the whole topology.

The bytes that a rank sends are known only when it has sampled, so sizes precede each call. They are not counted as rounds and not delayed
by a modelled network, since the paper does not count them: the baseline is measured at its best.
"""

import numpy as np

from graphmill.assets.sampling.config import Neighbours
from graphmill.kernels.blocks.transpose import transpose as with_transpose
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.sampling.sample_layer import LayerSampler, Renamer, unweighted_rows
from graphmill.kernels.types import Array, BatchKey, Block, Topology
from graphmill.trainers.ranks.group import Lane
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.techniques.distributed.sharded import Ownership

TOPOLOGY = Line("rank", "topology")


def own_topology(topology: Topology, mine: Array) -> Topology:
    """Returns the topology of all nodes with the in-edges of this rank's nodes alone (mine: bool[N])."""
    indptr = np.asarray(topology.indptr)
    degrees = np.diff(indptr) * mine
    own = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    nodes = np.flatnonzero(mine)
    places = np.repeat(indptr[nodes] - own[nodes], degrees[nodes]) + np.arange(own[-1])
    return Topology(
        indptr=own,
        indices=np.asarray(topology.indices)[places],
        in_degree=topology.in_degree,
        out_degree=topology.out_degree,
        weights=topology.weights,
        edge_types=topology.edge_types,
    )


class VanillaSampler:
    """Samples with the other ranks; collective, from one thread.

    Args:
        topology: the graph; only the in-edges of this rank's nodes are kept.
        sampling: fan-outs and replacement of the uniform draws.
    """

    def __init__(self, topology: Topology, owned: Ownership, sampling: Neighbours, seed: int, lane: Lane):
        self.rank_of, self.lane = owned.ranks_of(np.arange(topology.num_nodes)), lane
        own = own_topology(topology, self.rank_of == owned.rank)
        self.topology_bytes = own.indptr.nbytes + own.indices.nbytes
        self.id_type = topology.indices.dtype
        layers = reversed(range(len(sampling.fanouts)))
        self.layers = [
            LayerSampler(fanout, layer, seed=seed, replace=sampling.replace)
            for layer, fanout in zip(layers, sampling.numbers, strict=True)
        ]
        self.rows, self.renamer = unweighted_rows(own), Renamer(topology.num_nodes, self.id_type)

    def sample(self, batch: BatchKey, seeds: Array, transpose: Transposes, ledger: Ledger) -> tuple[Block, ...]:
        """Returns the blocks of a batch; all ranks call it for one of their batches at the same time."""
        blocks: list[Block] = []
        self.renamer.begin(np.asarray(seeds, self.id_type))
        for depth, sampler in enumerate(self.layers):
            nodes = self.renamer.nodes
            if depth == 0:
                block, _ = self.renamer.block(*self._drawn(sampler, batch, nodes))
            else:
                block, _ = self.renamer.block(*self._asked(sampler, batch, nodes, ledger))
            turned = transpose == "all" or (transpose == "hidden" and sampler.layer > 0)
            blocks.insert(0, with_transpose(block) if turned else block)
        return tuple(blocks)

    def _drawn(self, sampler: LayerSampler, batch: BatchKey, nodes: Array) -> tuple[Array, Array]:
        """Returns counts and sources of the neighbours of own nodes."""
        counts, sources, *_ = sampler.draw(self.rows, batch, nodes)
        return counts, sources

    def _asked(
        self, sampler: LayerSampler, batch: BatchKey, nodes: Array, ledger: Ledger
    ) -> tuple[Array, Array, Array]:
        """Draws the neighbours of own nodes, and lets the owners draw those of other nodes: two rounds.

        Returns:
            Counts, sources, and the places of the nodes that they are of.
        """
        rank_of, lane = self.rank_of[nodes], self.lane
        order = np.argsort(rank_of, kind="stable")
        groups = np.split(order, np.cumsum(np.bincount(rank_of, minlength=lane.world))[:-1])
        asked = self._exchanged([self._question(batch, nodes[group]) for group in groups])
        answers = []
        for rank, question in enumerate(asked):
            if rank == lane.rank or not len(question):
                answers.append(np.empty(0, np.uint8))
                continue
            words = question[:16].view(np.int64)
            there = BatchKey(batch.stream, int(words[0]), int(words[1]))
            counts, sources = self._drawn(sampler, there, question[16:].view(self.id_type))
            answers.append(np.concatenate([counts.astype(np.int32).view(np.uint8), sources.view(np.uint8)]))
        replies = self._exchanged(answers)
        moved = sum(len(each) for each in [*asked, *replies])
        ledger.count("rounds", 0, 2)
        ledger.crossed(TOPOLOGY, moved, requests=2)
        found = []
        for rank, (group, reply) in enumerate(zip(groups, replies, strict=True)):
            if rank == lane.rank:
                found.append(self._drawn(sampler, batch, nodes[group]))
            else:
                found.append((reply[: 4 * len(group)].view(np.int32), reply[4 * len(group) :].view(self.id_type)))
        counts, sources = (np.concatenate(each) for each in zip(*found, strict=True))
        return counts, sources, order

    def _question(self, batch: BatchKey, nodes: Array) -> Array:
        """Returns u8[m]: epoch, step and nodes; empty if it has no nodes."""
        if not len(nodes):
            return np.empty(0, np.uint8)
        return np.concatenate([np.array([batch.epoch, batch.step], np.int64).view(np.uint8), nodes.view(np.uint8)])

    def _exchanged(self, pieces: list[Array]) -> list[Array]:
        """Sends each rank its piece and returns theirs."""
        lane = self.lane
        pieces = [piece[:0] if rank == lane.rank else piece for rank, piece in enumerate(pieces)]
        sent = [len(piece) for piece in pieces]
        sizes = lane.swap(np.array(sent)).tolist()
        found = lane.all_to_all(np.concatenate(pieces), sent, sizes)
        return [piece.copy() for piece in np.split(found, np.cumsum(sizes)[:-1])]
