// Which positions of a row a destination takes: uniform, ascending, a pure function of the row's key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace graphmill {

// Number of edges that are taken from a row; a fanout of -1 takes all.
inline int64_t num_taken(int64_t degree, int64_t fanout, bool replace) {
    if (fanout < 0 || degree == 0) return degree;
    return replace ? fanout : std::min(degree, fanout);
}

// A set of positions by hashing, for choices that are too many to be scanned.
class PositionSet {
  public:
    // Empties the set and makes space for `count` positions.
    void clear(int64_t count) {
        size_t size = 1;
        while (size < static_cast<size_t>(2 * count)) size *= 2;
        table_.assign(size, EMPTY);
    }

    // Returns whether the position is new.
    bool insert(uint32_t value) {
        const size_t mask = table_.size() - 1;
        size_t place = mix(value) & mask;
        while (table_[place] != EMPTY) {
            if (table_[place] == value) return false;
            place = (place + 1) & mask;
        }
        table_[place] = value;
        return true;
    }

  private:
    static constexpr uint32_t EMPTY = 0xFFFFFFFFu;  // no position: degrees are below 2^31
    std::vector<uint32_t> table_;
};

class Chooser {
  public:
    static constexpr int64_t SPACE = 32;  // entries behind the chosen ones that may be overwritten

    // Writes `taken` ascending positions in 0 .. degree-1. Without replacement taken must not exceed degree.
    void operator()(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, uint32_t* out);

    // The same without vector instructions of one processor, and for any number.
    void anywhere(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, uint32_t* out);

  private:
    void floyd_hashed(uint64_t row_key, uint32_t degree, int64_t taken, uint32_t* out);

    PositionSet set_;
};

}  // namespace graphmill
