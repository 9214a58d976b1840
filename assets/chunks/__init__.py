"""The chunks stage: the work of every device in every step of a full-graph pass (HongTu, sections 4.1, 5.3 and 6).

With m parts of n chunks, records lie step after step, and in a step part after part, R = m x n of them:

    steps u8[bytes]                      records (assets/chunks/record.py), each starting on a page of the file
    bounds i64[R+1]                      byte of the file at which each record starts, and the end
    digests u64[R]                       xxh3-64 of each record
    schedule i32[m, n]                   chunk of part i that comes in step j
    chunk_ptr i64[R+1], node_ids ids[N]  chunk k of part i has destinations node_ids[chunk_ptr[i n + k] : chunk_ptr[i n + k + 1]]
    counts i64[n, m, 8]                  rows by set, edges, buffer rows (kernels/chunks/counts.py)

Counts are rows and edges, not bytes: bytes depend on the widths and the dtype of a model. trainers/techniques/fullgraph/memory.py converts
one into the other, for trainers and for planning.
"""
