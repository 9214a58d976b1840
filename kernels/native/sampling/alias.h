// Alias tables of integers: a weighted choice in one draw and one read. kernels/sampling/alias.py states the rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace graphmill {

constexpr uint64_t ALIAS_WHOLE = uint64_t{1} << 32;  // the mass of one place of a row

struct AliasEntry {
    uint32_t threshold;  // of the place itself, of ALIAS_WHOLE; 0 only where its neighbour has no weight
    uint32_t alias;      // position that has the rest
};

// The place that 64 random bits fall on, and where in it.
struct AliasDraw {
    uint32_t place, rest;
};

inline AliasDraw alias_draw(uint64_t bits, uint64_t degree) {
    const unsigned __int128 product = static_cast<unsigned __int128>(bits) * degree;
    return {static_cast<uint32_t>(product >> 64), static_cast<uint32_t>(static_cast<uint64_t>(product) >> 32)};
}

inline uint32_t alias_position(AliasDraw draw, const AliasEntry* row) {
    const AliasEntry entry = row[draw.place];
    return draw.rest < entry.threshold ? draw.place : entry.alias;
}

// Writes the mass of every position of a row, whose sum is degree * ALIAS_WHOLE. The row has a neighbour with weight.
inline void alias_masses(const AliasEntry* row, int64_t degree, uint64_t* mass) {
    std::fill(mass, mass + degree, 0);
    for (int64_t i = 0; i < degree; ++i) {
        mass[i] += row[i].threshold;
        mass[row[i].alias] += ALIAS_WHOLE - row[i].threshold;
    }
}

}  // namespace graphmill
