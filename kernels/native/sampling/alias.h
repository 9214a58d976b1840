// Alias tables of integers: a weighted choice in one draw and one read. kernels/sampling/alias.py states the rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/input_error.h"
#include "base/rng.h"

namespace graphmill {

constexpr uint64_t ALIAS_WHOLE = uint64_t{1} << 32;  // the mass of one place of a row

struct AliasEntry {
    uint32_t threshold;  // of the place itself, of ALIAS_WHOLE; 0 only where its neighbour has no weight
    uint32_t alias;      // position that has the rest
};

// The alias tables of a topology. Where `support` is null, every neighbour has weight.
struct AliasTables {
    const AliasEntry* entries = nullptr;
    const int32_t* support = nullptr;
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

// Writes the mass of every position of a row, whose sum is degree * ALIAS_WHOLE. The row has a neighbour with weight. Returns false, and
// no masses, if an alias is no position of the row.
inline bool alias_masses(const AliasEntry* row, int64_t degree, uint64_t* mass) {
    int64_t largest = 0;
    for (int64_t i = 0; i < degree; ++i) {
        mass[i] = row[i].threshold;
        largest = std::max<int64_t>(largest, row[i].alias);
    }
    if (largest >= degree) return degree == 0;
    for (int64_t i = 0; i < degree; ++i) mass[row[i].alias] += ALIAS_WHOLE - row[i].threshold;
    return true;
}

[[noreturn]] inline void refuse_alias(int64_t node) {
    throw InputError("the alias table of node " + std::to_string(node) + " does not fit its row",
                     "run graphmill verify on the sampling tables, then build them again");
}

}  // namespace graphmill
