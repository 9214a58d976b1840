"""The sampling_tables stage: an alias table from the weights of each node's neighbours (FGNN, section 7.1).

A pipeline with `method = "weighted"` in [sampling] has it.

    table u32[E, 2]   threshold and alias of each place of each row, beside the graph's edges (kernels/sampling/alias.py)
    support i32[N]    number of neighbours with weight; absent if all have weight

A draw takes a place of the row and a number: below the threshold it means the neighbour of this place, else the alias. All numbers are
integers, so a draw is the same on every machine.

Weights: the key `weights` names the weight of the edge u -> v. FGNN takes the year in which a user registered, so that newer neighbours
are preferred.

    "edge"                                the edge's weight in the graph; the source needs a `weight_column`
    "node:in_degree", "node:out_degree"   the degree of u
    "node:NAME"                           the row of u in the feature table `[features.NAME]`, which has one column
    "node:3"                              column 3 of u's row in the main feature table

Errors: a weight that is negative or not finite is refused before anything is written, with its edge or node. So is a node whose
neighbours all have the weight 0; `empty_rows` says that such a node draws uniformly ("uniform"), or has no neighbours ("none"). A column
that is not there is refused when the pipeline file is read, or when the stage starts.

Numbers: an edge without weight is drawn only with `empty_rows = "uniform"`. If `effective_neighbours` is near the mean degree weights
hardly matter; near 1 one neighbour is drawn nearly always.

Cost: 8 bytes per edge in the store. The tables of 20 million edges were made in 0.8 s on 2 cores; checks and numbers are passes over them
in NumPy. Peak memory: 16 bytes per neighbour of the longest row and thread, some 57 bytes per edge of one range of 4 million edges (or of
a longer row), which its checks take, 11 N, and for weights of nodes 8 N. Mapped pages are not counted.
"""
