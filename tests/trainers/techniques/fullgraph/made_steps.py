"""Chunk steps by set arithmetic, as the definitions say, to test what walks over them."""

import numpy as np

from graphmill.kernels.types import Block, ChunkStep, Topology


class MadeSteps:
    """Steps of a graph in memory.

    Args:
        topology: the graph.
        chunk_of: i32[N], part * chunks_per_part + step of every node.
        num_parts, chunks_per_part: m and n.
        self_term: destinations count as neighbours of their own chunk.
    """

    def __init__(self, topology: Topology, chunk_of, num_parts, chunks_per_part):
        self.topology, self.num_parts, self.chunks_per_part = topology, num_parts, chunks_per_part
        self.chunk_of = np.asarray(chunk_of)
        self.part_of = self.chunk_of // chunks_per_part
        neighbours = [[self._neighbours(i, j) for j in range(chunks_per_part)] for i in range(num_parts)]
        self.unions = [set().union(*(neighbours[i][j] for i in range(num_parts))) for j in range(chunks_per_part)]
        self.v_ori = sum(len(each) for row in neighbours for each in row)
        self.v_p2p = sum(map(len, self.unions))
        self.v_ru = sum(len(u - before) for u, before in zip(self.unions, [set(), *self.unions], strict=False))
        places = [self._places(neighbours[i], i) for i in range(num_parts)]
        self.steps = [[self._step(i, j, neighbours, places) for j in range(chunks_per_part)] for i in range(num_parts)]

    def step(self, part, step):
        return self.steps[part][step]

    def _dst(self, i, j):
        return np.flatnonzero(self.chunk_of == i * self.chunks_per_part + j)

    def _neighbours(self, i, j):
        graph, found = self.topology, set()
        for v in self._dst(i, j):
            found |= {int(v), *graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()}
        return found

    def _places(self, neighbours, i):
        """Rows of the nodes in every step; a node that stays keeps its row."""
        places, before = [], {}
        for j in range(self.chunks_per_part):
            wanted = sorted(neighbours[j] | {v for v in self.unions[j] if self.part_of[v] == i})
            now = {v: before[v] for v in wanted if v in before}
            free = iter(sorted(set(range(len(wanted) + len(before) + 1)) - set(now.values())))
            for v in wanted:
                if v not in now:
                    now[v] = next(free)
            places.append(now)
            before = now
        return places

    def _step(self, i, j, neighbours, places):
        graph, dst, now = self.topology, self._dst(i, j), places[i][j]
        ids = graph.indices.dtype
        num_rows = 1 + max(now.values(), default=-1)
        src_ids = np.full(num_rows, -1, ids)
        for v, row in now.items():
            src_ids[row] = v
        degrees = graph.indptr[dst + 1] - graph.indptr[dst]
        ends = np.cumsum(degrees).astype(np.int32)
        sources = [now[int(u)] for v in dst for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]]
        block = Block(
            num_dst=len(dst), num_src=num_rows, start=(ends - degrees).astype(np.int32), end=ends,
            indices=np.array(sources, np.int32), src_ids=src_ids,
            dst_pos=np.array([now[int(v)] for v in dst], np.int32),
        )  # fmt: skip
        before = self.unions[j - 1] if j else set()
        load = sorted(v for v in self.unions[j] - before if self.part_of[v] == i)
        had = neighbours[i][j - 1] if j else set()
        fetch = []
        for k in ((i + step) % self.num_parts for step in range(1, self.num_parts)):
            fetched = sorted(v for v in neighbours[i][j] - had if self.part_of[v] == k)
            if fetched:
                theirs, mine = ([places[p][j][v] for v in fetched] for p in (k, i))
                fetch.append((k, np.array(theirs, np.int32), np.array(mine, np.int32)))
        return ChunkStep(
            part=i, step=j, dst_ids=dst.astype(ids), block=block, load_ids=np.array(load, ids),
            load_rows=np.array([now[v] for v in load], np.int32), fetch=tuple(fetch),
            num_transition=sum(self.part_of[v] == i for v in self.unions[j]),
        )  # fmt: skip
