// Edges of an R-MAT graph; see kernels/graph/generate.py. An edge is a function of its number, so threads share nothing.
#include "graph/permutation.h"
#include "graph/rmat.h"

#ifndef ID
#define ID int
#endif

typedef unsigned long long u64;
typedef long long i64;

extern "C" __global__ void __launch_bounds__(256)
rmat(u64 key, u64 scramble_key, int scrambled, i64 num_nodes, int scale, int top_left, int top, int all_but_last, i64 first, i64 count,
     ID* src, ID* dst) {
    const graphmill::Permutation names(scramble_key, num_nodes, scrambled != 0);
    const graphmill::Rmat graph(key, names, num_nodes, scale, top_left, top, all_but_last);
    const i64 threads = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 e = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; e < count; e += threads) graph.edge(first + e, src[e], dst[e]);
}
