// The inner loops of the aggregation: output rows as sums of rows that a list of edges names.
#pragma once

#include <cstdint>

#include "base/simd.h"
#include "layers/work_split.h"

namespace graphmill {

// Output row i is the sum over its edges e, from begins[i] to ends[i], of the input row sources[e] times the factor of e, then divided, or
// one more scaled row, its own, is added. Prefetching may look on to edge `last`.
template <class T>
struct Sums {
    const T* input;
    T* output;
    int64_t num_rows, width, last;
    const int32_t *begins, *ends, *sources;

    // The factor of edge e is weights[k] or inverses[k], where k is at[e], or e itself where `at` is nullptr; 1 where both are nullptr.
    const float* weights = nullptr;
    const Sum<T>* inverses = nullptr;
    const int32_t* at = nullptr;

    bool mean = false;  // sums without factors are divided by the number of edges

    // Own term of a sum with factors, where own_weights is given: input row own_rows[i], or i where own_rows is nullptr; no own term where
    // it is negative. Its factor is that of the input row where own_of_input, else that of the output row.
    const float* own_weights = nullptr;
    const int32_t* own_rows = nullptr;
    bool own_of_input = false;
};

// The rows and columns of a piece: whole rows, or at least a vector of one. T: float, double, Half or BFloat.
template <class T>
void sum_rows(const Sums<T>& sums, const Piece& piece);

}  // namespace graphmill
