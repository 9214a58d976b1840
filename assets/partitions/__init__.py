"""The partitions stage: the part of the graph that each node belongs to, one part per device or rank (HongTu, section 4.1).

    part_of i32[N]      part of each node, 0 to P - 1; a part may be empty
    cut i64[P, P]       row i, column j: number of edges from part j to part i
    parts.png           sizes of the parts, and from which part the in-edges of each part come

Methods:

    auto             `metis` if that takes at most 4 GiB by the formula below, else `ldg`: the choice depends on the graph alone
    metis            METIS (Karypis and Kumar, 1998) with one weight per node: itself, its in-edges and its role as a training node
                     count alike; a streaming pass then moves nodes out of parts more than a twentieth over the mean in one of the three
    metis-contracted METIS on clusters of about ten nodes, or on `contract_to` clusters (kernels/chunks/clusters.py); then five streams over
                     the graph itself refine the parts as `ldg` does: for graphs on which METIS takes too long or too much memory
    metis-balanced   METIS through DGL, which balances training nodes and edges apart
    ldg              five streams over the nodes (kernels/chunks/ldg.py): each node goes to the part with most of its in-neighbours and
                     room for it, in nodes, edges and training nodes; good where `metis-contracted` takes too much memory
    range            equal ranges of ids by in-edges: reads only degrees; good for ids with locality
    random           drawn per node: the baseline of every other method

METIS gets each edge in both directions, once, and no self-loops (it corrupts memory otherwise). It runs in a process of its own, which
ends with this one: a cancelled step does not wait for it, and a killed step leaves nothing behind.

Numbers: of a balance, 1 is even. `beside_random` has the same numbers of random parts.

Cost: METIS takes minutes from tens of millions of edges on; `ldg` took 46 s and 0.5 GiB for 8M nodes and 128M edges. Peak memory, E' edges
after adding reverses: metis at most 150 E' + 200 N, of which 12 E' + 40 N here and the rest in METIS; metis-contracted at most 44 N for
clusters, with 28 E' in scratch files, and 5 N beside METIS with 16.8M edges, or with 16 edges (2.6 kB) for each cluster of `contract_to`,
if clusters can be joined to that number; ldg 9 N beside the mapped graph, and 24 N of weights in scratch files; every method 16 N when its
parts are measured, 20 N with ids of 64 bits.

Checks: equal recipes have equal bytes with every method but `metis-balanced`: in 3 of 96 processes the METIS inside DGL gave other parts
for the same graph, with one thread as with several. If that counts, use `metis`.
"""
