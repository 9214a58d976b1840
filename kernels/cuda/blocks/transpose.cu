// The transpose of a block from the order of its edges by source; see kernels/blocks/transpose.py.

// order: the edges by (source, edge). Writes their destinations beside them, and where each source's edges begin.
extern "C" __global__ void __launch_bounds__(256)
transpose(const int* sources, const int* rows, const int* order, int num_edges, int num_src, int* t_start, int* t_dst) {
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at <= num_edges; at += step) {
        // Place `at` begins the edges of all sources after that of the place before it, up to its own.
        const int before = at ? sources[order[at - 1]] : -1, own = at < num_edges ? sources[order[at]] : num_src;
        for (int s = before + 1; s <= own; ++s) t_start[s] = static_cast<int>(at);
        if (at < num_edges) t_dst[at] = rows[order[at]];
    }
}

// rows[e] = i for the edges of destination i.
extern "C" __global__ void __launch_bounds__(256) spell_rows(const int* begins, const int* ends, int num_dst, int* rows) {
    const long long step = static_cast<long long>(gridDim.x) * (blockDim.x / 32);
    for (long long i = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32; i < num_dst; i += step) {
        for (int e = begins[i] + static_cast<int>(threadIdx.x % 32); e < ends[i]; e += 32) rows[e] = static_cast<int>(i);
    }
}
