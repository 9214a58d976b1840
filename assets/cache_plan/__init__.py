"""The cache_plan stage: which of four tiers serves each row of each stored batch, and the bytes read (DiskGNN, sections 4 and 5.1).

    slot i32[N], device_ids, host_ids ids[n]       the static tiers: the nodes that most batches need, within the budgets
    segment_of i32[B]                              (stage.py)
    cache_ptr i64[S+1], cache_ids ids[m]           rows of each segment's disk cache, in the order of its file
    member_ptr i64[B+1], members i32[q]            rows of its segment's disk cache that each batch reads
    packed_ptr i64[B+1], packed_ids ids[p]         rows of each batch's chunk, ascending
    tier_rows i64[B, 4]                            (stage.py)
    pages, runs, pages_by_id i64[B]                (stage.py)
    tiers.png, cache_io.png                        share of rows by tier; I/O by batch before and after the ordering (Fig. 5)

The B stored batches stand in the order of the samples, those of evaluations last. Batches of different parts of the graph, if the samples
are drawn by parts, share no segment. A row that a batch needs comes from the tier that holds it, else
from its segment's cache, else from its chunk. The size of a segment is the smallest whose rows fit the disk budget
(kernels/disk_cache/segment_size.py: Algorithm 2 on exact numbers of all segments), checked against the bytes of whole pages before anything
is written. If that reads many unwanted bytes, segments are longer and hold a row several times (assets/cache_plan/layout.py). The packer
writes and the trainer reads the bytes of the summary exactly. The disk budget counts feature bytes of all stored batches; the static tiers
hold what training batches need most. All lists name nodes; a node without features has the slot -1 and is in none of them.

A plan of rows of edges, the step `cache_plan.edges`, names edges by id wherever the one of rows of nodes names nodes, and N is their
number. Its batches need the rows of the edges of all their layers, each once, ascending. Its budgets are `edge_host` and `edge_disk` of
[memory].

Numbers: `segment_size` is the size without copies; with copies `segment_of` says which batches share a cache.

Cost: seconds. Samples are read three times at most, one segment after the other, each batch verified. Peak memory with N nodes, T
threads, R the bytes of a record, and P (batch, node) pairs from disk in the largest segment, of which m nodes cached, s its batches:

    16 N (slots, working memory, visits; 28 N while nodes are ranked; 4 N more if some have no features) + T R
    + 8 B min(B, 1024) (0.8 GB for 100,000 batches) + ids of the segment 2 x 4 x (its inputs) + 12 P + m (16 ceil(s / 64) + 40)

and with copies 40 P, of segments of 2^25 pairs, instead of the last two. Ids and features are never held for more than one segment; ids
take 8 bytes instead of 4 from 2^31 nodes on.
"""
