// Counter-based dropout; see kernels/layers/dropout.py. A thread makes four neighbouring columns of a row from one draw.
#include "base/rng.h"

#ifndef ELEMENT
#define ELEMENT float
#define ID int
#endif

extern "C" __global__ void __launch_bounds__(256)
dropout(const ELEMENT* x, const ID* node_ids, unsigned long long key, unsigned threshold, ELEMENT scale, ELEMENT* out,
        long long num_rows, int width) {
    const int groups = (width + 3) / 4;
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < num_rows * groups; at += step) {
        const long long row = at / groups;
        const int group = static_cast<int>(at % groups);
        const unsigned long long row_key = graphmill::absorb(key, static_cast<unsigned long long>(static_cast<long long>(node_ids[row])));
        const unsigned long long bits = graphmill::draw(row_key, group);
        for (int lane = 0; lane < 4 && 4 * group + lane < width; ++lane) {
            const long long place = row * width + 4 * group + lane;
            const unsigned drawn = static_cast<unsigned>(bits >> (16 * lane)) & 0xFFFFu;
            out[place] = drawn < threshold ? ELEMENT(0) : x[place] * scale;
        }
    }
}
