// Which attention weights are dropped; see kernels/layers/attention.py. A thread draws the heads of one edge, or of one own term.
//
// How often an edge's source came before in its row is counted by looking at the edges before it: O(k) a thread for a row of k edges, all
// rows side by side.
#include "base/rng.h"

#ifndef ID
#define ID int
#endif

// The row that edge e belongs to: the last one that begins at e or before and is not empty. Rows ascend.
__device__ inline int row_of(const int* begins, const int* ends, int num_rows, int e) {
    int low = 0, high = num_rows;  // the first row that begins behind e
    while (low < high) {
        const int middle = (low + high) / 2;
        if (begins[middle] <= e) low = middle + 1;
        else high = middle;
    }
    for (int row = low - 1; row >= 0; --row) {
        if (ends[row] > e) return row;
        if (ends[row] > begins[row]) break;  // the edge was removed
    }
    return -1;
}

extern "C" __global__ void __launch_bounds__(256)
edge_mask(const int* begins, const int* ends, const int* sources, const int* dst_pos, const ID* names, unsigned long long key,
          unsigned threshold, int heads, int num_dst, int num_edges, unsigned char* kept) {
    using graphmill::absorb;
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < num_edges + static_cast<long long>(num_dst);
         at += step) {
        const int e = static_cast<int>(at);
        const bool own = at >= num_edges;
        const int i = own ? static_cast<int>(at - num_edges) : row_of(begins, ends, num_dst, e);
        if (i < 0) {
            for (int h = 0; h < heads; ++h) kept[at * heads + h] = 1;
            continue;
        }
        const int mine = dst_pos ? dst_pos[i] : i, source = own ? mine : sources[e];
        unsigned long long occurrence = own ? ~0ull : 0;
        if (!own) {
            for (int before = begins[i]; before < e; ++before) occurrence += sources[before] == source;
        }
        const auto name = [&](int row) { return static_cast<unsigned long long>(static_cast<long long>(names[row])); };
        const unsigned long long edge_key = absorb(absorb(absorb(key, name(mine)), name(source)), occurrence);
        for (int h = 0; h < heads; ++h) {
            const unsigned drawn = static_cast<unsigned>(graphmill::draw(edge_key, h >> 2) >> (16 * (h & 3))) & 0xFFFFu;
            kept[at * heads + h] = drawn >= threshold;
        }
    }
}
