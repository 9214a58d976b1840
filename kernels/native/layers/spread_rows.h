// Sums of rows with one factor a head: the columns of head h are multiplied by the edge's factor for h.
//
// A head may be wider or narrower than a vector, and a vector may hold columns of several heads. So each vector of columns has a list
// of the heads of its lanes, counted from the first, and picks its factors by one shuffle from the edge's factors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/simd.h"
#include "layers/sum_rows.h"

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

template <class S>
inline typename Wide<S>::Vector spread(const S* factors, const typename Heads<S>::Picks& pick) {
    using Vector = typename Wide<S>::Vector;
#ifndef __AVX512F__
    if (pick.one) return Vector{} + factors[pick.first];  // without a shuffle of whole vectors it is the quicker way
#endif
    return __builtin_shuffle(*reinterpret_cast<const Vector*>(factors + pick.first), pick.lanes);
}

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

// Columns of one output row, LENGTH vectors of them, as the sum of factor * input[row of the edge] over the edges from begin to end, in
// order. With `more` they are added to what `out` holds. Where AHEAD, the rows of later edges are asked for.
template <int LENGTH, bool AHEAD, class T, class Out>
inline void spread_tile(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, int64_t begin, int64_t end,
                        int64_t column, int64_t tail, Out* out, bool more = false) {
    const auto place = [=](int v) { return v + 1 < LENGTH ? column + v * LANES<T> : tail; };
    const auto* picks = heads.picks.data() + column / LANES<T>;
    const int64_t last = edges.rows.size();
    Vector<T> sum[LENGTH];
    for (int v = 0; v < LENGTH; ++v) sum[v] = more ? load(out + place(v)) : Vector<T>{};
    const auto add_all = [&](const auto& factor_of) {
        for (int64_t e = begin; e < end; ++e) {
            if (AHEAD && e + EDGES_AHEAD < last) {
                const T* next = input + edges.rows[e + EDGES_AHEAD] * heads.width;
                for (int v = 0; v < std::min<int>(LENGTH, SPREAD_LINES_AHEAD); ++v) __builtin_prefetch(next + place(v));
            }
            const T* row = input + edges.rows[e] * heads.width;
            const auto factor = factor_of(e);
            for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + place(v)) * factor(v);
        }
    };
    if (heads.heads == 1) {  // one factor for the whole row, without a shuffle for each vector
        add_all([&](int64_t e) { return [one = edges.factors[e]](int) { return one; }; });
    } else {
        add_all([&](int64_t e) {
            return [=, factors = edges.factors.data() + e * heads.heads](int v) { return spread<Sum<T>>(factors, picks[v]); };
        });
    }
    for (int v = 0; v < LENGTH; ++v) store(out + place(v), sum[v]);
}

// Rows narrower than a vector: the same operations in the same order.
template <class T>
inline void spread_narrow(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, int64_t i, T* out) {
    Sum<T> sum[LANES<T>] = {};
    for (int64_t e = edges.begins[i]; e < edges.begins[i + 1]; ++e) {
        const T* row = input + edges.rows[e] * heads.width;
        const Sum<T>* factors = edges.factors.data() + e * heads.heads;
        for (int64_t c = 0; c < heads.width; ++c) sum[c] += widen(row[c]) * factors[c / heads.depth];
    }
    for (int64_t c = 0; c < heads.width; ++c) out[c] = narrow<T>(sum[c]);
}

struct Nothing {
    void operator()(int64_t, int64_t) const {}
};

constexpr int64_t NEAR_BYTES = 16 * 1024;  // of rows that stay in the first cache

// Output row first_row + i = sum over the edges of row i of the piece of factor * input[row of the edge], in edge order. before(first, last)
// is called just before the edges from first to last are summed; if it does anything, it asks for the rows of later ones, and leaves
// those of these edges in the first cache.
template <class T, class Before = Nothing>
inline void spread_rows(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, int64_t first_row,
                        int64_t output_rows, T* output, const Before& before = {}) {
    RowStream<T> stream(output, heads.width, output_rows * heads.width * sizeof(T));
    constexpr bool AHEAD = std::is_same_v<Before, Nothing>;
    const auto& begins = edges.begins;
    const int64_t width = heads.width, num_rows = begins.size() - 1;
    const int64_t most = AHEAD ? edges.rows.size() + num_rows : std::max<int64_t>(1, NEAR_BYTES / (width * sizeof(T) + 1));
    for (int64_t from = 0, to; from < num_rows; from = to) {
        for (to = from + 1; to < num_rows && to - from + begins[to + 1] - begins[from] <= most;) ++to;
        before(begins[from], begins[to]);
        if (width < LANES<T>) {
            for (int64_t i = from; i < to; ++i) spread_narrow(input, heads, edges, i, output + (first_row + i) * width);
            continue;
        }
        each_bundle(Piece{first_row + from, first_row + to, 0, width}, stream,
                    [&](auto length, int64_t row, int64_t column, int64_t tail, T* out) {
                       const int64_t i = row - first_row;
                       spread_tile<length.value, AHEAD>(input, heads, edges, begins[i], begins[i + 1], column, tail, out);
                   });
    }
}

// The same for one row with very many edges and a part of its columns: next() puts the row's next edges into `edges`, few enough to stay
// in the cache, and returns false when there are no more. Sums are kept in `partial`, as long as a row.
template <class T, class Next>
inline void spread_hub(const T* input, const Heads<Sum<T>>& heads, Edges<Sum<T>>& edges, const Piece& piece,
                       std::vector<Sum<T>>& partial, T* out, const Next& next) {
    partial.assign(heads.width, 0);
    while (next()) {
        each_tile<T>(piece.column, piece.column_end, [&](auto length, int64_t column, int64_t tail) {
            spread_tile<length.value, true>(input, heads, edges, 0, edges.rows.size(), column, tail, partial.data(), true);
        });
    }
    for (int64_t c = piece.column; c < piece.column_end; ++c) out[c] = narrow<T>(partial[c]);
}

}  // namespace graphmill
