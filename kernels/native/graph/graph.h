// The kernels of this room as bind.cpp sees them; the modules of kernels/graph/ are their front doors and say what they compute.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/array.h"
#include "base/buffer.h"

namespace graphmill {

// indptr, indices, in-degrees, out-degrees, number of duplicates, number of self-loops.
template <class Id>
using CscArrays = std::tuple<Buffer<int64_t>, Buffer<Id>, Buffer<int32_t>, Buffer<int32_t>, int64_t, int64_t>;

template <class In, class Out>
CscArrays<Out> build_csc(Array<const In> src, Array<const In> dst, int64_t num_nodes, bool undirected, bool merge, bool drop_loops,
                         int threads);

template <class Id>
Buffer<int32_t> edge_order(Array<const int32_t> rows, Array<const Id> src, Optional<const uint8_t> types, Optional<const int64_t> ties,
                           int64_t num_rows, int threads);

// The records as bytes, the number of each range, the number of self-loops.
using Dealt = std::tuple<Buffer<uint8_t>, std::vector<int64_t>, int64_t>;

template <class Id>
Dealt deal_records(Array<const uint8_t> records, int64_t width, Array<const uint16_t> range_of, int shift, int64_t num_ranges,
                   bool reverse, bool drop_loops, int type_step);

// The sources in order, the edges of each destination, the number of duplicates.
template <class Id>
using SortedEnds = std::tuple<Buffer<Id>, Buffer<int64_t>, int64_t>;

template <class Id>
SortedEnds<Id> sort_ends(Array<const Id> ends, int64_t low, int64_t num_rows, bool merge, int threads);

template <class Id>
void rmat(uint64_t key, uint64_t scramble_key, bool scrambled, int64_t num_nodes, int scale, uint32_t top_left, uint32_t top,
          uint32_t all_but_last, int64_t first, Array<Id> src, Array<Id> dst, int threads);

template <class Id>
void sbm(uint64_t key, uint64_t scramble_key, int64_t num_nodes, int64_t classes, uint64_t threshold, int64_t first, Array<Id> src,
         Array<Id> dst, int threads);

template <class Id>
void citations(uint64_t key, uint64_t scramble_key, bool scrambled, int64_t num_nodes, int64_t classes, uint64_t inside, uint64_t copied,
               int64_t all_edges, int64_t first, Array<Id> src, Array<Id> dst, int threads);

void cyclic_labels(uint64_t scramble_key, bool scrambled, int64_t classes, Array<int32_t> out, int threads);

void block_labels(uint64_t scramble_key, bool scrambled, int64_t classes, Array<int32_t> out, int threads);

void class_features(Array<const int32_t> labels, Array<const int32_t> centroids, uint64_t key, int32_t noise, int64_t first,
                    Array<float> out, int threads);

// A column of text as numbers: one of the two is made.
struct TextColumn {
    Buffer<int64_t> whole;
    Buffer<float> real;
};

// `columns` has the field of each column and whether it is a decimal number. Returns nothing if a line is not plain.
std::optional<std::vector<TextColumn>> text_columns(const char* text, int64_t size, int separator, int comment, bool carriage,
                                                    int64_t num_fields, const std::vector<std::pair<int64_t, bool>>& columns,
                                                    int threads);

}  // namespace graphmill
