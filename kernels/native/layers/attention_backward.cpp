// The gradient of softmax attention; see kernels/layers/attention.py.
//
// Three passes. The sources go first: with the source's own row at hand, one visit to the gradient of a destination serves both the
// inner product that its score's gradient is made from and the sum that the source's gradient is. The destinations then make gradients
// of scores from inner products, without looking at a row, and the sources add those up. A row is read once per edge.
#include "layers/layers.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "layers/block_view.h"
#include "layers/head_dots.h"
#include "layers/per_head.h"
#include "layers/spread_rows.h"
#include "layers/tiles.h"
#include "layers/work_split.h"

namespace graphmill {
namespace {

constexpr int64_t FACTORS_AHEAD = 16;  // edges between the prefetch of the weights of one and their use
constexpr int64_t NEAR_BYTES = 16 * 1024;  // of rows that stay in the first cache

// The edges of sources and their weights.
template <class S>
struct Uses {
    BlockView block;
    Transposed transposed;
    const int32_t* own;  // a source's row among the destinations, else -1
    int64_t num_heads;
    S slope, scale;
    const uint8_t* mask;
    const float* weight;  // factors of edges after the softmax; own terms have none
    const S* alpha;
    S* of_score;  // [edge row, head]: the inner product, and then the gradient of the score
};

template <class T>
struct Gradient : Uses<Sum<T>> {
    Heads<Sum<T>> heads;
    HeadCuts<Sum<T>> cuts;
    const T *rows, *left, *right, *grad;
    const Sum<T>* edge;  // what each edge row adds to its score; null for nothing
    T *of_rows, *of_left, *of_right;
};

// The edges of sources, own terms included: their rows in the edge arrays, their sources, the destinations' rows and the factors.
template <class S>
struct TransposedEdges {
    Edges<S> by_row;
    std::vector<int64_t> at;
    std::vector<int32_t> sources;
};

// Calls take(edge row, destination) for the edges of source s from number `from` up to `to`, and then for its own term if it lies there.
template <class S, class Take>
void each_use(const Uses<S>& given, int64_t s, int64_t from, int64_t to, const Take& take) {
    const Transposed& transposed = given.transposed;
    const int64_t first = transposed.starts[s], count = transposed.starts[s + 1] - first;
    for (int64_t t = first + from; t < first + std::min(to, count); ++t) take(int64_t{transposed.edges[t]}, transposed.dsts[t]);
    if (from <= count && count < to && given.own[s] >= 0) take(given.block.num_edges + given.own[s], given.own[s]);
}

template <int COUNT, class S>
void load_factors(const Uses<S>& given, int64_t h, TransposedEdges<S>& edges) {
    const int64_t heads = given.num_heads, count = edges.at.size();
    const S* const alpha = given.alpha + h;
    S* factor = edges.by_row.factors.data() + h;
    for (int64_t k = 0; k < count; ++k, factor += heads) {
        if (k + FACTORS_AHEAD < count) {
            const int64_t next = edges.at[k + FACTORS_AHEAD] * heads;
            __builtin_prefetch(alpha + next);
            __builtin_prefetch(given.of_score + h + next, 1);
        }
        const int64_t e = edges.at[k] * heads;
        auto value = load_heads<COUNT>(alpha + e);
        if (given.mask) value *= load_mask<COUNT>(given.mask + e + h, given.scale);
        store_heads<COUNT>(factor, value);
    }
}

// Multiplies the factors of edges by the edges' weights.
template <class S>
void multiply_weights(const Uses<S>& given, TransposedEdges<S>& edges) {
    const int64_t heads = given.num_heads;
    S* factor = edges.by_row.factors.data();
    for (const int64_t e : edges.at) {
        if (e < given.block.num_edges)
            for (int64_t h = 0; h < heads; ++h) factor[h] *= static_cast<S>(given.weight[e]);
        factor += heads;
    }
}

// Edges from..to of every source of a piece, with their factors.
template <class S>
void list_uses(const Uses<S>& given, const Piece& piece, int64_t from, int64_t to, TransposedEdges<S>& edges) {
    int64_t most = 0, k = 0;
    for (int64_t s = piece.from; s < piece.to; ++s)
        most += 1 + std::min<int64_t>(to - from, given.transposed.starts[s + 1] - given.transposed.starts[s]);
    edges.by_row.resize(piece.to - piece.from, most, given.num_heads);
    edges.at.resize(most);
    edges.sources.resize(most);
    for (int64_t s = piece.from; s < piece.to; ++s) {
        each_use(given, s, from, to, [&](int64_t e, int32_t i) {
            edges.by_row.rows[k] = i;
            edges.sources[k] = static_cast<int32_t>(s);
            edges.at[k++] = e;
        });
        edges.by_row.begins[s - piece.from + 1] = k;
    }
    edges.by_row.rows.resize(k);
    edges.at.resize(k);
    each_heads(given.num_heads, [&](auto count, int64_t h) { load_factors<count.value>(given, h, edges); });
    if (given.weight) multiply_weights(given, edges);
}

// The inner products of edges from..to of the list with the rows of their sources.
template <class T>
void multiply(const Gradient<T>& given, const TransposedEdges<Sum<T>>& edges, int64_t from, int64_t to) {
    const int64_t width = given.heads.width, count = edges.at.size(), line = 64 / sizeof(T);
    for (int64_t k = from; k < to; ++k) {
        if (k + EDGES_AHEAD < count) {
            const T* next = given.grad + edges.by_row.rows[k + EDGES_AHEAD] * width;
            const T* own = given.rows + edges.sources[k + EDGES_AHEAD] * width;
            for (int64_t c = 0; c < std::min(width, SPREAD_LINES_AHEAD * line); c += line)
                __builtin_prefetch(next + c), __builtin_prefetch(own + c);
        }
        head_dots(given.grad + edges.by_row.rows[k] * width, given.rows + edges.sources[k] * width, given.cuts,
                  given.of_score + edges.at[k] * given.num_heads);
    }
}

template <class T>
void pull_piece(const Gradient<T>& given, const Piece& piece, TransposedEdges<Sum<T>>& edges,
                std::vector<Sum<T>>& partial) {
    const int64_t width = given.heads.width;
    if (piece.column_end - piece.column < width) {
        int64_t from = 0;
        spread_hub(given.grad, given.heads, edges.by_row, piece, partial, given.of_rows + piece.from * width, [&] {
            list_uses<Sum<T>>(given, piece, from, from + PIECE_EDGES, edges);
            from += PIECE_EDGES;
            return !edges.at.empty();
        });
        return;
    }
    check_transposed(given.transposed, piece, given.block.num_edges);
    list_uses<Sum<T>>(given, piece, 0, std::numeric_limits<int32_t>::max(), edges);
    // The inner products of some rows' edges ask for the rows of later ones, and leave those of these edges in the first cache for the sums.
    RowStream<T> stream(given.of_rows, width, given.transposed.num_src * width * sizeof(T));
    const auto& begins = edges.by_row.begins;
    const int64_t num_rows = piece.to - piece.from, most = std::max<int64_t>(1, NEAR_BYTES / (width * sizeof(T) + 1));
    for (int64_t from = 0, to; from < num_rows; from = to) {
        for (to = from + 1; to < num_rows && to - from + begins[to + 1] - begins[from] <= most;) ++to;
        multiply(given, edges, begins[from], begins[to]);
        spread_rows(given.grad, given.heads, edges.by_row, piece.from, from, to, false, given.of_rows, stream);
    }
}

// The inner products of a hub's edges from..to.
struct HubEdges {
    int64_t source, from, to;
};

std::vector<HubEdges> cut_hubs(const Transposed& transposed, int64_t num_edges, int64_t width, const std::vector<Piece>& pieces) {
    std::vector<HubEdges> parts;
    for (const Piece& hub : hubs_of(pieces, width)) {
        check_transposed(transposed, hub, num_edges);
        const int64_t edges = transposed.starts[hub.to] - transposed.starts[hub.from] + 1;
        for (int64_t from = 0; from < edges; from += HUB_EDGES) parts.push_back({hub.from, from, from + HUB_EDGES});
    }
    return parts;
}

// For COUNT heads from h on, of a destination: multiplies the inner products of its edges by masks and weights, and returns their sum
// by weights of the softmax. It serves all types of rows whose sums have one type.
template <int COUNT, class S>
__attribute__((noinline)) HeadVector<S, COUNT> mean_product(const Uses<S>& given, int64_t i, int64_t h) {
    using Few = HeadVector<S, COUNT>;
    const int64_t heads = given.num_heads;
    const S* const alpha = given.alpha + h;
    S* const of_score = given.of_score + h;
    Few mean{};
    if (given.weight) {  // masks and weights beforehand, so that the loop below stays as short as it is without weights
        each_edge(given.block, i, [&](int64_t e, int64_t) {
            Few product = load_heads<COUNT>(of_score + e * heads);
            if (given.mask) product *= load_mask<COUNT>(given.mask + e * heads + h, given.scale);
            if (e < given.block.num_edges) product *= static_cast<S>(given.weight[e]);
            store_heads<COUNT>(of_score + e * heads, product);
        });
    }
    const uint8_t* const mask = given.weight ? nullptr : given.mask;
    each_edge(given.block, i, [&](int64_t e, int64_t) {
        Few product = load_heads<COUNT>(of_score + e * heads);
        if (mask) {
            product *= load_mask<COUNT>(mask + e * heads + h, given.scale);
            store_heads<COUNT>(of_score + e * heads, product);
        }
        mean += load_heads<COUNT>(alpha + e * heads) * product;
    });
    return mean;
}

// For COUNT heads from h on, of a destination: gradients of its edges' scores from their inner products, and its own gradient.
template <int COUNT, bool OF_EDGES, class T>
void grade(const Gradient<T>& given, int64_t i, int64_t h) {
    using Few = HeadVector<Sum<T>, COUNT>;
    const int64_t heads = given.num_heads;
    const Few mean = mean_product<COUNT, Sum<T>>(given, i, h), right = load_heads<COUNT>(given.right + i * heads + h);
    const Sum<T>* const alpha = given.alpha + h;
    Sum<T>* const of_score = given.of_score + h;
    Few total{};
    each_edge(given.block, i, [&](int64_t e, int64_t s) {
        Few raw = load_heads<COUNT>(given.left + s * heads + h) + right;
        if constexpr (OF_EDGES) raw += load_heads<COUNT>(given.edge + e * heads + h);
        const Few full = load_heads<COUNT>(alpha + e * heads) * (load_heads<COUNT>(of_score + e * heads) - mean);
        const Few found = raw > Sum<T>(0) ? full : full * given.slope;
        store_heads<COUNT>(of_score + e * heads, found);
        total += found;
    });
    store_heads<COUNT>(given.of_right + i * heads + h, total);
}

// For COUNT heads from h on: the gradients of a piece of sources' halves of the scores.
template <int COUNT, class T>
void pull_scores(const Gradient<T>& given, const Piece& piece, int64_t h) {
    const int64_t heads = given.num_heads;
    const Transposed& transposed = given.transposed;
    const Sum<T>* const of_score = given.of_score + h;
    for (int64_t s = piece.from; s < piece.to; ++s) {
        HeadVector<Sum<T>, COUNT> total{};
        each_use(given, s, 0, std::numeric_limits<int32_t>::max(), [&](int64_t e, int32_t) {
            total += load_heads<COUNT>(of_score + e * heads);
        });
        const int64_t next = std::min<int64_t>(transposed.starts[s + 1] + FACTORS_AHEAD, transposed.num_transposed - 1);
        if (next >= 0) __builtin_prefetch(of_score + transposed.edges[next] * heads);
        store_heads<COUNT>(given.of_left + s * heads + h, total);
    }
}

}  // namespace

template <class T>
void attend_backward(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Optional<const int32_t> dst_pos,
                     Array<const int32_t> t_start, Array<const int32_t> t_edge, Array<const int32_t> t_dst, Array<const T> z,
                     Array<const T> left, Array<const T> right, Sum<T> slope, Optional<const uint8_t> kept, Sum<T> scale,
                     Optional<const float> weight, Optional<const Sum<T>> edge, Array<const Sum<T>> alpha, Array<const T> grad,
                     Array<Sum<T>> grad_score,
                     Array<T> grad_z, Array<T> grad_left, Array<T> grad_right, int threads) {
    const int64_t num_heads = left.shape(1), width = z.shape(1);
    const BlockView block = view_of(start, end, indices, dst_pos, z.shape(0));
    const Transposed transposed{t_start.data(), t_edge.data(), t_dst.data(), block.num_src, block.num_dst, t_dst.size()};
    const auto by_source = cut_transposed(transposed, width, HUB_VECTORS * LANES<T>, threads);
    const auto by_dst = cut_block(block, width, 0, threads);
    const auto parts = cut_hubs(transposed, block.num_edges, width, by_source);
    const auto own = own_rows(block.num_src, block.num_dst, block.place);
    const Gradient<T> given{{block, transposed, own.data(), num_heads, slope, scale, pointer(kept), pointer(weight), alpha.data(),
                             grad_score.data()},
                            {num_heads, width}, {num_heads, width}, z.data(), left.data(), right.data(), grad.data(), pointer(edge),
                            grad_z.data(), grad_left.data(), grad_right.data()};
    parallel_for(parts.size() + by_source.size(), 1, threads, [&](int64_t first, int64_t last) {
        TransposedEdges<Sum<T>> edges;
        std::vector<Sum<T>> partial;
        for (int64_t p = first; p < last; ++p) {
            const int64_t number = p - static_cast<int64_t>(parts.size());
            if (number >= 0) {
                pull_piece(given, by_source[number], edges, partial);
                continue;
            }
            list_uses<Sum<T>>(given, {parts[p].source, parts[p].source + 1, 0, width}, parts[p].from, parts[p].to, edges);
            multiply(given, edges, 0, edges.at.size());
        }
    });
    parallel_for(by_dst.size(), 1, threads, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
            check_sources(block, by_dst[p]);
            each_heads(num_heads, [&](auto count, int64_t h) {
                for (int64_t i = by_dst[p].from; i < by_dst[p].to; ++i) {
                    if (given.edge)
                        grade<count.value, true>(given, i, h);
                    else
                        grade<count.value, false>(given, i, h);
                }
            });
        }
    });
    const auto whole = cut_transposed(transposed, width, 0, threads);
    parallel_for(whole.size(), 1, threads, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p)
            each_heads(num_heads, [&](auto count, int64_t h) { pull_scores<count.value>(given, whole[p], h); });
    });
}

template decltype(attend_backward<float>) attend_backward<float>;
template decltype(attend_backward<double>) attend_backward<double>;
template decltype(attend_backward<Half>) attend_backward<Half>;
template decltype(attend_backward<BFloat>) attend_backward<BFloat>;

}  // namespace graphmill
