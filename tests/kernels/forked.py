"""Programs of parents and forked children that call kernels: `python -m tests.kernels.forked ORDERS`, orders as JSON (test_forked.py).

Each order runs in a process that loads the kernels itself: a fork of one that has them would be a forked child already. A child that does
not end in time is killed. Prints a JSON list: for each order the digests that each of its processes found, or None for a killed one.
"""

import ctypes
import hashlib
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager

import numpy as np

LIMIT_SECONDS = 60
"""Time for one process: each call takes milliseconds."""
PR_SET_PDEATHSIG = 1
"""Of Linux' prctl: a process ends with its parent."""


def calls() -> dict[str, Callable[[int], list[np.ndarray]]]:
    """Calls of kernels by name, each of a number of threads; all pieces of work are large enough for several threads."""
    from graphmill.kernels.graph.csc import build_csc
    from graphmill.kernels.layers.aggregate import aggregate
    from graphmill.kernels.rows.gather import gather
    from graphmill.kernels.sampling.sample import Sampler
    from graphmill.kernels.types import BatchKey, Topology

    generator = np.random.default_rng(0)
    nodes, edges = 20_000, 200_000
    src, dst = generator.integers(0, nodes, edges), generator.integers(0, nodes, edges)
    how = {"undirected": False, "duplicates": "keep", "self_loops": "keep"}
    indptr, indices = build_csc(src, dst, nodes, **how)[:2]
    in_degree, out_degree = (np.bincount(ends, minlength=nodes).astype(np.int32) for ends in (dst, src))
    graph = Topology(indptr=indptr, indices=indices, in_degree=in_degree, out_degree=out_degree)
    rows, seeds = generator.standard_normal((nodes, 16)).astype(np.float32), np.arange(0, nodes, 10)
    (block,) = Sampler(graph, (-1,), seed=0).sample(BatchKey(0, 0, 0), seeds)

    def sample(threads: int) -> list[np.ndarray]:
        blocks = Sampler(graph, (5, 5), seed=0, threads=threads).sample(BatchKey(0, 0, 0), seeds)
        return [array for each in blocks for array in (each.src_ids, each.start, each.indices)]

    def gathered(threads: int) -> list[np.ndarray]:
        out = np.empty((nodes, 16), np.float32)
        gather(rows, np.arange(nodes)[::-1].copy(), out, threads)
        return [out]

    def summed(threads: int) -> list[np.ndarray]:
        return [aggregate(block, rows[block.src_ids], "mean", threads=threads)]

    def compressed(threads: int) -> list[np.ndarray]:
        return list(build_csc(src, dst, nodes, threads=threads, **how)[:2])

    return {"sample": sample, "gather": gathered, "aggregate": summed, "csc": compressed}


def perform(order: Sequence, made: dict[str, Callable[[int], list[np.ndarray]]]) -> list:
    """Makes the calls of one process in order: [name, threads], ["fork", order of the child] and ["beside", order in a thread]."""
    found = []
    for what, more in order:
        if what == "fork":
            found.append(in_fork(lambda more=more: perform(more, made)))
        elif what == "beside":
            with beside(lambda more=more: perform(more, made)) as results:
                found.append(in_fork(lambda more=more: perform(more, made)))
            found.append(results)
        else:
            data = b"".join(np.ascontiguousarray(array).tobytes() for array in made[what](more))
            found.append([what, hashlib.sha256(data).hexdigest()])
    return found


@contextmanager
def beside(work: Callable[[], list]):
    """Runs `work` on a thread, at the same time as the body; yields the list that has its results in the end."""
    results: list = []
    thread = threading.Thread(target=lambda: results.extend(work()))
    thread.start()
    yield results
    thread.join()


def in_fork(work: Callable[[], list]) -> list | None:
    """Returns what `work` returns in a forked child; None if the child did not end in time, or died."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(read)
            with os.fdopen(write, "w") as answer:
                json.dump(work(), answer)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as answer:
        in_time = select.select([answer], [], [], LIMIT_SECONDS)[0]
        text = answer.read() if in_time else ""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(text) if text else None


if __name__ == "__main__":
    print(json.dumps([in_fork(lambda order=order: perform(order, calls())) for order in json.loads(sys.argv[1])]))
