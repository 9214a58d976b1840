// The kernels of this room as bind.cpp sees them; the modules of kernels/hotness/ are their front doors and say what they compute.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "base/array.h"
#include "base/buffer.h"

namespace graphmill {

template <class Id>
void push(Array<const int64_t> indptr, Array<const Id> indices, Array<const uint64_t> values, Array<uint64_t> sums, int64_t low,
          int64_t num_nodes, int threads);

void pick_exponents(Array<const int64_t> indptr, Array<const double> rates, int64_t fanout, bool replace, double scale,
                    Array<const double> before, Array<double> after, Array<uint64_t> values, int threads);

void reach(Array<const uint64_t> sums, Array<const double> before, double reciprocity, double scale, Array<double> out, int threads);

template <class Id>
void push_weighted(Array<const int64_t> indptr, Array<const Id> indices, Array<const uint32_t> table,
                   const std::vector<Array<const double>>& rates, const std::vector<int64_t>& fanouts, bool replace, double scale,
                   Array<uint64_t> sums, int64_t low, int64_t num_nodes, int64_t first_node, int threads);

// For tests: the inclusion probabilities of one row.
Buffer<double> weighted_inclusions(Array<const uint32_t> row, int64_t fanout, bool replace);

template <class Id>
void count_prefixes(Array<const Id> ids, const std::vector<int64_t>& ends, Array<uint32_t> counts);

// start, end, indices and the number of sources.
using EdgeArrays = std::tuple<Array<const int32_t>, Array<const int32_t>, Array<const int32_t>, int64_t>;

template <class Id>
void count_inputs_under(Array<const Id> ids, const std::vector<EdgeArrays>& blocks, Array<uint64_t> counts);

}  // namespace graphmill
