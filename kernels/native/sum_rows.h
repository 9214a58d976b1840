// The inner loop of the aggregation: one output row as the sum of rows that a list of edges names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lanes.h"

namespace graphmill {

constexpr int64_t EDGES_AHEAD = 8;  // edges between the prefetch of a row and its use

struct Unscaled {};  // every edge counts once

// What happens to a sum before it is written: a division (mean) or one more scaled row (the self term).
template <class T>
struct Finish {
    Sum<T> divisor = 0;  // 0: none
    const T* own = nullptr;
    Sum<T> own_factor = 0;
};

// The rows that are summed: those that source(e) names, times scale(e), for the edges begin to end. Prefetching may look on to `last`.
template <class T, class Source, class Scale>
struct Terms {
    const T* input;
    int64_t width, begin, end, last;
    const Source& source;
    const Scale& scale;
    const T* row(int64_t e) const { return input + int64_t{source(e)} * width; }
};

// LENGTH vectors of columns stay in registers while the edges go by. They lie side by side from `column` on, but for the last one,
// which begins at `tail`: moved back to end with the row, it computes some columns twice instead of a rest one by one.
template <int LENGTH, class T, class Source, class Scale>
inline void sum_tile(const Terms<T, Source, Scale>& terms, Finish<T> finish, int64_t column, int64_t tail, T* out) {
    const auto place = [=](int v) { return v + 1 < LENGTH ? column + v * LANES<T> : tail; };
    Vector<T> sum[LENGTH];
    for (int v = 0; v < LENGTH; ++v) sum[v] = Vector<T>{};
    for (int64_t e = terms.begin; e < terms.end; ++e) {
        if (e + EDGES_AHEAD < terms.last) {
            const T* next = terms.row(e + EDGES_AHEAD);
            constexpr int A_LINE = sizeof(Sum<T>) / sizeof(T);  // vectors that one cache line fills
            for (int v = 0; v < LENGTH; v += A_LINE) __builtin_prefetch(next + place(v));
        }
        const T* row = terms.row(e);
        if constexpr (std::is_same_v<Scale, Unscaled>) {
            for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + place(v));
        } else {
            const Sum<T> factor = terms.scale(e);
            for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + place(v)) * factor;
        }
    }
    if (finish.divisor != 0) {
        for (int v = 0; v < LENGTH; ++v) sum[v] /= finish.divisor;
    }
    if (finish.own) {
        for (int v = 0; v < LENGTH; ++v) sum[v] += load(finish.own + place(v)) * finish.own_factor;
    }
    for (int v = 0; v < LENGTH; ++v) store(out + place(v), sum[v]);
}

// Rows narrower than a vector: the same operations in the same order.
template <class T, class Source, class Scale>
inline void sum_narrow(const Terms<T, Source, Scale>& terms, Finish<T> finish, T* out) {
    Sum<T> sum[LANES<T>] = {};
    for (int64_t e = terms.begin; e < terms.end; ++e) {
        const T* row = terms.row(e);
        if constexpr (std::is_same_v<Scale, Unscaled>) {
            for (int64_t c = 0; c < terms.width; ++c) sum[c] += widen(row[c]);
        } else {
            const Sum<T> factor = terms.scale(e);
            for (int64_t c = 0; c < terms.width; ++c) sum[c] += widen(row[c]) * factor;
        }
    }
    for (int64_t c = 0; c < terms.width; ++c) {
        if (finish.divisor != 0) sum[c] /= finish.divisor;
        if (finish.own) sum[c] += widen(finish.own[c]) * finish.own_factor;
        out[c] = narrow<T>(sum[c]);
    }
}

// Calls tile(number of vectors as a constant, first column, column of the last vector) until the columns from..to are covered.
// They are at least one vector, or none.
template <class T, class Tile>
inline void each_tile(int64_t from, int64_t to, const Tile& tile) {
    while (from < to) {
        const int64_t left = (to - from + LANES<T> - 1) / LANES<T>;
        // Two equal tiles rather than a wide and a thin one.
        const int64_t length = left <= MOST_VECTORS ? left : left < 2 * MOST_VECTORS ? (left + 1) / 2 : MOST_VECTORS;
        const int64_t tail = std::min(from + (length - 1) * LANES<T>, to - LANES<T>);
        const auto run = [&](auto self, auto number) {
            if (length == number.value) return tile(number, from, tail);
            if constexpr (number.value > 1) self(self, std::integral_constant<int, number.value - 1>{});
        };
        run(run, std::integral_constant<int, MOST_VECTORS>{});
        from += length * LANES<T>;
    }
}

// Columns from..to of one row: the whole row, or at least a vector.
template <class T, class Source, class Scale>
inline void sum_row(const Terms<T, Source, Scale>& terms, Finish<T> finish, int64_t from, int64_t to, T* out) {
    if (terms.width < LANES<T>) return sum_narrow(terms, finish, out);
    each_tile<T>(from, to, [&](auto length, int64_t column, int64_t tail) {
        sum_tile<length.value>(terms, finish, column, tail, out);
    });
}

}  // namespace graphmill
