// Sums of rows with one factor a head: the columns of head h are multiplied by the edge's factor for h.
//
// A head may be wider or narrower than a vector, and a vector may hold columns of several heads. So each vector of columns has a list
// of the heads of its lanes, counted from the first, and picks its factors by one shuffle from the edge's factors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/simd.h"
#include "layers/work_split.h"
#include "rows/row_stream.h"

namespace graphmill {

constexpr int64_t SPREAD_LINES_AHEAD = 8;  // of a row that are asked for; more of them took up to a tenth longer

// Which heads stand where in a row of `width` columns.
template <class S>
struct Heads {
    using Index = typename Wide<S>::Index;
    static constexpr int64_t LANES = Wide<S>::LANES;
    struct Picks {
        int64_t first;  // head of the first lane
        bool one;       // all lanes belong to it
        Index lanes;    // heads of the lanes, from the first on
    };
    int64_t heads, width, depth;
    std::vector<Picks> picks;  // for the vectors that start at 0, LANES, 2 LANES ..., the last one moved back to end with the row

    Heads(int64_t num_heads, int64_t num_columns)
        : heads(num_heads), width(num_columns), depth(num_columns / num_heads) {
        if (width < LANES) return;
        for (int64_t column = 0; column < width; column += LANES) {
            const int64_t start = std::min(column, width - LANES);
            Picks pick{start / depth, true, {}};
            for (int64_t lane = 0; lane < LANES; ++lane) {
                pick.lanes[lane] = static_cast<typename Wide<S>::Int>((start + lane) / depth - pick.first);
                pick.one &= pick.lanes[lane] == 0;
            }
            picks.push_back(pick);
        }
    }
};

// Edges of a piece: the row of each and, head by head, its factors. Factors end with a vector that is only read over.
template <class S>
struct Edges {
    std::vector<int64_t> begins;  // of each row, and the end
    std::vector<int32_t> rows;
    std::vector<S> factors;
    void resize(int64_t num_rows, int64_t num_edges, int64_t heads) {
        begins.resize(num_rows + 1);
        begins[0] = 0;
        rows.resize(num_edges);
        factors.resize(num_edges * heads + Wide<S>::LANES);
    }
};

// Output row i + first_row = sum over the edges of row i of the piece of factor * input[row of the edge], in edge order, for rows from..to
// of the piece, which go to the stream of `output`. With `ahead` the rows of later edges are asked for. T: float, double, Half or BFloat.
template <class T>
void spread_rows(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, int64_t first_row, int64_t from, int64_t to,
                 bool ahead, T* output, RowStream<T>& stream);

// Adds the rows of all edges to `sums`, as long as a row, in the columns of a part of a hub.
template <class T>
void add_spread(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, const Piece& part, Sum<T>* sums);

// The same as spread_rows for one row with very many edges and a part of its columns: next() puts the row's next edges into `edges`, few
// enough to stay in the cache, and returns false when there are no more. Sums are kept in `partial`, as long as a row.
template <class T, class Next>
inline void spread_hub(const T* input, const Heads<Sum<T>>& heads, Edges<Sum<T>>& edges, const Piece& part,
                       std::vector<Sum<T>>& partial, T* out, const Next& next) {
    partial.assign(heads.width, 0);
    while (next()) add_spread(input, heads, edges, part, partial.data());
    for (int64_t c = part.column; c < part.column_end; ++c) out[c] = narrow<T>(partial[c]);
}

}  // namespace graphmill
