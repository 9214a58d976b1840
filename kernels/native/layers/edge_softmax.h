// The softmax weights of a block's edges, a piece of rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "layers/block_view.h"
#include "layers/per_head.h"
#include "layers/spread_rows.h"
#include "layers/vector_exp.h"

namespace graphmill {

// What the weights of one block are written to, and what is made of scores.
template <class S>
struct Softmax {
    BlockView block;
    S slope, scale;
    const uint8_t* mask;
    const float* weight;  // factors of edges after the softmax; own terms have none
    S* alpha;
    int64_t heads;
};

// The same, the two halves of the scores, and what each edge row adds to them; null for nothing.
template <class T>
struct Scores : Softmax<Sum<T>> {
    const T *left, *right;
    const Sum<T>* edge;
};

// The source rows of a piece's edges, row by row, own terms included.
template <class S>
inline void list_edges(const BlockView& block, const Piece& piece, int64_t heads, Edges<S>& edges) {
    int64_t count = piece.to - piece.from;
    for (int64_t i = piece.from; i < piece.to; ++i) count += block.ends[i] - block.begins[i];
    edges.resize(piece.to - piece.from, count, heads);
    int32_t* at = edges.rows.data();
    for (int64_t i = piece.from; i < piece.to; ++i) {
        at = std::copy(block.sources + block.begins[i], block.sources + block.ends[i], at);
        *at++ = static_cast<int32_t>(block.own(i));
        edges.begins[i - piece.from + 1] = at - edges.rows.data();
    }
}

// exp of every number, in place; `values` is as long as whole vectors of its numbers.
template <class S>
inline void exp_all(std::vector<S>& values, size_t count) {
    using Vector = typename Wide<S>::Vector;
    for (size_t at = 0; at < count; at += Wide<S>::LANES) {
        Vector* place = reinterpret_cast<Vector*>(values.data() + at);
        *place = exp_of<S>(*place);
    }
}

// For COUNT heads from h on: each edge's score less the largest of its row, to the factors.
template <int COUNT, bool OF_EDGES, class T>
inline void score(const Scores<T>& given, const Piece& piece, int64_t h, Edges<Sum<T>>& edges) {
    using S = Sum<T>;
    using Few = HeadVector<S, COUNT>;
    const int64_t heads = given.heads;
    const int32_t* source = edges.rows.data();
    S* const factors = edges.factors.data() + h;
    for (int64_t i = piece.from; i < piece.to; ++i) {
        const int64_t begin = edges.begins[i - piece.from], end = edges.begins[i - piece.from + 1];
        const Few right = load_heads<COUNT>(given.right + i * heads + h);
        Few most = Few{} - std::numeric_limits<S>::infinity();
        for (int64_t k = begin; k < end; ++k) {
            Few raw = load_heads<COUNT>(given.left + source[k] * heads + h) + right;
            if constexpr (OF_EDGES) {
                const int64_t e = k + 1 == end ? given.block.num_edges + i : given.block.begins[i] + k - begin;
                raw += load_heads<COUNT>(given.edge + e * heads + h);
            }
            const Few score = raw > S(0) ? raw : raw * given.slope;
            store_heads<COUNT>(factors + k * heads, score);
            most = score > most ? score : most;
        }
        for (int64_t k = begin; k < end; ++k) {
            S* const place = factors + k * heads;
            store_heads<COUNT>(place, load_heads<COUNT>(place) - most);
        }
    }
}

// For COUNT heads from h on: each edge's share of its row's sum, to alpha and to the factors.
template <int COUNT, class S>
inline void normalise(const Softmax<S>& given, const Piece& piece, int64_t h, Edges<S>& edges) {
    using Few = HeadVector<S, COUNT>;
    const int64_t heads = given.heads;
    S *const factors = edges.factors.data() + h, *const alpha = given.alpha + h;
    for (int64_t i = piece.from; i < piece.to; ++i) {
        const int64_t begin = edges.begins[i - piece.from], end = edges.begins[i - piece.from + 1];
        Few sum{};
        for (int64_t k = begin; k < end; ++k) sum += load_heads<COUNT>(factors + k * heads);
        const Few inverse = S(1) / sum;
        int64_t k = begin;
        each_edge(given.block, i, [&](int64_t e, int64_t) {
            S* const place = factors + k++ * heads;
            const Few share = load_heads<COUNT>(place) * inverse;
            store_heads<COUNT>(alpha + e * heads, share);
            store_heads<COUNT>(place, given.mask ? share * load_mask<COUNT>(given.mask + e * heads + h, given.scale) : share);
        });
    }
}

// Multiplies the factors of a piece's edges by the edges' weights.
template <class S>
inline void multiply_weights(const Softmax<S>& given, const Piece& piece, Edges<S>& edges) {
    const int64_t heads = given.heads;
    S* factor = edges.factors.data();
    for (int64_t i = piece.from; i < piece.to; ++i, factor += heads) {  // past the own term
        for (int64_t e = given.block.begins[i]; e < given.block.ends[i]; ++e, factor += heads)
            for (int64_t h = 0; h < heads; ++h) factor[h] *= static_cast<S>(given.weight[e]);
    }
}

// Scores less the largest of their rows become weights.
template <class S>
inline void weigh_scores(const Softmax<S>& given, const Piece& piece, Edges<S>& edges) {
    exp_all(edges.factors, edges.rows.size() * given.heads);
    each_heads(given.heads, [&](auto count, int64_t h) { normalise<count.value>(given, piece, h, edges); });
    if (given.weight) multiply_weights(given, piece, edges);
}

// Softmax weights of a piece of rows: to alpha, and times their masks and factors to edges.factors.
template <class T>
inline void weigh(const Scores<T>& given, const Piece& piece, Edges<Sum<T>>& edges) {
    list_edges(given.block, piece, given.heads, edges);
    each_heads(given.heads, [&](auto count, int64_t h) {
        if (given.edge)
            score<count.value, true>(given, piece, h, edges);
        else
            score<count.value, false>(given, piece, h, edges);
    });
    weigh_scores<Sum<T>>(given, piece, edges);
}

// The next edges of row i, `from` being the first of them counted in the row, with the weights that alpha holds already.
template <class S>
inline bool weighed_edges(const Softmax<S>& given, int64_t i, int64_t& from, Edges<S>& edges) {
    const BlockView& block = given.block;
    const int64_t heads = given.heads, in_row = block.ends[i] - block.begins[i] + 1;
    const int64_t count = std::min(PIECE_EDGES, in_row - from);
    if (count <= 0) return false;
    edges.resize(1, count, heads);
    edges.begins[1] = count;
    for (int64_t k = 0; k < count; ++k) {
        const bool own = from + k + 1 == in_row;
        const int64_t e = own ? block.num_edges + i : block.begins[i] + from + k;
        edges.rows[k] = static_cast<int32_t>(own ? block.own(i) : block.sources[e]);
        for (int64_t h = 0; h < heads; ++h) {
            const S kept = given.mask ? given.mask[e * heads + h] * given.scale : S(1);
            const S factor = given.alpha[e * heads + h] * kept;
            edges.factors[k * heads + h] = given.weight && !own ? factor * static_cast<S>(given.weight[e]) : factor;
        }
    }
    from += count;
    return true;
}

}  // namespace graphmill
