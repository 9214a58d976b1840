// A set of positions by hashing, for choices that are too many to be scanned.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace graphmill {

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

}  // namespace graphmill
