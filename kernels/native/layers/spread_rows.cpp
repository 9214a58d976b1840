// Sums of rows with one factor a head; see spread_rows.h. Sums of whole vectors are made by one of a table of functions, by how many there
// are.
#include "layers/spread_rows.h"

#include <algorithm>
#include <utility>

#include "layers/tiles.h"

namespace graphmill {
namespace {

template <class S>
inline typename Wide<S>::Vector spread(const S* factors, const typename Heads<S>::Picks& pick) {
    using Vector = typename Wide<S>::Vector;
#ifndef __AVX512F__
    if (pick.one) return Vector{} + factors[pick.first];  // without a shuffle of whole vectors it is the quicker way
#endif
    return __builtin_shuffle(*reinterpret_cast<const Vector*>(factors + pick.first), pick.lanes);
}

// What the rows of a piece are made from.
template <class T>
struct Spread {
    const T* input;
    const Heads<Sum<T>>& heads;
    const Edges<Sum<T>>& edges;
    int64_t first_row;  // output row of the piece's first
    bool ahead;         // the rows of later edges are asked for
    bool more;          // sums are added to what `out` holds
};

template <class T, class Out, int LENGTH>
void spread_tile(const Spread<T>& given, const Tile<Out>& tile) {
    const int64_t num_heads = given.heads.heads, width = given.heads.width, last = given.edges.rows.size();
    const int32_t* const rows = given.edges.rows.data();
    const Sum<T>* const factors = given.edges.factors.data();
    const auto* const picks = given.heads.picks.data() + tile.column / LANES<T>;
    const T* const input = given.input + tile.column;
    const bool ahead = given.ahead;
    const auto at = [tail = tile.tail](int v) { return v + 1 < LENGTH ? v * LANES<T> : tail; };
    Out* out = tile.out;
    for (int64_t i = tile.first; i < tile.last; ++i, out += width) {
        const int64_t begin = given.edges.begins[i - given.first_row], end = given.edges.begins[i + 1 - given.first_row];
        Vector<T> sum[LENGTH];
        for (int v = 0; v < LENGTH; ++v) sum[v] = Vector<T>{};
        if (given.more) {
            for (int v = 0; v < LENGTH; ++v) sum[v] = load(out + at(v));
        }
        const int32_t* const later = rows + std::min(EDGES_AHEAD, last - end);
        const auto add_all = [&](const auto& factor_of) {
            for (int64_t e = begin; e < end; ++e) {
                if (ahead) {
                    const T* next = input + later[e] * width;
                    for (int v = 0; v < std::min<int>(LENGTH, SPREAD_LINES_AHEAD); ++v) __builtin_prefetch(next + at(v));
                }
                const T* row = input + rows[e] * width;
                const auto factor = factor_of(e);
                for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + at(v)) * factor(v);
            }
        };
        if (num_heads == 1) {  // one factor for the whole row, without a shuffle for each vector
            add_all([&](int64_t e) { return [one = factors[e]](int) { return one; }; });
        } else {
            add_all([&](int64_t e) {
                return [=, of_edge = factors + e * num_heads](int v) { return spread<Sum<T>>(of_edge, picks[v]); };
            });
        }
        for (int v = 0; v < LENGTH; ++v) store(out + at(v), sum[v]);
    }
}

// By the number of vectors less 1.
template <class T, class Out, int... SHORTER>
inline void spread_any(const Spread<T>& given, const Tile<Out>& tile, std::integer_sequence<int, SHORTER...>) {
    static constexpr void (*TILES[])(const Spread<T>&, const Tile<Out>&) = {spread_tile<T, Out, SHORTER + 1>...};
    TILES[tile.length - 1](given, tile);
}

// Rows narrower than a vector: the same operations in the same order.
template <class T>
void spread_narrow(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, int64_t i, T* out) {
    Sum<T> sum[LANES<T>] = {};
    for (int64_t e = edges.begins[i]; e < edges.begins[i + 1]; ++e) {
        const T* row = input + edges.rows[e] * heads.width;
        const Sum<T>* factors = edges.factors.data() + e * heads.heads;
        for (int64_t c = 0; c < heads.width; ++c) sum[c] += widen(row[c]) * factors[c / heads.depth];
    }
    for (int64_t c = 0; c < heads.width; ++c) out[c] = narrow<T>(sum[c]);
}

}  // namespace

template <class T>
void spread_rows(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, int64_t first_row, int64_t from, int64_t to,
                 bool ahead, T* output, RowStream<T>& stream) {
    if (heads.width < LANES<T>) {
        for (int64_t i = from; i < to; ++i) spread_narrow(input, heads, edges, i, output + (first_row + i) * heads.width);
        return;
    }
    const Spread<T> given{input, heads, edges, first_row, ahead, false};
    each_tile<T>(Piece{first_row + from, first_row + to, 0, heads.width}, stream, output, false, [&](const Tile<T>& tile) {
        spread_any(given, tile, std::make_integer_sequence<int, MOST_VECTORS>{});
    });
}

template <class T>
void add_spread(const T* input, const Heads<Sum<T>>& heads, const Edges<Sum<T>>& edges, const Piece& part, Sum<T>* sums) {
    constexpr int MOST = 2 * HUB_VECTORS;  // a part is wider than that only if a tile is
    static_assert(MOST <= MOST_VECTORS);
    const Spread<T> given{input, heads, edges, 0, true, true};
    each_tile<Sum<T>>(0, 1, part.column, part.column_end, sums, [&](const Tile<Sum<T>>& tile) {
        spread_any(given, tile, std::make_integer_sequence<int, MOST>{});
    });
}

template decltype(spread_rows<float>) spread_rows<float>;
template decltype(spread_rows<double>) spread_rows<double>;
template decltype(spread_rows<Half>) spread_rows<Half>;
template decltype(spread_rows<BFloat>) spread_rows<BFloat>;

template decltype(add_spread<float>) add_spread<float>;
template decltype(add_spread<double>) add_spread<double>;
template decltype(add_spread<Half>) add_spread<Half>;
template decltype(add_spread<BFloat>) add_spread<BFloat>;

}  // namespace graphmill
