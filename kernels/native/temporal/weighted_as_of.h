// A choice in proportion to weights among the edges of a row that a node has as of a time. kernels/temporal/sampler.py states the rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/rng.h"
#include "sampling/alias.h"
#include "sampling/choose.h"
#include "sampling/topology.h"
#include "sampling/weighted_row.h"
#include "temporal/time_search.h"

namespace graphmill {

// What a node gets whose edges as of a time all have the weight 0.
enum class EmptyRow { Error = 0, Uniform = 1, None = 2 };

// The ranges of a row that may be taken.
struct RangesOfRow {
    const TimedRange* ranges;
    size_t count;
    int64_t total;  // edges of all of them

    bool holds(int64_t place) const {
        for (size_t i = 0; i < count; ++i) {
            if (place >= ranges[i].first && place < ranges[i].end) return true;
        }
        return false;
    }
};

class WeightedAsOf {
  public:
    WeightedAsOf(AliasTables tables, EmptyRow empty) : tables_(tables), empty_(empty) {}

    bool has_weights() const { return tables_.entries; }

    // Asks for the entries that the first draws of a row read.
    void prefetch(const InEdges& row, int64_t fanout, uint64_t row_key) const {
        const AliasEntry* entries = tables_.entries + row.begin;
        for (int64_t j = 0; j < std::min(fanout, NEAR); ++j) __builtin_prefetch(entries + alias_draw(draw(row_key, j), row.degree).place);
    }

    // Appends the places of the edges that are taken, ascending, and their shares of the mean. Returns whether the choice is made: if not,
    // each edge is equally likely.
    bool take(const InEdges& row, const RangesOfRow& seen, int64_t node, double time, int64_t fanout, bool replace, uint64_t row_key,
              std::vector<int64_t>& places, std::vector<float>& shares) {
        const int64_t support = count_weighty(row, seen, node);
        if (support == 0 && seen.total > 0) {
            if (empty_ == EmptyRow::Error) refuse_empty(node, time);
            return empty_ == EmptyRow::None;
        }
        const int64_t taken = num_taken(support, fanout, replace);
        if (taken == 0) return true;
        if (!replace && taken == support) take_all(row, seen, node, places, shares);
        else take_some(row, seen, node, taken, replace, row_key, places, shares);
        return true;
    }

  private:
    static constexpr int64_t NEAR = 16;

    // The number of edges that have weight. Only rows that have other ones are read for that.
    int64_t count_weighty(const InEdges& row, const RangesOfRow& seen, int64_t node) const {
        if (!tables_.support || tables_.support[node] == row.degree) return seen.total;
        if (tables_.support[node] < 0 || tables_.support[node] > row.degree) refuse_alias(node);
        int64_t found = 0;
        for (size_t i = 0; i < seen.count; ++i) {
            for (int64_t place = seen.ranges[i].first; place < seen.ranges[i].end; ++place) found += tables_.entries[place].threshold != 0;
        }
        return found;
    }

    void take_all(const InEdges& row, const RangesOfRow& seen, int64_t node, std::vector<int64_t>& places, std::vector<float>& shares) {
        const uint64_t* mass = chooser_.masses(row.degree, tables_.entries + row.begin);
        if (!mass) refuse_alias(node);
        const size_t before = places.size();
        uint64_t sum = 0;
        for (size_t i = 0; i < seen.count; ++i) {
            for (int64_t place = seen.ranges[i].first; place < seen.ranges[i].end; ++place) {
                if (tables_.entries[place].threshold == 0) continue;
                places.push_back(place);
                sum += mass[place - row.begin];
            }
        }
        const double total = static_cast<double>(sum);
        for (size_t j = before; j < places.size(); ++j) {
            shares.push_back(static_cast<float>(static_cast<double>(mass[places[j] - row.begin]) / total));
        }
    }

    void take_some(const InEdges& row, const RangesOfRow& seen, int64_t node, int64_t taken, bool replace, uint64_t row_key,
                   std::vector<int64_t>& places, std::vector<float>& shares) {
        if (chosen_.size() < static_cast<size_t>(taken)) chosen_.resize(taken);
        const auto admits = [&](uint32_t position) { return seen.holds(row.begin + position); };
        if (!chooser_(row_key, row.degree, taken, replace, tables_.entries + row.begin, chosen_.data(), admits)) refuse_alias(node);
        for (int64_t j = 0; j < taken; ++j) places.push_back(row.begin + chosen_[j]);
        shares.insert(shares.end(), taken, 1.0f / static_cast<float>(taken));
    }

    [[noreturn]] static void refuse_empty(int64_t node, double time) {
        throw InputError("the neighbours of node " + std::to_string(node) + " as of the time " + std::to_string(time) +
                             " all have the weight 0",
                         "set empty_rows = \"uniform\" or \"none\" in [sampling]");
    }

    AliasTables tables_;
    EmptyRow empty_;
    WeightedChooser chooser_;
    std::vector<uint32_t> chosen_;
};

}  // namespace graphmill
