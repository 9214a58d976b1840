"""The graph stage: from a raw source to topology, labels and splits, ready to be mapped by every trainer.

Features are an artifact of their own (assets/features/__init__.py); one pass over the source builds both.

    indptr i64[N+1], indices ids[E]      in-neighbours in compressed columns, rows ascending
    weights f32[E], edge_types u8[E], edge_ids i64[E], node_type_ptr i64[T+1]     if the source has them
    in_degree, out_degree i32[N]         of the whole graph
    labels i32[N]                        -1 unknown
    train_ids, valid_ids, test_ids       ids[n], ascending, disjoint
    nodes.parquet                        node_id, original_id, name, class
    degree.png, classes.png              figures

Peak memory, with M edges in the source and E stored: the source's own (its docstring), then either 8 M bytes of edges beside those that
`build_csc` states, or for sources that spool their edges the bytes that assets/graph/edge_sort.py states; then the node table of about 60 N
bytes.
"""
