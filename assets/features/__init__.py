"""The features stage: the rows of one feature table of a source, beside the graph and apart from it.

    rows [R, F]         a row for each node that has features, in the order of the nodes; the type that [features] asks for
    row_of ids[N]       node -> row, -1 for a node without features; absent if every node has its row, in order

A graph without features gets one column of ones. bfloat16 is stored as uint16, the bits of each value. Rows pass in slices and are
never held whole; peak memory is that of the source (its docstring), and 4 N bytes for `row_of`.
"""
