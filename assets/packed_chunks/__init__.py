"""The packed_chunks stage: the feature rows that each batch needs from disk, packed next to each other (DiskGNN, section 5.2).

A group of consecutive segments of the plan (assets/cache_plan/__init__.py) is a part, and each part is built by one sequential pass over
the feature table, range by range, however many batches want a row. Parts `segments-A-B`:

    chunks u8[bytes]      one chunk per batch, each section starting on a page of the file and padded to whole pages:
                          slots i32[inputs], in the order of the inputs (kernels/rows/slots.py);
                          places i32[c], ascending: the batch's rows of its segment's cache;
                          rows, packed: by node id, or with `order = "reads"` by expected reads (expected_reads.py)
    bounds i64[n+1], num_cached i64[n]   byte of the file at which each chunk starts, and the end; c of each batch
    digests u64[n]        `chunk_digest` of each chunk: XXH64 of the XXH64 of its pages
    chunk_digests u64[q]  XXH64 of each page of the chunks, for readers of some rows of a batch (trainers/rows/packed_loader.py)
    caches u8[bytes]      the disk cache of each segment, rows in the plan's order, padded to whole pages
    cache_bounds i64[s+1] byte of the file at which each cache starts, and the end
    cache_digests u64[p]  XXH64 of each page of the caches, since they are read by pages
    device_image, host_image [rows, F]   rows of the static tiers, stored type; in the part of segment 0 only, whose pass brings them along,
                          or if batches are of parts of the graph in `static-tiers`, which every rank reads

The artifact itself, for all B batches and S segments, in the order of the samples:

    part_of i32[B], offsets i64[B], num_bytes i64[B], num_cached i64[B], digests u64[B]   (stage.py)
    cache_offsets i64[S], cache_bytes i64[S]   byte of the part's file at which each cache starts, and its bytes

A node without features has the slot -1 and is in no list, so it takes 4 bytes in the chunks of the batches that need it. A slot on the
staged tier is a row of the batch's own staging: packed rows first, then its cached rows in the order of `places`. The topology stays in
the samples, which are laid out for the same kind of read.

The step `packed_chunks.edges` packs rows of edges the same way, by the plan `cache_plan.edges`: the slots of a batch are those of its
edges' rows, ascending by edge id.

Numbers: the figures show the bytes of chunks and caches against packing every row with every batch, the budget, and the bytes of each
batch.

Cost: space is what the plan says, within `disk` of [memory]. Time is one sequential read of the features per part and one sequential
write: on a graph of 1M nodes samples, plan and packing took 12.8 s, and an epoch takes 16.8 s. Peak memory of a part, N nodes, T threads:
`memory` (ranges of the table, buffers and spans; assets/packed_chunks/distribute.py), or 2 MiB and a page for each of its batches if that
is more; 4 N bytes, 8 N if some nodes have no features; 4 bytes for each stored row, 8 for those of caches and images, 8 for each page of
a chunk or a cache; and for each of T + 4 threads 4 MiB and a batch with 60 bytes for each input that comes from disk. With `order =
"reads"` 8 N bytes, 4 N for each layer but the last and 12 bytes for each packed row besides; rows that do not fit into `memory` are then
written twice and read once.
"""
