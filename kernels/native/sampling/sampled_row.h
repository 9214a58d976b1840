// A row of the topology whose positions are chosen first and read a little later, when they have come near.
#pragma once

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "blocks/blocks.h"
#include "sampling/choose.h"
#include "sampling/topology.h"

namespace graphmill {

template <class Id>
class SampledRow {
  public:
    static constexpr int64_t NEAR = 64;  // entries of a row that are prefetched; what a row taken whole has beyond is a stream
    static constexpr int64_t LAG = 8;    // rows between two steps: their reads are in flight together

    // Chooses positions in the row of a node and asks for what lies there. Returns how many are taken.
    int64_t choose(const Topology<Id>& topology, const SampledBlock& block, int64_t fanout, Id node, Chooser& chooser) {
        const InEdges edges = topology.in_edges(node);
        const Id* row = topology.indices() + edges.begin;
        begin_ = edges.begin;
        if (block.by_relation) return choose_runs(topology, block, edges, node, chooser);
        taken_ = num_taken(edges.degree, fanout, block.replace);
        whole_ = !block.replace && taken_ == edges.degree;
        if (whole_) {
            for (int64_t j = 0; j < std::min(taken_, NEAR); j += LINE) __builtin_prefetch(row + j);
            if (taken_ > 0) __builtin_prefetch(row + std::min(taken_, NEAR) - 1);
            return taken_;
        }
        if (chosen_.size() < static_cast<size_t>(taken_ + Chooser::SPACE)) chosen_.resize(taken_ + Chooser::SPACE);
        uint32_t* chosen = chosen_.data();
        chooser(absorb(block.key, node), static_cast<uint32_t>(edges.degree), taken_, block.replace, chosen);
        for (int64_t j = 0; j < taken_; ++j) __builtin_prefetch(row + chosen[j]);
        return taken_;
    }

    int64_t taken() const { return taken_; }

    // Writes the ids to out[taken] and, where there is one, their places in the topology to position[taken].
    void read(const Topology<Id>& topology, Id* out, int64_t* position) const {
        const Id* ids = topology.indices() + begin_;
        const uint32_t* chosen = chosen_.data();
        Id largest = 0, smallest = 0;
        for (int64_t j = 0; j < taken_; ++j) {
            const Id node = ids[whole_ ? j : chosen[j]];
            out[j] = node;
            largest = std::max(largest, node);
            smallest = std::min(smallest, node);
        }
        if (smallest < 0 || largest >= topology.num_nodes()) topology.refuse(smallest < 0 ? smallest : largest);
        for (int64_t j = 0; position && j < taken_; ++j) position[j] = begin_ + (whole_ ? j : chosen[j]);
    }

  private:
    // Chooses in each run of one relation as in a row of its own, whose key has the relation after the node.
    int64_t choose_runs(const Topology<Id>& topology, const SampledBlock& block, const InEdges& edges, Id node, Chooser& chooser) {
        const uint64_t row_key = absorb(block.key, node);
        const Id* row = topology.indices() + begin_;
        taken_ = 0;
        whole_ = false;
        topology.each_run(edges, block, node, [&](int64_t first, int64_t count, int64_t relation, int64_t fanout) {
            const bool replace = block.replace && fanout >= 0;
            const int64_t taken = num_taken(count, fanout, replace);
            const size_t space = static_cast<size_t>(taken_ + taken + Chooser::SPACE);
            if (chosen_.size() < space) chosen_.resize(std::max(space, 2 * chosen_.size()));
            uint32_t* chosen = chosen_.data() + taken_;
            if (!replace && taken == count) {
                for (int64_t j = 0; j < taken; ++j) chosen[j] = static_cast<uint32_t>(first + j);
            } else if (taken > 0) {
                chooser(absorb(row_key, relation), static_cast<uint32_t>(count), taken, replace, chosen);
                for (int64_t j = 0; j < taken; ++j) chosen[j] += static_cast<uint32_t>(first);
            }
            taken_ += taken;
        });
        for (int64_t j = 0; j < std::min(taken_, NEAR); ++j) __builtin_prefetch(row + chosen_[j]);
        return taken_;
    }

    static constexpr int64_t LINE = 64 / sizeof(Id);

    int64_t begin_ = 0, taken_ = 0;
    bool whole_ = false;  // taken as it is, without choosing
    std::vector<uint32_t> chosen_;
};

// Picks rows begin to end - 1. Three steps per row, each LAG rows behind the one before, so that what it reads is on its way: choose
// positions, read(i, row) the ids there, name(i) them. Misses of one row overlap the arithmetic of others. Rows start at the first edge of
// this call, of which there are as many as it returns.
template <class Id, class Read, class Name>
int64_t pick_rows(const Topology<Id>& topology, SampledBlock& block, int64_t fanout, const Id* nodes, int64_t begin, int64_t end, Read read,
                  Name name) {
    constexpr int64_t LAG = SampledRow<Id>::LAG;
    SampledRow<Id> rows[LAG];
    Chooser chooser;
    int64_t num_edges = 0;
    for (int64_t i = begin; i < end + 2 * LAG; ++i) {
        const int64_t near = i - LAG, named = near - LAG;
        if (named >= begin && named < end) name(named);
        if (near >= begin && near < end) read(near, rows[near % LAG]);
        if (i + LAG < end) topology.prefetch(nodes[i + LAG]);
        if (block.by_relation && i + LAG / 2 < end) topology.prefetch_relations(nodes[i + LAG / 2]);
        if (i >= end) continue;
        block.start[i] = static_cast<int32_t>(num_edges);
        num_edges += rows[i % LAG].choose(topology, block, fanout, nodes[i], chooser);
        block.end[i] = static_cast<int32_t>(num_edges);
    }
    return num_edges;
}

}  // namespace graphmill
