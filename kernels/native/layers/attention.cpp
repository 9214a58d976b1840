// Softmax attention over a block's edges; see kernels/layers/attention.py.
//
// A thread takes a piece of rows, works out the factors of all its edges (edge_softmax.h), and then sums rows (spread_rows.h): the
// prefetch sees beyond the end of a row. A row with very many edges is weighed first, and its columns are shared by threads.
#include "layers/layers.h"

#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "blocks/blocks.h"
#include "layers/block_view.h"
#include "layers/edge_softmax.h"
#include "layers/spread_rows.h"
#include "layers/work_split.h"

namespace graphmill {

template <class T>
void attend(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Optional<const int32_t> dst_pos,
            Array<const T> z, Array<const T> left, Array<const T> right, Sum<T> slope, Optional<const uint8_t> kept, Sum<T> scale,
            Optional<const float> weight, Optional<const Sum<T>> edge, Array<Sum<T>> alpha, Array<T> out, int threads) {
    const BlockView block = view_of(start, end, indices, dst_pos, z.shape(0));
    const Heads<Sum<T>> heads(left.shape(1), z.shape(1));
    const Scores<T> given{{block, slope, scale, pointer(kept), pointer(weight), alpha.data(), heads.heads}, left.data(), right.data(),
                          pointer(edge)};
    const T* rows = z.data();
    T* output = out.data();
    const std::vector<Piece> pieces = cut_block(block, heads.width, HUB_VECTORS * LANES<T>, threads);
    const std::vector<Piece> hubs = hubs_of(pieces, heads.width);
    parallel_for(hubs.size(), 1, threads, [&](int64_t first, int64_t last) {
        Edges<Sum<T>> edges;
        for (int64_t p = first; p < last; ++p) {
            check_sources(block, hubs[p]);
            weigh(given, hubs[p], edges);
        }
    });
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        Edges<Sum<T>> edges;
        std::vector<Sum<T>> partial;
        for (int64_t p = first; p < last; ++p) {
            const Piece& piece = pieces[p];
            if (piece.column_end - piece.column < heads.width) {
                int64_t from = 0;
                spread_hub(rows, heads, edges, piece, partial, output + piece.from * heads.width,
                           [&] { return weighed_edges<Sum<T>>(given, piece.from, from, edges); });
                continue;
            }
            check_sources(block, piece);
            weigh(given, piece, edges);
            RowStream<T> stream(output, heads.width, block.num_dst * heads.width * sizeof(T));
            spread_rows(rows, heads, edges, piece.from, 0, piece.to - piece.from, true, output, stream);
        }
    });
}

template decltype(attend<float>) attend<float>;
template decltype(attend<double>) attend<double>;
template decltype(attend<Half>) attend<Half>;
template decltype(attend<BFloat>) attend<BFloat>;

// Which attention weights are dropped.
namespace {

constexpr int64_t PIECE = 32;
constexpr uint64_t OWN_TERM = ~0ull;  // stands where an occurrence would: the own term is no edge

// How often the same source came before in the same row.
std::vector<int32_t> occurrences(const BlockView& block) {
    std::vector<int32_t> result(block.num_edges), count(block.num_src);
    std::vector<int64_t> last(block.num_src, -1);
    for (int64_t i = 0; i < block.num_dst; ++i) {
        for (int64_t e = block.begins[i]; e < block.ends[i]; ++e) {
            const int32_t s = block.sources[e];
            if (last[s] != i) count[s] = 0;
            last[s] = i;
            result[e] = count[s]++;
        }
    }
    return result;
}

}  // namespace

template <class Id>
void edge_mask(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Optional<const int32_t> dst_pos,
               Array<const Id> src_ids, uint64_t key, uint32_t threshold, Array<uint8_t> kept, int threads) {
    const BlockView block = view_of(start, end, indices, dst_pos, src_ids.size());
    const Id* names = src_ids.data();
    uint8_t* out = kept.data();
    const int64_t heads = kept.shape(1);
    check_block(block.num_dst, block.num_src, block.begins, block.ends, block.sources, block.num_edges);
    const std::vector<int32_t> order = occurrences(block);
    parallel_for(block.num_dst, PIECE, threads, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
            const uint64_t row_key = absorb(key, static_cast<uint64_t>(names[block.own(i)]));
            each_edge(block, i, [&](int64_t e, int64_t s) {
                const uint64_t occurrence = e < block.num_edges ? static_cast<uint64_t>(order[e]) : OWN_TERM;
                const uint64_t edge_key = absorb(absorb(row_key, static_cast<uint64_t>(names[s])), occurrence);
                for (int64_t h = 0; h < heads; ++h) {
                    const uint16_t lane = static_cast<uint16_t>(draw(edge_key, h >> 2) >> (16 * (h & 3)));
                    out[e * heads + h] = lane >= threshold;
                }
            });
        }
    });
}

template decltype(edge_mask<int32_t>) edge_mask<int32_t>;
template decltype(edge_mask<int64_t>) edge_mask<int64_t>;

}  // namespace graphmill
