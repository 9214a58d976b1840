// The kernels of this room as bind.cpp sees them; the modules of kernels/sampling/ are their front doors and say what they compute.
// sampler.h has the sampler.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/array.h"
#include "base/buffer.h"
#include "sampling/transpose.h"

namespace graphmill {

// Returns (node, number of the fault) of the first row that is refused. Weights are those of edges (f32[E] or f64[E]) or of sources
// (f64[N]).
template <class Id>
std::optional<std::pair<int64_t, int>> alias_fault(Array<const int64_t> indptr, Array<const Id> indices, Table weights, bool of_nodes,
                                                   bool refuse_empty, int threads);

// Writes table u32[edges, 2] and support i32[end - begin] of rows begin to end - 1, whose weights have been tested.
template <class Id>
void alias_tables(Array<const int64_t> indptr, Array<const Id> indices, Table weights, bool of_nodes, bool uniform, int64_t begin,
                  int64_t end, Array<uint32_t> table, Array<int32_t> support, int threads);

// Returns the positions that one row takes. For tests: with vector instructions and `anywhere` without them the choice must be the same.
Buffer<uint32_t> choose(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, bool anywhere);

Transpose transpose(int64_t num_src, Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices);

void gcn_weights(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Array<const int32_t> dst_in,
                 Array<const int32_t> dst_out, Array<const int32_t> src_out, bool sampled, Array<float> weight,
                 Array<float> self_weight);

}  // namespace graphmill
