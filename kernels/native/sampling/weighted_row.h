// A row whose positions are drawn in proportion to weights: looked up, chosen and read one after the other, when what each needs is near.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "sampling/alias.h"
#include "blocks/blocks.h"
#include "sampling/choose.h"
#include "sampling/topology.h"

namespace graphmill {

// Every position of a row may be chosen.
struct AnyPosition {
    bool operator()(uint32_t) const { return true; }
};

// Which positions of a row a destination takes in proportion to weights: ascending, a pure function of the row's key and its alias table.
// Tables are mapped and read at random, so they are not checked as a whole: what does not fit its row is found before it is followed.
class WeightedChooser {
  public:
    // Draws that are made before the rest is scanned: a bound of the rejections.
    static int64_t most_draws(int64_t taken) { return 4 * taken + 16; }

    // Writes `taken` ascending positions, 1 or more; with replacement a position may stand there several times. Without, taken must be less
    // than the number of neighbours with weight. Returns whether the table fits the row, as far as it was read.
    //
    // admits: tells whether a position may be chosen; with those that it admits the weights are in proportion to each other as before.
    template <class Admits = AnyPosition>
    bool operator()(uint64_t row_key, int64_t degree, int64_t taken, bool replace, const AliasEntry* row, uint32_t* out,
                    Admits admits = {}) {
        int64_t chosen;
        if (replace) chosen = repeat(row_key, degree, taken, row, out, admits);
        else if (taken <= SCANNED) chosen = reject<false>(row_key, degree, taken, row, out, admits);
        else chosen = reject<true>(row_key, degree, taken, row, out, admits);
        if (chosen < taken && !scan(row_key, degree, taken, chosen, replace, row, out, admits)) return false;
        std::sort(out, out + taken);
        return out[taken - 1] < degree;  // the largest
    }

    // Writes all positions that have weight, ascending. Returns whether there are `taken` of them.
    static bool all(int64_t degree, int64_t taken, const AliasEntry* row, uint32_t* out) {
        int64_t found = 0;
        for (int64_t i = 0; i < degree; ++i) {
            if (row[i].threshold == 0) continue;
            if (found == taken) return false;
            out[found++] = static_cast<uint32_t>(i);
        }
        return found == taken;
    }

    // The masses of a row, valid until the next call; null if its table does not fit it.
    const uint64_t* masses(int64_t degree, const AliasEntry* row) {
        if (mass_.size() < static_cast<size_t>(degree)) mass_.resize(degree);
        return alias_masses(row, degree, mass_.data()) ? mass_.data() : nullptr;
    }

  private:
    static constexpr int64_t SCANNED = 64;  // up to so many positions a repetition is found by comparing with all
    static constexpr int64_t SPAN = 256;    // positions whose masses are added up for a scan

    // Draws of positions that may be repeated. Returns how many were found.
    template <class Admits>
    static int64_t repeat(uint64_t row_key, int64_t degree, int64_t taken, const AliasEntry* row, uint32_t* out, Admits admits) {
        int64_t chosen = 0;
        for (int64_t i = 0, most = most_draws(taken); i < most && chosen < taken; ++i) {
            out[chosen] = alias_position(alias_draw(draw(row_key, i), degree), row);
            chosen += admits(out[chosen]);
        }
        return chosen;
    }

    // Successive draws in which repeated positions are rejected. Returns how many positions were found.
    template <bool HASHED, class Admits>
    int64_t reject(uint64_t row_key, int64_t degree, int64_t taken, const AliasEntry* row, uint32_t* out, Admits admits) {
        if (HASHED) set_.clear(taken);
        int64_t chosen = 0;
        for (int64_t i = 0, most = most_draws(taken); i < most && chosen < taken; ++i) {
            const uint32_t position = alias_position(alias_draw(draw(row_key, i), degree), row);
            out[chosen] = position;
            if (!admits(position)) continue;
            chosen += HASHED ? set_.insert(position) : std::find(out, out + chosen, position) == out + chosen;
        }
        return chosen;
    }

    // Draws what is missing from the masses that are left, by adding them up: by spans, then inside of one. Returns whether there was enough.
    template <class Admits>
    bool scan(uint64_t row_key, int64_t degree, int64_t taken, int64_t chosen, bool replace, const AliasEntry* row, uint32_t* out,
              Admits admits) {
        if (!masses(degree, row)) return false;  // the aliases fit, so what was chosen by them does
        for (int64_t i = 0; i < degree; ++i) {
            if (!admits(static_cast<uint32_t>(i))) mass_[i] = 0;
        }
        for (int64_t j = 0; !replace && j < chosen; ++j) mass_[out[j]] = 0;
        span_.assign((degree + SPAN - 1) / SPAN, 0);
        uint64_t left = 0;
        for (int64_t i = 0; i < degree; ++i) span_[i / SPAN] += mass_[i];
        for (const uint64_t mass : span_) left += mass;
        for (int64_t counter = most_draws(taken); chosen < taken; ++chosen, ++counter) {
            if (left == 0) return false;
            uint64_t below = bounded(draw(row_key, counter), left);
            int64_t span = 0;
            while (below >= span_[span]) below -= span_[span++];
            int64_t position = span * SPAN;
            while (below >= mass_[position]) below -= mass_[position++];
            out[chosen] = static_cast<uint32_t>(position);
            if (replace) continue;
            span_[span] -= mass_[position];
            left -= mass_[position];
            mass_[position] = 0;
        }
        return true;
    }

    PositionSet set_;
    std::vector<uint64_t> mass_, span_;
};


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
