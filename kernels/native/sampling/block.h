// A block while the sampler makes it.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "sampling/transpose.h"

namespace graphmill {

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
