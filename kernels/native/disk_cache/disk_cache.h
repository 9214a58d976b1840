// The kernels of this room as bind.cpp sees them; the modules of kernels/disk_cache/ and kernels/rows/pages.py are their front doors and
// say what they compute.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>

#include "base/array.h"
#include "base/buffer.h"

namespace graphmill {

// Adds to pages[b] and ranges[b] what batch b touches.
template <class Id>
void touched_pages(Array<const int64_t> ptr, Array<const Id> rows, int64_t num_rows, int64_t row_bytes, Array<int64_t> pages,
                   Array<int64_t> ranges, int threads);

// (cache_ids, packed_ptr, packed_ids, member_ptr, members)
template <class Id>
using SplitSegment = std::tuple<Buffer<Id>, Buffer<int64_t>, Buffer<Id>, Buffer<int64_t>, Buffer<int32_t>>;

// state: 0 on disk, -1 elsewhere; it is left as it was. The cache has no bound if `most_cached` is negative.
template <class Id>
SplitSegment<Id> split_segment(Array<const int64_t> ptr, Array<const Id> node_ids, Array<int32_t> state, int64_t most_cached,
                               int threads);

// last: the batch that used a node last, -1 none yet, -2 not on disk. gaps[b - first_batch][g] counts the nodes of batch b whose last use
// was g batches before, far[unit of b][units before] the same in units of `unit_batches` batches; longer gaps are dropped.
// uses[b - first_batch] counts first uses and all uses.
template <class Id>
void count_gaps(int64_t first_batch, Array<const int64_t> ptr, Array<const Id> node_ids, Array<int32_t> last, Array<int32_t> gaps,
                int64_t unit_batches, Array<int32_t> far, Array<int64_t> uses, int threads);

template <class Id>
Buffer<Id> gray_order(Array<const int64_t> ptr, Array<const Id> ids, int64_t row_bytes, int64_t page_bytes, int64_t window,
                      int64_t piece, int threads);

// permutations: [num_hashes][num_batches]; a node's signature is the least value of its batches in each.
template <class Id>
Buffer<Id> minhash_order(Array<const int64_t> ptr, Array<const Id> ids, Array<const int32_t> permutations);

// (rows of the file, place of each use)
std::pair<Buffer<int32_t>, Buffer<int32_t>> place_copies(Array<const int64_t> ptr, Array<const int32_t> members, int64_t num_rows,
                                                         int64_t row_bytes, int64_t page_bytes, int64_t least_bytes, int64_t least_range,
                                                         int64_t window, int threads);

// Lists low .. high - 1. Returns whether one of them wants more of this range than its buffer has space for.
template <class Id>
bool pack_range(Array<const uint8_t> rows, int64_t first_row, Array<const int64_t> ptr, Array<const Id> ids, Array<int64_t> done,
                Array<uint8_t> memory, Array<const int64_t> starts, Array<int64_t> used, int64_t low, int64_t high);

}  // namespace graphmill
