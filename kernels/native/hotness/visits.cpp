// Counts the nodes of mini-batches; see kernels/hotness/visits.py for what is counted and why additions may come in any order.
#include "hotness/hotness.h"

#include <string>

#include "base/input_error.h"
#include "blocks/blocks.h"

namespace graphmill {
namespace {

constexpr int64_t AHEAD = 24;  // nodes between the prefetch of a counter and its addition

template <class Count>
void add(Count* counter, Count amount) {
    __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
}

template <class Id>
void check_ids(const Id* ids, int64_t count, int64_t num_nodes) {
    bool sound = true;
    for (int64_t i = 0; i < count; ++i) sound &= (ids[i] >= 0) & (ids[i] < num_nodes);
    if (!sound) {
        throw InputError("a block holds ids outside 0.." + std::to_string(num_nodes - 1),
                         "count the batches of the graph that the counter was made for");
    }
}

struct BlockEdges {
    const int32_t *start, *end, *indices;
    int64_t num_dst, num_src;
};

// The distinct input rows under one destination of blocks[top]. Level by level downwards; each level holds every source once.
// A destination is its own first source: its row is needed as well.
class Under {
  public:
    explicit Under(const std::vector<BlockEdges>& blocks) : blocks_(blocks), stamps_(blocks.size()) {
        for (size_t level = 0; level < blocks.size(); ++level) stamps_[level].assign(blocks[level].num_src, 0);
    }

    uint32_t count(int64_t top, int32_t destination) {
        ++stamp_;  // fewer than 2^32 destinations in all blocks of a batch
        frontier_.assign(1, destination);
        for (int64_t level = top; level >= 0; --level) {
            const BlockEdges& block = blocks_[level];
            std::vector<uint32_t>& stamps = stamps_[level];
            below_.clear();
            const auto add_source = [&](int32_t source) {
                if (stamps[source] == stamp_) return;
                stamps[source] = stamp_;
                below_.push_back(source);
            };
            for (const int32_t node : frontier_) {
                add_source(node);
                for (int32_t e = block.start[node]; e < block.end[node]; ++e) add_source(block.indices[e]);
            }
            frontier_.swap(below_);
        }
        return static_cast<uint32_t>(frontier_.size());
    }

  private:
    const std::vector<BlockEdges>& blocks_;
    std::vector<std::vector<uint32_t>> stamps_;
    std::vector<int32_t> frontier_, below_;
    uint32_t stamp_ = 0;
};

}  // namespace

// Node ids[i] with ends[j-1] <= i < ends[j] gets one in its column j and in all after it.
template <class Id>
void count_prefixes(Array<const Id> ids, const std::vector<int64_t>& ends, Array<uint32_t> counts) {
    const Id* node_ids = ids.data();
    uint32_t* table = counts.data();
    const int64_t num_nodes = counts.shape(0), width = counts.shape(1), size = ids.size();
    check_ids(node_ids, size, num_nodes);
    int64_t i = 0;
    for (int64_t column = 0; column < width; ++column) {
        for (; i < ends[column]; ++i) {
            if (i + AHEAD < size) __builtin_prefetch(table + node_ids[i + AHEAD] * width, 1);
            for (int64_t later = column; later < width; ++later) add(table + node_ids[i] * width + later, uint32_t{1});
        }
    }
}

template <class Id>
void count_inputs_under(Array<const Id> ids, const std::vector<EdgeArrays>& blocks, Array<uint64_t> counts) {
    std::vector<BlockEdges> edges;
    std::vector<int64_t> num_indices;
    for (const auto& [start, end, indices, num_src] : blocks) {
        num_indices.push_back(indices.size());
        edges.push_back({start.data(), end.data(), indices.data(), start.size(), num_src});
    }
    const Id* node_ids = ids.data();
    uint64_t* table = counts.data();
    const int64_t num_nodes = counts.shape(1), size = ids.size();
    check_ids(node_ids, size, num_nodes);
    for (size_t b = 0; b < edges.size(); ++b) {
        check_block(edges[b].num_dst, edges[b].num_src, edges[b].start, edges[b].end, edges[b].indices, num_indices[b]);
    }
    Under under(edges);
    for (int64_t layer = 0; layer < static_cast<int64_t>(edges.size()); ++layer) {
        for (int64_t i = 0; i < edges[layer].num_dst; ++i) {
            add(table + layer * num_nodes + node_ids[i], uint64_t{under.count(layer, static_cast<int32_t>(i))});
        }
    }
}

template decltype(count_prefixes<int32_t>) count_prefixes<int32_t>;
template decltype(count_prefixes<int64_t>) count_prefixes<int64_t>;
template decltype(count_inputs_under<int32_t>) count_inputs_under<int32_t>;
template decltype(count_inputs_under<int64_t>) count_inputs_under<int64_t>;

}  // namespace graphmill
