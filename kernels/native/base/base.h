// The kernels of this room as bind.cpp sees them; kernels/rng.py is the front door of the first two.
#pragma once

#include <cstdint>

#include "base/array.h"

namespace graphmill {

template <class Id>
void absorb_ids(uint64_t key, Array<const Id> ids, Array<uint64_t> out, int threads);

template <class Id>
void normal_int(uint64_t key, Array<const Id> ids, Array<int32_t> out, int threads);

// The memory traffic of sampling and nothing else, for benchmarks. Returns a sum that makes sure that nothing is left out.
template <class Id>
uint64_t random_gather(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> dst_ids, Array<const int64_t> positions,
                       Array<uint64_t> map, int threads);

}  // namespace graphmill
