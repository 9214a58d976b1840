// Counting sort of a block's edges by source; see kernels/blocks/transpose.py.
#include "blocks/blocks.h"

#include <string>

#include "base/input_error.h"

namespace graphmill {

Transpose build_transpose(int64_t num_dst, int64_t num_src, const int32_t* start, const int32_t* end,
                          const int32_t* indices) {
    // Counts go two places to the right: filling then leaves every start in its own place, with nothing to shift back.
    Transpose result{Buffer<int32_t>(num_src + 2), {}, {}};
    int32_t* cursor = result.start.data();
    for (int64_t s = 0; s < num_src + 2; ++s) cursor[s] = 0;
    int64_t total = 0;
    for (int64_t i = 0; i < num_dst; ++i) {
        total += end[i] - start[i];
        for (int32_t e = start[i]; e < end[i]; ++e) ++cursor[indices[e] + 2];
    }
    for (int64_t s = 2; s < num_src + 2; ++s) cursor[s] += cursor[s - 1];
    result.edge = Buffer<int32_t>(total);
    result.dst = Buffer<int32_t>(total);
    for (int64_t i = 0; i < num_dst; ++i) {
        for (int32_t e = start[i]; e < end[i]; ++e) {
            const int32_t place = cursor[indices[e] + 1]++;
            result.edge[place] = e;
            result.dst[place] = static_cast<int32_t>(i);
        }
    }
    result.start.shrink(num_src + 1);
    return result;
}

void check_block(int64_t num_dst, int64_t num_src, const int32_t* start, const int32_t* end, const int32_t* indices,
                 int64_t num_indices) {
    bool sound = true;
    for (int64_t i = 0; i < num_dst; ++i) sound &= (0 <= start[i]) & (start[i] <= end[i]) & (end[i] <= num_indices);
    if (!sound) {
        throw InputError("the block's start and end are not ranges of its indices", "build blocks with Sampler");
    }
    uint32_t largest = 0;  // a negative index becomes a huge one
    for (int64_t e = 0; e < num_indices; ++e) {
        const uint32_t index = static_cast<uint32_t>(indices[e]);
        largest = index > largest ? index : largest;
    }
    if (num_indices > 0 && largest >= static_cast<uint64_t>(num_src)) {
        throw InputError("the block has a local source id outside 0.." + std::to_string(num_src - 1),
                         "indices are local: rows of src_ids, not global node ids");
    }
}

Transpose transpose(int64_t num_src, Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices) {
    check_block(start.size(), num_src, start.data(), end.data(), indices.data(), indices.size());
    return build_transpose(start.size(), num_src, start.data(), end.data(), indices.data());
}

}  // namespace graphmill
