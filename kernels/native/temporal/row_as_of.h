// The edges of a row that a node has as of a time, and those of them that are taken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "blocks/blocks.h"
#include "sampling/choose.h"
#include "sampling/topology.h"

namespace graphmill {

// Places of a row, one after the other, of one relation.
struct TimedRange {
    int64_t first, count, relation;
};

template <class Id>
class RowAsOf {
  public:
    RowAsOf(const Topology<Id>& topology, const double* edge_times, const uint8_t* edge_types, bool recent, double window)
        : topology_(topology), times_(edge_times), types_(edge_types), recent_(recent), window_(window) {}

    // Asks for what `find` will read.
    void prefetch(Id node) const {
        const InEdges edges = topology_.in_edges(node);
        if (!edges.degree) return;
        __builtin_prefetch(times_ + edges.begin);
        __builtin_prefetch(times_ + edges.begin + edges.degree / 2);
        __builtin_prefetch(times_ + edges.begin + edges.degree - 1);
        if (types_) __builtin_prefetch(types_ + edges.begin);
    }

    // Finds the edges that are earlier than a time, and not by more than the window: of each relation one range.
    void find(Id node, double time) {
        const InEdges edges = topology_.in_edges(node);
        const int64_t end = edges.begin + edges.degree;
        ranges_.clear();
        total_ = 0;
        for (int64_t first = edges.begin, next; first < end; first = next) {
            const int64_t relation = types_ ? types_[first] : 0;
            next = types_ ? std::upper_bound(types_ + first + 1, types_ + end, types_[first]) - types_ : end;
            const int64_t last = std::lower_bound(times_ + first, times_ + next, time) - times_;
            const int64_t begin = std::lower_bound(times_ + first, times_ + last, time - window_) - times_;
            ranges_.push_back({begin, last - begin, relation});
            total_ += last - begin;
        }
    }

    // Appends the places of the edges that are taken, ascending, and returns their number.
    int64_t take(const SampledBlock& block, int64_t fanout, Id node, std::vector<int64_t>& places) {
        const size_t before = places.size();
        if (!block.by_relation) {
            take_of(ranges_.data(), ranges_.size(), total_, fanout, block.replace, absorb(block.key, node), places);
            return static_cast<int64_t>(places.size() - before);
        }
        const uint64_t row_key = absorb(block.key, node);
        for (const TimedRange& range : ranges_) {
            if (range.relation >= block.num_relations) topology_.refuse_relation(node, range.relation, block.num_relations);
            const int64_t most = block.by_relation[range.relation];
            take_of(&range, 1, range.count, most, block.replace && most >= 0, absorb(row_key, range.relation), places);
        }
        return static_cast<int64_t>(places.size() - before);
    }

  private:
    void take_of(const TimedRange* ranges, size_t count, int64_t total, int64_t fanout, bool replace, uint64_t key,
                 std::vector<int64_t>& places) {
        const int64_t taken = num_taken(total, fanout, replace);
        if (!replace && taken == total) {
            for (size_t i = 0; i < count; ++i) {
                for (int64_t j = 0; j < ranges[i].count; ++j) places.push_back(ranges[i].first + j);
            }
        } else if (recent_) {
            take_latest(ranges, count, taken, places);
        } else if (taken > 0) {
            if (chosen_.size() < static_cast<size_t>(taken + Chooser::SPACE)) chosen_.resize(taken + Chooser::SPACE);
            chooser_(key, static_cast<uint32_t>(total), taken, replace, chosen_.data());
            int64_t passed = 0;  // places of the ranges before
            for (int64_t j = 0; j < taken; ++j) {
                while (chosen_[j] - passed >= ranges->count) passed += ranges++->count;
                places.push_back(ranges->first + (chosen_[j] - passed));
            }
        }
    }

    // The latest edges of all ranges; of equally late ones those that stand last in the row.
    void take_latest(const TimedRange* ranges, size_t count, int64_t taken, std::vector<int64_t>& places) {
        left_.assign(count, 0);
        for (size_t i = 0; i < count; ++i) left_[i] = ranges[i].count;
        for (int64_t j = 0; j < taken; ++j) {
            size_t latest = count;
            for (size_t i = count; i-- > 0;) {
                if (left_[i] && (latest == count || time_of(ranges, i) > time_of(ranges, latest))) latest = i;
            }
            --left_[latest];
        }
        for (size_t i = 0; i < count; ++i) {
            for (int64_t j = left_[i]; j < ranges[i].count; ++j) places.push_back(ranges[i].first + j);
        }
    }

    // Of the latest edge that is left of a range.
    double time_of(const TimedRange* ranges, size_t i) const { return times_[ranges[i].first + left_[i] - 1]; }

    const Topology<Id>& topology_;
    const double* times_;
    const uint8_t* types_;
    bool recent_;
    double window_;
    std::vector<TimedRange> ranges_;
    int64_t total_ = 0;
    Chooser chooser_;
    std::vector<uint32_t> chosen_;
    std::vector<int64_t> left_;  // edges of each range that are not taken
};

}  // namespace graphmill
