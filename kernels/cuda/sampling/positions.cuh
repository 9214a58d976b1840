// Which positions of a row a thread chooses, each set of them equally likely.
#pragma once

#include "sampling/layer.cuh"

constexpr int SMALL = 64;  // positions that a thread sorts in memory of its own

// Ascending positions of a row, `taken` of them, by Floyd's algorithm; kernels/sampling/sample.py has the rule.
__device__ inline void choose_positions(u64 row_key, i64 degree, int taken, unsigned* chosen) {
    for (int i = 0; i < taken; ++i) {
        if (REPLACE) {
            insert(chosen, i, static_cast<unsigned>(graphmill::bounded(graphmill::draw(row_key, i), degree)));
            continue;
        }
        const u64 last = degree - taken + i;
        const unsigned drawn = static_cast<unsigned>(graphmill::bounded(graphmill::draw(row_key, i), last + 1));
        const int low = first_from(chosen, i, drawn);
        if (low < i && chosen[low] == drawn) chosen[i] = static_cast<unsigned>(last);  // every earlier choice is smaller
        else insert(chosen, i, drawn);
    }
}
