// Asking for a feature row before it is copied.
#pragma once

#include <algorithm>
#include <cstdint>

namespace graphmill {

constexpr int64_t ROWS_AHEAD = 4;  // rows between the prefetch of a row and its copy

// The first lines of a row; the hardware follows up.
inline void prefetch_row(const char* row, int64_t row_bytes) {
    constexpr int64_t PREFETCHED = 1024;
    for (int64_t byte = 0; byte < std::min(row_bytes, PREFETCHED); byte += 64) __builtin_prefetch(row + byte);
}

}  // namespace graphmill
