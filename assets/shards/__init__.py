"""The shards stage: the feature rows of each part of the graph, apart from those of the others (FastSample, section 3.3).

It has no table of its own: a pipeline with [partitions] and a [[train]] table with `trainer = "distributed"` or "fresh-distributed" has
it. The topology of a graph is small beside its features, so hybrid partitioning copies the topology to every machine and cuts only the
features. The index:

    row_of i32[N]        (stage.py)
    num_rows i64[P]      number of rows of each shard

One artifact for each part, `part-0000` and so on, in `shards.parts/`:

    rows [n, F]          rows of the part's nodes, in the order of the nodes and in their stored type
    page_digests u64     XXH64 of each page of 4 KiB of the rows, for readers of single pages
    node_ids ids[n]      the node of each row, ascending

A machine of a training across machines needs the index and the shards of the parts that its ranks own. It does not need the features.

Cost: one sequential pass over the features writes all missing shards, and compares every block that it reads with its digest; one over
each shard takes the digests of its pages. Peak memory: 9 bytes per node, 24 for each of at most 1M nodes at a time, and a block of 1 MiB;
the written files are mapped.
"""
