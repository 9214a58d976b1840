"""The features stage: the rows of one feature table of a source.

    rows [R, F]         a row for each node that has features, in the order of the nodes; the type that [features] asks for
    row_of ids[N]       node -> row, -1 for a node without features; absent if every node has its row, in order
    page_digests u64    XXH64 of each page of 4 KiB of the rows, for readers of single pages
    encoders.json       with `encode`: encoder, fitted numbers and names of the columns of each node type

If the features of node types have different widths, F is the largest, and the rows of other types end with zeros; the summary has the
columns of each type (`type_columns`), which `input = "typed"` of a train table reads. A graph without features gets one column of ones.
bfloat16 is stored as uint16, the bits of each value. The pass over the source that builds the graph (docs/stages/graph.md) builds the rows.
The table `[features.edges]` has rows of edges instead: row i for the edge with id i, its place among the edges of the source.
Further tables `[features.NAME]` are further artifacts; a train table chooses one by `feature_table`.

Numbers: the size of all rows decides how to train (docs/choosing.md). A row's bytes decide how many rows share a page of 4 KiB.

Cost: rows pass in slices and are never held whole. Peak memory is that of the source (its docstring), and 4 N bytes for `row_of`; disk is
R x F values, and 8 bytes per page. Training maps the file and compares each MiB with its digest when its first row is read, or reads and
compares single pages if the file does not fit into memory (`features` in [[train]]).
"""
