// The edges of rows that their nodes have as of times, and those of them that are taken.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "blocks/blocks.h"
#include "sampling/choose.h"
#include "sampling/topology.h"
#include "temporal/time_search.h"
#include "temporal/weighted_as_of.h"

namespace graphmill {

// The rows of a few nodes at a time.
template <class Id>
class RowsAsOf {
  public:
    RowsAsOf(const Topology<Id>& topology, const double* edge_times, const uint8_t* edge_types, bool recent, double window,
             AliasTables tables, EmptyRow empty)
        : topology_(topology), times_(edge_times), types_(edge_types), recent_(recent), bounded_(std::isfinite(window)), window_(window),
          weighted_(tables, empty), searches_(edge_times) {}

    bool has_weights() const { return weighted_.has_weights(); }

    // Asks for what `find` will read first.
    void prefetch(Id node) const {
        const InEdges edges = topology_.in_edges(node);
        if (!edges.degree) return;
        __builtin_prefetch(times_ + edges.begin + edges.degree - 1);
        if (bounded_) __builtin_prefetch(times_ + edges.begin);
        if (types_) __builtin_prefetch(types_ + edges.begin);
    }

    // Finds the edges of rows that are earlier than time_of(i), and not by more than the window: of each relation one range.
    template <class TimeOf>
    void find(const SampledBlock& block, int64_t fanout, const Id* nodes, int64_t begin, int64_t end, TimeOf time_of) {
        ranges_.clear();
        row_ends_.clear();
        for (int64_t i = begin; i < end; ++i) {
            const InEdges edges = topology_.in_edges(nodes[i]);
            cut(edges);
            row_ends_.push_back(ranges_.size());
            if (has_weights()) weighted_.prefetch(edges, fanout, absorb(block.key, nodes[i]));
        }
        for (int64_t i = begin; i < end; ++i) {
            for (size_t range = first_range(i - begin); range < row_ends_[i - begin]; ++range) {
                const double time = time_of(i);
                const int64_t first = ranges_[range].first, last = ranges_[range].end;
                searches_.add(ranges_, range, true, first, last, time);
                if (bounded_) searches_.add(ranges_, range, false, first, last, time - window_);
            }
        }
        searches_.run(ranges_);
    }

    // Appends the places of the edges that are taken of the number-th row that was found, ascending, and with weights their shares.
    // Returns their number.
    int64_t take(const SampledBlock& block, int64_t fanout, int64_t number, Id node, double time, std::vector<int64_t>& places,
                 std::vector<float>& shares) {
        const size_t before = places.size(), first = first_range(number);
        const TimedRange* ranges = ranges_.data() + first;
        const size_t count = row_ends_[number] - first;
        const uint64_t row_key = absorb(block.key, node);
        if (block.by_relation) {
            for (size_t i = 0; i < count; ++i) take_run(block, node, ranges[i], row_key, places);
            return static_cast<int64_t>(places.size() - before);
        }
        int64_t total = 0;
        for (size_t i = 0; i < count; ++i) total += ranges[i].count();
        if (has_weights() && weighted_.take(topology_.in_edges(node), {ranges, count, total}, node, time, fanout, block.replace, row_key,
                                            places, shares)) {
            return static_cast<int64_t>(places.size() - before);
        }
        take_of(ranges, count, total, fanout, block.replace, row_key, places);
        const int64_t taken = static_cast<int64_t>(places.size() - before);
        if (has_weights()) shares.insert(shares.end(), taken, 1.0f / static_cast<float>(taken));
        return taken;
    }

  private:
    size_t first_range(int64_t number) const { return number ? row_ends_[number - 1] : 0; }

    // The runs of single relations in a row.
    void cut(const InEdges& edges) {
        const int64_t end = edges.begin + edges.degree;
        for (int64_t first = edges.begin, next; first < end; first = next) {
            next = types_ ? std::upper_bound(types_ + first + 1, types_ + end, types_[first]) - types_ : end;
            if (types_) __builtin_prefetch(times_ + next - 1);
            ranges_.push_back({first, next, types_ ? types_[first] : 0});
        }
    }

    // Chooses in the run of one relation as in a row of its own, whose key has the relation after the node.
    void take_run(const SampledBlock& block, Id node, const TimedRange& range, uint64_t row_key, std::vector<int64_t>& places) {
        if (range.relation >= block.num_relations) topology_.refuse_relation(node, range.relation, block.num_relations);
        const int64_t most = block.by_relation[range.relation];
        take_of(&range, 1, range.count(), most, block.replace && most >= 0, absorb(row_key, range.relation), places);
    }

    void take_of(const TimedRange* ranges, size_t count, int64_t total, int64_t fanout, bool replace, uint64_t key,
                 std::vector<int64_t>& places) {
        const int64_t taken = num_taken(total, fanout, replace);
        if (taken == 0) return;
        const size_t before = places.size();
        places.resize(before + taken);
        int64_t* out = places.data() + before;
        if (!replace && taken == total) {
            for (size_t i = 0; i < count; ++i) {
                for (int64_t place = ranges[i].first; place < ranges[i].end; ++place) *out++ = place;
            }
        } else if (recent_) {
            take_latest(ranges, count, taken, out);
        } else {
            if (chosen_.size() < static_cast<size_t>(taken + Chooser::SPACE)) chosen_.resize(taken + Chooser::SPACE);
            chooser_(key, static_cast<uint32_t>(total), taken, replace, chosen_.data());
            int64_t passed = 0;  // places of the ranges before
            for (int64_t j = 0; j < taken; ++j) {
                while (chosen_[j] - passed >= ranges->count()) passed += ranges++->count();
                out[j] = ranges->first + (chosen_[j] - passed);
            }
        }
    }

    // The latest edges of all ranges; of equally late ones those that stand last in the row.
    void take_latest(const TimedRange* ranges, size_t count, int64_t taken, int64_t* out) {
        left_.assign(count, 0);
        for (size_t i = 0; i < count; ++i) left_[i] = ranges[i].count();
        for (int64_t j = 0; j < taken; ++j) {
            size_t latest = count;
            for (size_t i = count; i-- > 0;) {
                if (left_[i] && (latest == count || time_of(ranges, i) > time_of(ranges, latest))) latest = i;
            }
            --left_[latest];
        }
        for (size_t i = 0; i < count; ++i) {
            for (int64_t place = ranges[i].first + left_[i]; place < ranges[i].end; ++place) *out++ = place;
        }
    }

    // Of the latest edge that is left of a range.
    double time_of(const TimedRange* ranges, size_t i) const { return times_[ranges[i].first + left_[i] - 1]; }

    const Topology<Id>& topology_;
    const double* times_;
    const uint8_t* types_;
    bool recent_, bounded_;
    double window_;
    WeightedAsOf weighted_;
    TimeSearches searches_;
    std::vector<TimedRange> ranges_;
    std::vector<size_t> row_ends_;  // number of ranges up to each row
    Chooser chooser_;
    std::vector<uint32_t> chosen_;
    std::vector<int64_t> left_;  // edges of each range that are not taken
};

}  // namespace graphmill
