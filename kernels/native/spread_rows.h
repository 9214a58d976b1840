// Sums of rows with one factor a head: the columns of head h are multiplied by the edge's factor for h.
//
// A head may be wider or narrower than a vector, and a vector may hold columns of several heads. So each vector of columns has a list
// of the heads of its lanes, counted from the first, and picks its factors by one shuffle from the edge's factors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lanes.h"
#include "sum_rows.h"

namespace graphmill {

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

template <int LENGTH, class T>
inline void spread_tile(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, int64_t begin, int64_t end,
                        int64_t column, int64_t tail, T* out) {
    const auto place = [=](int v) { return v + 1 < LENGTH ? column + v * LANES<T> : tail; };
    const auto* picks = heads.picks.data() + column / LANES<T>;
    const int64_t last = edges.rows.size();
    Vector<T> sum[LENGTH];
    for (int v = 0; v < LENGTH; ++v) sum[v] = Vector<T>{};
    for (int64_t e = begin; e < end; ++e) {
        if (e + EDGES_AHEAD < last) {
            const T* next = input + edges.rows[e + EDGES_AHEAD] * heads.width;
            for (int v = 0; v < LENGTH; ++v) __builtin_prefetch(next + place(v));
        }
        const T* row = input + edges.rows[e] * heads.width;
        const Sum<T>* factors = edges.factors.data() + e * heads.heads;
        for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + place(v)) * spread<Sum<T>>(factors, picks[v]);
    }
    for (int v = 0; v < LENGTH; ++v) store(out + place(v), sum[v]);
}

// out[i] = sum over the edges of row i of the piece of factor * input[row of the edge], in edge order.
template <class T>
inline void spread_rows(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, T* out) {
    const int64_t width = heads.width;
    for (size_t i = 0; i + 1 < edges.begins.size(); ++i, out += width) {
        if (width < LANES<T>) {
            Sum<T> sum[LANES<T>] = {};
            for (int64_t e = edges.begins[i]; e < edges.begins[i + 1]; ++e) {
                for (int64_t c = 0; c < width; ++c)
                    sum[c] += widen(input[edges.rows[e] * width + c]) * edges.factors[e * heads.heads + c / heads.depth];
            }
            for (int64_t c = 0; c < width; ++c) out[c] = narrow<T>(sum[c]);
            continue;
        }
        each_tile<T>(0, width, [&](auto length, int64_t column, int64_t tail) {
            spread_tile<length.value>(input, heads, edges, edges.begins[i], edges.begins[i + 1], column, tail, out);
        });
    }
}

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

// The other direction: dots[h] = sum over the columns of head h of a * b.
template <class T>
inline void head_dots(const T* a, const T* b, const Heads<Sum<T>>& heads, Sum<T>* dots) {
    using S = Sum<T>;
    for (int64_t h = 0; h < heads.heads; ++h) {
        const T *left = a + h * heads.depth, *right = b + h * heads.depth;
        int64_t c = 0;
        S dot = 0;
        if (heads.depth >= LANES<T>) {
            Vector<T> sum = load(left) * load(right);
            for (c = LANES<T>; c + LANES<T> <= heads.depth; c += LANES<T>) sum += load(left + c) * load(right + c);
            dot = total<S>(sum);
        }
        S rest[4] = {};
        for (; c + 4 <= heads.depth; c += 4) {
            for (int64_t k = 0; k < 4; ++k) rest[k] += widen(left[c + k]) * widen(right[c + k]);
        }
        for (int64_t k = 0; c < heads.depth; ++c, ++k) rest[k] += widen(left[c]) * widen(right[c]);
        dots[h] = dot + ((rest[0] + rest[1]) + (rest[2] + rest[3]));
    }
}

}  // namespace graphmill
