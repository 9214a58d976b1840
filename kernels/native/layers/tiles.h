// Rows cut into tiles: vectors of columns that stay in registers while the edges of a row go by.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/simd.h"
#include "layers/work_split.h"
#include "rows/row_stream.h"

namespace graphmill {

constexpr int64_t EDGES_AHEAD = 16;  // edges between the prefetch of a row and its use

// Rows first..last, made from `out` on, and `length` vectors of their columns from `column` on. The vectors lie side by side, but for the
// last one, which begins `tail` columns after the first: moved back to end with the row, it computes some columns twice instead of a
// rest one by one.
template <class T>
struct Tile {
    int64_t first, last, length, column, tail;
    T* out;
};

// Calls body(tile) until the columns from..to of rows first..last are covered. They are at least one vector, or none.
template <class T, class Body>
inline void each_tile(int64_t first, int64_t last, int64_t from, int64_t to, T* out, const Body& body) {
    while (from < to) {
        const int64_t left = (to - from + LANES<T> - 1) / LANES<T>;
        // Two equal tiles rather than a wide and a thin one.
        const int64_t length = left <= MOST_VECTORS ? left : left < 2 * MOST_VECTORS ? (left + 1) / 2 : MOST_VECTORS;
        const int64_t tail = std::min((length - 1) * LANES<T>, to - LANES<T> - from);
        body(Tile<T>{first, last, length, from, tail, out + from});
        from += length * LANES<T>;
    }
}

// Calls body(tile) for the rows and columns of a piece, whole rows or at least a vector of one, which go to the stream. With `past` they
// are written to their place by the body itself.
template <class T, class Body>
inline void each_tile(const Piece& piece, RowStream<T>& stream, T* output, bool past, const Body& body) {
    const int64_t width = stream.width(), columns = piece.column_end - piece.column;
    // Rows are short: deciding row by row which loop runs cost more than the sums of two edges. So a tile that holds a row takes many.
    const int64_t most = columns > MOST_VECTORS * LANES<T> ? 1 : past ? piece.to - piece.from : stream.bundle();
    for (int64_t first = piece.from, last; first < piece.to; first = last) {
        last = std::min(piece.to, first + most);
        each_tile<T>(first, last, piece.column, piece.column_end, past ? output + first * width : stream.make(first), body);
        if (!past) stream.write(first, last);
    }
}

}  // namespace graphmill
