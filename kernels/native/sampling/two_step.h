// The unfused sampler, kept as an ablation: an edge list first, a block out of it afterwards. See kernels/sampling/two_step.py.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "sampling/block.h"

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
                          bool replace, uint64_t layer_key, bool positions, int threads);

// Step 2, after both sides have been renamed: sorts the edges by destination (a stable counting sort). Fills start, end (num_dst entries
// each), indices and position of the block.
void edges_to_block(const Buffer<int32_t>& row, const Buffer<int32_t>& column, const Buffer<int64_t>& position, SampledBlock& block);

}  // namespace graphmill
