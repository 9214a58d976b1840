// The unfused sampler, kept as an ablation: an edge list first, a block out of it afterwards (`TwoStepSampler`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/buffer.h"
#include "base/input_error.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "blocks/blocks.h"
#include "sampling/choose.h"

namespace graphmill {

// Sampled edges in coordinate form, global ids on both sides.
template <class Id>
struct EdgeList {
    Buffer<Id> src, dst;
    Buffer<int64_t> position;  // of each edge in the topology, where asked
};

// Step 1: the edges under the `num_dst` destinations, row after row.
template <class Id>
EdgeList<Id> sample_edges(const int64_t* indptr, const Id* indices, const Id* dst_ids, int64_t num_dst, int64_t fanout,
                          bool replace, uint64_t layer_key, bool positions, int threads) {
    Buffer<int64_t> first(num_dst + 1);
    first[0] = 0;
    for (int64_t i = 0; i < num_dst; ++i) {
        if (i + 24 < num_dst) __builtin_prefetch(indptr + dst_ids[i + 24]);
        first[i + 1] = first[i] + num_taken(indptr[dst_ids[i] + 1] - indptr[dst_ids[i]], fanout, replace);
        if (first[i + 1] > std::numeric_limits<int32_t>::max()) {
            throw InputError("a block would have more than 2147483647 edges", "use a smaller batch size or smaller fanouts");
        }
    }
    EdgeList<Id> edges{Buffer<Id>(first[num_dst]), Buffer<Id>(first[num_dst]), {}};
    if (positions) edges.position = Buffer<int64_t>(first[num_dst]);
    constexpr int64_t TILE = 16;  // rows whose reads are in flight together
    parallel_for(num_dst, 4 * TILE, threads, [&](int64_t begin, int64_t end) {
        std::vector<uint32_t> chosen;
        Chooser choose;
        for (int64_t tile = begin; tile < end; tile += TILE) {
            const int64_t tile_end = std::min(end, tile + TILE);
            chosen.resize(std::max<size_t>(chosen.size(), first[tile_end] - first[tile] + Chooser::SPACE));
            for (int64_t i = tile; i < tile_end; ++i) {
                const int64_t row = indptr[dst_ids[i]], degree = indptr[dst_ids[i] + 1] - row;
                const int64_t taken = first[i + 1] - first[i];
                uint32_t* place = chosen.data() + (first[i] - first[tile]);
                if (!replace && taken == degree) {
                    for (int64_t j = 0; j < taken; ++j) place[j] = static_cast<uint32_t>(j);
                } else {
                    choose(absorb(layer_key, dst_ids[i]), static_cast<uint32_t>(degree), taken, replace, place);
                }
                for (int64_t j = 0; j < taken; ++j) __builtin_prefetch(indices + row + place[j]);
            }
            for (int64_t i = tile; i < tile_end; ++i) {
                for (int64_t e = first[i]; e < first[i + 1]; ++e) {
                    const int64_t position = indptr[dst_ids[i]] + chosen[e - first[tile]];
                    edges.src[e] = indices[position];
                    edges.dst[e] = dst_ids[i];
                    if (positions) edges.position[e] = position;
                }
            }
        }
    });
    return edges;
}

// Step 2, after both sides have been renamed: sorts the edges by destination (a stable counting sort). Fills start, end (num_dst entries
// each), indices and position of the block.
inline void edges_to_block(const Buffer<int32_t>& row, const Buffer<int32_t>& column, const Buffer<int64_t>& position,
                           SampledBlock& block) {
    const int64_t num_edges = row.size();
    block.start = Buffer<int32_t>(block.num_dst);
    block.end = Buffer<int32_t>(block.num_dst);
    block.indices = Buffer<int32_t>(num_edges);
    if (position.data()) block.position = Buffer<int64_t>(num_edges);
    for (int64_t i = 0; i < block.num_dst; ++i) block.end[i] = 0;
    for (int64_t e = 0; e < num_edges; ++e) ++block.end[row[e]];
    int32_t total = 0;
    for (int64_t i = 0; i < block.num_dst; ++i) {
        block.start[i] = total;
        total += block.end[i];
        block.end[i] = block.start[i];
    }
    for (int64_t e = 0; e < num_edges; ++e) {
        const int32_t place = block.end[row[e]]++;
        block.indices[place] = column[e];
        if (position.data()) block.position[place] = position[e];
    }
}

}  // namespace graphmill
