// The inner loops of the aggregation: output rows as sums of rows that a list of edges names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/simd.h"
#include "layers/work_split.h"
#include "rows/row_prefetch.h"
#include "rows/row_stream.h"

namespace graphmill {

constexpr int64_t EDGES_AHEAD = 16;  // edges between the prefetch of a row and its use

struct Unscaled {};  // every edge counts once

// What happens to a sum before it is written: a division (mean) or one more scaled row (the self term).
template <class T>
struct Finish {
    Sum<T> divisor = 0;  // 0: none
    const T* own = nullptr;
    Sum<T> own_factor = 0;
};

// Output row i is the sum over its edges e, from begins[i] to ends[i], of the input row source(e) times scale(e), and then finish(i).
// Prefetching may look on to edge `last`.
template <class T, class Source, class Scale, class Finishing>
struct Sums {
    const T* input;
    T* output;
    int64_t num_rows, width, last;
    const int32_t *begins, *ends;
    Source source;
    Scale scale;
    Finishing finish;
    const T* row(int64_t e) const { return input + int64_t{source(e)} * width; }
};

// LENGTH vectors of columns of row i stay in registers while its edges go by. They lie side by side from `column` on, but for the last
// one, which begins at `tail`: moved back to end with the row, it computes some columns twice instead of a rest one by one. Where PAST,
// `out` consists of whole lines and is written past the caches.
template <int LENGTH, bool PAST, class T, class Source, class Scale, class Finishing>
inline void sum_tile(const Sums<T, Source, Scale, Finishing>& sums, int64_t i, int64_t column, int64_t tail, T* out) {
    const auto place = [=](int v) { return v + 1 < LENGTH ? column + v * LANES<T> : tail; };
    Vector<T> sum[LENGTH];
    for (int v = 0; v < LENGTH; ++v) sum[v] = Vector<T>{};
    for (int64_t e = sums.begins[i]; e < sums.ends[i]; ++e) {
        if (e + EDGES_AHEAD < sums.last) {
            const T* next = sums.row(e + EDGES_AHEAD);
            constexpr int A_LINE = sizeof(Sum<T>) / sizeof(T);  // vectors that one cache line fills
            for (int v = 0; v < std::min<int>(LENGTH, LINES_AHEAD * A_LINE); v += A_LINE) __builtin_prefetch(next + place(v));
        }
        const T* row = sums.row(e);
        if constexpr (std::is_same_v<Scale, Unscaled>) {
            for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + place(v));
        } else {
            const Sum<T> factor = sums.scale(e);
            for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + place(v)) * factor;
        }
    }
    const Finish<T> finish = sums.finish(i);
    if (finish.divisor != 0) {
        for (int v = 0; v < LENGTH; ++v) sum[v] /= finish.divisor;
    }
    if (finish.own) {
        for (int v = 0; v < LENGTH; ++v) sum[v] += load(finish.own + place(v)) * finish.own_factor;
    }
    for (int v = 0; v < LENGTH; ++v) {
        if constexpr (PAST) store_past(out + place(v), sum[v]);
        else store(out + place(v), sum[v]);
    }
}

// Rows narrower than a vector: the same operations in the same order.
template <class T, class Source, class Scale, class Finishing>
inline void sum_narrow(const Sums<T, Source, Scale, Finishing>& sums, int64_t i) {
    Sum<T> sum[LANES<T>] = {};
    for (int64_t e = sums.begins[i]; e < sums.ends[i]; ++e) {
        const T* row = sums.row(e);
        if constexpr (std::is_same_v<Scale, Unscaled>) {
            for (int64_t c = 0; c < sums.width; ++c) sum[c] += widen(row[c]);
        } else {
            const Sum<T> factor = sums.scale(e);
            for (int64_t c = 0; c < sums.width; ++c) sum[c] += widen(row[c]) * factor;
        }
    }
    const Finish<T> finish = sums.finish(i);
    for (int64_t c = 0; c < sums.width; ++c) {
        if (finish.divisor != 0) sum[c] /= finish.divisor;
        if (finish.own) sum[c] += widen(finish.own[c]) * finish.own_factor;
        sums.output[i * sums.width + c] = narrow<T>(sum[c]);
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
        const auto call = [&](auto self, auto number) {
            if (length == number.value) return tile(number, from, tail);
            if constexpr (number.value > 1) self(self, std::integral_constant<int, number.value - 1>{});
        };
        call(call, std::integral_constant<int, MOST_VECTORS>{});
        from += length * LANES<T>;
    }
}

// Calls each(first row, last row) for the rows of a piece: for all at once where one tile holds a row, else row by row.
template <class T, class Each>
inline void each_rows(const Piece& piece, int64_t width, const Each& each) {
    // Rows are short: deciding row by row which loop runs cost more than the sums of two edges.
    const int64_t step = width <= MOST_VECTORS * LANES<T> ? piece.to - piece.from : 1;
    for (int64_t row = piece.from; row < piece.to; row += step) each(row, row + step);
}

// Calls tile(number of vectors as a constant, row, first column, column of the last vector, where the row is made) for the rows and columns
// of a piece, which go to the stream.
template <class T, class Tile>
inline void each_bundle(const Piece& piece, RowStream<T>& stream, const Tile& tile) {
    const int64_t width = stream.width();
    each_rows<T>(piece, width, [&](int64_t from, int64_t to) {
        each_tile<T>(piece.column, piece.column_end, [&](auto length, int64_t column, int64_t tail) {
            for (int64_t first = from, last; first < to; first = last) {
                last = std::min(to, first + stream.bundle());
                T* const out = stream.make(first);
                for (int64_t i = first; i < last; ++i) tile(length, i, column, tail, out + (i - first) * width);
                if (column + length.value * LANES<T> >= piece.column_end) stream.write(first, last);
            }
        });
    });
}

// The rows and columns of a piece: whole rows, or at least a vector of one.
template <class T, class Source, class Scale, class Finishing>
inline void sum_rows(const Sums<T, Source, Scale, Finishing>& sums, const Piece& piece) {
    const int64_t width = sums.width;
    if (width < LANES<T>) {
        for (int64_t i = piece.from; i < piece.to; ++i) sum_narrow(sums, i);
        return;
    }
    const bool whole = piece.column_end - piece.column == width;
    RowStream<T> stream(sums.output, width, whole ? sums.num_rows * width * sizeof(T) : 0);
    if constexpr (sizeof(T) == sizeof(Sum<T>)) {
        if (stream.whole_lines()) {
            each_rows<T>(piece, width, [&](int64_t from, int64_t to) {
                each_tile<T>(0, width, [&](auto length, int64_t column, int64_t tail) {
                    for (int64_t i = from; i < to; ++i)
                        sum_tile<length.value, true>(sums, i, column, tail, sums.output + i * width);
                });
            });
            return;
        }
    }
    each_bundle(piece, stream, [&](auto length, int64_t i, int64_t column, int64_t tail, T* out) {
        sum_tile<length.value, false>(sums, i, column, tail, out);
    });
}

}  // namespace graphmill
