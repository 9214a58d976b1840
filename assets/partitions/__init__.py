"""The partitions stage: the part of the graph that each node belongs to, one part per device or rank (HongTu, section 4.1).

    part_of i32[N]      part of each node, 0 to P - 1; a part may be empty
    cut i64[P, P]       row i, column j: number of edges from part j to part i
    parts.png           sizes of the parts, and the edges between them

Methods:

    metis            METIS (Karypis and Kumar, 1998) with one weight per node, of itself, its in-edges and its role as a training node; a
                     streaming pass then moves nodes out of parts that are more than a twentieth over the mean in one of the three
    metis-balanced   METIS through DGL, which balances training nodes and edges apart
    ldg              one stream after the other (kernels/chunks/ldg.py): for graphs on which METIS takes too long
    range            equal ranges of ids by in-edges: reads only degrees; good for ids with locality
    random           drawn per node: the baseline of every other method

METIS gets each edge in both directions, once, and no self-loops (it corrupts memory otherwise). It runs in a process of its own, which ends
with this one: a cancelled step does not wait for it, and a killed step leaves nothing behind.

Peak memory, E' edges after adding reverses: metis 12 E' + 40 N here and about 5 times that in METIS; ldg 40 N beside the mapped graph;
range and random 20 N.
"""
