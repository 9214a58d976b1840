"""The samples stage: all mini-batches of K epochs, sampled before training (DiskGNN, section 3, offline sampling).

Training on stored samples equals training on the online sampler's, byte for byte, because both are functions of (seed, epoch, step).
Several processes build parts, and find them again after a kill. Parts `epoch-E-batches-A-B`, each the batches of a range of steps of one
epoch. With `evaluate` epoch K has the batches by which a sampled evaluation scores the validation nodes, and epoch K + 1 those of the test
nodes, which are the same at every evaluation. With plan = "parts" a batch has seeds of one part of the graph alone
(kernels/sampling/part_plan.py), and `part-P-epoch-E-batches-A-B` are ranges of rounds: what a rank reads lies in files of its own.

    batches u8[bytes]                    records (assets/samples/record.py), each starting on a page of the file
    bounds i64[n+1]                      byte of the file at which each record starts, and the end
    digests u64[n], num_inputs i64[n]    (stage.py)
    num_edges i64[n, layers]             (stage.py)
    visited ids[v]                       nodes among the inputs of its training batches, ascending
    visited_by u8|u16|u32[v]             number of training batches with the node among their inputs
    seeds ids[s]                         seeds of its batches, in their order

The last three follow from the batches (assets/samples/tally.py): the index adds them up, and parts of older versions lack them.

The artifact itself, for all B stored batches, by epoch and step, or by part, epoch and round:

    part_of i32[B], offsets i64[B], num_bytes i64[B]             (stage.py)
    digests u64[B], num_inputs i64[B], num_edges i64[B, layers]  as in the parts
    visits u32[N]                        number of training batches with the node among their inputs
    access.png                           share of all accesses by the hottest nodes

Batches per part: as many as surely fit into `part_bytes` (a bound from fan-outs and graph; real parts are several times smaller).

Numbers: accesses, inputs and edges are those of training batches, bytes those of all. If 10 % of the nodes take most of the accesses, a
small static tier helps much.

Cost: the time of sampling K epochs. A record takes about 4 bytes per edge and per input, the sums of a part at most 12 per node of the
graph and 8 per seed. Peak memory of a part, with T threads: T x (12 N + 3 R) + 4 R + 4 N bytes at most and touched pages only, R the
bytes of the largest batch, beside some 30 MB of the process and the mapped topology; the T threads may be spread over several processes. Of
the parent: 20 N + T x 12 N, 16 bytes per seed of an epoch, and 100 bytes per batch; T R more for a part without sums.

If the topology does not fit into the memory, the batches of up to 64 parts are drawn together, by passes over the edges in the order of
nodes (assets/sampling/sequential.py, which has the memory): one for each group of batches and layer.
"""
