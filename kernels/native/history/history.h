// The kernels of this room as bind.cpp sees them; the modules of kernels/history/ are their front doors and say what they compute.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "base/array.h"
#include "base/buffer.h"

namespace graphmill {

// Entries that entered and their slots, rows that entered each layer and that left it, and how many entries had to stay outside.
using Admitted = std::tuple<Buffer<int32_t>, Buffer<int32_t>, Buffer<int64_t>, Buffer<int64_t>, int64_t>;

Admitted admit(Array<int32_t> slot_of, Array<int64_t> owner, Array<int64_t> born, Array<const int64_t> where,
               Array<const int64_t> layer_ptr, Array<const float> norms, Array<const float> saved, Array<const bool> computed,
               const std::vector<int64_t>& keep, float least, int64_t head, Optional<const int32_t> free, int64_t now, bool repeated,
               int threads);

template <class Id>
void look_up(Array<const int32_t> slot_of, int64_t first, int64_t num_nodes, Array<const int64_t> born, Array<const Id> ids, int64_t now,
             int64_t t_stale, Array<int32_t> out, int threads);

constexpr int BY_EDGE = 4;  // weight, edge_type, edge_id, share

// A block of a mini-batch. What its sources, destinations and edges carry is a list of numbers of any type.
struct BlockArrays {
    int64_t num_dst = 0, num_src = 0;
    Array<const int32_t> start, end, indices;
    Optional<const int32_t> dst_pos;
    Table src_ids;
    std::optional<Table> self_weight;
    std::array<std::optional<Table>, BY_EDGE> by_edge;
};

// What is left of a block. Buffers of bytes have the types of the block's lists; one that was never made stands for no array.
struct PrunedArrays {
    Buffer<int32_t> start, end, indices, dst_pos;
    Buffer<char> src_ids, self_weight;
    std::array<Buffer<char>, BY_EDGE> by_edge;
    Buffer<int32_t> computed, hist_pos, hist_slot;
};

// The blocks that are left, and the places of the inputs that are left. `slots` are those of the sources of all blocks but the first.
std::pair<std::vector<PrunedArrays>, Buffer<int32_t>> prune(const std::vector<BlockArrays>& blocks,
                                                            const std::vector<Array<const int32_t>>& slots, int threads);

void remove_in_edges(Array<const int32_t> start, Array<int32_t> end, Array<const int32_t> rows);

// Both return the number of edges that are left, at the beginning of their arrays.
int64_t remove_from_csr(Array<int32_t> indptr, Array<int32_t> indices, Array<const int32_t> rows);
int64_t remove_from_coo(Array<int32_t> dst, Array<int32_t> src, Array<const int32_t> rows);

template <class T>
void row_norms(Array<const T> rows, Array<float> out, int threads);

}  // namespace graphmill
