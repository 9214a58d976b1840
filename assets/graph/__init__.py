"""The graph stage: from a raw source to topology, labels and splits, ready to be mapped by every trainer.

docs/own-data.md explains each source. Features are an artifact of their own (docs/stages/features.md); one pass over the source builds
both.

    indptr i64[N+1], indices ids[E]      in-neighbours of each node in compressed columns, rows ascending
    weights f32[E], edge_types u8[E], edge_ids i64[E], node_type_ptr i64[T+1]     if the source has them
    edge_times f64[E], node_times f64[N], link_times f64[L]     if [sampling] asks for times, by which the edges of a row ascend then
    in_degree, out_degree i32[N]         of the whole graph
    labels i32[N]                                    class of the node, -1 where it is not known; of other tasks i8[N, C] or f32[N, T]
    train_ids, valid_ids, test_ids ids[n]     the split: ascending, disjoint
    link_ends ids[L, 2], link_relation u8[L], link_split u8[L]     links: source and target, relation, 0 train, 1 valid, 2 test
    nodes.parquet                        node_id, original_id, name, class
    degree.png, classes.png              degrees; balance of the classes

A pipeline that lists several splits has one such artifact per split (docs/pipelines.md#several-splits). The version of the aspect
`sampling` depends on edges and splits alone, so refreshed labels leave samples and hotness valid.

Of links (docs/pipelines.md#task) nodes have no labels and no split, and the topology has no edge that is held out (assets/graph/links.py).

Numbers: if the share of edges inside a class is close to one over the number of classes, neighbours say nothing. Duplicates and
self-loops of the source are counted whether or not they are kept.

Cost: peak memory, with M edges in the source and E stored, is the source's own (its docstring), and either 8 M bytes of edges beside
those that `build_csc` states, or for sources that spool their edges the bytes that assets/graph/edge_sort.py states; then the node table
of about 60 N bytes. Generators, NumPy and DGL files are compressed in memory: 24 bytes per edge of the source and 3 ids per stored edge,
besides 100 bytes per node. Tables and OGB folders spool their edges to disk and stay within `memory_limit`. `graphmill inspect PIPELINE`
prints both bounds before anything is built. Stored are about 4 bytes per edge and 16 per node. An import of 50M edges from Parquet ran at
1.5M edges per second on 2 cores.
"""
