// Inner products head by head: dots[h] = sum over the columns of head h of a * b.
//
// A head that is no whole number of vectors ends with one that is moved back to end with it (or, narrower than a vector, with one that
// lies anywhere in the row) and whose other lanes are cleared. The sums of four vectors are folded together, which takes a third
// of the shuffles of folding one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/simd.h"

namespace graphmill {

// How the rows of a width are cut into heads.
template <class S>
struct HeadCuts {
    using Index = typename Wide<S>::Index;
    static constexpr int64_t LANES = Wide<S>::LANES;
    struct Rest {
        int64_t start;  // column of the first lane
        Index keep;     // all bits of the lanes that count
    };
    int64_t heads, width, depth, whole;  // whole: vectors of a head before its rest
    std::vector<Rest> rests;             // of each head, or none where vectors fill heads, or rows are narrower than a vector

    HeadCuts(int64_t num_heads, int64_t num_columns)
        : heads(num_heads), width(num_columns), depth(num_columns / num_heads), whole(depth / LANES) {
        if (width < LANES || depth % LANES == 0) return;
        for (int64_t h = 0; h < heads; ++h) {
            const int64_t from = h * depth + whole * LANES, to = (h + 1) * depth;
            Rest rest{whole ? to - LANES : std::min(from, width - LANES), {}};
            for (int64_t lane = 0; lane < LANES; ++lane) {
                const int64_t column = rest.start + lane;
                rest.keep[lane] = column >= from && column < to ? -1 : 0;
            }
            rests.push_back(rest);
        }
    }
};

// All lanes of a vector. Halves are added up: a fixed order, and short chains.
template <class S>
inline S total(typename Wide<S>::Vector vector) {
    typedef S Half2 __attribute__((vector_size(32)));
    typedef S Half4 __attribute__((vector_size(16)));
    Half2 halves[2];
    std::memcpy(halves, &vector, sizeof vector);
    const Half2 two = halves[0] + halves[1];
    Half4 quarters[2];
    std::memcpy(quarters, &two, sizeof two);
    const Half4 four = quarters[0] + quarters[1];
    if constexpr (sizeof(S) == 8) return four[0] + four[1];
    else return (four[0] + four[2]) + (four[1] + four[3]);
}

// The totals of four vectors, to the same bits.
template <class S>
inline void four_totals(const typename Wide<S>::Vector* vectors, S* out) {
#ifdef __AVX512F__
    if constexpr (sizeof(S) == 4) {
        using Vector = typename Wide<S>::Vector;
        using Index = typename Wide<S>::Index;
        constexpr Index LOW_HALVES{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}, HIGH_HALVES = LOW_HALVES + 8;
        constexpr Index LOW_QUARTERS{0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27},
            HIGH_QUARTERS = LOW_QUARTERS + 4;
        constexpr Index BY_TWO{2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13},
            BY_ONE{1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};
        const auto fold = [](Vector a, Vector b, Index low, Index high) {
            return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
        };
        const Vector first = fold(vectors[0], vectors[1], LOW_HALVES, HIGH_HALVES);
        const Vector second = fold(vectors[2], vectors[3], LOW_HALVES, HIGH_HALVES);
        Vector sum = fold(first, second, LOW_QUARTERS, HIGH_QUARTERS);
        sum += __builtin_shuffle(sum, BY_TWO);
        sum += __builtin_shuffle(sum, BY_ONE);
        for (int k = 0; k < 4; ++k) out[k] = sum[4 * k];
        return;
    }
#endif
    for (int k = 0; k < 4; ++k) out[k] = total<S>(vectors[k]);
}

template <class T>
inline Vector<T> head_products(const T* a, const T* b, const HeadCuts<Sum<T>>& cuts, int64_t h) {
    const T *left = a + h * cuts.depth, *right = b + h * cuts.depth;
    Vector<T> sum{};
    for (int64_t c = 0; c < cuts.whole * LANES<T>; c += LANES<T>) sum += load(left + c) * load(right + c);
    if (cuts.rests.empty()) return sum;
    using Index = typename Wide<Sum<T>>::Index;
    const auto& rest = cuts.rests[h];
    return sum + (Vector<T>)((Index)(load(a + rest.start) * load(b + rest.start)) & rest.keep);
}

template <class T>
inline void head_dots(const T* a, const T* b, const HeadCuts<Sum<T>>& cuts, Sum<T>* dots) {
    if (cuts.width < LANES<T>) {
        for (int64_t h = 0; h < cuts.heads; ++h) {
            Sum<T> dot = 0;
            for (int64_t c = h * cuts.depth; c < (h + 1) * cuts.depth; ++c) dot += widen(a[c]) * widen(b[c]);
            dots[h] = dot;
        }
        return;
    }
    int64_t h = 0;
    for (; h + 4 <= cuts.heads; h += 4) {
        Vector<T> sums[4];
        for (int k = 0; k < 4; ++k) sums[k] = head_products(a, b, cuts, h + k);
        four_totals<Sum<T>>(sums, dots + h);
    }
    for (; h < cuts.heads; ++h) dots[h] = total<Sum<T>>(head_products(a, b, cuts, h));
}

}  // namespace graphmill
