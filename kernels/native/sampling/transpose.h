// The transpose of a block by counting sort, shared by the sampler and the front door.
#pragma once

#include <cstdint>

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

}  // namespace graphmill
