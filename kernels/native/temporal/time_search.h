// The first edges of runs whose times are not below a bound, for many runs together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace graphmill {

// Places of a row, one after the other, of one relation.
struct TimedRange {
    int64_t first, end, relation;
    int64_t count() const { return end - first; }
};

// Each step of a search waits for memory, so a search takes a step when the other ones have taken theirs, and all their reads are in
// flight together. The last time of a run answers most bounds. A search reads the first one, goes on where the bound would be if the times
// between were evenly spread, then in steps that double, and halves what is left from the first step beyond the bound on: three or four
// reads where times are even, at most 2 log2(edges of the run) anywhere.
class TimeSearches {
  public:
    explicit TimeSearches(const double* times) : times_(times) {}

    // Finds the first place of places[first, end), which ascend in time, that is not below the bound: into ranges[range].first, or
    // with `of_end` into its end. The answer is there after `run`.
    void add(std::vector<TimedRange>& ranges, size_t range, bool of_end, int64_t first, int64_t end, double bound) {
        const bool below = first == end || times_[end - 1] < bound;
        if (below || first == end - 1) {
            answer(ranges, range, of_end, below ? end : first);
            return;
        }
        __builtin_prefetch(times_ + first);
        searches_.push_back({first, end - 1, first, EARLIEST, bound, times_[end - 1], range, Side::Unknown, of_end});
    }

    // Ends all searches.
    void run(std::vector<TimedRange>& ranges) {
        while (!searches_.empty()) {
            for (size_t i = 0; i < searches_.size();) {
                Search& search = searches_[i];
                if (advance(search)) {
                    __builtin_prefetch(times_ + search.probe);
                    ++i;
                    continue;
                }
                answer(ranges, search.range, search.of_end, search.low);
                search = searches_.back();
                searches_.pop_back();
            }
        }
    }

  private:
    enum class Side : int8_t { Unknown, Above, Below };
    static constexpr int64_t LINE = 8, HALVED = 0, EARLIEST = -1;  // LINE: times of a cache line

    struct Search {
        int64_t low, high, probe;  // the answer is in low .. high
        int64_t step;              // EARLIEST: the first time is read; HALVED: what is left is halved
        double bound, latest;
        size_t range;
        Side side;  // of the probes since the first time, on which the answer lies
        bool of_end;
    };

    static void answer(std::vector<TimedRange>& ranges, size_t range, bool of_end, int64_t place) {
        (of_end ? ranges[range].end : ranges[range].first) = place;
    }

    // Reads the probe; returns whether the answer is still open.
    bool advance(Search& search) const {
        const double time = times_[search.probe];
        const bool above = time < search.bound;
        if (above) search.low = search.probe + 1;
        else search.high = search.probe;
        if (search.low == search.high) return false;
        if (search.step == EARLIEST) {
            const double share = (search.bound - time) / (search.latest - time);  // of times that are far apart it may be NaN
            const double guess = share >= 0 && share <= 1 ? share : 0.5;
            search.probe = search.low + static_cast<int64_t>(guess * static_cast<double>(search.high - search.low - 1));
            search.step = LINE;
            return true;
        }
        const Side side = above ? Side::Above : Side::Below;
        if (search.side != Side::Unknown && search.side != side) search.step = HALVED;
        search.side = side;
        if (search.step == HALVED) {
            search.probe = search.low + (search.high - search.low) / 2;
            return true;
        }
        const int64_t reach = std::min(search.step, search.high - search.low) - 1;
        search.probe = above ? search.low + reach : search.high - 1 - reach;
        search.step *= 2;
        return true;
    }

    const double* times_;
    std::vector<Search> searches_;
};

}  // namespace graphmill
