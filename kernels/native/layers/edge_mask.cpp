// Which attention weights are dropped; see kernels/layers/attention.py.
#include "layers/layers.h"

#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "layers/block_view.h"
#include "blocks/blocks.h"

namespace graphmill {
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
