"""Random graphs, labels and features of any size, byte-equal on every machine and at any thread count.

Every edge, node and feature is a pure function of (seed, its number) on the stream of generators: integers only, no
mathematical library, no state. A billion edges can be made in pieces or by any number of threads.

R-MAT (Chakrabarti, Zhan, Faloutsos: R-MAT: A recursive model for graph mining, SDM 2004): each of ceil(log2 N) levels sends an
edge to one of four quadrants with probabilities (a, b, c, d), rounded to 2^-16. If N is not a power of two, the square of side 2^scale is
shrunk onto 0..N-1 by rank = x N >> scale, which rejects nothing. The nodes' ranks are then scrambled by a keyed bijection, or low ids would
be the hubs. Labels are equal ranges of ranks, the leading levels of the recursion: edges stay in their range more often than not, so a
graph network can learn them.

SBM, the stochastic block model (planted partition): both ends of an edge are in one class with probability p_in, rounded to 2^-32, so
p_in is the expected edge homophily. Self-loops and duplicates are left in both models; `graphmill.kernels.graph.csc.build_csc` applies the
graph's policy.

Citations: nodes come one after the other and cite earlier ones, of their own class with probability p_in. With probability p_copy a
citation copies one of the chosen node's own (Kumar et al.: Stochastic models for the web graph, FOCS 2000), so nodes that are cited often
are cited more: p_copy sets how strong that preference is. A copied edge is worked out anew from its number (Sanders, Schulz: Scalable
generation of scale-free graphs, IPL 2016), 1 / (1 - p_copy) steps in the mean. Rank is age, rank modulo the number of classes the class.

Features: a centroid of the class plus noise, both sums of bytes (`graphmill.kernels.rng.normal_int`), so values are exact multiples of
2^-16. Deviation of a centroid's coordinate 0.816; of the noise 0.816 * noise.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_int32, check_threads
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.generate_cuda import RmatRule, rmat_cuda
from graphmill.kernels.rng import absorb, absorb_ids_reference, bounded, draws, key, normal_int, normal_int_reference
from graphmill.kernels.types import Array, Stream, id_dtype

RMAT, SCRAMBLE, SBM, CENTROIDS, NOISE, CITATIONS = range(6)  # the word after the stream
LARGEST_NOISE = 60  # keeps the integers under a feature below 2^24, where float32 is exact


def rmat_edges_reference(
    num_nodes: int, num_edges: int, seed: int, abcd: tuple[float, float, float, float] = (0.57, 0.19, 0.19, 0.05)
) -> tuple[Array, Array]:
    """Returns the unscrambled edges that `rmat_edges` makes (the rule in NumPy)."""
    scale = max(0, num_nodes - 1).bit_length()
    first, second, third = (round(sum(abcd[:count]) * 65536) for count in (1, 2, 3))
    row = column = np.zeros(num_edges, np.int64)
    keys = absorb_ids_reference(_key(seed, RMAT), np.arange(num_edges))
    for level in range(scale):
        lane = (draws(keys, level // 4) >> np.uint64(16 * (level % 4)) & np.uint64(0xFFFF)).astype(np.int64)
        row = 2 * row + (lane >= second)
        column = 2 * column + ((lane >= first) & (lane < second) | (lane >= third))
    src, dst = (ends * num_nodes >> scale for ends in (row, column))
    return src.astype(id_dtype(num_nodes)), dst.astype(id_dtype(num_nodes))


def rmat_edges(
    num_nodes: int,
    num_edges: int,
    seed: int,
    abcd: tuple[float, float, float, float] = (0.57, 0.19, 0.19, 0.05),
    scramble: bool = True,
    threads: int = 1,
    lo: int = 0,
    hi: int | None = None,
    device: CudaDevice | None = None,
) -> tuple[Any, Any]:
    """Generates edges lo..hi-1 of an R-MAT graph; a graph of any size is made range by range.

    Args:
        num_edges: number of directed edges, self-loops and duplicates included.
        abcd: probabilities of the quadrants (source half, destination half): (0,0), (0,1), (1,0), (1,1).
        scramble: whether to hide the ranks behind a bijection; False leaves hubs at low ids.
        lo, hi: the range of edges; hi None = num_edges.
        device: the device that makes them, and has the result; None for the host.

    Returns:
        (src, dst), ids[hi - lo] each.
    """
    if len(abcd) != 4 or min(abcd) < 0 or abs(sum(abcd) - 1) > 1e-6:
        raise InputError(f"abcd = {list(abcd)}", "give four probabilities that add up to 1")
    scale, sums = max(0, num_nodes - 1).bit_length(), (round(sum(abcd[:count]) * 65536) for count in (1, 2, 3))
    rule = RmatRule(_key(seed, RMAT), _key(seed, SCRAMBLE), bool(scramble), num_nodes, scale, *sums)
    src, dst = _edge_arrays(num_nodes, num_edges, lo, hi, device)
    if device is not None:
        rmat_cuda(rule, lo, src, dst, device)
    else:
        _native.rmat(*rule, lo, src, dst, check_threads(threads))
    return src, dst


def rmat_labels(num_nodes: int, classes: int, seed: int, scramble: bool = True, threads: int = 1) -> Array:
    """Returns i32[N], the class of every node of the R-MAT graph with this seed: rank * classes // N."""
    _check_classes(num_nodes, classes)
    out = np.empty(num_nodes, np.int32)
    _native.block_labels(_key(seed, SCRAMBLE), bool(scramble), classes, out, check_threads(threads))
    return out


def sbm_edges(
    num_nodes: int,
    num_edges: int,
    classes: int,
    p_in: float,
    seed: int,
    threads: int = 1,
    lo: int = 0,
    hi: int | None = None,
) -> tuple[Array, Array]:
    """Generates edges lo..hi-1 of a planted partition: sources uniform, destinations in the source's class with p_in.

    Args:
        num_nodes, num_edges: N and the number of directed edges, self-loops and duplicates included.
        classes: number of classes, nearly equal in size (see `sbm_labels`).
        p_in: probability that an edge stays in its class; with one class all edges do.
        lo, hi: the range of edges; hi None = num_edges.

    Returns:
        (src, dst), ids[hi - lo] each.
    """
    src, dst = _edge_arrays(num_nodes, num_edges, lo, hi)
    _check_classes(num_nodes, classes)
    if not 0 <= p_in <= 1:
        raise InputError(f"p_in = {p_in}", "give a probability in [0, 1]")
    keys = _key(seed, SBM), _key(seed, SCRAMBLE)
    _native.sbm(*keys, num_nodes, classes, round(p_in * 2**32), lo, src, dst, check_threads(threads))
    return src, dst


def sbm_labels(num_nodes: int, classes: int, seed: int, threads: int = 1) -> Array:
    """Returns i32[N], the class of every node of the planted partition with this seed."""
    return rmat_labels(num_nodes, classes, seed, True, threads)


def citation_edges_reference(
    num_nodes: int, num_edges: int, classes: int, p_in: float, p_copy: float, seed: int
) -> tuple[Array, Array]:
    """Returns the unscrambled edges that `citation_edges` makes (the rule in plain Python)."""
    inside, copied = round(p_in * 2**32), round(p_copy * 2**32)

    def cited(e: int) -> int:
        rank = e * num_nodes // num_edges
        if rank == 0:
            return 0
        bits, where, which = (int(x) for x in draws(absorb(_key(seed, CITATIONS), e), np.arange(3)))
        earlier = rank // classes
        own = (bits & 0xFFFFFFFF) < inside and earlier > 0
        node = bounded(where, earlier) * classes + rank % classes if own else bounded(where, rank)
        first, last = (-(-each * num_edges // num_nodes) for each in (node, node + 1))
        return node if bits >> 32 >= copied or first == last else cited(first + bounded(which, last - first))

    src = np.arange(num_edges) * num_nodes // max(1, num_edges)
    dst = np.array([cited(e) for e in range(num_edges)])
    return src.astype(id_dtype(num_nodes)), dst.astype(id_dtype(num_nodes))


def citation_edges(
    num_nodes: int,
    num_edges: int,
    classes: int,
    p_in: float,
    p_copy: float,
    seed: int,
    scramble: bool = True,
    threads: int = 1,
    lo: int = 0,
    hi: int | None = None,
) -> tuple[Array, Array]:
    """Generates citations lo..hi-1: every node cites earlier ones, most of its own class, those that are cited often more than others.

    Args:
        num_nodes, num_edges: N and the number of directed edges, duplicates included, nearly equally many per node; the first cites itself.
        classes: number of classes, nearly equal in size (see `citation_labels`).
        p_in: probability that a node looks in its own class for a node to cite.
        p_copy: probability that it then copies a citation of the node that it found; 0 = no preference.
        scramble: whether to hide the ages behind a bijection.
        lo, hi: the range of edges; hi None = num_edges.

    Returns:
        (src, dst), ids[hi - lo] each: src cites dst.
    """
    src, dst = _edge_arrays(num_nodes, num_edges, lo, hi)
    _check_classes(num_nodes, classes)
    if not (0 <= p_in <= 1 and 0 <= p_copy <= 1):
        raise InputError(f"p_in = {p_in}, p_copy = {p_copy}", "give probabilities in [0, 1]")
    keys = _key(seed, CITATIONS), _key(seed, SCRAMBLE)
    shares = round(p_in * 2**32), round(p_copy * 2**32)
    _native.citations(
        *keys, bool(scramble), num_nodes, classes, *shares, num_edges, lo, src, dst, check_threads(threads)
    )
    return src, dst


def citation_labels(num_nodes: int, classes: int, seed: int, threads: int = 1) -> Array:
    """Returns i32[N], the class of every node of the citation graph with this seed: rank modulo classes."""
    _check_classes(num_nodes, classes)
    out = np.empty(num_nodes, np.int32)
    _native.cyclic_labels(_key(seed, SCRAMBLE), True, classes, out, check_threads(threads))
    return out


def class_features_reference(labels: Array, width: int, seed: int, noise: float) -> Array:
    """Returns f32[N, width] as `class_features` does (the rule in NumPy)."""
    nodes = np.arange(len(labels))
    deviation = round(noise * 256) * normal_int_reference(_key(seed, NOISE), nodes, width)
    centroids = normal_int_reference(_key(seed, CENTROIDS), np.maximum(labels, 0), width)
    return ((deviation + 256 * np.where(labels[:, None] < 0, 0, centroids)) * 2.0**-16).astype(np.float32)


def class_features(
    labels: Array, width: int, seed: int, noise: float, out: Array, lo: int = 0, hi: int | None = None, threads: int = 1
) -> Array:
    """Writes the features of nodes lo..hi-1 to `out`; a table of any size is made range by range.

    Args:
        labels: i32[N], -1 for a node without a class (noise only).
        noise: deviation of the noise relative to that of the centroids, in [0, 60], rounded to 1/256.
        out: f32[hi - lo, width], C-contiguous, memory-mapped or not.
        lo, hi: the range of nodes; hi None = N.
    """
    labels = as_int32(labels, "labels", len(labels))
    hi = len(labels) if hi is None else hi
    if not 0 <= noise <= LARGEST_NOISE:
        raise InputError(f"noise = {noise}", f"give a ratio in [0, {LARGEST_NOISE}]")
    if not 0 <= lo <= hi <= len(labels):
        raise InputError(f"rows {lo}..{hi} of {len(labels)}", "give a range of the labels' nodes")
    if out.shape != (hi - lo, width) or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise InputError(f"out is {out.dtype}{list(out.shape)}", f"give C-contiguous float32[{hi - lo}, {width}]")
    num_classes = int(labels[lo:hi].max(initial=-1)) + 1  # of all labels, it would make ranges cost N each
    centroids = normal_int(_key(seed, CENTROIDS), np.arange(num_classes), width)
    step = round(noise * 256)
    _native.class_features(
        labels[lo:hi], centroids, _key(seed, NOISE), step, lo, np.asarray(out), check_threads(threads)
    )
    return out


def _key(seed: int, purpose: int) -> int:
    return key(seed, Stream.GENERATORS, purpose)


def _edge_arrays(
    num_nodes: int, num_edges: int, lo: int, hi: int | None, device: CudaDevice | None = None
) -> tuple[Any, Any]:
    if num_nodes < 0 or num_edges < 0 or (num_edges and not num_nodes):
        raise InputError(f"{num_edges} edges on {num_nodes} nodes", "give counts of 0 or more, and nodes for the edges")
    hi = num_edges if hi is None else hi
    if not 0 <= lo <= hi <= num_edges:
        raise InputError(f"edges {lo}..{hi} of {num_edges}", "give a range of the graph's edges")
    empty = np.empty if device is None else device.empty
    return empty((hi - lo,), id_dtype(num_nodes)), empty((hi - lo,), id_dtype(num_nodes))


def _check_classes(num_nodes: int, classes: int) -> None:
    if not 1 <= classes <= max(1, num_nodes):
        raise InputError(f"{classes} classes of {num_nodes} nodes", "give between 1 class and one per node")
