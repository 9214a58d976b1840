"""The sampling_tables stage: alias tables from weights, so that a change of weights does not rebuild the graph (FGNN, section 7.1).

    table    u32[E, 2]   threshold and alias of each place of each row, beside the graph's edges (kernels/sampling/alias.py)
    support  i32[N]      number of neighbours with weight; absent if all have weight

`weights` of [sampling] names the weights: "edge" = the graph's edge weights; "node:COLUMN" = the weight of an edge's source, as in FGNN
(there the year in which a user registered, so that newer neighbours are preferred).

All weights are checked before anything is written. Peak memory: 16 bytes per neighbour of the longest row and thread, some 80 bytes per
edge of one range of 4 million edges (or of a longer row), which its checks take, 20 N, and for weights of nodes 8 N. Mapped pages are not
counted.
"""
