// Rows that change their place; see kernels/rows/move_rows.py.
//
// A team of TEAM lanes moves one row, PACK columns per lane, tile after tile, so that the lanes of a warp touch neighbouring bytes: whole
// lines where a row lies in the host's memory. The rows of a list that is written are distinct, so nothing is added by two threads.
//
// kernels/rows/move_rows_cuda.py picks the defines.
#include "base/element.cuh"

#ifndef ELEMENT
#define ELEMENT float
#define PACK 4
#define TEAM 32
#define FROM_ROW int
#define TO_ROW int
#endif

using Columns = Pack<ELEMENT, PACK>;

// Calls body(from, to) for every pack of every row; a list that is null stands for all rows in order.
template <class Body>
__device__ inline void each_pack(long long count, int packs, const FROM_ROW* from_rows, const TO_ROW* to_rows, Body body) {
    const int lane = threadIdx.x % TEAM;
    const long long teams = static_cast<long long>(gridDim.x) * (blockDim.x / TEAM);
    for (long long k = static_cast<long long>(blockIdx.x) * (blockDim.x / TEAM) + threadIdx.x / TEAM; k < count; k += teams) {
        const long long from = from_rows ? static_cast<long long>(from_rows[k]) : k;
        const long long to = to_rows ? static_cast<long long>(to_rows[k]) : k;
        for (int pack = lane; pack < packs; pack += TEAM) body(from * packs + pack, to * packs + pack);
    }
}

extern "C" __global__ void __launch_bounds__(256)
place_rows(const Columns* source, const FROM_ROW* source_rows, Columns* out, const TO_ROW* out_rows, long long count, int packs) {
    each_pack(count, packs, source_rows, out_rows, [&](long long from, long long to) {
        if (from >= 0 && to >= 0) out[to] = source[from];  // a negative row leaves its pair out
    });
}

extern "C" __global__ void __launch_bounds__(256)
add_rows(const Columns* source, const FROM_ROW* source_rows, Columns* out, const TO_ROW* out_rows, long long count, int packs) {
    each_pack(count, packs, source_rows, out_rows, [&](long long from, long long to) {
        const Columns more = source[from];
        Columns sum = out[to];
#pragma unroll
        for (int c = 0; c < PACK; ++c) sum.element[c] += more.element[c];
        out[to] = sum;
    });
}

extern "C" __global__ void __launch_bounds__(256)
take_rows(Columns* source, const FROM_ROW* rows, Columns* out, long long count, int packs) {
    each_pack(count, packs, rows, static_cast<const TO_ROW*>(nullptr), [&](long long from, long long to) {
        out[to] = source[from];
        Columns zero;
#pragma unroll
        for (int c = 0; c < PACK; ++c) zero.element[c] = ELEMENT(0);
        source[from] = zero;
    });
}
