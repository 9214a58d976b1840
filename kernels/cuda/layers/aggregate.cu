// Sums of neighbour rows and their gradient; see kernels/layers/aggregate.py.
//
// A team of TEAM lanes makes one output row, PACK columns a lane, tile after tile. The edges of the row go by in order while their columns
// stay in registers; IN_FLIGHT rows are loaded before the first is added. Both directions are this loop over different lists of edges. A
// column is summed by one lane in edge order and written once: no atomics, and the bits of the CPU.
//
// kernels/layers/aggregate_cuda.py picks the defines.
#include "base/element.cuh"

#ifndef ELEMENT
#define ELEMENT float
#define PACK 4
#define TEAM 32
#define REDUCE 2
#define BACKWARD 0
#endif
#define IN_FLIGHT 4

using Element = ELEMENT;
using Number = Sum<Element>;
using Columns = Pack<Element, PACK>;
constexpr int SUM = 0, MEAN = 1;

// Edge e of output row r, from begins[r] to ends[r], adds row rows[e] of the input.
struct Edges {
    const int *begins, *ends, *rows;
    // Backward: where the edge stands in the block (weights), and the ranges of the destinations (means).
    const int *places, *dst_begins, *dst_ends;
    const float* weights;

    __device__ Number factor(int e) const {
        if (REDUCE == SUM || (REDUCE == MEAN && !BACKWARD)) return Number(1);
        if (REDUCE == MEAN) return Number(1) / static_cast<Number>(dst_ends[rows[e]] - dst_begins[rows[e]]);
        return static_cast<Number>(weights[BACKWARD ? places[e] : e]);
    }
};

__device__ inline void add(Number* sum, const Columns& row, Number factor) {
    constexpr bool scaled = REDUCE != SUM && (REDUCE != MEAN || BACKWARD);
#pragma unroll
    for (int c = 0; c < PACK; ++c) sum[c] += scaled ? widen(row.element[c]) * factor : widen(row.element[c]);
}

// own: row of the input that belongs to an output row as its own term, -1 for none; null: the row of the same number, below num_own.
// own_weights: by destination; null: there is no such term. packs: width / PACK.
extern "C" __global__ void __launch_bounds__(256)
aggregate(const int* begins, const int* ends, const int* rows, const int* places, const int* dst_begins, const int* dst_ends,
          const float* weights, const int* own, const float* own_weights, int num_own, const Columns* input, Columns* out,
          long long num_rows, int packs) {
    const Edges edges{begins, ends, rows, places, dst_begins, dst_ends, weights};
    const int lane = threadIdx.x % TEAM;
    const long long teams = static_cast<long long>(gridDim.x) * (blockDim.x / TEAM);
    for (long long r = static_cast<long long>(blockIdx.x) * (blockDim.x / TEAM) + threadIdx.x / TEAM; r < num_rows; r += teams) {
        const int begin = begins[r], end = ends[r];
        for (int pack = lane; pack < packs; pack += TEAM) {
            Number sum[PACK] = {};
            int e = begin;
            for (; e + IN_FLIGHT <= end; e += IN_FLIGHT) {
                Columns loaded[IN_FLIGHT];
                Number factor[IN_FLIGHT];
#pragma unroll
                for (int k = 0; k < IN_FLIGHT; ++k) {
                    loaded[k] = input[static_cast<long long>(rows[e + k]) * packs + pack];
                    factor[k] = edges.factor(e + k);
                }
#pragma unroll
                for (int k = 0; k < IN_FLIGHT; ++k) add(sum, loaded[k], factor[k]);
            }
            for (; e < end; ++e) add(sum, input[static_cast<long long>(rows[e]) * packs + pack], edges.factor(e));
            if (REDUCE == MEAN && !BACKWARD && end > begin) {
#pragma unroll
                for (int c = 0; c < PACK; ++c) sum[c] /= static_cast<Number>(end - begin);
            }
            if (own_weights) {
                const int mine = own ? own[r] : r < num_own ? static_cast<int>(r) : -1;
                if (mine >= 0) {
                    const Columns row = input[static_cast<long long>(mine) * packs + pack];
                    const Number factor = static_cast<Number>(own_weights[BACKWARD ? mine : r]);
#pragma unroll
                    for (int c = 0; c < PACK; ++c) sum[c] += widen(row.element[c]) * factor;
                }
            }
            Columns result;
#pragma unroll
            for (int c = 0; c < PACK; ++c) result.element[c] = Narrowed<Element>::from(sum[c]);
            out[r * packs + pack] = result;
        }
    }
}

// places[s] = -1, before `invert`.
extern "C" __global__ void __launch_bounds__(256) clear(int num_src, int* places) {
    for (long long s = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; s < num_src;
         s += static_cast<long long>(gridDim.x) * blockDim.x) {
        places[s] = -1;
    }
}

// places[s] = i for the destination i whose row among the sources is s; the others keep what they hold.
extern "C" __global__ void __launch_bounds__(256) invert(const int* dst_pos, int num_dst, int* places) {
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_dst;
         i += static_cast<long long>(gridDim.x) * blockDim.x) {
        places[dst_pos[i]] = static_cast<int>(i);
    }
}
