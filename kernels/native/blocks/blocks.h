// Blocks: their transposes by counting sort, which the sampler shares with the front door, their edge weights, and a block in the making.
#pragma once

#include <cstdint>

#include "base/array.h"
#include "base/buffer.h"

namespace graphmill {

struct Transpose {
    Buffer<int32_t> start, edge, dst;  // [num_src + 1], [edges that are left], the same
};

// Edges of one source come out in ascending edge order. The caller has checked that all indices are in range.
Transpose build_transpose(int64_t num_dst, int64_t num_src, const int32_t* start, const int32_t* end,
                          const int32_t* indices);

// Throws InputError unless 0 <= start <= end <= num_indices and all indices are in 0 .. num_src-1.
void check_block(int64_t num_dst, int64_t num_src, const int32_t* start, const int32_t* end, const int32_t* indices,
                 int64_t num_indices);

Transpose transpose(int64_t num_src, Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices);

void gcn_weights(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Array<const int32_t> dst_in,
                 Array<const int32_t> dst_out, Array<const int32_t> src_out, bool sampled, Array<float> weight,
                 Array<float> self_weight);

// A block while the sampler makes it.
struct SampledBlock {
    int64_t num_dst = 0, num_src = 0;
    uint64_t key = 0;
    bool replace = false;
    const int64_t* by_relation = nullptr;  // number of neighbours of each relation, where they differ
    int64_t num_relations = 0;
    Buffer<int32_t> start, end, indices;
    Buffer<int64_t> position;  // of each edge in the topology
    Buffer<float> share;       // of each edge in the mean of its row, where neighbours are not drawn uniformly
    Transpose transpose;
};

}  // namespace graphmill
