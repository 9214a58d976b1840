// A row whose positions are drawn in proportion to weights: looked up, chosen and read one after the other, when what each needs is near.
#pragma once

#include <algorithm>
#include <vector>

#include "sampling/block.h"
#include "sampling/choose_weighted.h"
#include "sampling/topology.h"

namespace graphmill {

template <class Id>
class WeightedRow {
  public:
    static constexpr int64_t NEAR = 64;  // edges of a row that are prefetched

    // Finds out how many are taken and asks for the table's entries that the first draws need.
    void look(const Topology<Id>& topology, const AliasTables& tables, const SampledBlock& block, int64_t fanout, Id node) {
        const InEdges edges = topology.in_edges(node);
        begin_ = edges.begin;
        degree_ = edges.degree;
        node_ = node;
        key_ = absorb(block.key, node);
        const int64_t support = tables.support ? tables.support[node] : degree_;
        if (support < 0 || support > degree_) refuse_alias(node_);
        taken_ = num_taken(support, fanout, block.replace);
        whole_ = !block.replace && taken_ == support;
        const AliasEntry* row = tables.entries + begin_;
        if (whole_) {
            for (int64_t j = 0; j < std::min(degree_, NEAR); j += LINE) __builtin_prefetch(row + j);
            return;
        }
        for (int64_t j = 0; j < std::min(taken_, NEAR); ++j) __builtin_prefetch(row + alias_draw(draw(key_, j), degree_).place);
    }

    // Chooses positions and asks for what lies there. Returns how many are taken.
    int64_t choose(const Topology<Id>& topology, const AliasTables& tables, const SampledBlock& block, WeightedChooser& chooser) {
        if (chosen_.size() < static_cast<size_t>(taken_)) chosen_.resize(taken_);
        const AliasEntry* row = tables.entries + begin_;
        const bool sound = whole_ ? WeightedChooser::all(degree_, taken_, row, chosen_.data())
                                  : taken_ == 0 || chooser(key_, degree_, taken_, block.replace, row, chosen_.data());
        if (!sound) refuse_alias(node_);
        for (int64_t j = 0; j < std::min(taken_, NEAR); ++j) __builtin_prefetch(topology.indices() + begin_ + chosen_[j]);
        return taken_;
    }

    int64_t taken() const { return taken_; }

    // Writes the ids, their places in the topology where asked, and the edges' shares of the mean.
    void read(const Topology<Id>& topology, const AliasTables& tables, WeightedChooser& chooser, Id* out, int64_t* position,
              float* share) const {
        const Id* ids = topology.indices() + begin_;
        for (int64_t j = 0; j < taken_; ++j) {
            out[j] = ids[chosen_[j]];
            if (out[j] < 0 || out[j] >= topology.num_nodes()) topology.refuse(out[j]);
            if (position) position[j] = begin_ + chosen_[j];
        }
        if (!whole_) {
            std::fill(share, share + taken_, 1.0f / static_cast<float>(taken_));
        } else if (taken_ > 0) {
            const uint64_t* mass = chooser.masses(degree_, tables.entries + begin_);
            if (!mass) refuse_alias(node_);
            const double total = static_cast<double>(degree_) * static_cast<double>(ALIAS_WHOLE);
            for (int64_t j = 0; j < taken_; ++j) share[j] = static_cast<float>(static_cast<double>(mass[chosen_[j]]) / total);
        }
    }

  private:
    static constexpr int64_t LINE = 64 / sizeof(AliasEntry);

    int64_t begin_ = 0, degree_ = 0, taken_ = 0, node_ = 0;
    uint64_t key_ = 0;
    bool whole_ = false;  // all that have weight are taken, without drawing
    std::vector<uint32_t> chosen_;
};

}  // namespace graphmill
