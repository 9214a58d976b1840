"""The chunks stage: the work of every device in every step of a full-graph pass (HongTu, sections 4.1, 5.3 and 6).

With m parts of n chunks, records lie step after step, and in a step part after part, R = m x n of them:

    steps u8[bytes]                      records (assets/chunks/record.py), each starting on a page of the file
    bounds i64[R+1]                      byte of the file at which each record starts, and the end
    digests u64[R]                       (stage.py)
    schedule i32[m, n]                   chunk of part i that comes in step j
    chunk_ptr i64[R+1], node_ids ids[N]  chunk k of part i has destinations node_ids[chunk_ptr[i n + k] : chunk_ptr[i n + k + 1]]
    counts i64[n, m, 8]                  rows by set, edges, buffer rows (kernels/chunks/counts.py)

Numbers: all volumes are rows of one layer; trainers/techniques/fullgraph/memory.py converts them into bytes, which depend on the widths and
the dtype of a model. `volumes_by_schedule` has every schedule that was looked at. `replication` is `v_ori` per node; the second figure
shows how it grows with the number of chunks, up to 512 in all. No artifact holds measured seconds, which depend on the machine: `graphmill
chunks` computes them for every schedule by equation 4 of the paper, from speeds that are given (`--rates 12GB/s,200GB/s,1.5TB/s`: from the
host, between devices, inside one) or that were measured into the home (`measured/links.json`).

Schedules: `identity` keeps the order of ids. `hongtu` is the paper's Algorithm 4, which can be worse than the identity on graphs with
locality. `best` looks at both, assigns chunks to steps exactly, improves orders as paths, and swaps chunks if that lowers `v_ru`: it is
never worse than either (kernels/chunks/schedule.py). Its search is bounded by work, not time, so that equal inputs give equal bytes.
With `rates`, the speeds of the links, it takes the fewest seconds by equation 4 of the schedules that it looks at, and of chunks that are
kept apart; `byte_nanoseconds` compares them with those of the fewest rows. Paths and swaps are led by `v_ru` in any case.

Cost: seconds up to tens of millions of edges; the swap search takes at most 2^33 words of work, half a minute on two cores. The search
holds a bit per node and chunk, twice for a moment, if these take at most half of the free memory. Else it reads lists of the chunks of each
node from the disk (assets/chunks/build.py), with bits for a range of nodes at a time, within 1 GiB and what the sort of the lists takes, 8
bytes per node among it; the schedule is the same. Steps are written with 3/8 byte per node and part, and two of them in memory. Orders
other than `id` take 27 bytes per node.
"""
