// Sums of messages ReLU(h_u + W e_uv + b) and their gradients; see kernels/layers/edge_messages.py.
//
// Messages stay in registers. A few edges at a time share each load of the map, which lies in the cache; the gradient of the map keeps
// its sums in registers while edges go by. The backward pass needs one bit of each value of a message: whether ReLU let it through.
#include "layers/layers.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "layers/block_view.h"
#include "layers/tiles.h"
#include "rows/row_prefetch.h"

namespace graphmill {
namespace {

// Edges whose messages are computed together, vectors of their columns, and columns of edge rows whose gradients are summed together: 16
// and the bias.
#ifdef __AVX512F__
constexpr int TOGETHER = 4, MESSAGE_VECTORS = 4, MAP_COLUMNS = 17;
#else
constexpr int TOGETHER = 2, MESSAGE_VECTORS = 2, MAP_COLUMNS = 4;
#endif
// The gradient of the map is the sum of so many sums at most, each over consecutive edges: the same at any number of threads.
constexpr int64_t MAP_SHARES = 64;
constexpr int SHARE_THREADS = 8;       // as work_split.h cuts rows for
constexpr int64_t LISTED_EDGES = 512;  // whose rows are put side by side: they stay in the cache for each vector of columns

// One bit for each lane, all of whose bits are equal.
template <class S>
inline uint32_t bits_of(typename Wide<S>::Index lanes) {
#ifdef __AVX512F__
    if constexpr (sizeof(S) == 4) return _mm512_test_epi32_mask((__m512i)lanes, (__m512i)lanes);
    else return _mm512_test_epi64_mask((__m512i)lanes, (__m512i)lanes);
#elif defined(__AVX__)
    __m256i halves[2];
    std::memcpy(halves, &lanes, sizeof lanes);
    if constexpr (sizeof(S) == 4)
        return _mm256_movemask_ps((__m256)halves[0]) | _mm256_movemask_ps((__m256)halves[1]) << 8;
    else return _mm256_movemask_pd((__m256d)halves[0]) | _mm256_movemask_pd((__m256d)halves[1]) << 4;
#else
    uint32_t bits = 0;
    for (int64_t lane = 0; lane < Wide<S>::LANES; ++lane) bits |= uint32_t(lanes[lane] & 1) << lane;
    return bits;
#endif
}

// The lanes whose bits are set; 0 in the others.
template <class S>
inline typename Wide<S>::Vector lanes_with(const uint8_t* bits, typename Wide<S>::Vector value) {
    uint32_t set = 0;
    std::memcpy(&set, bits, Wide<S>::LANES / 8);
#ifdef __AVX512F__
    if constexpr (sizeof(S) == 4) return (typename Wide<S>::Vector)_mm512_maskz_mov_ps(set, (__m512)value);
    else return (typename Wide<S>::Vector)_mm512_maskz_mov_pd(set, (__m512d)value);
#else
    using Index = typename Wide<S>::Index;
    Index lanes;
    for (int64_t lane = 0; lane < Wide<S>::LANES; ++lane) lanes[lane] = typename Wide<S>::Int(1) << lane;
    const Index chosen = (Index)((lanes & static_cast<typename Wide<S>::Int>(set)) != 0);
    return (typename Wide<S>::Vector)((Index)value & chosen);
#endif
}

// A vector of a row's columns; zeros behind its end.
template <class T>
inline Vector<T> load_columns(const T* row, int64_t column, int64_t width) {
    if (__builtin_expect(width - column >= LANES<T>, true)) return load(row + column);
    T lanes[LANES<T>]{};
    std::memcpy(lanes, row + column, (width - column) * sizeof(T));
    return load(lanes);
}

template <class T>
inline void store_columns(T* row, int64_t column, int64_t width, Vector<T> value) {
    if (__builtin_expect(width - column >= LANES<T>, true)) return store(row + column, value);
    T lanes[LANES<T>];
    store(lanes, value);
    std::memcpy(row + column, lanes, (width - column) * sizeof(T));
}

// Which values of messages were let through: LANES / 8 bytes of an edge for each vector of columns.
inline int64_t active_bytes(int64_t width) { return (width + 15) / 16 * 2; }

// Rows of the edges of a block, and the factors of their messages, or nullptr.
template <class S>
struct EdgeRows {
    const S* rows;
    const int32_t* place;
    const float* weight;
    int64_t num_rows, width;
    const S* of(int64_t edge) const { return rows + int64_t{place[edge]} * width; }
};

void check_places(const BlockView& block, const Piece& piece, const int32_t* place, int64_t num_rows) {
    check_edges(piece, block.begins, block.ends, place, num_rows, "the block has an edge whose row is not there",
                "call place_edges again");
}

// The map's columns one after the other, and the bias behind them; each begins a cache line and ends with zeros.
template <class S>
class EdgeMap {
  public:
    EdgeMap(const S* matrix, const S* bias, int64_t width, int64_t edge_width)
        : stride_((width + Wide<S>::LANES - 1) / Wide<S>::LANES * Wide<S>::LANES),
          memory_((edge_width + 1) * stride_ + Wide<S>::LANES) {
        S* const first = memory_.data();
        first_ = first + (64 - (reinterpret_cast<uintptr_t>(first) & 63)) % 64 / sizeof(S);
        for (int64_t k = 0; k <= edge_width; ++k) {
            for (int64_t c = 0; c < width; ++c) first_[k * stride_ + c] = k < edge_width ? matrix[c * edge_width + k] : bias[c];
        }
    }
    const S* column(int64_t k) const { return first_ + k * stride_; }

  private:
    int64_t stride_;
    std::vector<S> memory_;
    S* first_;
};

template <class T>
struct Messages {
    BlockView block;
    EdgeRows<Sum<T>> edges;
    const EdgeMap<Sum<T>>& map;
    const T* h;
    T* out;
    uint8_t* active;  // or nullptr
    int64_t width;
};

// Adds the messages of EDGES consecutive edges to the sums of LENGTH vectors, one after the other.
template <class T, int EDGES, int LENGTH>
inline void add_messages(const Messages<T>& given, int64_t edge, int64_t column, Vector<T>* sums) {
    using S = Sum<T>;
    using Index = typename Wide<S>::Index;
    const int64_t edge_width = given.edges.width, width = given.width;
    const S* rows[EDGES];
    #pragma GCC unroll 16
    for (int g = 0; g < EDGES; ++g) rows[g] = given.edges.of(edge + g);
    // What later edges read is asked for a few lines at a time: for all edges of a row at once it took twice as long.
    for (int g = 0; g < EDGES; ++g) {
        const int64_t later = std::min(edge + g + EDGES_AHEAD, given.block.num_edges - 1);
        const T* const next = given.h + int64_t{given.block.sources[later]} * width + column;
        constexpr int A_LINE = sizeof(S) / sizeof(T);  // vectors that one cache line fills
        for (int v = 0; v < LENGTH; v += A_LINE) __builtin_prefetch(next + v * LANES<T>);
        __builtin_prefetch(given.edges.of(later));
        __builtin_prefetch(given.edges.of(later) + std::max<int64_t>(1, edge_width) - 1);
    }
    Vector<T> messages[EDGES][LENGTH];
    #pragma GCC unroll 16
    for (int v = 0; v < LENGTH; ++v) {
        const Vector<T> bias = load(given.map.column(edge_width) + column + v * LANES<T>);
        #pragma GCC unroll 16
        for (int g = 0; g < EDGES; ++g) messages[g][v] = bias;
    }
    for (int64_t k = 0; k < edge_width; ++k) {
        const S* const of_map = given.map.column(k) + column;
        #pragma GCC unroll 16
        for (int v = 0; v < LENGTH; ++v) {
            const Vector<T> factors = load(of_map + v * LANES<T>);
            #pragma GCC unroll 16
            for (int g = 0; g < EDGES; ++g) messages[g][v] += factors * rows[g][k];
        }
    }
    #pragma GCC unroll 16
    for (int g = 0; g < EDGES; ++g) {
        const T* const source = given.h + int64_t{given.block.sources[edge + g]} * width;
        const S weight = given.edges.weight ? static_cast<S>(given.edges.weight[edge + g]) : S(1);
        #pragma GCC unroll 16
        for (int v = 0; v < LENGTH; ++v) {
            const int64_t at = column + v * LANES<T>;
            const Vector<T> message = messages[g][v] + load_columns(source, at, width);
            const Index active = ~(Index)(message <= S(0));  // what is not a number goes through, as through torch's ReLU
            if (given.active) {
                const uint32_t bits = bits_of<S>(active);
                std::memcpy(given.active + (edge + g) * active_bytes(width) + at / 8, &bits, LANES<T> / 8);
            }
            sums[v] += (Vector<T>)((Index)message & active) * weight;
        }
    }
}

template <class T, int LENGTH>
void sum_messages(const Messages<T>& given, int64_t row, int64_t column) {
    Vector<T> sums[LENGTH];
    for (int v = 0; v < LENGTH; ++v) sums[v] = Vector<T>{};
    const int64_t end = given.block.ends[row];
    int64_t edge = given.block.begins[row];
    for (; edge + TOGETHER <= end; edge += TOGETHER) add_messages<T, TOGETHER, LENGTH>(given, edge, column, sums);
    if (edge + 2 <= end) {
        add_messages<T, 2, LENGTH>(given, edge, column, sums);
        edge += 2;
    }
    if (edge < end) add_messages<T, 1, LENGTH>(given, edge, column, sums);
    for (int v = 0; v < LENGTH; ++v)
        store_columns(given.out + row * given.width, column + v * LANES<T>, given.width, sums[v]);
}

// Calls body(vectors as a constant, first column) until the columns of a piece are covered, MOST vectors at a time.
template <class T, int MOST, class Body, int... SHORTER>
inline void each_vectors(const Piece& piece, const Body& body, std::integer_sequence<int, SHORTER...>) {
    for (int64_t column = piece.column; column < piece.column_end; column += MOST * LANES<T>) {
        const int64_t left = (piece.column_end - column + LANES<T> - 1) / LANES<T>, length = std::min<int64_t>(MOST, left);
        ((length == SHORTER + 1 ? body(std::integral_constant<int, SHORTER + 1>{}, column) : void()), ...);
    }
}

template <class T>
struct Gradients {
    const T* grad;
    const uint8_t* active;
    int64_t width;

    // The gradient of some columns of an edge's message before ReLU, without its factor.
    Vector<T> of(int64_t edge, int64_t dst, int64_t column) const {
        const uint8_t* bits = active + edge * active_bytes(width) + column / 8;
        return lanes_with<Sum<T>>(bits, load_columns(grad + dst * width, column, width));
    }
};

template <class T, int LENGTH>
void pull_gradient(const Gradients<T>& given, const Transposed& transposed, const float* weight, int64_t source, int64_t column, T* out) {
    Vector<T> sums[LENGTH];
    for (int v = 0; v < LENGTH; ++v) sums[v] = Vector<T>{};
    for (int64_t t = transposed.starts[source]; t < transposed.starts[source + 1]; ++t) {
        const int64_t edge = transposed.edges[t], later = std::min(t + EDGES_AHEAD, transposed.num_transposed - 1);
        prefetch_row(reinterpret_cast<const char*>(given.grad + int64_t{transposed.dsts[later]} * given.width + column),
                     LENGTH * LANES<T> * sizeof(T));
        __builtin_prefetch(given.active + int64_t{transposed.edges[later]} * active_bytes(given.width) + column / 8);
        const Sum<T> factor = weight ? static_cast<Sum<T>>(weight[edge]) : Sum<T>(1);
        for (int v = 0; v < LENGTH; ++v) sums[v] += given.of(edge, transposed.dsts[t], column + v * LANES<T>) * factor;
    }
    for (int v = 0; v < LENGTH; ++v) store_columns(out + source * given.width, column + v * LANES<T>, given.width, sums[v]);
}

// Edges in order, with their rows and a one side by side, times their factors.
template <class S>
struct ListedEdges {
    explicit ListedEdges(int64_t edge_width) : edges(LISTED_EDGES), dsts(LISTED_EDGES), rows(LISTED_EDGES * (edge_width + 1)) {}
    int64_t size = 0;
    std::vector<int64_t> edges, dsts;
    std::vector<S> rows;
};

// Adds the products of listed edges, from column k of their rows on, to COUNT rows of a gradient.
template <class T, int COUNT>
void add_products(const Gradients<T>& given, const ListedEdges<Sum<T>>& listed, int64_t edge_width, int64_t k, Sum<T>* totals,
                  int64_t stride) {
    for (int64_t column = 0; column < given.width; column += LANES<T>) {
        Vector<T> sums[COUNT];
        #pragma GCC unroll 32
        for (int j = 0; j < COUNT; ++j) sums[j] = load(totals + (k + j) * stride + column);
        const Sum<T>* row = listed.rows.data() + k;
        for (int64_t n = 0; n < listed.size; ++n, row += edge_width + 1) {
            const Vector<T> grad = given.of(listed.edges[n], listed.dsts[n], column);
            #pragma GCC unroll 32
            for (int j = 0; j < COUNT; ++j) sums[j] += grad * row[j];
        }
        #pragma GCC unroll 32
        for (int j = 0; j < COUNT; ++j) store(totals + (k + j) * stride + column, sums[j]);
    }
}

template <class T, int... SHORTER>
void add_all_products(const Gradients<T>& given, ListedEdges<Sum<T>>& listed, int64_t edge_width, Sum<T>* totals, int64_t stride,
                      std::integer_sequence<int, SHORTER...>) {
    static constexpr void (*PRODUCTS[])(const Gradients<T>&, const ListedEdges<Sum<T>>&, int64_t, int64_t, Sum<T>*, int64_t) = {
        add_products<T, SHORTER + 1>...};
    for (int64_t k = 0; k <= edge_width; k += MAP_COLUMNS)
        PRODUCTS[std::min<int64_t>(MAP_COLUMNS, edge_width + 1 - k) - 1](given, listed, edge_width, k, totals, stride);
    listed.size = 0;
}

// Adds the products of the edges of rows from..to.
template <class T>
void add_rows(const Gradients<T>& given, const BlockView& block, const EdgeRows<Sum<T>>& edges, const Piece& piece,
              ListedEdges<Sum<T>>& listed, Sum<T>* totals, int64_t stride) {
    using S = Sum<T>;
    constexpr std::make_integer_sequence<int, MAP_COLUMNS> counts;
    for (int64_t i = piece.from; i < piece.to; ++i) {
        for (int64_t e = block.begins[i]; e < block.ends[i]; ++e) {
            const S factor = edges.weight ? static_cast<S>(edges.weight[e]) : S(1);
            const S* const row = edges.of(e);
            S* const scaled = listed.rows.data() + listed.size * (edges.width + 1);
            for (int64_t k = 0; k < edges.width; ++k) scaled[k] = row[k] * factor;
            scaled[edges.width] = factor;
            listed.edges[listed.size] = e;
            listed.dsts[listed.size] = i;
            if (++listed.size == LISTED_EDGES) add_all_products<T>(given, listed, edges.width, totals, stride, counts);
        }
    }
    add_all_products<T>(given, listed, edges.width, totals, stride, counts);
}

// Writes the gradient of the map's columns, and of the bias behind them.
template <class T>
void map_gradient(const Gradients<T>& given, const BlockView& block, const EdgeRows<Sum<T>>& edges, Sum<T>* out, int threads) {
    using S = Sum<T>;
    const std::vector<Piece> pieces = cut_block(block, given.width, 0, SHARE_THREADS);
    const int64_t num_pieces = pieces.size(), shares = std::min(MAP_SHARES, num_pieces), num_rows = edges.width + 1;
    const int64_t stride = (given.width + LANES<T> - 1) / LANES<T> * LANES<T>, size = num_rows * stride;
    std::vector<S> totals(std::max<int64_t>(1, shares) * size);
    parallel_for(shares, 1, threads, [&](int64_t first, int64_t last) {
        ListedEdges<S> listed(edges.width);
        for (int64_t share = first; share < last; ++share) {
            for (int64_t p = share * num_pieces / shares; p < (share + 1) * num_pieces / shares; ++p) {
                check_places(block, pieces[p], edges.place, edges.num_rows);
                add_rows(given, block, edges, pieces[p], listed, totals.data() + share * size, stride);
            }
        }
    });
    for (int64_t share = 1; share < shares; ++share) {
        for (int64_t at = 0; at < size; ++at) totals[at] += totals[share * size + at];
    }
    for (int64_t k = 0; k < num_rows; ++k) std::copy_n(totals.data() + k * stride, given.width, out + k * given.width);
}

}  // namespace

template <class T>
void edge_messages(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Array<const int32_t> place,
                   Optional<const float> weight, Array<const T> h, Array<const Sum<T>> rows, Array<const Sum<T>> matrix,
                   Array<const Sum<T>> bias, Optional<uint8_t> active, Array<T> out, int threads) {
    const BlockView block = view_of(start, end, indices, {}, h.shape(0));
    const int64_t width = h.shape(1);
    const EdgeMap<Sum<T>> map(matrix.data(), bias.data(), width, rows.shape(1));
    const EdgeRows<Sum<T>> edges{rows.data(), place.data(), pointer(weight), rows.shape(0), rows.shape(1)};
    const Messages<T> messages{block, edges, map, h.data(), out.data(), pointer(active), width};
    const std::vector<Piece> pieces = cut_block(block, width, HUB_VECTORS * LANES<T>, threads);
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        constexpr std::make_integer_sequence<int, MESSAGE_VECTORS> lengths;
        for (int64_t p = first; p < last; ++p) {
            check_sources(block, pieces[p]);
            check_places(block, pieces[p], edges.place, edges.num_rows);
            for (int64_t row = pieces[p].from; row < pieces[p].to; ++row) {
                each_vectors<T, MESSAGE_VECTORS>(
                    pieces[p], [&](auto length, int64_t column) { sum_messages<T, length.value>(messages, row, column); }, lengths);
            }
        }
    });
}

template <class T>
void edge_messages_backward(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> place,
                            Optional<const float> weight, Optional<const int32_t> t_start, Optional<const int32_t> t_edge,
                            Optional<const int32_t> t_dst, Array<const Sum<T>> rows, Array<const uint8_t> active, Array<const T> grad,
                            Optional<T> grad_h, Array<Sum<T>> grad_map, int threads) {
    const int64_t width = grad.shape(1);
    const BlockView block{start.data(), end.data(), nullptr, nullptr, start.size(), 0, place.size()};
    const EdgeRows<Sum<T>> edges{rows.data(), place.data(), pointer(weight), rows.shape(0), rows.shape(1)};
    const Gradients<T> gradients{grad.data(), active.data(), width};
    map_gradient(gradients, block, edges, grad_map.data(), threads);
    if (!grad_h) return;
    const Transposed transposed{t_start->data(), t_edge->data(), t_dst->data(), grad_h->shape(0), start.size(), t_dst->size()};
    const std::vector<Piece> pieces = cut_transposed(transposed, width, HUB_VECTORS * LANES<T>, threads);
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        constexpr std::make_integer_sequence<int, MOST_VECTORS> lengths;
        for (int64_t p = first; p < last; ++p) {
            check_transposed(transposed, pieces[p], block.num_edges);
            for (int64_t source = pieces[p].from; source < pieces[p].to; ++source) {
                each_vectors<T, MOST_VECTORS>(
                    pieces[p],
                    [&](auto length, int64_t column) {
                        pull_gradient<T, length.value>(gradients, transposed, pointer(weight), source, column, grad_h->data());
                    },
                    lengths);
            }
        }
    });
}

template decltype(edge_messages<float>) edge_messages<float>;
template decltype(edge_messages<double>) edge_messages<double>;
template decltype(edge_messages<Half>) edge_messages<Half>;
template decltype(edge_messages<BFloat>) edge_messages<BFloat>;

template decltype(edge_messages_backward<float>) edge_messages_backward<float>;
template decltype(edge_messages_backward<double>) edge_messages_backward<double>;
template decltype(edge_messages_backward<Half>) edge_messages_backward<Half>;
template decltype(edge_messages_backward<BFloat>) edge_messages_backward<BFloat>;

}  // namespace graphmill
